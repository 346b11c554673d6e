"""A log in memory that owners append to, as the tests need it: transactions whole or not at all, one writer."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from pathlib import Path

from consumers.owner_engine import OwnerEngine, OwnerLog
from consumers.owner_jobs import Pace
from consumers.owner_requests import Requests
from pipeline.clock import Clock, ManualClock
from pipeline.errors import BusUnavailable, Crash
from pipeline.observe import Metrics
from pipeline.ports import Appended, Outgoing, Record
from pipeline.sources.bodies import BodyPlacer
from pipeline.sources.folder.source import FolderSource
from pipeline.sources.ledger import Ledger
from schemas.events import ACCESS_EVENT, CONTENT_EVENT, MembershipSet, SourceCursor
from schemas.keys import DocumentRef, partition_of
from schemas.topics import TOPICS, Topic

PARTITIONS = 3


class MemoryLog:
    """All topics, shared by successive owners."""

    def __init__(self) -> None:
        self.records: list[Record] = []
        self.transactions: list[list[Record]] = []
        self.epoch = 0
        self.fail_next: int = 0  # appends that fail
        self.lose_next: bool = False  # the next append is written, and its writer told that it failed
        self._offsets: dict[tuple[str, int], int] = {}

    def write(self, outgoing: Sequence[Outgoing], now: int) -> list[Appended]:
        appended, written = [], []
        for out in outgoing:
            spec = next(s for s in TOPICS if s.topic == out.topic)
            partition = partition_of(out.partition_key or out.key, PARTITIONS) if spec.partitioned else 0
            offset = self._offsets.get((out.topic, partition), 0)
            self._offsets[(out.topic, partition)] = offset + 1
            written.append(Record(str(out.topic), partition, offset, now, out.key, out.value, out.headers))
            appended.append(Appended(str(out.topic), partition, offset, now))
        self.records += written
        self.transactions.append(written)
        return appended

    def content_ends(self) -> dict[int, int]:
        return {partition: end for (topic, partition), end in self._offsets.items() if topic == Topic.CONTENT}

    def topic(self, topic: Topic) -> list[Record]:
        return [r for r in self.records if r.topic == topic]

    def access(self) -> list[object]:
        return [ACCESS_EVENT.validate_json(r.value or b"") for r in self.topic(Topic.ACCESS)]

    def content(self) -> list[object]:
        return [CONTENT_EVENT.validate_json(r.value or b"") for r in self.topic(Topic.CONTENT)]

    def membership(self) -> list[MembershipSet]:
        return [MembershipSet.model_validate_json(r.value or b"") for r in self.topic(Topic.MEMBERSHIP)]

    def events(self) -> int:
        return len(self.topic(Topic.ACCESS) + self.topic(Topic.CONTENT) + self.topic(Topic.MEMBERSHIP))

    def cursor(self, stream: str = "changes") -> SourceCursor:
        cursors = [r for r in self.topic(Topic.CURSORS) if '"cursor"' in (r.key or "") and r.value]
        return [c for c in map(_cursor, cursors) if c.stream == stream][-1]

    def parents(self) -> dict[str, tuple[str, ...]]:
        """Live principals as the log says now."""
        newest = {e.principal: e for e in self.membership()}
        return {p: e.parents for p, e in newest.items() if not e.removed}


def _cursor(record: Record) -> SourceCursor:
    return SourceCursor.model_validate_json(record.value or b"")


class _Writer:
    def __init__(self, log: MemoryLog, clock: Clock, epoch: int | None) -> None:
        self._log, self._clock, self._epoch = log, clock, epoch

    def append(self, records: Sequence[Outgoing]) -> list[Appended]:
        if self._epoch is not None and self._epoch != self._log.epoch:
            raise Crash("another owner took over")
        if self._log.fail_next:
            self._log.fail_next -= 1
            raise BusUnavailable("told to fail")
        appended = self._log.write(records, self._clock.now())
        if self._log.lose_next:
            self._log.lose_next = False
            raise BusUnavailable("written, but not acknowledged")
        return appended

    publish = append

    def close(self) -> None:
        """Nothing to close."""


class MemoryOwnerLog(OwnerLog):
    """Making one fences the one before."""

    def __init__(self, log: MemoryLog, clock: Clock) -> None:
        log.epoch += 1
        self._log = log
        self.appender = _Writer(log, clock, log.epoch)
        self.publisher = _Writer(log, clock, None)

    def states(self) -> Iterator[Record]:
        return iter(self._log.topic(Topic.CURSORS))

    def memberships(self) -> Iterator[Record]:
        return iter(self._log.topic(Topic.MEMBERSHIP))

    def content_ends(self) -> dict[int, int]:
        return self._log.content_ends()

    def close(self) -> None:
        """Nothing to close."""


class MemoryBodies:
    """A body store that can be told to fail."""

    def __init__(self) -> None:
        self.bodies: dict[str, bytes] = {}
        self.down = False

    def put(self, document: DocumentRef, version: int, body: bytes) -> tuple[str, str]:
        import hashlib

        if self.down:
            raise BusUnavailable("the body store is down")
        path = f"{document.tenant}/{document.source}/{document.uid}/{version}"
        self.bodies[path] = body
        return path, hashlib.sha256(body).hexdigest()

    def get(self, path: str, sha256: str) -> bytes:
        return self.bodies[path]

    def delete(self, path: str) -> None:
        self.bodies.pop(path, None)


class Wiki:
    """A tree on disk, its owner and the log."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.log = MemoryLog()
        self.clock = ManualClock()
        self.bodies = MemoryBodies()
        self.requests: Requests | None = None
        self.applied: dict[int, int] | None = None
        self.throttled = False
        self.max_bytes = 1_000_000
        self.inline_limit = 65_536
        self.pace = Pace(walk_s=5, idle_s=0.06, heartbeat_s=5, second_look_s=0.2, window=20, slice=10, live_at_most=15)
        self.engine: OwnerEngine

    def put(self, path: str, text: str | bytes, *, old: bool = True) -> Path:
        """Write a file; ``old`` dates its folder back, so that the absence of an access file counts at once."""
        file = self.root / path
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_bytes(text if isinstance(text, bytes) else text.encode())
        if old:
            folder = file.parent
            while True:
                os.utime(folder, (1, 1))
                if folder == self.root:
                    break
                folder = folder.parent
        return file

    def start(self) -> OwnerEngine:
        """A new owner on the same log and tree."""
        bodies = BodyPlacer(self.bodies, self.inline_limit, self.max_bytes)

        def connect(ledger: Ledger) -> FolderSource:
            return FolderSource(
                "acme", "wiki", str(self.root), clock=self.clock, version=ledger.next_version, max_bytes=self.max_bytes
            )

        self.engine = OwnerEngine(
            MemoryOwnerLog(self.log, self.clock),
            connect,
            tenant="acme",
            source="wiki",
            clock=self.clock,
            bodies=bodies,
            observed=Metrics(),
            pace=self.pace,
            requests=self.requests,
            applied=(lambda: self.applied) if self.throttled else None,
        )
        self.engine.start()
        return self.engine

    def settle(self, steps: int = 3) -> None:
        """Steps until nothing is left to do, with time passing between them."""
        for _ in range(steps):
            self.engine.step()
            self.clock.advance(0.25)
        while self.engine.busy:
            self.engine.step()

    def restart(self) -> OwnerEngine:
        """Stop in order and start anew."""
        self.engine.close()
        self.clock.advance(1)
        return self.start()
