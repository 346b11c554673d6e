"""Bounds of what is kept: number, bytes, age, and a share for every tenant."""

from __future__ import annotations

from typing import Any

import pytest

from pipeline.clock import ManualClock
from pipeline.observe import Metrics
from query_service.cache.keys import Key
from query_service.cache.shelf import Kept, Shelf, Used


def entry(clock: ManualClock, question: str, tenant: str = "acme", *, size: int = 100, **fields: Any) -> Kept:
    key = Key("answers", tenant, "g1", "closure", "rest", question)
    told: dict[str, Any] = {
        "reply": b"x" * size, "used": (Used(f"uid-{question}"),), "mark": (0,), "principals": frozenset({"user:ann"}),
        "kept_at": clock.elapsed(),
    }  # fmt: skip
    return Kept(key, **{**told, **fields})


def shelf(clock: ManualClock, answers: int = 10, size: int = 1_000_000) -> Shelf:
    return Shelf({"answers": answers, "searches": 10}, size, 60.0, clock, Metrics())


def always() -> bool:
    return True


@pytest.mark.requirement("B10")
def test_the_least_recently_used_goes_first() -> None:
    clock = ManualClock()
    kept, made = shelf(clock, answers=2), [entry(clock, name) for name in "abc"]
    kept.put(made[0], always)
    kept.put(made[1], always)
    assert kept.get(made[0].key) is made[0]
    kept.put(made[2], always)
    assert [kept.get(one.key) is not None for one in made] == [True, False, True]


@pytest.mark.requirement("B10", "I3")
def test_a_busy_tenant_pushes_out_its_own() -> None:
    clock = ManualClock()
    kept = shelf(clock, answers=10)
    small = [entry(clock, f"q{n}", "small") for n in range(3)]
    for one in small:
        kept.put(one, always)
    for n in range(100):
        kept.put(entry(clock, f"q{n}", "large"), always)
    assert all(kept.get(one.key) for one in small) and kept.count("answers") == 10


@pytest.mark.requirement("B10", "I3")
def test_bytes_are_bounded_and_no_reply_takes_most_of_them() -> None:
    clock = ManualClock()
    kept = shelf(clock, answers=1000, size=80_000)
    small = entry(clock, "small", "small", size=1000)
    kept.put(small, always)
    for n in range(50):
        assert kept.put(entry(clock, f"q{n}", "large", size=8000), always)
    assert kept.bytes("answers") <= 80_000 and kept.get(small.key) is small
    assert not kept.put(entry(clock, "huge", size=20_000), always)


@pytest.mark.requirement("B10")
def test_nothing_is_given_beyond_its_time_nor_left_in_any_index() -> None:
    clock = ManualClock()
    kept = shelf(clock)
    old = entry(clock, "old")
    kept.put(old, always)
    clock.advance(40)
    kept.put(entry(clock, "young"), always)
    clock.advance(30)
    assert kept.get(old.key) is None and kept.with_document("uid-old") == 0
    assert [one.key.question for one in kept.group(old.key)] == ["young"]
    assert not kept.put(old, always), "it is too old to be kept again"
    clock.advance(40)
    assert kept.group(old.key) == [] and kept.count("answers") == 0 and kept.bytes("answers") == 0
    for index in (kept._lines, kept._groups, kept._documents, kept._closures, kept._ages):
        assert not index


@pytest.mark.requirement("B10")
def test_what_is_kept_again_stays_its_own_time() -> None:
    clock = ManualClock()
    kept = shelf(clock)
    kept.put(entry(clock, "q"), always)
    clock.advance(40)
    kept.put(entry(clock, "q"), always)
    clock.advance(30)
    again = kept.get(entry(clock, "q").key)
    assert again is not None and kept.count("answers") == 1


@pytest.mark.requirement("B10", "A7")
def test_documents_and_principals_are_forgotten_at_once() -> None:
    clock = ManualClock()
    kept = shelf(clock)
    kept.put(entry(clock, "a", used=(Used("x"), Used("y"))), always)
    kept.put(entry(clock, "b", used=(Used("y"),)), always)
    assert (kept.with_document("y"), kept.drop_document("x"), kept.with_document("y")) == (2, 1, 1)
    assert kept.drop_principal("acme", "user:bob") == 0 and kept.drop_principal("other", "user:ann") == 0
    assert kept.drop_principal("acme", "user:ann") == 1 and kept.count("answers") == 0


@pytest.mark.requirement("B10")
def test_what_does_not_hold_any_more_is_not_kept() -> None:
    clock = ManualClock()
    kept = shelf(clock)
    assert not kept.put(entry(clock, "a"), lambda: False) and kept.count("answers") == 0
