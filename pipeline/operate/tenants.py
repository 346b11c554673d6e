"""Tenants as a whole: which there are, closing one to all readers, and writing out what it holds."""

from __future__ import annotations

import base64
import json
import time
from collections.abc import Mapping
from contextlib import closing
from dataclasses import dataclass, field
from typing import TextIO

from pipeline.clock import SystemClock
from pipeline.errors import BodyGone, HeadwaterError
from pipeline.ports import IndexStore, ProgressBar, Record, SourceMembership
from pipeline.settings import Settings
from pipeline.sources.bodies import BodyPlacer
from pipeline.sources.changes import membership_record
from pipeline.sources.ledger import Ledger
from schemas.access import ERASING, EVERYONE, SUSPENDED
from schemas.documents import Tier
from schemas.events import AccessSet, AccessTombstone, ContentUpserted, HoldChanged, InlineBody, MembershipSet
from schemas.topics import Topic

OPERATOR_SOURCE = "headwater"
"""The source in whose name an operator closes a tenant; its owner is whoever runs the command."""
APPLIED_S = 30.0


class TenantRefused(HeadwaterError):
    """What was asked of a tenant cannot be done. ``remedy`` says what to do first."""

    def __init__(self, problem: str, remedy: str) -> None:
        super().__init__(f"{problem} {remedy}")
        self.problem, self.remedy = problem, remedy


@dataclass
class TenantSummary:
    """One tenant: live documents by source, chunks by generation and tier."""

    tenant: str
    sources: dict[str, int] = field(default_factory=dict)
    chunks: dict[str, dict[Tier, int]] = field(default_factory=dict)
    suspended: bool = False
    erasing: bool = False


@dataclass(frozen=True)
class Exported:
    """Lines written, by type; ``missing`` are documents whose body is gone."""

    documents: int
    principals: int
    missing: tuple[str, ...] = ()


# ---------------------------------------------------------------- which there are


def parts_of(key: str | None) -> list[str]:
    """The strings of a record's key; none where it is another kind of key."""
    try:
        parts = json.loads(key or "")
    except ValueError:
        return []
    return parts if isinstance(parts, list) and all(isinstance(p, str) for p in parts) else []


def tenants(settings: Settings, store: IndexStore) -> list[TenantSummary]:
    """Every tenant that the log or the store knows, by name. Raises BusUnavailable or StoreUnavailable."""
    from pipeline.bus.tail import read_compacted
    from schemas.events import DocumentState

    live: dict[str, tuple[str, str, bool]] = {}  # key -> tenant, source, whether it is a live document
    for record in read_compacted(settings, Topic.CURSORS):
        parts = parts_of(record.key)
        if record.value is None:
            live.pop(record.key or "", None)
        elif len(parts) > 2 and parts[1] != OPERATOR_SOURCE:
            document = parts[2] == "document" and not DocumentState.model_validate_json(record.value).deleted
            live[record.key or ""] = (parts[0], parts[1], document)
    found: dict[str, TenantSummary] = {}
    for tenant, source, document in live.values():
        sources = found.setdefault(tenant, TenantSummary(tenant)).sources
        sources[source] = sources.get(source, 0) + document
    generations = sorted(name for name, g in store.read_generations().items() if g.dropped_at is None)
    for tenant in store.tenants(None):
        found.setdefault(tenant, TenantSummary(tenant))
    for name in generations:
        for tenant in store.tenants(name):
            summary = found.setdefault(tenant, TenantSummary(tenant))
            summary.chunks[name] = store.count_chunks(name, tenant)
    for tenant, summary in found.items():
        marks = marks_of(store, tenant)
        summary.suspended, summary.erasing = SUSPENDED in marks, ERASING in marks
    return [found[name] for name in sorted(found)]


def marks_of(store: IndexStore, tenant: str) -> frozenset[str]:
    """By which marks the tenant is closed: ``SUSPENDED``, ``ERASING``. Raises StoreUnavailable."""
    record = store.read_principals(tenant, [EVERYONE]).get(EVERYONE)
    part = record.parts.get(OPERATOR_SOURCE) if record is not None else None
    return frozenset(part.parents) & {SUSPENDED, ERASING} if part is not None and not part.removed else frozenset()


# ---------------------------------------------------------------- closing and opening


def suspend(settings: Settings, store: IndexStore, tenant: str) -> None:
    """Close the tenant to all its readers: each is nobody from now on. Its sources go on being indexed.

    One membership event; returns when it is in force. Raises TenantRefused, BusUnavailable or StoreUnavailable.
    """
    if tenant not in store.tenants(None):
        raise TenantRefused(f"There is no tenant {tenant}.", "`headwater tenant list` shows them.")
    mark(settings, store, tenant, {SUSPENDED})


def resume(settings: Settings, store: IndexStore, tenant: str) -> None:
    """Open the tenant again. Raises as ``suspend``; a tenant whose erasure has begun stays closed."""
    if ERASING in marks_of(store, tenant):
        raise TenantRefused(f"The erasure of {tenant} has begun.", "Finish it by `headwater tenant erase`.")
    mark(settings, store, tenant, frozenset())


