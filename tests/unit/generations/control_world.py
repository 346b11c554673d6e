"""The control lane on the store in memory; it can be killed at every step and started again from any offset."""

from __future__ import annotations

import base64
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from consumers.assignment import Assignment
from consumers.control import ControlLane, Makers, lane_spec
from consumers.dead_letter import DeadLetters
from consumers.lease import Lease
from consumers.positions import Start
from pipeline.bus.instances import Instance
from pipeline.bus.interface import Slot
from pipeline.clock import ManualClock
from pipeline.errors import HeadwaterError
from pipeline.observe import Metrics
from pipeline.ports import Appended, Outgoing, Record
from pipeline.settings import GenerationSettings, Settings
from schemas.events import ControlCommand
from schemas.generation import BackendChoice, EncoderSpec, Generation, ReferenceVectors, VerificationSummary
from schemas.instances import InstanceHeartbeat
from schemas.receipts import Progress, Receipt
from schemas.topics import Topic
from tests.fakes.store import FakeStore

SPEC = EncoderSpec(dimension=8)


class Killed(BaseException):
    """kill -9: nothing after it happens."""


def reference(dimension: int) -> ReferenceVectors:
    vectors = base64.b64encode(np.zeros((1, dimension), dtype="<f4").tobytes()).decode()
    return ReferenceVectors(texts_sha256="0" * 64, dimension=dimension, vectors=vectors)


class FakeFacts:
    """``control_facts.Facts`` as a test sets it."""

    def __init__(self) -> None:
        self.ends: dict[Slot, int] = {}
        self.living: tuple[Instance, ...] = ()
        self.consumers: dict[str, int] = {}
        self.groups: set[str] = set()

    def ends_at(self, moment: int) -> Mapping[Slot, int]:
        return self.ends

    def instances(self) -> tuple[Instance, ...]:
        return self.living

    def members(self, generation: str) -> int:
        return self.consumers.get(generation, 0)

    def delete_group(self, generation: str) -> bool:
        if self.consumers.get(generation, 0):
            return False
        self.groups.discard(generation)
        return True


