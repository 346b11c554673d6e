"""What the access lane's events make of a record. Pure; shared by the access consumer and by every tail of the lane.

Fences (invariant 5): an event older than the record changes nothing but ``not_before``, which only grows. Holds have
versions of their own. What cannot be read closes (invariant 12): the rule becomes nobody, and the document is held
under ``unreadable`` until a readable event of the same key follows *on the log*; the hold's version is therefore the
offset of the unreadable record, so that replays in any order come to the same end.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from pipeline.bus.codec import AccessEventModel, Undecodable
from schemas.access import AccessRule
from schemas.documents import AccessRecord, PrincipalPart, PrincipalRecord
from schemas.events import AccessTombstone, HoldChanged, MembershipSet
from schemas.keys import DocumentRef

UNREADABLE = "unreadable"
EMPTY = "empty"
"""Kind of a record without a payload: the log's own end of a key. Of what has ended already it changes nothing."""

Effect = Literal["applied", "unchanged", "superseded", "closed"]


@dataclass(frozen=True)
class FoldedAccess:
    """The record after an event; ``changed`` says whether it must be written."""

    record: AccessRecord
    effect: Effect
    changed: bool


@dataclass(frozen=True)
class FoldedPrincipal:
    """The record after an event; ``changed`` says whether it must be written."""

    record: PrincipalRecord
    effect: Effect
    changed: bool


def fold_access(
    record: AccessRecord | None, event: AccessEventModel | Undecodable, *, document: DocumentRef, offset: int
) -> FoldedAccess:
    """Apply one event of the access topic, read at ``offset``, to a document's record (None where there is none)."""
    before = record if record is not None else _empty(document)
    if isinstance(event, Undecodable) and event.kind == EMPTY and (record is None or record.tombstone):
        return FoldedAccess(before, "unchanged", changed=False)
    if isinstance(event, Undecodable):
        after, effect = _close(before, event, offset)
    elif isinstance(event, HoldChanged):
        after, effect = _hold(_readable(before, _hold_name(event.hold), offset), event)
    else:
        after, effect = _rule(before, event, offset)
    return FoldedAccess(after, effect, changed=record is None or after != record)


def _empty(document: DocumentRef) -> AccessRecord:
    return AccessRecord(document=document, version=0, rule=AccessRule.nobody("no access event was read yet"))


def _rule(record: AccessRecord, event: AccessEventModel, offset: int) -> tuple[AccessRecord, Effect]:
    assert not isinstance(event, HoldChanged)
    unreadable_at = record.holds.get(UNREADABLE)
    # After an unreadable record the rule is gone: a repeated event of the same version, if later, brings it back.
    repairs = unreadable_at is not None and offset > unreadable_at and event.version == record.version
    not_before = max(record.not_before, event.not_before)
    if event.version < record.version or (event.version == record.version and not repairs):
        effect: Effect = "superseded" if event.version < record.version else "unchanged"
        if record.not_before == not_before:
            return record, effect
        return record.model_copy(update={"not_before": not_before}), effect
    readable = _readable(record, UNREADABLE, offset)
    if isinstance(event, AccessTombstone):
        rule = AccessRule.nobody(f"deleted: {event.reason}" if event.reason else "deleted")
        changes: dict[str, object] = {"tombstone": True, "rule": rule}
    elif UNREADABLE in readable.holds:
        # An older event, replayed after the unreadable one that followed it on the log.
        rule = AccessRule.nobody("a later access event could not be read")
        changes = {"tombstone": False, "rule": rule, "content_version": event.content_version}
    else:
        changes = {"tombstone": False, "rule": event.rule, "content_version": event.content_version}
    changes |= {"version": event.version, "not_before": not_before}
    return readable.model_copy(update=changes), "applied"


