"""A consumer looks at its generation's record: retired ends it in order, another encoder at once."""

from __future__ import annotations

import signal
from collections.abc import Iterator

import pytest

from consumers.process import Stopping
from consumers.watch import GenerationWatch
from pipeline.errors import Crash, StoreUnavailable
from schemas.generation import BackendChoice, Generation

MINE = Generation(name="g", state="building", backend=BackendChoice(name="stub", agreement=1), created_at=1)


@pytest.fixture
def stopping() -> Iterator[Stopping]:
    before = {n: signal.getsignal(n) for n in (signal.SIGTERM, signal.SIGINT)}
    yield Stopping()
    for number, handler in before.items():
        signal.signal(number, handler)


def looked(stopping: Stopping, found: Generation | Exception | None) -> tuple[bool, list[BaseException]]:
    """What one look says, with what it failed with."""
    failed: list[BaseException] = []

    def read() -> dict[str, Generation]:
        if isinstance(found, Exception):
            raise found
        return {"g": found} if found is not None else {}

    return GenerationWatch(MINE, read, stopping, failed.append).look(), failed


@pytest.mark.requirement("A10")
def test_a_retired_generation_asks_its_consumer_to_leave(stopping: Stopping) -> None:
    called: list[bool] = []
    stopping.on_stop(lambda: called.append(True))
    assert looked(stopping, MINE.model_copy(update={"state": "retired", "version": 2})) == (True, [])
    assert stopping.event.wait(1)


@pytest.mark.requirement("F18", "I7")
def test_a_record_with_another_encoder_stops_the_consumer_without_committing(stopping: Stopping) -> None:
    other = MINE.encoder.model_copy(update={"revision": "other"})
    ended, failed = looked(stopping, MINE.model_copy(update={"encoder": other}))
    assert ended and isinstance(failed[0], Crash) and not stopping.event.is_set()


@pytest.mark.requirement("I8")
@pytest.mark.parametrize(
    "found", [None, StoreUnavailable("away"), MINE.model_copy(update={"state": "standby", "version": 7})]
)
def test_it_goes_on_while_nothing_says_otherwise(stopping: Stopping, found: Generation | Exception | None) -> None:
    assert looked(stopping, found) == (False, []) and not stopping.event.is_set()
