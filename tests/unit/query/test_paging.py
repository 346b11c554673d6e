"""Pages of a search: nothing twice, nothing lost, nobody's hidden passage, whatever changes in between."""

from __future__ import annotations

import asyncio
import base64
import tempfile
import tracemalloc
import zlib
from collections import Counter
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, Phase, example, given, settings
from hypothesis import strategies as st

from query_service import paging
from query_service.legs import Candidate
from query_service.outcome import Place, Ranked
from query_service.paging import MAX_SHOWN, Cursors, Kept, Page, mark
from query_service.scope import FieldError, Scope
from schemas.api import SearchRequest
from schemas.api_ranking import MAX_CURSOR
from schemas.documents import ChunkEntry
from tests.unit.query.world import GENERATION, TENANT, World, anyone, chunk_id, ref

ANN = Scope(tenant=TENANT, subject="ann")


async def pages(run: Any, query: str, between: Any = None, **body: Any) -> list[list[Any]]:
    """All pages of a search; ``between`` is called with the number of pages so far."""
    found: list[list[Any]] = []
    cursor: str | None = None
    while True:
        reply = await run.search(query, cursor=cursor, **body)
        found.append(reply["hits"])
        cursor = reply["next_cursor"]
        if cursor is None:
            return found
        assert len(cursor) <= MAX_CURSOR and len(found) < 200
        if between is not None:
            between(len(found))


def ids(found: list[list[Any]]) -> list[str]:
    return [hit["document_id"] for page in found for hit in page]


@pytest.mark.anyio
@pytest.mark.requirement("E4", "B3")
@pytest.mark.parametrize(("mode", "k"), [("hybrid", 20), ("sparse", 50), ("dense", 50)])
async def test_pages_hold_everything_once_and_in_the_first_order(world: World, mode: str, k: int) -> None:
    """120 documents are more than the first ranking goes deep."""
    world.principal("user:ann")
    for i in range(120):
        world.document(f"d{i:03}", f"plan number{i} " + "word " * (i % 9), tier="hot" if i % 2 else "cold")
    async with world.running() as run:
        found = await pages(run, "plan", k=k, mode=mode)
        whole = await run.ids("plan", k=100, mode=mode)
    assert sorted(ids(found)) == [f"d{i:03}" for i in range(120)]
    assert [len(page) for page in found[:-1]] == [k] * (len(found) - 1) and found[-1]
    if mode != "hybrid":
        first = min(k, 50)
        assert set(ids(found)[:first]) <= set(whole)
    finals = [hit["scores"]["final"] for page in found for hit in page]
    assert finals[:7] == sorted(finals[:7], reverse=True) and all(0 <= f <= 1 for f in finals)


@pytest.mark.anyio
@pytest.mark.requirement("E4", "B5")
async def test_folded_copies_do_not_come_back_on_later_pages(world: World) -> None:
    world.principal("user:ann")
    footer = (
        "Questions about pumps go to the desk of the harbour office on the ground floor near the entrance of the old "
        "mill"  # so long that passages which differ from it in one word are copies of each other too
    )
    for i in range(30):
        world.document(f"same{i:02}", footer)
    for i, word in enumerate(("today", "only", "always")):
        world.document(f"near{i}", f"{footer} {word}" if word != "only" else f"{footer} here")
    for i in range(20):
        world.document(f"pump{i:02}", f"pumps number{i} of the harbour")
    async with world.running() as run:
        found = await pages(run, "pumps harbour office desk", k=4, duplicates="fold")
    shown = ids(found)
    assert len(shown) == len(set(shown))
    assert len([name for name in shown if name.startswith(("same", "near"))]) == 1
    assert len([name for name in shown if name.startswith("pump")]) == 20


@pytest.mark.anyio
@pytest.mark.requirement("E4")
async def test_a_changed_documents_best_passage_takes_its_place(world: World) -> None:
    world.principal("user:ann")
    for i in range(8):
        world.document(f"d{i}", "plan " + "word " * i)

    def change(done: int) -> None:
        if done == 1:
            world.document("d4", "plan rewritten entirely")

    async with world.running() as run:
        before = [h["document_id"] for h in (await run.search("plan", mode="sparse", k=8))["hits"]]
        found = await pages(run, "plan", change, k=2, mode="sparse", diversity=1)
    assert ids(found) == before
    (changed,) = [hit for page in found for hit in page if hit["document_id"] == "d4"]
    assert changed["text"] == "plan rewritten entirely"


