"""Quoted words: what counts as a phrase, and that a search finds only passages that hold it."""

from __future__ import annotations

import pytest

from pipeline import analysis
from query_service import phrases
from schemas.access import AccessRule
from tests.unit.query.world import World, anyone


@pytest.mark.requirement("B2")
@pytest.mark.parametrize(
    ("query", "expected"),
    [
        ('"Blue Green" deployment', (("blue", "green"),)),
        ('how does "roll back" work with "blue green"', (("roll", "back"), ("blue", "green"))),
        ("„nicht löschen“ oder “do not delete” or «ne pas effacer»",
         (("nicht", "loschen"), ("do", "not", "delete"), ("ne", "pas", "effacer"))),
        ('"fs.readFileSync"', (("fs", "readfilesync"),)),
        ('"twice" "twice"', (("twice",),)),
        ('a "half', ()),
        ('""', ()),
        ('"  "', ()),
        ('"?!"', ()),
        ('a 5" pipe and a 7" pipe', ()),
        ("it's 'single' quoted", ()),
        ('key="value"', ()),
        ('请看“水泵”', (tuple(analysis.tokens("水泵")),)),
        ('(see "annex b")', (("annex", "b"),)),
        ('"水泵压力"', (tuple(analysis.tokens("水泵压力")),)),
    ],
)  # fmt: skip
def test_what_is_a_phrase(query: str, expected: tuple[tuple[str, ...], ...]) -> None:
    assert phrases.of_query(query) == expected


@pytest.mark.requirement("B2")
@pytest.mark.parametrize(
    ("text", "phrase", "held"),
    [
        ("Use a Blue-Green deployment", "blue green", True),
        ("green then blue", "blue green", False),
        ("blue or green", "blue green", False),
        ("bluegreen", "blue green", False),
        ("the blue greenhouse", "blue green", False),
        ("检查水泵压力过高", "水泵压力", True),
        ("检查压力水泵", "水泵压力", False),
        ("Das Gerät NICHT LÖSCHEN.", "nicht löschen", True),
    ],
)
def test_what_holds_a_phrase(text: str, phrase: str, held: bool) -> None:
    assert phrases.holds(analysis.lexical(text), [tuple(analysis.tokens(phrase))]) is held


@pytest.mark.requirement("B2")
def test_the_store_is_asked_for_a_bounded_number_of_words() -> None:
    long = " ".join(f"word{i}" for i in range(200))
    found = phrases.of_query(f'"{long}" ' + " ".join(f'"p{i}"' for i in range(20)))
    assert len(found) == phrases.MAX_PHRASES and len(phrases.words(found)) == phrases.MAX_WORDS


@pytest.mark.anyio
@pytest.mark.requirement("B2")
@pytest.mark.parametrize("mode", ["hybrid", "dense", "sparse"])
async def test_only_passages_that_hold_the_phrase_are_found(world: World, mode: str) -> None:
    world.principal("user:ann")
    for i in range(80):
        world.document(f"near{i:02}", "blue green green blue deployment deployment", tier="hot" if i % 2 else "cold")
    world.document("far", "Many other words stand in it before it says that blue green is how deployment goes here.")
    async with world.running() as run:
        assert len(await run.ids('deployment "green blue"', mode=mode, k=100)) == 80
        found = await run.ids('deployment "is how deployment"', mode=mode)
        assert found == ["far"]
        reply = await run.search('deployment "deployment how is"', mode=mode)
        assert reply["hits"] == [] and reply["counts"]["admitted"] == 0


@pytest.mark.anyio
@pytest.mark.requirement("B2", "I3")
async def test_a_phrase_of_a_hidden_passage_is_as_one_that_nobody_wrote(world: World) -> None:
    world.principal("user:ann")
    world.document("secret", "the falcon lands at dawn", rule=AccessRule.any_of("everyone", deny=["user:ann"]))
    world.document("open", "the dawn falcon", rule=anyone())
    async with world.running() as run:
        hidden = await run.search('"falcon lands"')
        nothing = await run.search('"falcon walks"')
    for reply in (hidden, nothing):
        assert reply["hits"] == []
        for varying in ("query_id", "timings_ms", "judged_at", "suggestion"):
            reply.pop(varying)
    assert hidden == nothing


@pytest.mark.anyio
@pytest.mark.requirement("B2", "B11")
async def test_further_queries_of_an_expansion_keep_to_the_phrase(world: World) -> None:
    world.principal("user:ann")
    world.document("held", "a blue green rollback")
    world.document("other", "how is rollback done")
    async with world.running() as run:
        query = 'how does "blue green" work? how is rollback done?'
        reply = await run.search(query, expand="decompose", explain=True)
    assert [hit["document_id"] for hit in reply["hits"]] == ["held"]
    assert len(reply["steps"]) > 1
