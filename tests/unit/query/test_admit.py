"""Admission, line by line as invariant 3 has it, and as properties over random rules and closures."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pipeline.admission import Refusal
from query_service.admit import admit_chunk, admit_document, passes
from query_service.scope import Narrowing
from schemas.access import AccessRule, Clause, Closure, Grant
from schemas.documents import AccessRecord, Manifest
from schemas.keys import DocumentRef

NOW = 1_700_000_000_000_000
DOCUMENT = DocumentRef(tenant="acme", source="wiki", id="page")
ANN = Closure(principals=frozenset({"user:ann", "everyone", "group:wiki/eng"}))
OPEN = Narrowing(tenant="acme")
ENG = AccessRule.any_of("group:wiki/eng")
SALES = AccessRule.any_of("group:wiki/sales")


def manifest(**changes: Any) -> Manifest:
    fields: dict[str, Any] = {
        "document": DOCUMENT, "content_version": 100, "access_version": 90, "rule": ENG, "seen_rule": ENG,
        "title": "Page", "content_type": "text/markdown", "language": "en", "product": "probe",
        "updated_at": NOW - 1000, "chunk_total": 1,
    }  # fmt: skip
    return Manifest(**{**fields, **changes})


def record(**changes: Any) -> AccessRecord:
    fields: dict[str, Any] = {"document": DOCUMENT, "version": 90, "content_version": 100, "rule": ENG}
    return AccessRecord(**{**fields, **changes})


TABLE: list[tuple[str, Manifest | None, AccessRecord | None, Closure, Refusal | None]] = [
    ("all is well", manifest(), record(), ANN, None),
    ("no manifest", None, record(), ANN, Refusal.NO_MANIFEST),
    ("no record", manifest(), None, ANN, Refusal.NO_RECORD),
    ("deleted in the index", manifest(deleted=True), record(), ANN, Refusal.DELETED),
    ("tombstone", manifest(), record(tombstone=True), ANN, Refusal.TOMBSTONE),
    ("hold", manifest(), record(holds={"quarantine": 5}), ANN, Refusal.HOLD),
    ("lifted hold", manifest(), record(lifted={"quarantine": 5}), ANN, None),
    ("content older than a redaction", manifest(content_version=99), record(not_before=100), ANN, Refusal.NOT_BEFORE),
    ("content as new as the redaction", manifest(content_version=100), record(not_before=100), ANN, None),
    ("record older than the content demands", manifest(access_version=91), record(), ANN, Refusal.ACCESS_BEHIND),
    ("record newer than the content demands", manifest(), record(version=91), ANN, None),
    ("rule not satisfied", manifest(), record(rule=SALES), ANN, Refusal.RULE),
    ("narrowed before its content", manifest(rule=ENG), record(rule=SALES, content_version=200), ANN, Refusal.RULE),
    ("widened before its content", manifest(rule=SALES), record(content_version=101), ANN, Refusal.MANIFEST_RULE),
    ("widened with its content", manifest(rule=SALES), record(content_version=100), ANN, None),
    ("widened for readers of both", manifest(rule=ENG), record(content_version=101), ANN, None),
    ("nobody asks", manifest(), record(rule=AccessRule.any_of("everyone")), Closure.of_nobody(), Refusal.RULE),
    ("nobody may", manifest(), record(rule=AccessRule.nobody("unreadable")), ANN, Refusal.RULE),
    ("denied", manifest(), record(rule=AccessRule.any_of("everyone", deny=["user:ann"])), ANN, Refusal.RULE),
    (
        "incomplete closure and a deny set",
        manifest(),
        record(rule=AccessRule.any_of("everyone", deny=["user:bob"])),
        ANN.model_copy(update={"complete": False}),
        Refusal.RULE,
    ),
    ("incomplete closure without one", manifest(), record(), ANN.model_copy(update={"complete": False}), None),
    (
        "deny set of the older content's rule",
        manifest(rule=AccessRule.any_of("everyone", deny=["user:ann"])),
        record(content_version=101),
        ANN,
        Refusal.MANIFEST_RULE,
    ),
]


@pytest.mark.requirement("I3", "I12", "A8", "B9")
@pytest.mark.parametrize(("what", "m", "a", "closure", "expected"), TABLE, ids=[row[0] for row in TABLE])
def test_table(
    what: str, m: Manifest | None, a: AccessRecord | None, closure: Closure, expected: Refusal | None
) -> None:
    assert admit_document(m, a, closure, OPEN, NOW) is expected


@pytest.mark.requirement("I3")
def test_another_tenant_or_document_is_refused() -> None:
    assert admit_document(manifest(), record(), ANN, Narrowing(tenant="other"), NOW) is Refusal.OTHER_TENANT
    elsewhere = record(document=DOCUMENT.model_copy(update={"source": "tickets"}))
    assert admit_document(manifest(), elsewhere, ANN, OPEN, NOW) is Refusal.OTHER_TENANT


@pytest.mark.requirement("I3")
def test_a_chunk_must_be_listed_and_that_is_said_last() -> None:
    assert admit_chunk(True, manifest(), record(), ANN, OPEN, NOW) is None
    assert admit_chunk(False, manifest(), record(), ANN, OPEN, NOW) is Refusal.NOT_LISTED
    assert admit_chunk(False, manifest(), record(tombstone=True), ANN, OPEN, NOW) is Refusal.TOMBSTONE
    assert admit_chunk(False, None, record(), ANN, OPEN, NOW) is Refusal.NO_MANIFEST


@pytest.mark.requirement("I3")
def test_grants_end_at_their_moment() -> None:
    rule = AccessRule(clauses=(Clause(any_of=(Grant(principal="user:ann", until=NOW),)),))
    assert admit_document(manifest(), record(rule=rule), ANN, OPEN, NOW - 1) is None
    assert admit_document(manifest(), record(rule=rule), ANN, OPEN, NOW) is Refusal.RULE


@pytest.mark.requirement("I3")
@pytest.mark.parametrize(
    "principal",
    ["user:Ann", "user:ann2", "user:an", "group:ann", "audience:ann", "user:аnn", "group:wiki/eng2", "group:wiki/En"],
)
def test_look_alike_principals_are_others(principal: str) -> None:
    rule = AccessRule.any_of(principal)
    assert admit_document(manifest(), record(rule=rule), ANN, OPEN, NOW) is Refusal.RULE
    denied = AccessRule.any_of("everyone", deny=[principal])
    assert admit_document(manifest(), record(rule=denied), ANN, OPEN, NOW) is None


FILTERS: list[tuple[str, Narrowing, bool]] = [
    ("source", replace(OPEN, sources=frozenset({"wiki"})), True),
    ("other source", replace(OPEN, sources=frozenset({"tickets"})), False),
    ("kind", replace(OPEN, kinds=frozenset({"page"})), True),
    ("other kind", replace(OPEN, kinds=frozenset({"issue"})), False),
    ("content type", replace(OPEN, content_types=frozenset({"text/markdown"})), True),
    ("other content type", replace(OPEN, content_types=frozenset({"text/html"})), False),
    ("language", replace(OPEN, languages=frozenset({"de", "en"})), True),
    ("other language", replace(OPEN, languages=frozenset({"de"})), False),
    ("product", replace(OPEN, products=frozenset({"probe"})), True),
    ("other product", replace(OPEN, products=frozenset({"pump"})), False),
    ("no product at all", replace(OPEN, products=frozenset()), False),
    ("updated after, inclusive", replace(OPEN, updated_after=NOW - 1000), True),
    ("updated too early", replace(OPEN, updated_after=NOW - 999), False),
    ("updated before, exclusive", replace(OPEN, updated_before=NOW - 1000), False),
    ("updated early enough", replace(OPEN, updated_before=NOW - 999), True),
]


@pytest.mark.requirement("I3", "I6", "B1")
@pytest.mark.parametrize(("what", "narrowing", "admitted"), FILTERS, ids=[row[0] for row in FILTERS])
def test_filters_are_checked_on_the_manifest(what: str, narrowing: Narrowing, admitted: bool) -> None:
    expected = None if admitted else Refusal.FILTER
    assert admit_document(manifest(), record(), ANN, narrowing, NOW) is expected


@pytest.mark.requirement("I3", "B1")
def test_what_lacks_a_filtered_field_is_not_within_it() -> None:
    bare = manifest(language=None, product=None, updated_at=None)
    assert passes(bare, OPEN)
    assert not passes(bare, replace(OPEN, languages=frozenset({"en"})))
    assert not passes(bare, replace(OPEN, products=frozenset({"probe"})))
    assert not passes(bare, replace(OPEN, updated_after=0))
    html = replace(OPEN, content_types=frozenset({"text/html"}))
    assert passes(manifest(content_type="text/html; charset=utf-8"), html)


@pytest.mark.requirement("B1")
@pytest.mark.parametrize(
    ("start", "end", "as_of", "inside"),
    [
        (None, None, 5, True), (5, None, 5, True), (6, None, 5, False), (None, 5, 5, False), (None, 6, 5, True),
        (1, 5, 4, True), (1, 5, 5, False), (1, 5, 0, False), (1, 5, None, True),
    ],
)  # fmt: skip
def test_effective_interval(start: int | None, end: int | None, as_of: int | None, inside: bool) -> None:
    assert passes(manifest(effective_from=start, effective_until=end), replace(OPEN, as_of=as_of)) is inside


# ---------------------------------------------------------------- properties

NAMES = ("everyone", "nobody", "user:ann", "user:bob", "group:wiki/eng", "group:wiki/ops", "audience:wiki/hr")
grants = st.builds(
    Grant, principal=st.sampled_from(NAMES), until=st.one_of(st.none(), st.sampled_from([NOW - 1, NOW, NOW + 1]))
)
clauses = st.builds(
    Clause,
    any_of=st.lists(grants, min_size=1, max_size=4).map(tuple),
    size_hint=st.one_of(st.none(), st.integers(min_value=0, max_value=10)),
)
rules = st.builds(
    AccessRule,
    clauses=st.lists(clauses, min_size=1, max_size=4).map(tuple),
    deny=st.lists(st.sampled_from(NAMES[2:]), max_size=2).map(tuple),
)
closures = st.builds(
    Closure,
    principals=st.frozensets(st.sampled_from([n for n in NAMES if n != "nobody"])),
    complete=st.booleans(),
)
versions = st.integers(min_value=0, max_value=3)


@pytest.mark.requirement("I4")
@given(rule=rules, closure=closures)
def test_the_prefilter_never_hides_a_permitted_document(rule: AccessRule, closure: Closure) -> None:
    allow, allow2 = rule.prefilter()
    if rule.admits(closure, NOW):
        assert set(allow) & closure.principals
        assert set(allow2) & closure.principals


@pytest.mark.requirement("I3", "I12")
@given(
    manifest_rule=rules, record_rule=rules, closure=closures, content=versions, read_with=versions, demanded=versions,
    version=versions, not_before=versions, tombstone=st.booleans(), hold=st.booleans(),
)  # fmt: skip
def test_admitted_means_every_condition_holds(
    manifest_rule: AccessRule, record_rule: AccessRule, closure: Closure, content: int, read_with: int, demanded: int,
    version: int, not_before: int, tombstone: bool, hold: bool,
) -> None:  # fmt: skip
    """The function against a second, independent spelling of the invariant."""
    m = manifest(rule=manifest_rule, content_version=content, access_version=demanded)
    a = record(
        rule=record_rule, version=version, content_version=read_with, not_before=not_before, tombstone=tombstone,
        holds={"legal": 1} if hold else {},
    )  # fmt: skip
    expected = (
        not tombstone
        and not hold
        and content >= not_before
        and version >= demanded
        and _reads(record_rule, closure)
        and (content >= read_with or _reads(manifest_rule, closure))
    )
    assert (admit_document(m, a, closure, OPEN, NOW) is None) is expected


def _reads(rule: AccessRule, closure: Closure) -> bool:
    if not closure.principals:
        return False
    for clause in rule.clauses:
        live = {g.principal for g in clause.any_of if g.until is None or g.until > NOW} - {"nobody"}
        if not live & closure.principals:
            return False
    return not rule.deny or (closure.complete and not set(rule.deny) & closure.principals)


@pytest.mark.requirement("I3")
@given(rule=rules, closure=closures)
def test_nobody_is_never_admitted_and_fewer_clauses_never_admit_fewer(rule: AccessRule, closure: Closure) -> None:
    assert not rule.admits(Closure.of_nobody(), NOW)
    if rule.admits(closure, NOW) and len(rule.clauses) > 1:
        assert AccessRule(clauses=rule.clauses[1:], deny=rule.deny).admits(closure, NOW)