@pytest.mark.anyio
@pytest.mark.requirement("E4", "I4", "B9")
async def test_each_page_admits_at_its_own_moment(world: World) -> None:
    world.principal("user:ann")
    made = {f"d{i}": world.document(f"d{i}", "plan " + "word " * i) for i in range(8)}

    def change(done: int) -> None:
        if done == 1:
            world.access(made["d2"].document, anyone("user:bob"))
            world.access(made["d5"].document, tombstone=True, not_before=made["d5"].content_version + 1)

    async with world.running() as run:
        found = await pages(run, "plan", change, k=2, mode="sparse", diversity=1)
    assert ids(found) == ["d0", "d1", "d3", "d4", "d6", "d7"]


@pytest.mark.anyio
@pytest.mark.requirement("E4")
async def test_limits_of_a_document_and_dates_hold_over_all_pages(world: World) -> None:
    world.principal("user:ann")
    world.document("long", *(f"plan part{i}" for i in range(30)), updated_at=500)
    for i in range(12):
        world.document(f"d{i:02}", f"plan and other words number{i}", updated_at=1000 + i)
    async with world.running() as run:
        limited = await pages(run, "plan", k=3, per_document=2)
        dated = await pages(run, "plan", k=5, sort="newest", per_document=1)
    assert ids(limited).count("long") == 2 and len(set(ids(limited))) == 13
    assert ids(dated) == [*(f"d{i:02}" for i in reversed(range(12))), "long"]


@pytest.mark.anyio
@pytest.mark.requirement("E4", "I7")
async def test_pages_stay_in_their_generation_as_long_as_it_stands(world: World) -> None:
    world.principal("user:ann")
    for i in range(6):
        world.document(f"d{i}", f"plan {i}")
    world.generation("g2")
    world.document("new", "plan", generation="g2")
    async with world.running() as run:
        first = await run.search("plan", k=2)
        old = world.store.read_generations()[GENERATION]
        world.store.set_active_generation("g2")
        world.store.write_generation(old.model_copy(update={"state": "standby"}))
        world.clock.advance(3)
        second = await run.search("plan", k=2, cursor=first["next_cursor"])
        assert second["generation"] == GENERATION and len(second["hits"]) == 2
        assert (await run.search("plan", k=2))["generation"] == "g2"
        world.store.write_generation(old.model_copy(update={"state": "retired"}))
        world.clock.advance(3)
        reply = await run.post({"query": "plan", "k": 2, "duplicates": "keep", "cursor": second["next_cursor"]})
    assert reply.status_code == 422
    (error,) = reply.json()["errors"]
    assert error["field"] == "cursor" and "replaced" in error["problem"] and "without a cursor" in error["problem"]


@pytest.mark.anyio
@pytest.mark.requirement("E4", "I12")
async def test_a_cursor_is_good_for_its_caller_and_request_alone(world: World) -> None:
    world.principal("user:ann")
    world.principal("user:bob")
    world.principal("user:ann", tenant="other")
    for i in range(6):
        world.document(f"d{i}", f"plan {i}")
    body = {"query": "plan", "k": 2, "duplicates": "keep"}
    async with world.running() as run:
        cursor = (await run.post(body)).json()["next_cursor"]
        raw = base64.urlsafe_b64decode(cursor + "=" * (-len(cursor) % 4))
        assert not any(ref(f"d{i}").uid.encode() in raw for i in range(6))
        flipped = base64.urlsafe_b64encode(raw[:-1] + bytes([raw[-1] ^ 1])).decode().rstrip("=")
        assert (await run.post({**body, "cursor": cursor})).status_code == 200
        for sub, claims, changed in (
            ("ann", {}, {"query": "plans"}),
            ("ann", {}, {"k": 3}),
            ("ann", {}, {"filters": {"sources": ["wiki"]}}),
            ("ann", {}, {"mode": "sparse"}),
            ("ann", {"tenant": "other"}, {}),
            ("bob", {}, {}),
            ("ann", {}, {"cursor": flipped}),
            ("ann", {}, {"cursor": "not a cursor"}),
            ("ann", {}, {"cursor": "AAAA"}),
            ("ann", {}, {"cursor": cursor[:-8]}),
        ):
            reply = await run.post({**body, "cursor": cursor, **changed}, sub, **claims)
            assert reply.status_code == 422, (sub, claims, changed)
            (error,) = reply.json()["errors"]
            assert error["field"] == "cursor" and "search again without a cursor" in error["problem"]


