"""Grants, revocations, edits, deletions, switches and questions in any order: nothing stale or forbidden is given.

The store is changed first and the log tells of it later, as in the lanes; the service's tails read it later still. A
change counts from the moment at which its receipt is on the log. From then on what is kept must be what a search finds;
before that it may lack what is new, and holds nothing that may not be read or was replaced, at any time.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from pipeline.observe import Metrics
from pipeline.ports import Record
from pipeline.settings_query import CacheSettings
from query_service import assemble
from query_service.admit import admit_document
from query_service.cache.kept import Keeper
from query_service.cache.searches import Searches
from query_service.closure import Closures
from query_service.freshness import Freshness
from query_service.overlay import Overlay
from query_service.scope import Scope, narrow
from schemas.api import Scores, SearchFilters, SearchHit, SearchRequest, SearchResponse
from schemas.events import AccessSet, AccessTombstone, MembershipSet
from schemas.receipts import Receipt
from schemas.topics import Topic
from tests.unit.cache.kept import receipt
from tests.unit.cache.replies import found
from tests.unit.query.world import GENERATION, TENANT, World, anyone, ref

NAMES = ("a", "b", "c")
PEOPLE = ("ann", "bob")
RULES = (anyone(), anyone("group:eng"), anyone("user:ann"), anyone("user:bob", "group:eng"))
GENERATIONS = (GENERATION, "g2")
names, people = st.sampled_from(NAMES), st.sampled_from(PEOPLE)
Change = Callable[[], None]


class Kept(RuleBasedStateMachine):
    """The model is the store under the overlay, searched by reading all of it."""

    def __init__(self) -> None:
        super().__init__()
        self.world = world = World(Path("."))
        world.generation("g2")
        self.metrics = Metrics()
        self.overlay = Overlay()
        self.freshness = Freshness(world.log.open, lambda: None, world.clock, self.metrics)  # type: ignore[arg-type, return-value]
        self.to_tail: list[Record] = []  # on the log, not read by the overlay
        self.to_count: list[Receipt] = []  # on the log, not counted
        self.to_tell: list[list[Receipt]] = []  # in the store, no receipt on the log yet
        self.active = GENERATION
        self.reader = world.store.reader()

        async def overlay_passed() -> bool:
            return not self.to_tail

        async def receipts_passed() -> bool:
            return not self.to_count

        self.closures = Closures(self.reader, self.overlay, world.clock, lambda: True, overlay_passed)
        self.keeper = Keeper(
            CacheSettings(), self.reader, self.overlay, self.closures, self.freshness, world.clock, self.metrics,
            receipts_passed,
        )  # fmt: skip
        self.searches = Searches(self.keeper)
        world.principal("group:eng")
        for person in PEOPLE:
            world.principal(f"user:{person}", "group:eng")
        self.rule_of = dict.fromkeys(NAMES, RULES[1])
        for name in NAMES:
            self.write(name)
        self.hits = 0

    # ------------------------------------------------------------ changes: first the log or the store, then the tails

    def write(self, name: str) -> None:
        for generation in GENERATIONS:
            self.world.document(name, f"{name} {self.world.version()}", rule=self.rule_of[name], generation=generation)
        self.to_tell.append([receipt(name, generation=g) for g in GENERATIONS])

    @rule(name=names)
    def edit(self, name: str) -> None:
        self.write(name)

    @rule(name=names, chosen=st.sampled_from(RULES), logged=st.booleans())
    def grant_or_revoke(self, name: str, chosen: Any, logged: bool) -> None:
        self.rule_of[name] = chosen
        event = AccessSet(
            document=ref(name), version=self.world.version(), observed_at=1, rule=chosen, content_version=0
        )  # fmt: skip
        self.to_tail.append(self.world.log.event(event))
        if logged:  # else the access lane has not applied it
            self.world.access(ref(name), chosen, version=event.version)
            self.to_tell.append([receipt(name, generation=None, lane="access")])

    @rule(name=names)
    def delete(self, name: str) -> None:
        version = self.world.version()
        event = AccessTombstone(document=ref(name), version=version, not_before=version + 1, observed_at=1)
        self.to_tail.append(self.world.log.event(event))
        self.world.access(ref(name), self.rule_of[name], version=version, tombstone=True, not_before=version + 1)
        self.to_tell.append([receipt(name, generation=None, lane="access")])

    @rule(person=people, joins=st.booleans())
    def join_or_leave(self, person: str, joins: bool) -> None:
        parents = ("group:eng",) if joins else ()
        event = MembershipSet(
            tenant=TENANT, principal=f"user:{person}", parents=parents, version=self.world.version(), observed_at=1,
            source="wiki",
        )  # fmt: skip
        self.to_tail.append(self.world.log.event(event))
        self.world.principal(f"user:{person}", *parents)

    @rule()
    def switch(self) -> None:
        self.active = GENERATIONS[1 - GENERATIONS.index(self.active)]

    @rule()
    def the_lanes_tell(self) -> None:
        for told in self.to_tell:
            self.to_count.extend(told)
        self.to_tell.clear()

    @rule()
    def the_access_tail_reads(self) -> None:
        for record in self.to_tail:
            self.overlay.apply(record)
        self.to_tail.clear()

    @rule()
    def the_receipts_are_counted(self) -> None:
        self.freshness._count(self.to_count)
        self.to_count.clear()

    @rule()
    def all_is_quiet(self) -> None:
        self.the_lanes_tell()
        self.the_access_tail_reads()
        self.the_receipts_are_counted()

    @rule(seconds=st.sampled_from((1, 30, 61)))
    def time_passes(self, seconds: int) -> None:
        self.world.clock.advance(seconds)

    # ------------------------------------------------------------ questions

    async def truth(self, person: str) -> dict[str, SearchHit]:
        """What the person may read now, by document."""
        scope = Scope(tenant=TENANT, subject=person)
        uids = [ref(name).uid for name in NAMES]
        manifests = await self.reader.manifests(self.active, TENANT, uids)
        records = await self.reader.access(TENANT, uids)
        closure = await self.closures.confirmed(scope)
        now = self.world.clock.now()
        narrowing = narrow(scope, SearchFilters(), now)
        hits: dict[str, SearchHit] = {}
        for uid, manifest in manifests.items():
            record = self.overlay.access(uid, records.get(uid))
            if record is not None and admit_document(manifest, record, closure, narrowing, now) is None:
                hits[manifest.document.id] = SearchHit(
                    **assemble.document_facts(manifest, record, now), section_id="s", chunk_id="c", chunk_index=0,
                    chunk_total=1, heading_path=(), text="", scores=Scores(fused=1.0),
                )  # fmt: skip
        return hits

    async def ask(self, person: str, meanwhile: Change | None) -> SearchResponse:
        scope = Scope(tenant=TENANT, subject=person)
        request = SearchRequest(query="all of it")
        generation = self.world.store.read_generations()[self.active]

        async def search() -> SearchResponse:
            hits = tuple((await self.truth(person)).values())
            if meanwhile is not None:
                meanwhile()
            return found(hits=hits, generation=generation.name)

        narrowing = narrow(scope, request.filters, self.world.clock.now())
        return await self.searches.through(scope, request, narrowing, generation, search)

    @rule(person=people)
    def twice_the_same(self, person: str) -> None:
        """The second one may be given what the first one left."""
        self.a_question(person, "", "a")
        self.a_question(person, "", "a")

    @rule(person=people, name=names, chosen=st.sampled_from(RULES))
    def a_rule_between_two_questions(self, person: str, name: str, chosen: Any) -> None:
        """It is acknowledged, and no tail has read of it."""
        self.all_is_quiet()
        self.a_question(person, "", "a")
        self.grant_or_revoke(name, chosen, True)
        self.the_lanes_tell()
        self.a_question(person, "", "a")

    @rule(person=people, meanwhile=st.sampled_from(("", "edit", "delete", "leave", "read")), name=names)
    def a_question(self, person: str, meanwhile: str, name: str) -> None:
        changes: dict[str, Change] = {
            "edit": lambda: self.write(name),
            "delete": lambda: self.delete(name),
            "leave": lambda: self.join_or_leave(person, False),
            "read": self.all_is_quiet,
        }
        reply = asyncio.run(self.ask(person, changes.get(meanwhile)))
        if not reply.cached:
            return
        self.hits += 1
        now = asyncio.run(self.truth(person))
        given = {hit.document_id: (hit.version, hit.access.version) for hit in reply.hits}
        assert given.keys() <= now.keys(), "forbidden, or gone"
        for name_, versions in given.items():
            assert versions == (now[name_].version, now[name_].access.version), "replaced"
        if not self.to_tell:
            assert given.keys() == now.keys(), "what is acknowledged is in the answer"

    @invariant()
    def nothing_is_kept_beyond_its_bounds(self) -> None:
        shelf = self.keeper.shelf
        assert shelf.count("searches") <= CacheSettings().searches
        assert (shelf.count("searches") == 0) == (shelf.bytes("searches") == 0)


TestKept = pytest.mark.requirement("B10", "A8")(Kept.TestCase)
TestKept.settings = settings(
    max_examples=60, stateful_step_count=40, deadline=None, suppress_health_check=list(HealthCheck)
)


@pytest.mark.requirement("B10")
def test_the_machine_does_give_what_is_kept() -> None:
    machine = Kept()
    machine.all_is_quiet()
    for _ in range(2):
        machine.a_question("ann", "", "a")
    assert machine.hits == 1
    machine.the_lanes_tell()
    machine.a_question("ann", "", "a")
    assert machine.hits == 2
    assert Topic.RECEIPTS.value not in {topic for topic, _ in machine.world.log.records}
