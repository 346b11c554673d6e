"""When recent deletes are verified again."""

from __future__ import annotations

import pytest

from consumers.store_watch import AGAIN_S, StoreWatch
from pipeline.errors import BusUnavailable, StoreUnavailable
from pipeline.observe import Metrics


class Scene:
    """A store, a member of the control group, and what verifying gives."""

    def __init__(self) -> None:
        self.up: bool | None = True  # None: no answer
        self.wanted = True
        self.results: list[tuple[int, int, int] | Exception] = []
        self.verified = 0
        self.watch = StoreWatch(self._healthy, lambda: self.wanted, lambda stop: self._verify(), Metrics())

    def _healthy(self) -> bool:
        if self.up is None:
            raise StoreUnavailable("away")
        return self.up

    def _verify(self) -> tuple[int, int, int]:
        self.verified += 1
        result = self.results.pop(0) if self.results else (5, 0, 0)
        if isinstance(result, Exception):
            raise result
        return result

    def pass_time(self, seconds: float) -> int:
        """Looks that many seconds long; how often it was verified meanwhile."""
        before = self.verified
        for _ in range(int(seconds / 0.5)):
            self.watch.step(0.5)
        return self.verified - before


@pytest.mark.requirement("A8", "F19")
@pytest.mark.parametrize("away", [None, False])
def test_deletes_are_verified_once_at_the_start_and_once_after_every_return(away: bool | None) -> None:
    scene = Scene()
    assert scene.pass_time(60) == 1
    scene.up = away
    assert scene.pass_time(5) == 0
    scene.up = True
    assert scene.pass_time(60) == 1
    scene.up = away
    scene.pass_time(0.5)
    scene.up = True
    assert scene.pass_time(60) == 1


@pytest.mark.requirement("F19", "I8")
def test_what_could_not_be_mended_is_verified_again() -> None:
    scene = Scene()
    scene.results = [StoreUnavailable("gone again"), BusUnavailable("no broker"), (9, 3, 2), (9, 2, 0)]
    assert scene.pass_time(4 * AGAIN_S) == 4
    assert scene.pass_time(60) == 0


@pytest.mark.requirement("F19", "I1")
def test_only_the_member_that_decides_acts_and_a_new_one_does_it_for_itself() -> None:
    first, second = Scene(), Scene()
    second.wanted = False
    assert (first.pass_time(20), second.pass_time(20)) == (1, 0)
    second.wanted = True
    assert second.pass_time(20) == 1


@pytest.mark.requirement("F19")
def test_its_thread_ends() -> None:
    scene = Scene()
    scene.watch.start()
    scene.watch.stop()
    assert not scene.watch._thread.is_alive()
