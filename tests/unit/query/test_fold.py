"""Copies of a passage stand under the best of them; what says something else does not."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from query_service.fold import Passage, groups, same
from tests.unit.query.world import World, anyone

pytestmark = pytest.mark.anyio

LONG = (
    "The harbour master opens the northern lock at seven each morning and writes the level of the water into the book "
    "that lies beside the gauge, where the pilots of the day read it before they leave the basin."
)


def _alike(a: str, b: str) -> bool:
    return same(Passage.of(a), Passage.of(b))


@pytest.mark.requirement("B5")
@pytest.mark.parametrize(
    ("other", "expected"),
    [
        (LONG.upper() + "\n", True),
        (LONG.replace("basin", "harbour basin"), True),
        (LONG.replace("seven", "7"), False),  # a number on one side only
        (LONG.replace("opens", "does not open"), False),
        (LONG.replace("before they", "after they"), False),
        (LONG.replace("each morning", "each morning unless ice drifts"), False),
        (LONG.replace("the northern lock", "the northern lock X-500-G2"), False),
        ("Something else entirely that is about pumps and valves and their maintenance in the winter months.", False),
    ],
)
def test_nearly_equal_passages_are_one_unless_they_say_something_else(other: str, expected: bool) -> None:
    assert _alike(LONG, other) is expected


@pytest.mark.requirement("B5")
def test_near_twins_of_numbers_and_short_passages_stay_apart() -> None:
    assert not _alike(LONG + " Fee: 14 euros.", LONG + " Fee: 15 euros.")
    assert not _alike(LONG + " See v2.4.18-rc1.", LONG + " See v2.4.18.")
    assert not _alike("Open the lock.", "Open the locks.")
    assert _alike("Open the lock!", "open the LOCK")


@pytest.mark.requirement("B5")
def test_in_other_scripts_every_word_counts_and_in_other_languages_their_negations_do() -> None:
    russian = "начальник порта открывает северный шлюз каждое утро и записывает уровень воды в книгу у поста"
    assert _alike(russian, russian.capitalize() + ".")
    assert not _alike(russian, russian.replace("открывает", "не открывает"))
    dutch = "de havenmeester opent elke ochtend de noordelijke sluis en schrijft het peil van het water in het boek"
    assert not _alike(dutch, dutch.replace("opent", "opent niet"))
    assert _alike(f"{LONG} {dutch}", f"{LONG} {dutch}".replace("noordelijke", "grote noordelijke"))


@pytest.mark.requirement("B3")
def test_who_holds_the_identifier_stands_for_all_then_the_best_words_then_the_nearest() -> None:
    hashes = {"a": "h", "b": "h", "c": "h", "d": "h", "e": "other", "f": ""}
    found = groups(hashes, hashes, {"c"}, {"b": 2.0}, {"a": 0.2, "d": 0.1, "e": 0.3})
    assert found == {"c": ["b", "d", "a"], "e": [], "f": []}


def _ids(reply: Any) -> list[str]:
    return [hit["document_id"] for hit in reply["hits"]]


def _also(hit: Any) -> list[str]:
    return [other["document_id"] for other in hit["also"]]


@pytest.mark.requirement("A2", "B5")
async def test_what_every_page_repeats_does_not_crowd_the_results(tmp_path: Path) -> None:
    world = World(tmp_path, candidates=10)
    world.principal("user:ann")
    footer = "Questions about pumps go to the desk of the harbour office on the ground floor near the entrance."
    for i in range(60):
        world.document(f"page{i:02}", footer)
    world.document("answer", "Pumps are drained in the harbour before frost, by two people, from the lowest valve.")
    async with world.running() as run:
        reply = await run.search("pumps harbour office desk", k=5, duplicates="fold")
        assert _ids(reply)[1:] == ["answer"], "the repeated passage is one hit, and what it crowded out is found"
        assert len(_also(reply["hits"][0])) == 59 and _ids(reply)[0] not in _also(reply["hits"][0])
        crowded = await run.search("pumps harbour office desk", k=5, duplicates="keep")
        assert "answer" not in _ids(crowded) and all(hit["also"] == [] for hit in crowded["hits"])


@pytest.mark.requirement("B5", "A8")
async def test_a_copy_that_may_not_be_read_is_in_no_fold(tmp_path: Path) -> None:
    world = World(tmp_path)
    world.principal("user:ann", "group:eng")
    world.principal("user:bob")
    world.principal("group:eng")
    world.document("open", LONG, title="open")
    world.document("secret", LONG, rule=anyone("group:eng"), title="northern lock pilots")  # ranks before its copy
    async with world.running() as run:
        (hit,) = (await run.search("northern lock pilots", duplicates="fold"))["hits"]
        assert (hit["document_id"], _also(hit)) == ("secret", ["open"])
        (hit,) = (await run.search("northern lock pilots", "bob", duplicates="fold"))["hits"]
        assert (hit["document_id"], _also(hit)) == ("open", [])


@pytest.mark.requirement("B9", "A8")
async def test_a_copy_takes_the_place_of_one_that_is_revoked_while_the_search_runs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    world = World(tmp_path)
    world.principal("user:ann")
    first = world.document("first", LONG, title="northern lock pilots")
    world.document("second", LONG)
    world.document("third", LONG)
    async with world.running() as run:
        (hit,) = (await run.search("northern lock pilots", duplicates="fold"))["hits"]
        assert (hit["document_id"], sorted(_also(hit))) == ("first", ["second", "third"])
        retriever = run.parts.service._retriever
        retrieve = retriever.retrieve

        async def then_revoked(*given: Any, **named: Any) -> Any:
            outcome = await retrieve(*given, **named)
            world.access(first.document, tombstone=True, not_before=first.content_version + 1)
            return outcome

        monkeypatch.setattr(retriever, "retrieve", then_revoked)
        (hit,) = (await run.search("northern lock pilots", duplicates="fold"))["hits"]
        assert sorted([hit["document_id"], *_also(hit)]) == ["second", "third"]


@pytest.mark.requirement("B5")
async def test_near_copies_are_folded_and_other_numbers_are_not(tmp_path: Path) -> None:
    world = World(tmp_path)
    world.principal("user:ann")
    page = LONG + " Whoever comes later asks the watch, who keeps the book at night and the key of the small gate too."
    world.document("one", page)
    world.document("copy", page.replace("the pilots of the day", "all the pilots of the day"))
    world.document("other", page.replace("at seven", "at 7:30"))
    async with world.running() as run:
        hits = (await run.search("northern lock pilots gauge", duplicates="fold"))["hits"]
    assert sorted(_ids({"hits": hits})) in (["copy", "other"], ["one", "other"])
    assert sorted(_also(hits[0]) + _also(hits[1])) in (["one"], ["copy"])


@pytest.mark.requirement("A3")
async def test_a_hit_says_where_it_stands_and_what_is_doubtful(tmp_path: Path) -> None:
    world = World(tmp_path)
    world.principal("user:ann")
    world.document("scan", "first things", "second pumps", warnings=("ocr: low confidence on page 2",))
    async with world.running() as run:
        hit = (await run.search("pumps"))["hits"][0]
    assert (hit["start"], hit["end"], hit["page"]) == (100, 112, 2)
    assert hit["warnings"] == ["ocr: low confidence on page 2"]


def _texts(hits: Sequence[Any]) -> list[str]:
    return [hit["text"] for hit in hits]


@pytest.mark.requirement("A4")
async def test_a_summarys_hit_stands_for_the_best_sections_of_its_document(tmp_path: Path) -> None:
    world = World(tmp_path)
    world.principal("user:ann")
    parts = ("valves close", "gauges read", "pumps run in winter", "pumps stop", "doors")
    world.document("guide", *parts, summary="overview of the whole guide")
    world.document("noise", "overview of something whole")
    async with world.running() as run:
        hits = (await run.search("overview of the whole guide pumps winter", k=10))["hits"]
        assert not any(hit["summary"] for hit in hits)
        assert _texts(hits)[0] == "pumps run in winter" and "overview of the whole guide" not in _texts(hits)
        assert hits[0]["scores"]["fused"] >= hits[1]["scores"]["fused"]
        assert len(set(_texts(hits))) == len(hits)
