"""Why a person sees a document or does not: the explanation and the decision never differ."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pipeline.admission import refusal
from pipeline.closures import closure_among, walking
from pipeline.sources.folder.rights import read_access
from query_service.explain import Steps, explain, first_failed, person, stepping
from schemas.access import SUSPENDED, AccessRule, Clause, Closure, Grant
from schemas.api_why import WhyResponse
from schemas.documents import AccessRecord, Manifest, PrincipalPart, PrincipalRecord
from schemas.events import REQUESTS_STREAM, AccessTombstone, DocumentState, HoldChanged
from schemas.reconciliation import OwnerStatus, RequestsPosition
from tests.unit.query.logged import EVALUATOR, OPERATOR, LoggedWorld, listed, seen
from tests.unit.query.test_app import problem
from tests.unit.query.test_freshness import cursor, put
from tests.unit.query.world import GENERATION, TENANT, Running, World, anyone, ref

NOW = 1000
NAMES = ["user:ann", "user:bob", "group:wiki/eng", "group:wiki/ops", "audience:wiki/x", "everyone", "nobody"]
names = st.sampled_from(NAMES)
ends = st.one_of(st.none(), st.sampled_from([NOW - 1, NOW, NOW + 1]))
grants = st.builds(Grant, principal=names, until=ends)
clauses = st.lists(grants, min_size=1, max_size=3).map(lambda g: Clause(any_of=tuple(g)))
rules = st.builds(
    AccessRule,
    clauses=st.lists(clauses, min_size=1, max_size=3).map(tuple),
    deny=st.lists(names, max_size=2).map(tuple),
)
versions = st.integers(0, 4)
documents = st.sampled_from([ref("a"), ref("b"), ref("a", tenant="other")])
manifests = st.none() | st.builds(
    Manifest, document=documents, deleted=st.booleans(), content_version=versions, access_version=versions, rule=rules,
    seen_rule=rules,
)  # fmt: skip
accesses = st.none() | st.builds(
    AccessRecord, document=documents, version=versions, content_version=versions, not_before=versions,
    tombstone=st.booleans(), rule=rules, holds=st.dictionaries(st.just("legal"), versions, max_size=1),
)  # fmt: skip
closures = st.builds(Closure, principals=st.frozensets(names, max_size=6), complete=st.booleans())


@st.composite
def principals(draw: st.DrawFn) -> dict[str, PrincipalRecord | None]:
    found: dict[str, PrincipalRecord | None] = {}
    for name in draw(st.lists(st.sampled_from(NAMES[:6]), unique=True, max_size=6)):
        parents = draw(
            st.lists(st.sampled_from([*NAMES, SUSPENDED]) if draw(st.integers(0, 9)) == 0 else names, max_size=3)
        )
        until = {p: e for p in parents if (e := draw(ends)) is not None}
        part = PrincipalPart(
            parents=tuple(parents), until=until, removed=draw(st.booleans()) and not parents, version=1
        )
        closed = {"wiki": 1} if draw(st.integers(0, 9)) == 0 else None
        found[name] = PrincipalRecord.of(TENANT, name, {"wiki": part}, closed)
    return found


def walked(records: dict[str, PrincipalRecord | None], **bounds: int) -> Steps:
    steps = stepping("user:ann", NOW, **bounds)
    frontier = next(steps)
    while True:
        try:
            frontier = steps.send({n: records.get(n) for n in frontier})
        except StopIteration as end:
            made: Steps = end.value
            return made


@pytest.mark.requirement("I3", "I12", "C5")
@given(manifests, accesses, closures)
def test_the_explanation_is_the_decision(
    manifest: Manifest | None, record: AccessRecord | None, closure: Closure
) -> None:
    found = explain(manifest, record, closure, TENANT, NOW)
    decided = refusal(manifest, record, closure, TENANT, NOW)
    assert found.refusal == decided and found.allowed == (decided is None)
    assert first_failed(found.checks) == decided
    assert all(c.says for c in found.checks)
    for shown in (found.rule, found.manifest_rule):
        if shown is not None and closure.principals:
            clear = not shown.denied_by and not shown.denied_as_unknown
            assert shown.admits == (clear and all(c.satisfied for c in shown.clauses))
            assert all(c.satisfied == bool(c.satisfied_by) for c in shown.clauses)


@pytest.mark.requirement("I3", "I12")
@given(principals(), st.integers(2, 8), st.integers(1, 3))
def test_every_principal_has_a_way_and_an_incomplete_closure_a_reason(
    records: dict[str, PrincipalRecord | None], most: int, depth: int
) -> None:
    steps = walked(records, most=most, depth=depth)
    walk = _walk(records, most, depth)
    assert steps.walk == walk
    told = person(steps, frozenset(), NOW)
    closure = walk.closure
    assert told.principals_total == len(closure.principals) == len(told.principals)
    assert {r.principal for r in told.principals} == closure.principals
    for reached in told.principals:
        assert reached.path[0] in ("user:ann", "everyone") and reached.path[-1] == reached.principal
        for child, parent in zip(reached.path, reached.path[1:], strict=False):
            record = records[child]
            assert record is not None and parent in record.parents_at(NOW)
    own = records.get("user:ann")
    assert told.live == (own is not None and not own.removed)
    if closure.principals and not closure.complete:
        users = any(
            p == "nobody" or p.startswith("user:")
            for r in steps.records.values() if r is not None and not r.removed for p in r.parents_at(NOW)
        )  # fmt: skip
        assert told.cut or told.missing or told.removed or told.unreadable or users
    if not closure.principals and told.live:
        assert told.tenant_suspended or told.unreadable


def _walk(records: dict[str, PrincipalRecord | None], most: int, depth: int) -> Any:
    steps = walking("user:ann", now=NOW, max_principals=most, max_depth=depth)
    frontier = next(steps)
    while True:
        try:
            frontier = steps.send({n: records.get(n) for n in frontier})
        except StopIteration as end:
            return end.value


def test_without_bounds_it_is_the_closure_of_everybody_else() -> None:
    record = PrincipalRecord.of(TENANT, "user:ann", {"wiki": PrincipalPart(parents=("group:wiki/eng",), version=1)})
    assert walked({"user:ann": record}).walk.closure == closure_among("user:ann", {"user:ann": record}, NOW)


# ------------------------------------------------------------ the route


@pytest.fixture
def logged(tmp_path: Path) -> LoggedWorld:
    made = LoggedWorld(tmp_path)
    made.principal("user:ann", "group:wiki/eng")
    made.principal("user:omar")
    made.principal("group:wiki/eng", "group:wiki/all")
    made.principal("group:wiki/all")
    return made


async def why(run: Running, user: str, uid: str, **params: Any) -> WhyResponse:
    reply = await run.client.get(
        "/v1/why", params={"user": user, "document": uid, **params}, headers=run.headers("olga", **OPERATOR)
    )
    assert reply.status_code == 200, reply.text
    return WhyResponse.model_validate(reply.json())


@pytest.mark.anyio
@pytest.mark.requirement("C5", "B1", "I3")
async def test_it_names_the_clause_the_principal_and_the_way_to_it(logged: LoggedWorld) -> None:
    rule = AccessRule(
        clauses=(
            Clause(any_of=(Grant(principal="group:wiki/all"), Grant(principal="user:bob"))),
            Clause(any_of=(Grant(principal="everyone"),)),
        ),
        deny=("user:omar",),
    )
    m = logged.document("a", "the walrus plan", rule=rule)
    async with logged.running() as run:
        ann = await why(run, "ann", m.document.uid)
        omar = await why(run, "user:omar", m.document.uid)
        ghost = await why(run, "ghost", m.document.uid)
        seen_by = {u: await run.ids("plan", u) for u in ("ann", "omar", "ghost")}
        assert "walrus" not in ann.model_dump_json()
    assert seen_by == {"ann": ["a"], "omar": [], "ghost": []}
    assert ann.allowed and ann.refusal is None and ann.says == "may read it"
    assert (ann.source, ann.kind, ann.document_id, ann.generation, ann.active) == (
        "wiki",
        "page",
        "a",
        GENERATION,
        True,
    )
    assert ann.rule is not None and [c.satisfied_by for c in ann.rule.clauses] == [("group:wiki/all",), ("everyone",)]
    paths = {r.principal: r.path for r in ann.person.principals}
    assert paths["group:wiki/all"] == ("user:ann", "group:wiki/eng", "group:wiki/all")
    assert ann.person.live and ann.person.complete
    assert not omar.allowed and omar.refusal == "rule" and omar.rule is not None
    assert omar.rule.denied_by == ("user:omar",) and "denied by: user:omar" in omar.says
    assert [c.satisfied for c in omar.rule.clauses] == [False, True]
    assert not ghost.person.live and "nobody" in ghost.says


@pytest.mark.anyio
@pytest.mark.requirement("C5", "I3", "I12")
async def test_it_says_what_stands_against_it_in_the_store_and_on_the_log(logged: LoggedWorld) -> None:
    logged.principal("user:eve", "group:wiki/lost")
    plain = logged.document("a", "plan", rule=anyone(deny=["user:bob"]))
    held = logged.document("held", "plan")
    behind = logged.document("behind", "plan", content_version=5)
    logged.access(behind.document, not_before=9)
    bare = logged.document("bare", "plan", record=False)
    dated = logged.document("dated", "plan", effective_from=10, effective_until=20)
    put(logged, DocumentState(document=plain.document, content_version=plain.content_version + 50, access_version=1))
    async with logged.running() as run:
        lost = await why(run, "eve", plain.document.uid)
        assert (lost.refusal, lost.person.missing) == ("rule", ("group:wiki/lost",))
        assert lost.rule is not None and lost.rule.denied_as_unknown and not lost.person.complete
        await run.until(lambda: run.parts.freshness.standing(TENANT, plain.document.uid, GENERATION) != [])
        waiting = await why(run, "ann", plain.document.uid)
        assert [(p.lane, p.settled) for p in waiting.pending] == [("access", None), ("index", None)]
        assert (await why(run, "ann", behind.document.uid)).refusal == "not_before"
        assert (await why(run, "ann", bare.document.uid)).refusal == "no_record"
        assert (await why(run, "ann", ref("never").uid)).refusal == "no_manifest"
        logged.log.event(HoldChanged(
            document=held.document, hold="legal", active=True, version=logged.version(), observed_at=logged.clock.now()
        ))  # fmt: skip
        await run.until(lambda: bool(run.parts.overlay.access(held.document.uid, None)) or len(run.parts.overlay) > 0)
        on_hold = await why(run, "ann", held.document.uid)
        assert on_hold.refusal == "hold" and on_hold.record is not None
        assert on_hold.record.from_log and "legal" in on_hold.says
        tombstone = AccessTombstone(
            document=held.document,
            version=logged.version(),
            observed_at=logged.clock.now(),
            not_before=logged.version(),
        )
        logged.log.event(tombstone)
        await run.until(lambda: getattr(run.parts.overlay.access(held.document.uid, None), "tombstone", False))
        assert (await why(run, "ann", held.document.uid)).refusal == "tombstone"
        early = await why(run, "ann", dated.document.uid, as_of=5)
        within = await why(run, "ann", dated.document.uid, as_of=15)
        assert early.allowed and early.manifest is not None and not early.manifest.in_effect
        assert within.manifest is not None and within.manifest.in_effect and within.manifest.prefilter


@pytest.mark.anyio
@pytest.mark.requirement("C5", "I7")
async def test_another_generation_is_explained_by_its_own_text(logged: LoggedWorld) -> None:
    logged.generation("g2")
    m = logged.document("a", "plan", rule=anyone("user:ann"))
    logged.document("a", "plan", rule=anyone("user:bob"), generation="g2", content_version=7, record=False)
    logged.access(m.document, anyone("user:ann"), content_version=m.content_version)
    async with logged.running() as run:
        assert (await why(run, "ann", m.document.uid)).allowed
        there = await why(run, "ann", m.document.uid, generation="g2")
        assert (there.generation, there.active, there.refusal) == ("g2", False, "manifest_rule")
        reply = await run.get(f"/v1/why?user=ann&document={m.document.uid}&generation=g9", "olga", **OPERATOR)
        assert [e.field for e in problem(reply, 422).errors] == ["generation"]


@pytest.mark.anyio
@pytest.mark.requirement("C5", "B1")
async def test_it_is_an_operators_act_and_of_one_tenant_and_for_others_it_is_not_there(logged: LoggedWorld) -> None:
    m = logged.document("a", "plan")
    async with logged.running() as run:
        absent = (await run.get("/v1/nothing")).content
        for claims in ({}, EVALUATOR):
            for path in (f"/v1/why?user=ann&document={m.document.uid}", "/v1/why", "/v1/why?user=ann&as_of=x"):
                reply = await run.get(path, "ann", **claims)
                assert (reply.status_code, reply.content) == (404, absent)
        for change, field in (
            ({"user": " ann"}, "user"), ({"document": "a"}, "document"), ({"as_of": "x"}, "as_of"),
            ({"generation": "G 2"}, "generation"),
        ):  # fmt: skip
            params = {"user": "ann", "document": m.document.uid, **change}
            reply = await run.client.get("/v1/why", params=params, headers=run.headers("olga", **OPERATOR))
            assert [e.field for e in problem(reply, 422).errors] == [field]
        logged.principal("user:ann", tenant="other")
        reply = await run.get(f"/v1/why?user=ann&document={m.document.uid}", "olga", **OPERATOR, tenant="other")
        foreign = WhyResponse.model_validate(reply.json())
        assert (foreign.refusal, foreign.source, foreign.record) == ("no_manifest", None, None)
        before = len(logged.queries())
        await run.search("plan", "ann")
        logged.clock.advance(1)
        told = await why(run, "ann", m.document.uid)
        await seen(run, before + 3)
        act, search = (await listed(run))["queries"][:2]
        assert (act["kind"], act["query_id"], act["document_uid"]) == ("why", told.query_id, m.document.uid)
        assert act["scope"] == search["scope"] and act["operator"] not in (None, search["scope"])
        assert (await listed(run, claims=OPERATOR, kind="why"))["queries"][0]["scope"] is None


@pytest.mark.anyio
@pytest.mark.requirement("I11", "I12")
async def test_another_tenants_event_on_the_log_is_not_explained(world: World) -> None:
    world.principal("user:ann", tenant="other")
    m = world.document("a", "plan")
    async with world.running() as run:
        tombstone = AccessTombstone(
            document=m.document, version=world.version(), observed_at=world.clock.now(), not_before=world.version()
        )
        world.log.event(tombstone)
        await run.until(lambda: len(run.parts.overlay) == 1)
        reply = await run.get(f"/v1/why?user=ann&document={m.document.uid}", "olga", **OPERATOR, tenant="other")
        assert reply.json()["record"] is None and reply.json()["document_id"] is None


@pytest.mark.anyio
@pytest.mark.requirement("C5", "I12")
async def test_it_tells_that_an_access_file_of_the_documents_folder_cannot_be_used(logged: LoggedWorld) -> None:
    shut = [read_access("other", b"deny: []").closed, read_access("eng/plans", b"allow: [").closed]
    alarms = tuple(why for why in shut if why is not None)
    assert len(alarms) == 2
    m = logged.document("eng/plans/a.md", "plan", rule=AccessRule.any_of("audience:wiki/eng/plans"))
    told = RequestsPosition(next=3, status=OwnerStatus(state="waiting", since=1, alarms=alarms))
    put(logged, cursor(logged.clock.now(), stream=REQUESTS_STREAM).model_copy(
        update={"position": told.model_dump_json()}
    ))  # fmt: skip
    async with logged.running() as run:
        await run.until(lambda: run.parts.freshness.alarms(TENANT, "wiki") != [])
        found = await why(run, "ann", m.document.uid)
        assert found.refusal == "rule"
        assert found.source_alarms == (alarms[1], alarms[0]), "that of its own folder first"
        assert "eng/plans/.access.yaml" in found.source_alarms[0]
        well = told.model_copy(update={"status": OwnerStatus(state="waiting", since=2)})
        put(logged, cursor(logged.clock.now(), stream=REQUESTS_STREAM).model_copy(
            update={"position": well.model_dump_json()}
        ))  # fmt: skip
        await run.until(lambda: run.parts.freshness.alarms(TENANT, "wiki") == [])
        assert (await why(run, "ann", m.document.uid)).source_alarms == ()