def mark(settings: Settings, store: IndexStore, tenant: str, marks: frozenset[str] | set[str]) -> None:
    """Set the marks of a tenant and wait until the access consumer has applied them."""
    from pipeline.bus.producer import KafkaAppender
    from pipeline.bus.tail import read_compacted

    if any((s.tenant, s.name) == (tenant, OPERATOR_SOURCE) for s in settings.sources):
        raise TenantRefused(
            f"A source of {tenant} is named {OPERATOR_SOURCE!r}, as operators' marks are.", "Give it another name."
        )
    with closing(KafkaAppender(settings, f"owner.{tenant}.{OPERATOR_SOURCE}")) as appender:
        ledger = Ledger(tenant, OPERATOR_SOURCE, SystemClock(), BodyPlacer(None))

        def ours(key: str | None) -> bool:
            parts = parts_of(key)
            return len(parts) == 3 and (parts[0], parts[2]) == (tenant, OPERATOR_SOURCE)

        for record in read_compacted(settings, Topic.MEMBERSHIP, wanted=ours):
            ledger.load_membership(record)
        changes = ledger.memberships([SourceMembership(tenant, EVERYONE, tuple(sorted(marks)))])
        events = [event for change in changes for event in change.membership]
        appender.append([membership_record(event) for event in events])
    end = time.monotonic() + APPLIED_S
    while marks_of(store, tenant) != marks:
        if time.monotonic() > end:
            raise TenantRefused(
                f"It is on the log, but not in force after {APPLIED_S:.0f} s.",
                "Is the access consumer running? `headwater status` shows it.",
            )
        time.sleep(0.05)


# ---------------------------------------------------------------- export


def export(
    settings: Settings, tenant: str, out: TextIO, *, with_bodies: bool = True, progress: ProgressBar | None = None
) -> Exported:
    """Write a line of JSON for each document (with its readers, holds and body) and each principal of the tenant.

    Reads the log, which holds the whole newest state of each. Raises BusUnavailable.
    """
    from pipeline.bus.codec import decode_access, decode_membership
    from pipeline.bus.tail import read_compacted

    def ours(key: str | None) -> bool:
        return parts_of(key)[:1] == [tenant]

    rules: dict[str, AccessSet | AccessTombstone] = {}
    holds: dict[str, dict[str, bool]] = {}
    for record in read_compacted(settings, Topic.ACCESS, wanted=ours):
        event = decode_access(record)
        if isinstance(event, HoldChanged):
            holds.setdefault(event.document.key, {})[event.hold] = event.active
        elif isinstance(event, AccessSet | AccessTombstone):
            rules[event.document.key] = event
    newest: dict[str, tuple[int, int]] = {}
    for record in read_compacted(settings, Topic.CONTENT, wanted=ours):
        newest[record.key or ""] = (record.partition, record.offset)
    documents, missing = 0, []
    for record in read_compacted(settings, Topic.CONTENT, wanted=ours):
        if newest[record.key or ""] != (record.partition, record.offset):
            continue
        line = _document(settings, record, rules, holds, with_bodies)
        if line is not None:
            documents += 1
            missing += [record.key or ""] if with_bodies and line["text"] is None and line["base64"] is None else []
            out.write(json.dumps(line, ensure_ascii=False) + "\n")
            if progress is not None:
                progress("export", documents, len(newest))
    principals: dict[str, MembershipSet] = {}
    for record in read_compacted(settings, Topic.MEMBERSHIP, wanted=ours):
        event_ = decode_membership(record)
        if isinstance(event_, MembershipSet) and event_.source != OPERATOR_SOURCE:
            principals[record.key or ""] = event_
    kept = [event for event in principals.values() if not event.removed]
    for event_ in kept:
        fields = event_.model_dump(mode="json", include={"principal", "parents", "source", "version"})
        out.write(json.dumps({"type": "principal", **fields}, ensure_ascii=False) + "\n")
    return Exported(documents, len(kept), tuple(missing))


def _document(
    settings: Settings,
    record: Record,
    rules: Mapping[str, AccessSet | AccessTombstone],
    holds: Mapping[str, Mapping[str, bool]],
    with_bodies: bool,
) -> dict[str, object] | None:
    from pipeline.bus.codec import decode_content

    event, key = decode_content(record), record.key or ""
    rule = rules.get(key)
    if not isinstance(event, ContentUpserted) or isinstance(rule, AccessTombstone):
        return None
    text, raw = _body(settings, event) if with_bodies else (None, None)
    return {
        "type": "document",
        **event.model_dump(mode="json", exclude={"schema_version", "type", "body", "priority"}),
        "access": rule.rule.model_dump(mode="json", exclude_none=True) if rule is not None else None,
        "holds": sorted(name for name, active in holds.get(key, {}).items() if active),
        "text": text,
        "base64": raw,
    }


def _body(settings: Settings, event: ContentUpserted) -> tuple[str | None, str | None]:
    """The body as text or base64; neither where it is gone."""
    from pipeline.bus.bodies import FsspecBodyStore

    if isinstance(event.body, InlineBody):
        return event.body.text, event.body.base64
    try:
        raw = FsspecBodyStore.of(settings).get(event.body.path, event.body.sha256)
    except BodyGone:
        return None, None
    try:
        return raw.decode("utf-8"), None
    except UnicodeDecodeError:
        return None, base64.b64encode(raw).decode("ascii")
