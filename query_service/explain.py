"""Why a person may or may not read a document: the decision of ``pipeline.admission``, taken apart. Pure.

``pipeline.admission.refusal`` decides here as well; the checks explain it, and tests hold the two together.
"""

from __future__ import annotations

from collections.abc import Generator, Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from pipeline.admission import Refusal, refusal
from pipeline.closures import MAX_DEPTH, MAX_PRINCIPALS, Walk, walking
from schemas.access import EVERYONE, NOBODY, SUSPENDED, AccessRule, Clause, Closure
from schemas.api_why import (
    Check,
    CheckName,
    ClauseReport,
    GrantReport,
    ManifestReport,
    PersonReport,
    Reached,
    RecordReport,
    RuleReport,
)
from schemas.documents import AccessRecord, Manifest, PrincipalRecord

MOST_PRINCIPALS = 200
MOST_GRANTS = 50

Records = Mapping[str, PrincipalRecord | None]


@dataclass
class Steps:
    """A walk over the closure with the records that it met."""

    start: str
    walk: Walk
    records: dict[str, PrincipalRecord | None] = field(default_factory=dict)


def stepping(start: str, now: int, *, most: int = MAX_PRINCIPALS, depth: int = MAX_DEPTH) -> Generator[
    list[str], Records, Steps
]:  # fmt: skip
    """As ``pipeline.closures.walking``, and keeps what it was given."""
    steps = walking(start, now=now, max_principals=most, max_depth=depth)
    met: dict[str, PrincipalRecord | None] = {}
    frontier = next(steps)
    while True:
        found = yield frontier
        met.update({name: found.get(name) for name in frontier})
        try:
            frontier = steps.send(found)
        except StopIteration as end:
            walk: Walk = end.value
            return Steps(start, walk, met)


# ------------------------------------------------------------ the person


def person(steps: Steps, named: frozenset[str], now: int) -> PersonReport:
    """The person's closure; ``named`` principals (those of the document's rules) are shown first."""
    records, closure = steps.records, steps.walk.closure
    own = records.get(steps.start)
    everyone = records.get(EVERYONE)
    paths = _paths(steps, now)
    shown = sorted(closure.principals & paths.keys(), key=lambda p: (p not in named, len(paths[p][0]), p))
    return PersonReport(
        user=steps.start,
        live=own is not None and not own.removed,
        tenant_suspended=everyone is not None and SUSPENDED in everyone.parents,
        complete=closure.complete,
        cut=_cut(steps, now),
        missing=_some(n for n, r in records.items() if r is None and n.startswith(("user:", "group:"))),
        removed=_some(n for n, r in records.items() if r is not None and r.removed and not r.closed),
        unreadable=_some(n for n, r in records.items() if r is not None and r.closed),
        ended=_some(
            f"{name} > {parent}" for name, r in records.items() if r is not None and not r.removed
            for parent in r.parents if parent not in r.parents_at(now)
        ),
        principals_total=len(closure.principals),
        principals=tuple(
            Reached(principal=p, path=paths[p][0], until=paths[p][1]) for p in shown[:MOST_PRINCIPALS]
        ),
        written_at=(own.written_at or None) if own is not None else None,
        until=steps.walk.until,
    )  # fmt: skip


def _some(names: Iterable[str]) -> tuple[str, ...]:
    return tuple(sorted(names)[:MOST_PRINCIPALS])


def _paths(steps: Steps, now: int) -> dict[str, tuple[tuple[str, ...], int | None]]:
    """By principal the shortest way to it and the first end on that way."""
    found: dict[str, tuple[tuple[str, ...], int | None]] = {name: ((name,), None) for name in (steps.start, EVERYONE)}
    frontier = list(found)
    while frontier:
        following = []
        for name in frontier:
            record = steps.records.get(name)
            if record is None or record.removed:
                continue
            path, until = found[name]
            for parent in record.parents_at(now):
                if parent in found or parent == NOBODY or parent.startswith("user:"):
                    continue
                ends = [e for e in (until, record.until.get(parent)) if e is not None]
                found[parent] = ((*path, parent), min(ends, default=None))
                following.append(parent)
        frontier = following
    return found


def _cut(steps: Steps, now: int) -> bool:
    """Whether the walk left out principals that somebody in it names."""
    if not steps.walk.closure.principals:
        return False
    return any(
        parent not in steps.walk.visited and parent != NOBODY and not parent.startswith("user:")
        for record in steps.records.values()
        if record is not None and not record.removed
        for parent in record.parents_at(now)
    )


# ------------------------------------------------------------ rules


def rule(of: AccessRule, closure: Closure, now: int) -> RuleReport:
    """A rule, clause by clause."""
    denied = sorted(set(of.deny) & closure.principals)
    return RuleReport(
        admits=of.admits(closure, now),
        clauses=tuple(_clause(c, closure, now) for c in of.clauses),
        deny_total=len(of.deny),
        denied_by=tuple(denied),
        denied_as_unknown=bool(of.deny) and not closure.complete,
        reason=of.reason,
    )


def _clause(clause: Clause, closure: Closure, now: int) -> ClauseReport:
    grants = [
        GrantReport(
            principal=g.principal, until=g.until, held=g.principal in closure.principals and g.principal != NOBODY,
            live=g.live(now),
        )
        for g in clause.any_of
    ]  # fmt: skip
    grants.sort(key=lambda g: (not g.held, not g.live))
    return ClauseReport(
        satisfied=clause.satisfied(closure.principals, now),
        satisfied_by=tuple(dict.fromkeys(g.principal for g in grants if g.held and g.live)),
        grants_total=len(grants),
        grants=tuple(grants[:MOST_GRANTS]),
    )