def passage(number: int) -> Kept:
    return Kept(chunk_id(ref(f"d{number}"), "x"), ref(f"d{number}").uid, 0.5, None if number % 2 else 1.25, 0.75, 0.5)


@pytest.mark.requirement("E4")
@given(st.integers(0, 400), st.integers(0, MAX_SHOWN - 1), st.booleans())
@example(400, MAX_SHOWN - 1, True)
@settings(max_examples=15, deadline=None)
def test_what_is_sealed_comes_back_as_far_as_there_is_room(left: int, shown: int, counted: bool) -> None:
    request = SearchRequest(query="plan", per_document=2 if counted else None)
    marks = frozenset(mark(str(i)) for i in range(shown))
    had = None
    if counted:
        had = Counter({mark(str(i)): 1 + i % 3 for i in range(shown)})
    page = Page("g1", tuple(passage(i) for i in range(left)), marks, had, 0.25)
    cursor = Cursors(b"key").seal(ANN, request, page)
    assert cursor is not None and len(cursor) <= MAX_CURSOR
    opened = Cursors(b"key").open(ANN, request.model_copy(update={"cursor": cursor}))
    assert opened is not None
    assert (opened.generation, opened.shown, opened.had, opened.low) == ("g1", marks, had, 0.25)
    assert opened.kept == page.kept[: len(opened.kept)] and opened.cut == (len(opened.kept) < left)
    assert len(opened.kept) >= min(left, 24 if counted else 100)
    with pytest.raises(FieldError, match="cursor"):
        Cursors(b"other").open(ANN, request.model_copy(update={"cursor": cursor}))
    assert Cursors(b"key").seal(ANN, request, Page("g1", shown=frozenset(mark(str(i)) for i in range(1000)))) is None


@pytest.mark.requirement("E4")
def test_a_cursor_is_compressed_and_what_is_opened_has_a_bound(monkeypatch: pytest.MonkeyPatch) -> None:
    request = SearchRequest(query="plan")
    fused = [1 / (60 + i) + (1 / (61 + 2 * i) if i % 3 else 0.0) for i in range(90)]
    ranked = [replace(passage(i), rerank=None, fused=f, final=f * 30, first=f * 30) for i, f in enumerate(fused)]
    cursor = Cursors(b"key").seal(ANN, request, Page("minilm", tuple(ranked)))
    assert cursor is not None
    assert len(cursor) < 0.85 * (90 * (16 + 16 + 2 + 1 + 16) * 4 / 3), "a fifth of what is not random is saved"
    monkeypatch.setattr(paging, "_packed", lambda page: bytes([3]) + zlib.compress(bytes(10_000_000), 9))
    bomb = Cursors(b"key").seal(ANN, request, Page("minilm"))
    assert bomb is not None and len(bomb) <= MAX_CURSOR
    tracemalloc.start()
    with pytest.raises(FieldError, match="cursor"):
        Cursors(b"key").open(ANN, request.model_copy(update={"cursor": bomb}))
    assert tracemalloc.get_traced_memory()[1] < 1_000_000
    tracemalloc.stop()


# ---------------------------------------------------------------- whatever happens in between

STEP = st.tuples(st.sampled_from(["edit", "revoke", "delete", "add", "widen"]), st.integers(0, 17), st.integers(1, 3))


