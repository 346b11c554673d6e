"""Evidence: sections once each, under a budget, in the stated order, admitted after they were read."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any
from unittest import mock

import pytest

from pipeline.errors import ConfigError
from pipeline.ports import IndexReader, TokenCounter
from query_service import everything
from query_service.counters import Counters
from query_service.everything import Standing
from query_service.evidence import Found, Gatherer, fitted, whole
from query_service.gate import Asked, Gate
from query_service.overlay import Overlay
from query_service.scope import Narrowing, Scope, narrow
from schemas.access import Closure
from schemas.api import SearchFilters
from schemas.api_ranking import Evidence
from schemas.documents import Manifest, Section
from schemas.events import AccessTombstone
from schemas.generation import Generation
from tests.unit.query.test_cutting import COUNTER
from tests.unit.query.world import GENERATION, TENANT, World, anyone, chunk_id, ref

pytestmark = pytest.mark.anyio
ANN = Closure(principals=frozenset({"user:ann", "everyone"}))


class Between:
    """A reader that lets something happen after a read and before its answer is used."""

    def __init__(self, reader: Any, **after: Callable[[], None]) -> None:
        self._reader = reader
        self._after = after

    def __getattr__(self, name: str) -> Any:
        method = getattr(self._reader, name)
        if name not in self._after:
            return method

        async def call(*args: Any, **more: Any) -> Any:
            found = await method(*args, **more)
            self._after.pop(name, lambda: None)()
            return found

        return call


class Bench:
    """A gatherer on the world's store."""

    def __init__(self, world: World, closure: Closure = ANN, **after: Callable[[], None]) -> None:
        self.world = world
        self.closure = closure
        self.overlay = Overlay()
        reader: IndexReader = Between(world.store.reader(), **after)
        self.gatherer = Gatherer(
            reader, Gate(reader, self.overlay, world.clock), Counters(lambda generation: COUNTER)
        )  # fmt: skip

    async def confirm(self) -> Closure:
        return self.closure

    async def ask(
        self, mode: Any, found: Sequence[Found], budget: int, *, narrowing: Narrowing | None = None,
        deadline: float | None = None,
    ) -> Evidence:  # fmt: skip
        generation = self.world.store.read_generations()[GENERATION]
        deadline = time.monotonic() + 10 if deadline is None else deadline
        asked = Asked(generation, narrowing or Narrowing(TENANT), self.closure, self.confirm, deadline)
        return await self.gatherer.gather(mode, asked, found, budget)


def hit(manifest: Manifest, place: int, text: str) -> Found:
    return Found(manifest.chunks[place].chunk_id, place, text, manifest.sections[place], manifest, ("Top",))


def words(n: int, word: str = "word") -> str:
    return " ".join(f"{word}{i}." for i in range(n))


def wide(world: World, name: str, section: str, *texts: str, rule: Any = None) -> Manifest:
    """A document with one section that holds several passages."""
    made = world.document(name, *texts, rule=rule)
    one = Section(section_id=made.sections[0], ordinal=0, heading_path=("Top",), text=section)
    world.store.write_sections(GENERATION, made.document, [one])
    entries = tuple(entry.model_copy(update={"section_ordinal": 0}) for entry in made.chunks)
    made = made.model_copy(update={"sections": (one.section_id,), "chunks": entries})
    world.store.write_manifest(GENERATION, made)
    return made


def in_one(manifest: Manifest, texts: Sequence[str]) -> list[Found]:
    return [
        Found(chunk_id(manifest.document, text), place, text, manifest.sections[0], manifest, ("Top",))
        for place, text in enumerate(texts)
    ]