# ------------------------------------------------------------ the document


@dataclass(frozen=True)
class Explanation:
    """The decision and the conditions behind it."""

    refusal: Refusal | None
    checks: tuple[Check, ...]
    rule: RuleReport | None
    manifest_rule: RuleReport | None

    @property
    def allowed(self) -> bool:
        """Whether the person may read it."""
        return self.refusal is None


_FAILS: dict[CheckName, Refusal] = {
    "manifest": Refusal.NO_MANIFEST, "record": Refusal.NO_RECORD, "tenant": Refusal.OTHER_TENANT,
    "not_deleted": Refusal.DELETED, "no_tombstone": Refusal.TOMBSTONE, "no_hold": Refusal.HOLD,
    "content_new_enough": Refusal.NOT_BEFORE, "record_new_enough": Refusal.ACCESS_BEHIND, "rule": Refusal.RULE,
    "rule_of_the_text": Refusal.MANIFEST_RULE,
}  # fmt: skip


def explain(
    manifest: Manifest | None, record: AccessRecord | None, closure: Closure, tenant: str, now: int
) -> Explanation:
    """Each condition on its own; arguments as for ``pipeline.admission.refusal``, which decides."""
    checks: list[Check] = []

    def check(name: CheckName, passed: bool | None, yes: str, no: str) -> None:
        checks.append(Check(name=name, passed=passed, says=no if passed is False else yes))

    check("manifest", manifest is not None, "the generation has the document", "the generation has no such document")
    check("record", record is not None, "there is an access record", "there is no access record: no access")
    ours = None
    if manifest is not None and record is not None:
        ours = manifest.document.tenant == tenant and record.document == manifest.document
    check("tenant", ours, "record and text are of one document of this tenant", "record and text belong elsewhere")
    check("not_deleted", None if manifest is None else not manifest.deleted, "its text is live", "its text is deleted")
    check(
        "no_tombstone", None if record is None else not record.tombstone,
        "the source has not deleted it", "the source deleted it",
    )  # fmt: skip
    holds = ", ".join(sorted(record.holds)) if record is not None else ""
    check("no_hold", None if record is None else not holds, "nothing holds it back", f"held back by: {holds}")
    own = shown = None
    new_enough = not_behind = older = False
    both = manifest is not None and record is not None
    if record is not None:
        own = rule(record.rule, closure, now)
    if manifest is not None:
        shown = rule(manifest.rule, closure, now)
    if manifest is not None and record is not None:
        new_enough = manifest.content_version >= record.not_before
        not_behind = record.version >= manifest.access_version
        older = manifest.content_version < record.content_version
    check(
        "content_new_enough", new_enough if both else None,
        "its text is not older than what may be shown",
        "its text is older than what may be shown (a deletion or redaction since)",
    )  # fmt: skip
    check(
        "record_new_enough", not_behind if both else None,
        "the access record is as new as the text demands", "the access record is older than the text demands",
    )  # fmt: skip
    check("rule", None if own is None else own.admits, "the rule admits the person", _no(own, closure))
    check(
        "rule_of_the_text", shown.admits if both and older and shown is not None else None,
        "the rule that the text was written under admits the person" if both and older else
        "the text is as new as the rule, so its own rule need not be asked",
        "the text is older than the rule, and the rule that it was written under does not admit the person",
    )  # fmt: skip
    return Explanation(refusal(manifest, record, closure, tenant, now), tuple(checks), own, shown)


def first_failed(checks: Sequence[Check]) -> Refusal | None:
    """The refusal that the checks tell: that of the first which fails."""
    return next((_FAILS[c.name] for c in checks if c.passed is False), None)


def _no(own: RuleReport | None, closure: Closure) -> str:
    if own is None:
        return ""
    if not closure.principals:
        return "the person is nobody: there is no live record, or the tenant is suspended"
    if own.denied_by:
        return f"denied by: {', '.join(own.denied_by)}"
    if own.denied_as_unknown:
        return "the rule denies some, and not all principals of the person are known"
    missing = [str(i) for i, clause in enumerate(own.clauses, 1) if not clause.satisfied]
    return f"not satisfied: clause {', '.join(missing)} of {len(own.clauses)}"


def record_report(record: AccessRecord, stored: AccessRecord | None) -> RecordReport:
    """The access record that counts; ``stored`` is the store's own."""
    return RecordReport(
        version=record.version, content_version=record.content_version, not_before=record.not_before,
        tombstone=record.tombstone, holds=record.holds, written_at=record.written_at or None,
        from_log=stored is None or record != stored,
    )  # fmt: skip


def manifest_report(manifest: Manifest, closure: Closure, as_of: int) -> ManifestReport:
    """What is live of the document; ``as_of`` is the moment (µs) at which it is to be in effect."""
    begins, ends = manifest.effective_from, manifest.effective_until
    allow = [names for names in (manifest.allow, manifest.allow2) if names]
    return ManifestReport(
        deleted=manifest.deleted, content_version=manifest.content_version, access_version=manifest.access_version,
        tier=manifest.tier, chunk_total=manifest.chunk_total, indexed_at=manifest.indexed_at or None,
        effective_from=begins, effective_until=ends, product=manifest.product,
        in_effect=(begins is None or as_of >= begins) and (ends is None or as_of < ends),
        prefilter=all(not closure.principals.isdisjoint(names) for names in allow),
    )  # fmt: skip
