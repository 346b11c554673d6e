"""The connector: hands over what a topic says, in the order of each partition."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator
from typing import Protocol

from pipeline.clock import Clock
from pipeline.errors import BusUnavailable
from pipeline.ports import Record, SourceDeletion, SourceDocument
from pipeline.settings_sources import TopicSettings
from pipeline.sources.connector import Look, Mark, Reach, Seen, SourceHidden
from pipeline.sources.remote.contract import Finding
from pipeline.sources.stated import InOrder, Told, in_order
from pipeline.sources.states import Known
from pipeline.sources.topic.router import Router
from pipeline.sources.topic.rows import Rows
from schemas.keys import DocumentRef

PATIENCE_S = (0.5, 30.0)
"""How long to wait after a failure: at first, doubled each time, and at most."""
ENDS_S = 1.0
"""How often it is asked how far the topics reach."""
BACKLOG = 100
"""Records behind the end from which what is read is old rather than live."""
BACK = 1000
"""Messages before the cursor that are looked at again, to know a repetition when it comes."""


Offsets = dict[str, dict[int, int]]
"""Offsets by topic and partition."""


class Records(Protocol):
    """Topics of another program. Everything may raise BusUnavailable; then ``start`` begins anew."""

    def start(self, positions: Offsets, back: int) -> tuple[Offsets, list[str], list[str]]:
        """Read on from these offsets by topic and partition, ``back`` records earlier.

        Gives the offsets from which records count, problems (what is not there yet) and alarms (what is gone unread).
        """
        ...

    def poll(self, timeout_s: float) -> list[Record]:
        """New records, in order per partition."""
        ...

    def positions(self) -> Offsets:
        """Next offset to be polled of each partition."""
        ...

    def ends(self) -> Offsets:
        """Offset after the last record of each partition, now."""
        ...

    def partitions(self) -> dict[str, list[int]]:
        """Partitions of each topic, none where it is not there."""
        ...

    def close(self) -> None: ...


class TopicSource(InOrder):
    """Some topics of one Kafka. It is as complete as they are: what fills them may be behind its database."""

    def __init__(
        self,
        settings: TopicSettings,
        clock: Clock,
        *,
        records: Records,
        known: Callable[[DocumentRef], Known | None],
    ) -> None:
        """``known``: what the log says of a document. Nothing is connected yet. Raises ConfigError."""
        super().__init__(clock, Reach(notes={"format": settings.format}))
        self._settings, self._records = settings, records
        self._format: Rows | Router = (
            Rows(settings, known) if settings.format == "debezium" else Router(settings, known)
        )
        self._back = BACK if settings.format == "outbox" else 1
        self._next: Offsets = {}
        self._behind = 0
        self._started = False
        self._ends_due = 0.0
        self._patience = PATIENCE_S[0]
        self._failure: str | None = None
        self._unread: list[str] = []

    # ------------------------------------------------------------ the connector's port

    @property
    def degraded(self) -> str | None:
        """Why nothing is read."""
        return self._failure

    def restore(self, states: Iterable[tuple[DocumentRef, Known]], position: str) -> None:
        """Go on from ``position``: next offsets by topic and partition, in JSON."""
        try:
            parts = json.loads(position) if position else {}
            self._next = {
                str(topic): {int(p): int(offset) for p, offset in offsets.items()} for topic, offsets in parts.items()
            }
        except (ValueError, AttributeError, TypeError) as error:
            why = type(error).__name__
            self._unread = [f"the cursor on the log cannot be read ({why}): the topics are read from their beginning"]

    def listing(self) -> Look:
        """There is no list of what stands: nothing is met, and nothing is concluded from that."""
        problems = [self._failure] if self._failure is not None else []
        return Look(0, iter(()), complete=not problems, listing=True, problems=problems)

    def updated(self, since: int, until: int) -> Look:
        """A topic cannot be asked what was updated when."""
        problem = "a topic cannot be asked what was updated when: have its program send the rows again (a new snapshot)"
        return Look(self._clock.now(), iter(()), complete=False, problems=[problem])

    def changes(self, timeout: float) -> Look | None:
        """What came since, once all that was read before is handed over."""
        if not self._may_look(timeout):
            return None
        try:
            return self._look(timeout)
        except BusUnavailable as error:
            return self._failed(error)

    def read(self, document: DocumentRef) -> SourceDocument | SourceHidden | SourceDeletion | None:
        """It cannot be said: a topic is read in its order only."""
        return None

    def committed(self, position: str) -> None:
        """Nothing to do: the topic keeps its records."""

    def close(self) -> None:
        """Disconnect."""
        self._records.close()

    def check(self) -> list[Finding]:
        """Which topics are there."""
        try:
            there = self._records.partitions()
        except BusUnavailable as error:
            return [Finding(str(error), False, "Check bootstrap, and that the broker accepts connections from here.")]
        return [
            Finding(f"topic {topic} has {len(numbers)} partitions", True)
            if numbers
            else Finding(f"there is no topic {topic}", False, "Check topics; Debezium makes one with its first row.")
            for topic, numbers in there.items()
        ]

    # ------------------------------------------------------------ looking

    def _look(self, timeout: float) -> Look | None:
        problems, alarms = self._begun()
        self._reach.requests += 1
        found = self._records.poll(timeout)
        began, whole = self._clock.now(), self._caught_up()
        self._failure, self._patience = None, PATIENCE_S[0]
        fresh = [r for r in found if self._fresh(r)]
        moved = self._move_on()
        if not (fresh or moved or whole or problems or alarms):
            return None
        look = Look(
            began,
            iter(()),
            expected=len(fresh),
            bulk=self._behind > BACKLOG,
            whole=whole,
            position=json.dumps(self._next, separators=(",", ":"), sort_keys=True) if moved else None,
            problems=problems,
            alarms=alarms,
        )
        if fresh:
            self._handing = True
            look.seen = self._until_handed(in_order(look, self._format.steps(fresh, Told(look))))
        return look

    def _begun(self) -> tuple[list[str], list[str]]:
        """Connect where that is due."""
        if self._started:
            return [], []
        counted, problems, alarms = self._records.start(self._next, self._back)
        for topic, offsets in counted.items():
            self._next.setdefault(topic, {}).update(offsets)
        unread, self._unread = self._unread, []
        self._started, self._ends_due = True, 0.0
        return problems, unread + alarms

    def _caught_up(self) -> bool:
        """Whether everything that is in the topics by now was polled; asked now and then."""
        if self._clock.elapsed() < self._ends_due:
            return False
        self._ends_due = self._clock.elapsed() + ENDS_S
        at = self._records.positions()
        ends = self._records.ends()
        self._behind = sum(
            max(0, end - at.get(topic, {}).get(p, 0)) for topic, offsets in ends.items() for p, end in offsets.items()
        )
        return self._behind == 0

    def _fresh(self, record: Record) -> bool:
        """Whether a record comes after the cursor; earlier ones are only remembered."""
        if record.offset >= self._next.get(record.topic, {}).get(record.partition, 0):
            return True
        self._format.remember(record)
        return False

    def _move_on(self) -> bool:
        moved = False
        for topic, offsets in self._records.positions().items():
            mine = self._next.setdefault(topic, {})
            for number, offset in offsets.items():
                if offset > mine.get(number, 0):
                    mine[number] = offset
                    moved = True
        return moved

    def _until_handed(self, seen: Iterator[Seen | Mark]) -> Iterator[Seen | Mark]:
        yield from seen
        self._handing = False

    def _failed(self, error: BusUnavailable) -> Look:
        self._records.close()
        self._started = False
        self._reach.failures += 1
        self._failure = str(error)
        self._due = self._clock.elapsed() + self._patience
        self._patience = min(self._patience * 2, PATIENCE_S[1])
        return Look(self._clock.now(), iter(()), complete=False, problems=[self._failure])
