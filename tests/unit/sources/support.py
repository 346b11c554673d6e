"""A ledger with a clock that stands still, and short ways to say things to it."""

from __future__ import annotations

from typing import Any

from pipeline.clock import ManualClock
from pipeline.ports import Record, SourceAccess, SourceDeletion, SourceDocument
from pipeline.sources.bodies import BodyPlacer
from pipeline.sources.changes import Change, Limits, transactions
from pipeline.sources.ledger import Ledger
from schemas.access import AccessRule
from schemas.events import SourceCursor
from schemas.keys import DocumentRef
from schemas.topics import Topic
from tests.unit.owner.support import MemoryBodies

ANN = AccessRule.any_of("user:ann")
BOTH = AccessRule.any_of("user:ann", "user:bob")
BOB = AccessRule.any_of("user:bob")


def ref(id_: str = "a") -> DocumentRef:
    return DocumentRef(tenant="acme", source="kb", kind="page", id=id_)


def doc(body: str | bytes = "text", rule: AccessRule | None = ANN, id_: str = "a", **more: Any) -> SourceDocument:
    data = body if isinstance(body, bytes) else body.encode()
    more = {"title": "Title", "content_type": "text/plain"} | more
    return SourceDocument(document=ref(id_), body=data, rule=rule, **more)


def gone(id_: str = "a") -> SourceDeletion:
    return SourceDeletion(ref(id_))


def access(rule: AccessRule, id_: str = "a") -> SourceAccess:
    return SourceAccess(ref(id_), rule)


class Bench:
    """A ledger, and the records that its changes became."""

    def __init__(self, inline_limit: int = 1000, max_bytes: int = 10_000) -> None:
        self.clock = ManualClock()
        self.bodies = MemoryBodies()
        self.placer = BodyPlacer(self.bodies, inline_limit, max_bytes)
        self.ledger = Ledger("acme", "kb", self.clock, self.placer)
        self.records: list[Record] = []

    def cursor(self) -> SourceCursor:
        return self.ledger.cursor(polled_at=self.clock.now(), pending=False)

    def write(self, changes: list[Change], limits: Limits | None = None) -> list[list[Record]]:
        """Append in memory; one list of records a transaction."""
        out = []
        for transaction in transactions(changes, self.cursor, limits or Limits()):
            part = [
                Record(str(r.topic), 0, len(self.records) + i, 0, r.key, r.value)
                for i, r in enumerate(transaction.records)
            ]
            self.records += part
            out.append(part)
        return out

    def say(self, seen: Any, **more: Any) -> list[Change]:
        """Observe and write; the changes."""
        self.clock.advance(1)
        changes = self.ledger.observe(seen, **more)
        self.write(changes)
        return changes

    def reload(self) -> Ledger:
        """A new ledger from what was written."""
        self.ledger = Ledger("acme", "kb", self.clock, self.placer)
        for record in self.records:
            if record.topic == Topic.CURSORS:
                self.ledger.load_cursor(record)
            elif record.topic == Topic.MEMBERSHIP:
                self.ledger.load_membership(record)
        return self.ledger