@pytest.mark.requirement("B6")
async def test_each_section_once_in_the_stated_order(world: World) -> None:
    manifests = [world.document(f"d{i}", words(5, f"w{i}x")) for i in range(5)]
    found = [hit(m, 0, words(5, f"w{i}x")) for i, m in enumerate(manifests)]
    made = await Bench(world).ask("sections", [*found, found[0]], 100)
    assert [p.document_id for p in made.passages] == ["d0", "d2", "d4", "d3", "d1"]
    assert [p.rank for p in made.passages] == [1, 3, 5, 4, 2]
    assert made.tokens == 25 == sum(p.tokens for p in made.passages) and made.complete and made.left_out == 0
    assert made.passages[0].chunk_ids == (found[0].chunk_id,)


@pytest.mark.requirement("B6")
async def test_hits_of_one_section_share_it_and_nothing_stands_twice(world: World) -> None:
    texts = ("Alpha one. Beta two.", "Beta two. Gamma three.", "Delta four.")
    section = "Alpha one. Beta two. Gamma three. Delta four."
    manifest = wide(world, "d", section, *texts)
    made = await Bench(world).ask("sections", in_one(manifest, texts), 100)
    assert [p.text for p in made.passages] == [section]
    assert len(made.passages[0].chunk_ids) == 3 and not made.passages[0].cut


@pytest.mark.requirement("B6")
async def test_a_section_that_does_not_fit_is_cut_around_its_best_hit(world: World) -> None:
    texts = ("Far away is one.", "Here it is told.", "Near it is more.")
    section = f"{texts[0]} {words(30, 'Word')} {texts[1]} {texts[2]} {words(30, 'End')}"
    manifest = wide(world, "d", section, *texts)
    first, best, near = in_one(manifest, texts)
    made = await Bench(world).ask("sections", [best, first, near], 20)
    (passage,) = made.passages
    assert passage.cut and passage.tokens <= 20 and texts[1] in passage.text and texts[0] not in passage.text
    assert passage.chunk_ids == (best.chunk_id, near.chunk_id), "only the hits that it shows"
    assert not made.complete and made.left_out == 0


@pytest.mark.requirement("B6")
async def test_what_does_not_fit_is_left_out_and_the_next_is_tried(world: World) -> None:
    long, short = words(50), words(5, "s")
    found = [hit(world.document("long", long), 0, long), hit(world.document("short", short), 0, short)]
    # The long passage is many sentences, none of which is the whole hit.
    made = await Bench(world).ask("sections", found, 10)
    assert [p.document_id for p in made.passages] == ["short"] and made.passages[0].rank == 1
    assert made.left_out == 1 and not made.complete


@pytest.mark.requirement("B6")
async def test_a_document_without_sections_gives_its_hits_text(world: World) -> None:
    one, two = "The first half says this. It goes on here.", "It goes on here. Then it ends."
    manifest = world.document("d", one, two).model_copy(update={"sections": ()})
    world.store.write_manifest(GENERATION, manifest)
    found = [
        Found(manifest.chunks[i].chunk_id, i, text, "", manifest, ("Top",)) for i, text in ((1, two), (0, one))
    ]  # fmt: skip
    made = await Bench(world).ask("sections", found, 100)
    assert [p.text for p in made.passages] == ["The first half says this. It goes on here. Then it ends."]
    assert made.passages[0].section_id == "" and made.passages[0].heading_path == ("Top",)
    small = await Bench(world).ask("sections", found, 8)
    assert [p.text for p in small.passages] == [two] and small.passages[0].cut


@pytest.mark.requirement("B6", "I3", "A8")
@pytest.mark.parametrize("mode", ["sections", "all"])
@pytest.mark.parametrize("how", ["rule", "tombstone", "membership", "log"])
async def test_what_is_revoked_after_the_read_does_not_leave(world: World, mode: str, how: str) -> None:
    secret, plain = (
        world.document("secret", "secret text", rule=anyone("group:wiki/eng")),
        world.document("open", "open"),
    )
    bench: Bench

    def revoke() -> None:
        version = world.version()
        if how == "rule":
            world.access(secret.document, anyone("user:bob"))
        elif how == "tombstone":
            world.access(secret.document, tombstone=True, not_before=version)
        elif how == "membership":
            bench.closure = ANN
        else:
            event = AccessTombstone(document=secret.document, version=version, not_before=version, observed_at=1)
            assert bench.overlay.apply(world.log.event(event))

    member = Closure(principals=ANN.principals | {"group:wiki/eng"})
    found = [hit(secret, 0, "secret text"), hit(plain, 0, "open")]
    untouched = await Bench(world, member).ask(mode, found, 100)
    assert {p.document_id for p in untouched.passages} == {"secret", "open"}
    bench = Bench(world, member, sections=revoke)
    made = await bench.ask(mode, found, 100)
    assert [p.document_id for p in made.passages] == ["open"]
    assert made.complete and made.left_out == 0 and made.tokens == 1, "as if the other were not there"


