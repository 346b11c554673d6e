"""Where a new owner starts, and whether it waits."""

from __future__ import annotations

from typing import Any

import pytest

from consumers.positions import must_wait, start_of
from schemas.receipts import Progress


def progress(offset: int, *, clean: bool, owner: str = "other") -> Progress:
    return Progress(lane="index", topic="content", partition=0, offset=offset, clean=clean, owner=owner)


def start(**changes: Any) -> Any:
    options: dict[str, Any] = {
        "committed": None,
        "progress": None,
        "tracked": True,
        "beginning": 0,
        "end": 10_000,
        "safety_window": 1000,
        "window_records": 400,
    }
    return start_of(**(options | changes))


@pytest.mark.requirement("I11")
def test_first_start_reads_everything() -> None:
    assert start(beginning=17).offset == 17
    assert start(first="end").offset == 10_000


@pytest.mark.requirement("I11")
def test_left_in_order_goes_on_exactly_there() -> None:
    found = start(committed=5000, progress=progress(5000, clean=True))
    assert found.offset == 5000 and not found.ambiguous(5000)
    assert start(committed=4800, progress=progress(5000, clean=True)).offset == 4800, "the smaller one"


@pytest.mark.requirement("I11", "I2")
def test_an_unclean_stop_rewinds_and_marks_what_may_be_half_done() -> None:
    found = start(committed=5000, progress=progress(5000, clean=False))
    assert found.offset == 4000
    assert not found.ambiguous(4999) and found.ambiguous(5000) and found.ambiguous(5399)
    assert not found.ambiguous(5400), "nothing beyond the read-ahead window was touched"


@pytest.mark.requirement("I11")
def test_a_restored_store_is_behind_the_commit_and_rewinds_even_from_a_clean_record() -> None:
    assert start(committed=9000, progress=progress(3000, clean=True)).offset == 2000
    assert start(committed=9000, progress=progress(400, clean=True)).offset == 0


@pytest.mark.requirement("I11")
def test_an_emptied_store_is_filled_from_the_beginning() -> None:
    found = start(committed=9000, progress=None)
    assert found.offset == 0 and "empty" in found.why


@pytest.mark.requirement("I11")
def test_a_store_fed_from_another_log_is_not_believed() -> None:
    assert start(committed=None, progress=progress(20_000, clean=True)).offset == 0


@pytest.mark.requirement("I11")
def test_a_start_below_what_the_log_still_holds_moves_to_its_beginning() -> None:
    assert start(committed=5000, progress=progress(5000, clean=False), beginning=4500).offset == 4500


def test_topics_without_progress_records_keep_kafkas_offset() -> None:
    assert start(tracked=False, committed=7).offset == 7
    assert start(tracked=False, committed=None).offset == 0
    assert start(tracked=False, committed=None, first="end").offset == 10_000


@pytest.mark.requirement("I1")
def test_a_new_owner_waits_unless_the_old_one_left_in_order_or_was_itself() -> None:
    assert not must_wait([], "me")
    assert must_wait([progress(1, clean=True), progress(1, clean=False)], "me")
    assert not must_wait([progress(1, clean=True)], "me")
    assert not must_wait([progress(1, clean=False, owner="me")], "me")
