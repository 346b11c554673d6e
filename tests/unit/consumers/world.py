"""A lane on the log and the store in memory, driven step by step on a clock that tests move."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from consumers.access import AccessLane, spec_of_access
from consumers.assignment import Assignment
from consumers.dead_letter import DeadLetters
from consumers.lanes import Lane, LaneSpec, LaneTopic
from consumers.lease import Rechecks
from consumers.runtime import Hooks, Runtime
from pipeline.bus.interface import Listener, Reader
from pipeline.clock import ManualClock
from pipeline.observe import Metrics
from pipeline.ports import Record
from pipeline.settings import Settings
from schemas.documents import AccessRecord, PrincipalRecord
from schemas.events import ACCESS_ONLY
from schemas.keys import DocumentRef
from schemas.receipts import DeadLetter, Progress, Receipt
from schemas.topics import Topic
from tests.fakes.bus import MemoryBroker, MemoryPublisher, MemoryReader, scan
from tests.fakes.store import FakeStore


class Recorder:
    """A lane that keeps what it is given; ``on_work`` decides what a call of ``work`` does."""

    def __init__(self, spec: LaneSpec) -> None:
        self.spec = spec
        self.seen: list[Record] = []
        self.pending: list[tuple[Assignment, Record]] = []
        self.opened_partitions: list[int] = []
        self.closed_partitions: list[int] = []
        self.drains = True
        self.on_work: Callable[[Recorder], None] = Recorder.finish

    def opened(self, assignment: Assignment) -> None:
        self.opened_partitions.append(assignment.partition)

    def accept(self, assignment: Assignment, record: Record) -> None:
        self.pending.append((assignment, record))

    def work(self) -> float | None:
        self.on_work(self)
        return None

    def finish(self) -> None:
        """Everything is done."""
        for assignment, record in self.pending:
            self.seen.append(record)
            assignment.done(record)
        self.pending.clear()

    def drain(self, assignments: Sequence[Assignment], seconds: float) -> bool:
        return self.drains

    def closed(self, assignment: Assignment) -> None:
        self.closed_partitions.append(assignment.partition)
        self.pending = [(a, r) for a, r in self.pending if a is not assignment]


@dataclass
class World:
    """One log, one store, one clock; any number of processes."""

    clock: ManualClock = field(default_factory=ManualClock)
    partitions: int = 3

    def __post_init__(self) -> None:
        self.broker = MemoryBroker(self.partitions, self.clock)
        self.store = FakeStore()
        self.store.ensure_base()
        self.publisher = MemoryPublisher(self.broker)

    def process(
        self,
        lane: Lane,
        *,
        isolation: Any = "read_committed",
        rechecks: Rechecks | None = None,
        hooks: Hooks | None = None,
        observed: Metrics | None = None,
    ) -> Process:
        """A process of the lane's group."""
        spec = lane.spec

        def reader(listener: Listener) -> Reader:
            topics = [topic.topic for topic in spec.topics]
            return MemoryReader(self.broker, spec.name, topics, listener, session_s=spec.session_s, isolation=isolation)

        owed = rechecks if rechecks is not None else Rechecks(self.publisher, self.clock, None)
        observed = observed if observed is not None else Metrics()
        runtime = Runtime(
            lane,
            reader=reader,
            store=self.store,
            rechecks=owed,
            clock=self.clock,
            hooks=hooks,
            observed=observed,
            poll_ms=0,
        )
        return Process(self, runtime, observed)

    def recorder(self, **options: Any) -> tuple[Recorder, Process]:
        """A recording lane over ``content`` and ``maintenance``, and its process."""
        topics = (LaneTopic(Topic.CONTENT, progress="index"), LaneTopic(Topic.MAINTENANCE))
        spec = LaneSpec("index", topics, session_s=6.0, generation="g", safety_window=5, drain_s=0.2)
        spec = replace(spec, **options)
        lane = Recorder(spec)
        return lane, self.process(lane)

    def access(self, hooks: Hooks | None = None) -> Process:
        """An access consumer."""
        observed = Metrics()
        rechecks = Rechecks(self.publisher, self.clock, ACCESS_ONLY)
        lane = AccessLane(
            spec_of_access(Settings()),
            store=self.store,
            publisher=self.publisher,
            rechecks=rechecks,
            dead_letters=DeadLetters(self.publisher, "access", self.clock, observed=observed),
            scan=lambda topic, partition, wanted: scan(
                self.broker, topic, partitions=[partition], wanted=wanted, isolation="read_uncommitted"
            ),
            clock=self.clock,
            partitions=self.partitions,
            observed=observed,
        )
        return self.process(lane, isolation="read_uncommitted", rechecks=rechecks, hooks=hooks, observed=observed)

    # -- what is left behind

    def progress(self, topic: str) -> dict[int, Progress]:
        """Progress records of a topic by partition."""
        return {p.partition: p for p in self.store.all_progress() if p.topic == topic}

    def receipts(self) -> list[Receipt]:
        """All receipts."""
        return [Receipt.model_validate_json(r.value or b"") for r in self.broker.records("receipts")]

    def letters(self) -> list[DeadLetter]:
        """All dead letters."""
        return [DeadLetter.model_validate_json(r.value or b"") for r in self.broker.records("dead-letter")]

    def record(self, document: DocumentRef) -> AccessRecord | None:
        """The access record in the store."""
        return self.store.read_access(document.tenant, [document.uid]).get(document.uid)

    def principal(self, name: str, tenant: str = "acme") -> PrincipalRecord | None:
        """The principal's record in the store."""
        return self.store.read_principals(tenant, [name]).get(name)


@dataclass
class Process:
    """One process, stepped by hand."""

    world: World
    runtime: Runtime
    observed: Metrics

    def __post_init__(self) -> None:
        self.reader = self.runtime.connect()

    def step(self, times: int = 1, seconds: float = 0.01) -> float:
        """Poll and work, moving the clock; the last pause that the work asked for."""
        pause = 0.0
        for _ in range(times):
            self.runtime._poll_once(self.reader)
            pause = self.runtime._work_once()
            self.world.clock.advance(seconds)
        return pause

    def settle(self) -> None:
        """Step long enough for progress and offsets to be written."""
        self.step(4, 0.3)
        self.step(4, 0.3)

    def stop(self) -> None:
        """Leave in order."""
        self.runtime.stop()
        self.reader.close()