@pytest.mark.requirement("B6", "I2")
async def test_a_document_that_moved_on_is_resolved_again_and_never_mixed(world: World) -> None:
    old = world.document("d", "kept passage", "changed passage")
    found = [hit(old, 1, "changed passage"), hit(old, 0, "kept passage")]
    new = world.document("d", "inserted before", "kept passage")
    world.store.delete_sections(GENERATION, TENANT, [old.sections[1]])
    made = await Bench(world).ask("sections", found, 100)
    assert [(p.text, p.version) for p in made.passages] == [("kept passage", new.content_version)]
    assert made.passages[0].section_id == new.sections[1] and made.passages[0].chunk_ids == (found[1].chunk_id,)


@pytest.mark.requirement("B6", "I2")
async def test_a_document_that_was_rewritten_whole_gives_the_version_that_was_found(world: World) -> None:
    old = world.document("d", "an old passage")
    world.document("d", "all is new")
    world.store.delete_sections(GENERATION, TENANT, list(old.sections))
    made = await Bench(world).ask("sections", [hit(old, 0, "an old passage")], 100)
    assert [(p.text, p.version) for p in made.passages] == [("an old passage", old.content_version)]


@pytest.mark.requirement("B14")
async def test_everything_in_scope_in_document_order_the_hits_documents_first(world: World) -> None:
    world.document("b", "b one", "b two")
    world.document("a", "a one", tier="cold")
    first = world.document("z", "z one", "z two")
    world.document("ticket", "elsewhere").model_copy()
    bench = Bench(world)
    narrowing = narrow(Scope(TENANT, "ann"), SearchFilters(sources=("wiki",)), world.clock.now())
    made = await bench.ask("all", [hit(first, 1, "z two")], 100, narrowing=narrowing)
    assert [p.text for p in made.passages] == ["z one", "z two", "a one", "b one", "b two", "elsewhere"]
    assert made.mode == "all" and made.complete and made.tokens == 11 and made.left_out == 0
    assert [p.chunk_ids for p in made.passages][:2] == [(), (first.chunks[1].chunk_id,)]
    nothing = await bench.ask("all", [], 100, narrowing=replace(narrowing, kinds=frozenset({"issue"})))
    assert nothing.passages == () and nothing.complete


@pytest.mark.requirement("B14", "I3")
async def test_hidden_documents_change_nothing(world: World) -> None:
    world.document("open", "open text")
    before = await Bench(world).ask("all", [], 10)
    for i in range(5):
        world.document(f"hidden{i}", words(50), rule=anyone("user:bob"))
        # The pre-filter would let it through: only the deny set hides it.
        world.document(f"denied{i}", words(50), rule=anyone(deny=["user:ann"]))
    assert await Bench(world).ask("all", [], 10) == before
    nobody = await Bench(world, Closure.of_nobody()).ask("all", [], 10)
    assert nobody.passages == () and nobody.complete


@pytest.mark.requirement("B14")
async def test_what_does_not_fit_is_answered_with_the_hits_sections(world: World) -> None:
    manifest = world.document("a", words(20))
    world.document("b", words(20, "other"))
    found = [hit(manifest, 0, words(20))]
    made = await Bench(world).ask("all", found, 30)
    assert made.mode == "sections" and not made.complete and [p.document_id for p in made.passages] == ["a"]
    late = await Bench(world).ask("all", found, 100, deadline=time.monotonic() - 1)
    assert late.mode == "sections" and not late.complete
    assert (await Bench(world).ask("all", found, 40)).complete