@pytest.mark.requirement("E4", "I3", "I4", "B9")
@given(
    k=st.integers(2, 9),
    steps=st.lists(STEP, max_size=6),
    mode=st.sampled_from(["hybrid", "sparse"]),
    duplicates=st.sampled_from(["keep", "fold"]),
    candidates=st.sampled_from([5, 50]),
)
@settings(
    max_examples=8,
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow],
    phases=[Phase.explicit, Phase.reuse, Phase.generate],
)
def test_no_page_repeats_loses_or_shows_what_is_hidden(
    k: int, steps: list[tuple[str, int, int]], mode: str, duplicates: str, candidates: int
) -> None:
    asyncio.run(_walk(k, steps, mode, duplicates, candidates))


async def _walk(k: int, steps: list[tuple[str, int, int]], mode: str, duplicates: str, candidates: int) -> None:
    with tempfile.TemporaryDirectory() as folder:
        world = World(Path(folder), candidates=candidates)
        world.principal("user:ann")
        made = {}
        for i in range(18):
            hidden = i % 7 == 3
            texts = [f"plan unique{i} part{j} " + "word " * (i % 5) for j in range(1 + i % 2)]
            rule = anyone("user:bob") if hidden else anyone()
            made[i] = world.document(f"d{i:02}", *texts, rule=rule, tier="hot" if i % 2 else "cold")
        untouched = {i for i in made if i % 7 != 3} - {i for _, i, _ in steps}
        hidden_now = {i for i in made if i % 7 == 3}

        def between(done: int) -> None:
            for what, i, when in steps:
                if when != done:
                    continue
                if what == "edit":
                    rule = anyone("user:bob") if i in hidden_now else anyone()
                    made[i] = world.document(f"d{i:02}", f"plan edited{i} at{done}", rule=rule)
                elif what in ("revoke", "widen"):
                    rule = anyone() if what == "widen" else anyone("user:bob")
                    own = made[i].rule == anyone()  # a wider rule opens no text that was written for fewer
                    version = made[i].content_version + (0 if own else 1)
                    world.access(made[i].document, rule, content_version=version)
                    everybody = ["everyone", "user:bob"]  # what the store filters by is wider all the time
                    chunks = [c.chunk_id for c in made[i].chunks]
                    world.store.update_allow(GENERATION, TENANT, chunks, everybody, everybody)
                    (hidden_now.discard if own and what == "widen" else hidden_now.add)(i)
                elif what == "delete":
                    version = world.version()
                    world.access(made[i].document, tombstone=True, version=version, not_before=version)
                    hidden_now.add(i)
                else:
                    world.document(f"new{i:02}-{done}", f"plan added{i} at{done}")

        async with world.running() as run:
            found: list[Any] = []
            cursor: str | None = None
            for done in range(1, 200):
                closed = {f"d{i:02}" for i in hidden_now}
                reply = await run.search("plan", k=k, mode=mode, duplicates=duplicates, cursor=cursor)
                assert not closed & {hit["document_id"] for hit in reply["hits"]}, "nobody's hidden passage"
                assert len(reply["hits"]) <= k
                found += reply["hits"]
                cursor = reply["next_cursor"]
                if cursor is None:
                    break
                between(done)
        chunks = [hit["chunk_id"] for hit in found]
        assert len(chunks) == len(set(chunks)), "no chunk twice"
        expected = {c.chunk_id for i in untouched for c in made[i].chunks}
        assert expected <= set(chunks), "every unchanged readable candidate"
        assert cursor is None


def _ranked(world: World, name: str) -> Ranked:
    manifest = world.document(name, name)
    entry = manifest.chunks[0]
    candidate = Candidate(entry.chunk_id, manifest.document.uid, "hot", exact=True)
    return Ranked(candidate, manifest, Place(0, ChunkEntry.model_validate(entry.model_dump())), 0.5, 0.25, 2.0, 0.125)


@pytest.mark.requirement("E4")
def test_scores_of_the_first_page_go_along(world: World) -> None:
    item = _ranked(world, "a")
    kept = Kept.of(item)
    again = kept.onto(Ranked(item.candidate, item.manifest, item.place, 0.0))
    assert (again.first, again.rerank, again.final, again.fused) == (0.25, 2.0, 0.125, 0.5) and kept.exact
