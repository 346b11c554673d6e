"""What owners keep on the log: sources with their owners' last signs, holds, and the memory of one owner.

Only reads. The memory is the one from which an owner would start now.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from typing import Literal

from pipeline.clock import Clock, SystemClock
from pipeline.ports import Record
from pipeline.settings import Settings
from pipeline.sources.bodies import BodyPlacer
from pipeline.sources.changes import source_partition_key
from pipeline.sources.ledger import Ledger
from pipeline.sources.states import QUARANTINE
from schemas.events import REQUESTS_STREAM, Quarantine, SourceCursor
from schemas.keys import partition_of
from schemas.reconciliation import OpenRequest, OwnerStatus, RequestsPosition
from schemas.topics import Topic

DAY_US = 86_400_000_000
ALIVE_S = 20.0
"""An owner that has written no cursor for so long is dead: it writes one every few seconds, paused or not."""

State = Literal["waiting", "working", "starved", "unreachable", "paused", "dead", "gateway"]
"""As ``OwnerStatus`` says it; ``dead`` where no owner lives, ``gateway`` where there is none by these settings."""


@dataclass
class SourceStatus:
    """One source. Times in µs; ``polled_at`` is None where its owner never looked at all of it."""

    tenant: str
    source: str
    configured: bool = False  # it has an owner process by these settings
    type: str = ""  # these two as the settings say, empty where they do not
    where: str = ""
    documents: int = 0
    held: int = 0
    kept: int = 0  # missing, and visible because of an undo
    polled_at: int | None = None
    pending: bool = False
    requests: tuple[OpenRequest, ...] = ()
    seen_at: int | None = None  # when a cursor of it was last written
    paused: bool = False
    told: OwnerStatus | None = None  # what its owner last said of itself
    live: dict[str, tuple[bool, bool, bool]] = field(default_factory=dict, repr=False)

    def state(self, now: int) -> State:
        """How it stands at ``now`` (µs)."""
        if not self.configured:
            return "gateway"
        if self.seen_at is None or now - self.seen_at > ALIVE_S * 1e6:
            return "dead"
        if self.paused:
            return "paused"
        if self.told is None or self.told.state == "paused":  # it begins, or begins again
            return "working" if self.pending else "waiting"
        return self.told.state

    def lag_s(self, now: int) -> float | None:
        """Seconds since its owner last looked at all that is new; None before it ever did."""
        return None if self.polled_at is None else max(0.0, (now - self.polled_at) / 1e6)


@dataclass(frozen=True)
class HeldDocument:
    """A document in quarantine, or kept visible although it is missing."""

    document_id: str
    kind: str
    reason: str  # missing, unreadable, kept visible
    since: int
    by: str
    purge_at: int | None  # None where no time ends it


def sources(settings: Settings) -> list[SourceStatus]:
    """Every configured source, and every other one of which documents or requests are on the log.

    Raises BusUnavailable.
    """
    from pipeline.bus.tail import read_compacted

    return summed(settings, read_compacted(settings, Topic.CURSORS))


def summed(settings: Settings, records: Iterable[Record]) -> list[SourceStatus]:
    """The same from records of ``cursors``."""
    found = {
        (s.tenant, s.name): SourceStatus(s.tenant, s.name, configured=True, type=s.type, where=s.where())
        for s in settings.sources
    }
    for record in records:
        parts = _parts(record.key)
        if len(parts) < 4:
            continue
        status = found.setdefault((parts[0], parts[1]), SourceStatus(parts[0], parts[1]))
        if parts[2] == "cursor":
            _cursor(status, parts[3], record)
        elif record.value is None:
            status.live.pop(record.key or "", None)
        else:
            state = json.loads(record.value)
            cause = state.get("quarantine") or {}
            held = QUARANTINE in state.get("holds", ())
            status.live[record.key or ""] = (not state.get("deleted"), held, bool(cause.get("overruled")))
    for status in found.values():
        states = [s for s in status.live.values() if s[0]]
        status.documents, status.held = len(states), sum(s[1] for s in states)
        status.kept = sum(s[2] for s in states)
        status.live = {}
    listed = [s for s in found.values() if s.configured or s.documents or s.requests or s.polled_at is not None]
    return sorted(listed, key=lambda s: (s.tenant, s.source))


def _cursor(status: SourceStatus, stream: str, record: Record) -> None:
    cursor = SourceCursor.model_validate_json(record.value) if record.value is not None else None
    if cursor is not None:
        status.seen_at = max(status.seen_at or 0, record.timestamp)
    if stream == REQUESTS_STREAM:
        position = RequestsPosition.read(cursor.position) if cursor is not None else RequestsPosition()
        status.requests, status.paused, status.told = position.open, position.paused, position.status
    else:
        status.polled_at = cursor.polled_at or None if cursor is not None else None
        status.pending = cursor.pending if cursor is not None else False


def memory(settings: Settings, tenant: str, source: str, clock: Clock | None = None) -> Ledger:
    """The owner's memory as the log says now, memberships left out. Raises BusUnavailable, or Crash where the log was
    written by a newer release."""
    from pipeline.bus.tail import read_compacted

    place = partition_of(source_partition_key(tenant, source), settings.kafka.partitions)
    records = read_compacted(settings, Topic.CURSORS, partitions=[place], wanted=of_source(tenant, source))
    return remembered(tenant, source, records, clock)


def remembered(tenant: str, source: str, records: Iterable[Record], clock: Clock | None = None) -> Ledger:
    """The same from records of ``cursors``."""
    ledger = Ledger(tenant, source, clock if clock is not None else SystemClock(), BodyPlacer(None))
    for record in records:
        ledger.load_cursor(record)
    return ledger


def held(ledger: Ledger, quarantine_days: float) -> Iterator[HeldDocument]:
    """Documents in quarantine and those that an undo keeps visible."""
    for document, known in ledger.states():
        cause = known.quarantine
        if known.deleted or (cause is None and QUARANTINE not in known.holds):
            continue
        cause = cause or Quarantine(since=0, by="", absent=False)
        ends = cause.absent and not cause.overruled
        yield HeldDocument(
            document_id=document.id,
            kind=document.kind,
            reason="kept visible" if cause.overruled else "missing" if cause.absent else "unreadable",
            since=cause.since,
            by=cause.by,
            purge_at=cause.since + int(quarantine_days * DAY_US) if ends else None,
        )


def of_source(tenant: str, source: str) -> Callable[[str | None], bool]:
    """Whether a key of ``cursors`` belongs to a source."""

    def wanted(key: str | None) -> bool:
        return _parts(key)[:2] == [tenant, source]

    return wanted


def _parts(key: str | None) -> list[str]:
    try:
        parts = json.loads(key or "")
    except ValueError:
        return []
    return parts if isinstance(parts, list) and all(isinstance(p, str) for p in parts) else []