def _hold(record: AccessRecord, event: HoldChanged) -> tuple[AccessRecord, Effect]:
    active, lifted = record.holds.get(event.hold, -1), record.lifted.get(event.hold, -1)
    newest = max(active, lifted)
    if event.version < newest:
        return record, "superseded"
    if event.version == newest and (active >= lifted or not event.active):
        # Laid on and lifted under one version (impossible for one owner): the hold stays, closed is safe.
        return record, "unchanged"
    holds, lifts = dict(record.holds), dict(record.lifted)
    (holds if event.active else lifts)[event.hold] = event.version
    (lifts if event.active else holds).pop(event.hold, None)
    return record.model_copy(update={"holds": holds, "lifted": lifts}), "applied"


def _close(record: AccessRecord, unreadable: Undecodable, offset: int) -> tuple[AccessRecord, Effect]:
    name = _unreadable_name(unreadable)
    if max(record.holds.get(name, -1), record.lifted.get(name, -1)) >= offset:
        return record, "unchanged"
    holds, lifts = dict(record.holds), dict(record.lifted)
    holds[name] = offset
    lifts.pop(name, None)
    changes: dict[str, object] = {"holds": holds, "lifted": lifts}
    if name == UNREADABLE:
        changes["rule"] = AccessRule.nobody(f"access event not understood ({unreadable.kind})")
    return record.model_copy(update=changes), "closed"


def _readable(record: AccessRecord, name: str, offset: int) -> AccessRecord:
    """Lift the hold that an earlier unreadable record of the same key laid on."""
    laid = record.holds.get(name)
    if laid is None or offset <= laid:
        return record
    holds = {k: v for k, v in record.holds.items() if k != name}
    return record.model_copy(update={"holds": holds, "lifted": record.lifted | {name: offset}})


def _hold_name(hold: str) -> str:
    return f"{UNREADABLE}:{hold}"


def _unreadable_name(unreadable: Undecodable) -> str:
    """An unreadable record under a hold's key holds on its own; a readable rule does not lift it."""
    hold = unreadable.hold
    return UNREADABLE if hold is None else _hold_name(hold)


def fold_membership(
    record: PrincipalRecord | None,
    event: MembershipSet | Undecodable,
    *,
    tenant: str,
    principal: str,
    offset: int,
) -> FoldedPrincipal:
    """Apply one record of the membership topic, read at ``offset``, to a principal's record.

    Each source's part has its own version. An unreadable record ends the whole principal (a membership that is not
    known may be one that denies) until a readable one of the same source follows on the log.
    """
    before = record if record is not None else PrincipalRecord.of(tenant, principal, {})
    source = source_of(event)
    closed_at = before.closed.get(source)
    if isinstance(event, Undecodable):
        part = before.parts.get(source)
        if event.kind == EMPTY and (part is None or part.removed):
            return FoldedPrincipal(before, "unchanged", False)
        return _close_principal(record, before, source, closed_at, offset)
    known = before.parts.get(source)
    readable = closed_at is not None and offset > closed_at
    if known is not None and event.version <= known.version and not (readable and event.version == known.version):
        return FoldedPrincipal(before, "superseded" if event.version < known.version else "unchanged", False)
    part = part_of(event)
    closed = {s: at for s, at in before.closed.items() if s != source or not readable}
    after = PrincipalRecord.of(tenant, principal, {**before.parts, source: part}, closed)
    return FoldedPrincipal(after, "applied", True)


def part_of(event: MembershipSet) -> PrincipalPart:
    """What a membership event says, as records keep it."""
    return PrincipalPart(
        parents=tuple(dict.fromkeys(event.parents)),
        until=dict(event.until),
        removed=event.removed,
        version=event.version,
    )


def source_of(event: MembershipSet | Undecodable) -> str:
    """Whose part of the principal a record is; '' where no source is named."""
    return (event.source if not isinstance(event, Undecodable) else event.membership_source) or ""


def _close_principal(
    record: PrincipalRecord | None, before: PrincipalRecord, source: str, closed_at: int | None, offset: int
) -> FoldedPrincipal:
    if record is not None and closed_at is not None and closed_at >= offset:
        return FoldedPrincipal(before, "unchanged", False)
    closed = dict(before.closed) | {source: offset}
    after = PrincipalRecord.of(before.tenant, before.principal, dict(before.parts), closed)
    return FoldedPrincipal(after, "closed", True)