@pytest.mark.requirement("B14")
async def test_a_longer_listing_is_read_to_its_end(world: World) -> None:
    for i in range(12):
        world.document(f"d{i:02}", f"text {i}", rule=anyone("user:bob") if i % 2 else None)
    with mock.patch.object(everything, "FIRST", 4), mock.patch.object(everything, "DOCUMENTS", 3):
        made = await Bench(world).ask("all", [], 100)
        assert [p.document_id for p in made.passages] == [f"d{i:02}" for i in range(0, 12, 2)] and made.complete
        with mock.patch.object(everything, "MOST", 5):
            cut = await Bench(world).ask("all", [], 100)
            assert not cut.complete, "what was not looked through is not called complete"


@pytest.mark.requirement("B14", "I2")
async def test_all_follows_a_document_that_moves_while_it_is_read(world: World) -> None:
    old = world.document("d", "old text")

    def move() -> None:
        world.document("d", "new text")
        world.store.delete_sections(GENERATION, TENANT, list(old.sections))

    made = await Bench(world, manifests=move).ask("all", [], 100)
    assert [p.text for p in made.passages] == ["new text"] and made.complete


@pytest.mark.requirement("B6", "B14")
async def test_the_service_gives_evidence_and_refuses_a_budget_above_its_limit(world: World) -> None:
    world.principal("user:ann")
    world.principal("user:bob", removed=True)
    world.document("a", "the pump stops")
    world.document("b", "the secret pump", rule=anyone("user:cleo"))
    async with world.running() as run:
        reply = await run.search("pump", evidence="sections", token_budget=100)
        assert [p["text"] for p in reply["evidence"]["passages"]] == ["the pump stops"]
        assert reply["evidence"]["budget"] == 100 and reply["evidence"]["complete"]
        assert (await run.search("pump"))["evidence"] is None
        everything_ = await run.search("pump", evidence="all")
        assert everything_["evidence"]["mode"] == "all" and everything_["evidence"]["complete"]
        nobody = await run.search("pump", "bob", evidence="all")
        assert nobody["evidence"]["passages"] == [] and nobody["suggestion"] is None
        refused = await run.post({"query": "pump", "evidence": "sections", "token_budget": 32_001})
        assert refused.status_code == 422 and refused.json()["errors"][0]["field"] == "token_budget"
        assert "32000" in refused.text


@pytest.mark.requirement("B6")
async def test_a_counter_is_loaded_once_a_generation_and_estimated_where_it_is_missing(world: World) -> None:
    loads: list[str] = []

    def load(generation: Generation) -> TokenCounter:
        loads.append(generation.name)
        if generation.encoder.model == "missing":
            raise ConfigError("encoder.weights", "not here", "Fetch it.")
        return COUNTER

    counters = Counters(load)
    generation = world.store.read_generations()[GENERATION]
    assert [await counters.of(generation) for _ in range(3)] == [COUNTER] * 3 and loads == [GENERATION]
    other = generation.model_copy(update={"encoder": generation.encoder.model_copy(update={"model": "missing"})})
    assert (await counters.of(other)).count("four") > 2 and await counters.of(other) is await counters.of(other)
    assert len(loads) == 2


@pytest.mark.requirement("B6")
def test_a_budget_is_never_exceeded() -> None:
    assert fitted([], COUNTER, 10).complete and fitted([], COUNTER, 10).passages == ()
    document = ref("d")
    manifest = Manifest(document=document, rule=anyone(), seen_rule=anyone(), title="d")
    section = Section(section_id="s", ordinal=0, heading_path=(), text="one two")
    made = whole([Standing(manifest, section, 2)], [], 10)
    assert made.tokens == 2 and made.complete
