"""What one look found and what was done about it, while it goes on."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Literal

from pipeline.sources.compare import Verdict
from schemas.keys import DocumentRef
from schemas.reconciliation import EXAMPLES, ReconciliationReport, RequestKind

Count = Literal["new", "stale", "wrongly_readable", "missing", "held", "released", "purged", "repaired"]


@dataclass
class Tally:
    """Counts of one look, by the names of ``ReconciliationReport``. ``id`` names it in holds, for an undo."""

    id: str
    kind: RequestKind
    began_at: int
    repair: bool = True
    known: int = 0
    listed: int = 0
    memberships: int = 0
    attempts: int = 1
    done: int = 0  # documents looked at
    expected: int = 0
    complete: bool = True
    why: dict[str, None] = field(default_factory=dict)
    counts: dict[str, int] = field(default_factory=dict)
    examples: dict[str, list[str]] = field(default_factory=dict)

    def note(self, count: Count, document: DocumentRef) -> None:
        """One document more."""
        self.counts[count] = self.counts.get(count, 0) + 1
        named = self.examples.setdefault(count, [])
        if len(named) < EXAMPLES:
            named.append(document.id)

    def compared(self, document: DocumentRef, verdict: Verdict | None) -> None:
        """What an observation of a document differs in; None where in nothing."""
        self.done += 1
        if verdict is None:
            return
        if verdict.fresh:
            self.note("new", document)
        elif verdict.differs:
            self.note("stale", document)
        if verdict.narrowed or verdict.redacts:
            self.note("wrongly_readable", document)
        if verdict.held:
            self.note("released", document)

    def incomplete(self, reasons: Iterable[str]) -> None:
        """Not everything was met."""
        self.complete = False
        self.why |= dict.fromkeys(reasons)

    def report(self, tenant: str, source: str, now: int) -> ReconciliationReport:
        """As it is told."""
        return ReconciliationReport(
            type=self.kind,
            tenant=tenant,
            source=source,
            request_id=self.id,
            repair=self.repair,
            complete=self.complete,
            why=tuple(self.why)[:EXAMPLES],
            listed=self.listed,
            known=self.known,
            memberships=self.memberships,
            attempts=self.attempts,
            began_at=self.began_at,
            finished_at=max(now, self.began_at),
            examples={name: tuple(ids) for name, ids in self.examples.items()},
            **self.counts,
        )