class ControlWorld:
    """One log of commands, one store, and at most one control consumer at a time."""

    def __init__(
        self, *, policy: GenerationSettings | None = None, first: str = "g1", retention_days: float = 0.0
    ) -> None:
        self.clock = ManualClock()
        self.store = FakeStore()
        self.store.ensure_base()
        self.facts = FakeFacts()
        self.policy = policy if policy is not None else GenerationSettings(retention_days=retention_days)
        self.first = first
        self.commands: list[Record] = []
        self.receipts: list[Receipt] = []
        self.publishing: Callable[[], None] = lambda: None
        self.dimension: int | None = None
        self.refuses: HeadwaterError | None = None
        self.steps: list[str] = []
        self.kill_at: int | None = None  # number of the step at which the process dies
        self.lane, self.assignment = self._begin(0)

    # ------------------------------------------------------------ the process

    def _begin(self, offset: int) -> tuple[ControlLane, Assignment]:
        settings = Settings(generations=self.policy)
        lane = ControlLane(
            lane_spec(settings), store=self.store, publisher=self,
            letters=DeadLetters(self, "control", self.clock, observed=Metrics()), facts=self.facts,
            makers=Makers(choose=self._choose, refer=self._refer, prepare=self.facts.groups.add), policy=self.policy,
            first=self.first, clock=self.clock,
        )  # fmt: skip
        lane.crash_point = self._step
        lane.pause = self.clock.advance
        lease = Lease(self.clock.elapsed, clock=self.clock, session_s=10.0, timeout_s=5.0, partition=0)
        assignment = Assignment(0, [str(Topic.CONTROL)], lease, self.clock.elapsed())
        assignment.begin({str(Topic.CONTROL): Start(offset, offset, offset, "test", len(self.commands))})
        lane.opened(assignment)
        return lane, assignment

    def restart(self, offset: int = 0) -> None:
        """A new process that reads from ``offset`` on: Kafka knows no better, or nothing at all."""
        self.kill_at = None
        again = self.commands[offset:]
        self.lane, self.assignment = self._begin(offset)
        self.lane.work()  # before anything was read
        for record in again:
            self.assignment.read(record)
            self.lane.accept(self.assignment, record)

    def _step(self, step: str) -> None:
        self.steps.append(step)
        if self.kill_at is not None and len(self.steps) > self.kill_at:
            raise Killed(step)

    def _choose(self, spec: EncoderSpec) -> BackendChoice:
        if self.refuses is not None:
            raise self.refuses
        return BackendChoice(name="stub", agreement=1.0, chunks_per_second=30.0)

    def _refer(self, spec: EncoderSpec, backend: BackendChoice) -> ReferenceVectors:
        return reference(self.dimension if self.dimension is not None else spec.dimension)

    # ------------------------------------------------------------ Publisher

    def publish(self, records: Sequence[Outgoing]) -> list[Appended]:
        self.publishing()
        for record in records:
            if record.topic == Topic.RECEIPTS:
                self.receipts.append(Receipt.model_validate_json(record.value or b""))
            elif record.topic == Topic.CONTROL:
                self._append(record.value or b"")
        return [Appended(r.topic, 0, i, 0) for i, r in enumerate(records)]

    def close(self) -> None:
        """Nothing to close."""

    # ------------------------------------------------------------ in

    def _append(self, value: bytes) -> None:
        self.clock.advance(0.001)
        record = Record(str(Topic.CONTROL), 0, len(self.commands), self.clock.now(), None, value)
        self.commands.append(record)
        self.assignment.read(record)
        self.lane.accept(self.assignment, record)

    def put(self, kind: str, name: str = "g2", **fields: Any) -> None:
        """A command on the log, not decided yet."""
        if kind == "create":
            fields.setdefault("declaration", {"encoder": {"dimension": SPEC.dimension}})
        sent = ControlCommand.model_validate(
            {"type": kind, "generation": name, "request_id": f"{kind}-{name}-{len(self.commands)}",
             "requested_at": self.clock.now(), "requested_by": "ops", **fields}
        )  # fmt: skip
        self._append(sent.model_dump_json().encode())

    def work(self) -> None:
        """Decide everything that is queued."""
        while self.lane.work() is not None:
            pass

    def ask(self, kind: str, name: str = "g2", **fields: Any) -> Receipt:
        """A command and its answer."""
        self.put(kind, name, **fields)
        self.work()
        return self.receipts[-1]

    def idle(self, rounds: int = 3, seconds: float = 6.0) -> None:
        """Let time pass without commands of others."""
        for _ in range(rounds):
            self.clock.advance(seconds)
            self.lane.work()
            self.work()

    # ------------------------------------------------------------ around it

    def applied(self, name: str, offset: int, *, partitions: int = 1) -> None:
        """The generation's index consumers are so far in every partition of content and access."""
        self.store.write_progress(
            [
                Progress(lane="index", generation=name, topic=topic, partition=p, offset=offset)
                for topic in ("content", "access")
                for p in range(partitions)
            ]
        )

    def logged(self, offset: int) -> None:
        """The log ends there, in one partition of content and access."""
        self.facts.ends = {Slot("content", 0): offset, Slot("access", 0): offset}

    def summary(self, against: str = "g1", passed: bool = True) -> VerificationSummary:
        return VerificationSummary(report_id="v", passed=passed, against=against, finished_at=self.clock.now())

    def heard(self, active: str, *warm: str, **in_flight: int) -> None:
        """One query service, heard just now."""
        now = self.clock.now()
        beat = InstanceHeartbeat(instance="q1", warm=warm, active=active, in_flight=in_flight, started_at=1, at=now)
        self.facts.living = (Instance(beat, now),)

    def serving(self) -> None:
        """g1 serves, as an empty installation gets it."""
        self.idle()
        assert self.active == "g1"

    def proven(self, name: str = "g2", against: str = "g1") -> None:
        """A second generation that may be activated."""
        for kind in ("create", "ready"):
            assert self.ask(kind, name).outcome == "done"
        assert self.ask("report", name, report=self.summary(against)).outcome == "done"

    @property
    def active(self) -> str | None:
        return self.store.active_generation()

    @property
    def known(self) -> dict[str, Generation]:
        return self.store.read_generations()

    def states(self) -> dict[str, str]:
        return {name: g.state for name, g in sorted(self.known.items())}
