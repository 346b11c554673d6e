"""Folds that hid what says something else, a copy's rank, a document, or the order of the hits."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import pytest

from query_service.fold import Passage, same
from tests.unit.query.test_fold import LONG, _also, _ids
from tests.unit.query.world import World

pytestmark = pytest.mark.anyio
PAGE = LONG + (
    " Whoever comes later asks the watch, who keeps the book at night and the key of the small gate too, and who can "
    "be found in the house behind the old crane, where the lamp burns until the first boats of the morning have left."
)


def _alike(a: str, b: str) -> bool:
    return same(Passage.of(a), Passage.of(b))


@pytest.mark.requirement("B5")
@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("The lowest reading was -5 degrees", "The lowest reading was 5 degrees"),
        ("The fee is $15", "The fee is €15"),
        ("The level rose 1.5 metres", "The level rose 1 5 metres"),
        ("| Pump | ✅ |", "| Pump | ❌ |"),
        ("written in C++", "written in C#"),
        ("if (!ready) stop()", "if (ready) stop()"),
        ("a && b", "a || b"),
        ("level > 5", "level < 5"),
        ("level == 5", "level != 5"),
        ("a rate of 5%", "a rate of 5"),
    ],
)
def test_equal_words_with_other_signs_say_something_else(one: str, other: str) -> None:
    assert not _alike(one, other) and not _alike(f"{PAGE} {one}", f"{PAGE} {other}")
    assert _alike(one, f" {one}\n") and _alike(one + ".", one.upper())


@pytest.mark.requirement("B5")
@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("can", "can't"),
        ("can", "can’t"),
        ("opens", "closes"),
        ("opens", "reopens"),
        ("left", "unleft"),
        ("old", "không"),
    ],
)
def test_one_word_that_turns_a_long_passage_round_keeps_it_apart(old: str, new: str) -> None:
    assert PAGE.count(f" {old} ") + PAGE.count(f" {old}.") == 1
    assert not _alike(PAGE, PAGE.replace(f" {old}", f" {new}"))
    assert _alike(PAGE, PAGE.replace("small gate", "narrow gate"))


@pytest.mark.requirement("B5")
def test_numbers_that_change_places_say_something_else() -> None:
    text = PAGE + " {} " + PAGE + " Channel {} is for pilots and channel {} for guests."
    assert not _alike(text.format("", 12, 14), text.format("", 14, 12))


@pytest.mark.requirement("B5")
def test_passages_are_compared_in_linear_time() -> None:
    a, b = (Passage.of(" ".join(f"{stem}{i}" for i in range(20_000))) for stem in ("aqua", "ventu"))
    began = time.process_time()
    assert not same(a, b)
    assert time.process_time() - began < 0.5


@pytest.mark.requirement("B9", "A8")
async def test_a_copy_stands_where_the_revoked_one_stood(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    world = World(tmp_path)
    world.principal("user:ann")
    seeded = {
        f"{name}{i}": world.document(f"{name}{i}", f"northern lock pilots {word}")
        for i, word in enumerate(("gauge", "basin"))
        for name in ("one", "other")
    }
    world.document("low", "pilots of something else entirely, which nobody needs, in the northern parts")
    async with world.running() as run:
        before = (await run.search("northern lock pilots gauge", k=3, duplicates="fold"))["hits"]
        firsts, copies = _ids({"hits": before})[:2], [_also(hit)[0] for hit in before[:2]]
        assert {*firsts, *copies} == set(seeded) and before[2]["document_id"] == "low"
        retriever = run.parts.service._retriever
        retrieve = retriever.retrieve

        async def then_revoked(*given: Any, **named: Any) -> Any:
            outcome = await retrieve(*given, **named)
            for first in (seeded[name] for name in firsts):
                world.access(first.document, tombstone=True, not_before=first.content_version + 1)
            return outcome

        monkeypatch.setattr(retriever, "retrieve", then_revoked)
        after = (await run.search("northern lock pilots gauge", k=3, duplicates="fold"))["hits"]
        assert _ids({"hits": after}) == [*copies, "low"]
