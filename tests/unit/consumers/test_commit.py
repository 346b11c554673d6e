"""The low watermark of work that completes out of order."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from consumers.commit import Tracker


@pytest.mark.requirement("I2", "F21")
def test_the_watermark_is_the_oldest_open_record() -> None:
    tracker = Tracker(5)
    for offset in (5, 6, 9):
        tracker.read(offset, 10)
    assert (tracker.watermark, tracker.open_records, tracker.open_bytes) == (5, 3, 30)
    tracker.done(6)
    tracker.done(9)
    assert tracker.watermark == 5 and tracker.unfinished == [5] and tracker.open_records == 3
    tracker.done(5)
    assert (tracker.watermark, tracker.open_records, tracker.open_bytes) == (10, 0, 0)


def test_the_position_passes_control_records_only_when_nothing_is_open() -> None:
    tracker = Tracker(0)
    tracker.read(0)
    tracker.advance(2)
    assert tracker.watermark == 0
    tracker.done(0)
    assert tracker.watermark == 2
    tracker.advance(1)
    assert tracker.watermark == 2, "a position never goes back"


def test_misuse_is_an_error_and_repetition_is_not() -> None:
    tracker = Tracker(3)
    tracker.read(3)
    with pytest.raises(ValueError, match="was read after"):
        tracker.read(3)
    with pytest.raises(ValueError, match="not read yet"):
        tracker.done(4)
    tracker.done(3)
    tracker.done(3)
    tracker.done(1)
    assert tracker.watermark == 4


@given(st.data())
@pytest.mark.requirement("I2")
def test_nothing_undone_lies_below_the_watermark_in_any_order(data: st.DataObject) -> None:
    offsets = sorted(data.draw(st.sets(st.integers(0, 60), min_size=1, max_size=25)))
    order = data.draw(st.permutations(offsets))
    stop = data.draw(st.integers(0, len(order)))
    tracker = Tracker(0)
    for offset in offsets:
        tracker.read(offset)
    for offset in order[:stop]:
        tracker.done(offset)
    undone = [offset for offset in offsets if offset not in order[:stop]]
    assert tracker.watermark == (undone[0] if undone else offsets[-1] + 1)
    assert tracker.unfinished == undone
