"""Turns and places, on a clock of the test's own."""

from __future__ import annotations

import threading

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pipeline.extract.pool.admission import FRESH_S, Key, Line, Signal

pytestmark = pytest.mark.requirement("A2", "I13")


class Clock:
    now = 100.0

    def __call__(self) -> float:
        return self.now


def key(name: object) -> Key:
    return str(name), "text/plain", None


def fired(signals: list[Signal]) -> int:
    for signal in signals:
        signal.fire()
    return len(signals)


def test_places_are_held_until_they_are_left() -> None:
    line = Line(2, Clock())
    assert line.admit(key("a")) is None
    assert line.admit(key("b")) is None
    room = line.admit(key("c"))
    assert room is not None
    assert line.admit(key("c")) is room, "who asks again keeps his turn"
    assert not room.wait(0)
    assert fired(line.leave()) == 1
    assert room.wait(0)
    assert line.admit(key("c")) is None


def test_an_offered_place_is_not_taken_by_one_who_comes_between() -> None:
    line = Line(1, Clock())
    assert line.admit(key("a")) is None
    assert line.admit(key("first")) is not None
    fired(line.leave())
    assert line.admit(key("passer-by")) is not None
    assert line.admit(key("first")) is None


def test_one_who_does_not_come_loses_the_place_but_not_his_turn() -> None:
    clock = Clock()
    line = Line(1, clock)
    assert line.admit(key("a")) is None
    for name in ("late", "second", "third"):
        assert line.admit(key(name)) is not None
    assert fired(line.leave()) == 1
    assert fired(line.offers()) == 0, "the place is kept a moment"
    clock.now += FRESH_S * 1.1
    assert line.admit(key("passer-by")) is not None, "the place is free again, for those in line"
    assert fired(line.offers()) == 1
    assert line.admit(key("second")) is None
    assert line.admit(key("late")) is not None, "no room just now"
    fired(line.leave())
    assert line.admit(key("third")) is not None
    assert line.admit(key("late")) is None, "before everybody who came after him"


def test_nobody_waits_after_the_end() -> None:
    line = Line(1, Clock())
    line.admit(key("a"))
    rooms = [line.admit(key(n)) for n in range(3)]
    assert fired(line.clear()) == 3
    assert all(room is not None and room.wait(0) for room in rooms)
    assert not line.crowded


@given(st.lists(st.integers(0, 3), max_size=60), st.integers(1, 3))
def test_never_more_bodies_than_places_and_everybody_gets_one(steps: list[int], places: int) -> None:
    """Askers come, places are left, time passes; whoever is told asks again at once, as an index worker does."""
    clock = Clock()
    line = Line(places, clock)
    held: list[Key] = []
    served: list[int] = []
    come = 0

    def ask(number: int) -> None:
        room = line.admit(key(number))
        if room is None:
            held.append(key(number))
            served.append(number)
        else:
            room.when(lambda: ask(number))
        assert len(held) <= places

    def leave() -> None:
        if held:
            held.pop(0)
            fired(line.leave())

    for step in steps:
        if step <= 1:
            ask(come)
            come += 1
        elif step == 2:
            leave()
        else:
            clock.now += FRESH_S * 2
            fired(line.offers())
    while held:
        leave()
    assert served == list(range(come))


def test_a_signal_calls_back_once_and_at_once_when_it_is_late() -> None:
    signal, calls = Signal(), []
    signal.when(lambda: calls.append("early"))
    assert calls == []
    signal.fire()
    signal.fire()
    signal.when(lambda: calls.append("late"))
    assert calls == ["early", "late"]
    assert signal.wait(0)


def test_a_callback_that_fails_does_not_keep_others_from_theirs(caplog: pytest.LogCaptureFixture) -> None:
    signal, told = Signal(), threading.Event()

    def fail() -> None:
        raise RuntimeError("of the callback")

    signal.when(fail)
    signal.when(told.set)
    signal.fire()
    assert told.is_set()
    assert "of the callback" in caplog.text
