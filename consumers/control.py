"""The control consumer: the one place where generations change state (invariant 7).

Commands come in order from topic ``control`` (one partition, one member at a time). Each is decided by
``pipeline.generations.decide`` on what is found at that moment. What it does is written before the answer, the switch
itself being one record; then the offset is noted in the store, so that a command is decided once, also where Kafka's
offset was lost. A crash in between lets it be decided again, which finishes it and changes nothing else. A refusal is
noted before it is told: what was refused does not happen later.
"""

from __future__ import annotations

import logging
import time
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from consumers.assignment import Assignment
from consumers.control_facts import Facts, applied, unapplied
from consumers.control_upkeep import Upkeep
from consumers.dead_letter import DeadLetters, coordinates_of
from consumers.lanes import LaneSpec, LaneTopic
from pipeline.bus.codec import decode
from pipeline.clock import Clock
from pipeline.errors import ConfigError, EncoderUnavailable, Reject
from pipeline.generations import Declaration, Evidence, decide, repairs
from pipeline.operate.estimate import freed
from pipeline.ports import Deadline, IndexStore, Outgoing, Publisher, Record
from pipeline.settings import GenerationSettings, Settings
from schemas.events import ControlCommand
from schemas.generation import BackendChoice, EncoderSpec, Generation, ReferenceVectors
from schemas.receipts import Outcome, Progress, Receipt, StageTimes
from schemas.topics import Topic

log = logging.getLogger(__name__)

GROUP = "control"
LOOK_S = 0.1
CATCH_UP_S = {"activate": 10.0, "rollback": 3.0}  # who goes back wants it at once


def lane_spec(settings: Settings) -> LaneSpec:
    """One topic of one partition; the lane itself notes in the store how far it decided."""
    return LaneSpec(
        name="control",
        topics=(LaneTopic(Topic.CONTROL),),
        session_s=settings.kafka.index_session_s,
        timeout_s=settings.weaviate.timeout_s,
    )


@dataclass(frozen=True)
class Makers:
    """What creating a generation takes.

    ``choose`` tries the encoder's backends (seconds to minutes), ``refer`` embeds the reference texts, ``prepare``
    commits the first offsets of the generation's consumer group while it is empty.
    """

    choose: Callable[[EncoderSpec], BackendChoice]
    refer: Callable[[EncoderSpec, BackendChoice], ReferenceVectors]
    prepare: Callable[[str], object]


@dataclass(frozen=True)
class Answer:
    """What became of a command."""

    outcome: Outcome
    reason: str | None
    details: dict[str, object]


class ControlLane:
    """Implements ``runtime.Lane``. ``crash_point`` is where fault tests stop it, ``pause`` how it waits."""

    def __init__(
        self,
        spec: LaneSpec,
        *,
        store: IndexStore,
        publisher: Publisher,
        letters: DeadLetters,
        facts: Facts,
        makers: Makers,
        policy: GenerationSettings,
        first: str,
        clock: Clock,
    ) -> None:
        """``first`` is the generation that an empty installation gets."""
        self.spec = spec
        self.crash_point: Callable[[str], None] = lambda step: None
        self.pause: Callable[[float], None] = time.sleep
        self._store = store
        self._publisher = publisher
        self._letters = letters
        self._facts = facts
        self._makers = makers
        self._policy = policy
        self._clock = clock
        self._upkeep = Upkeep(store=store, publisher=publisher, facts=facts, policy=policy, first=first, clock=clock)
        self._queue: deque[tuple[Assignment, Record]] = deque()
        self._assignment: Assignment | None = None
        self._decided: Progress | None = None  # None until it was read from the store
        self._unsent: tuple[Record, Receipt | None] | None = None  # decided and not noted; None once it is answered

    @property
    def deciding(self) -> bool:
        """Whether this member is the one that decides."""
        assignment = self._assignment
        return assignment is not None and assignment.active

    def opened(self, assignment: Assignment) -> None:
        """Another member may have decided since: what is known of that is read again."""
        self._assignment = assignment
        self._decided = None

    def accept(self, assignment: Assignment, record: Record) -> None:
        """Queue one command."""
        self._queue.append((assignment, record))

    def work(self) -> float | None:
        """Decide the oldest command; without one, look after what time brings."""
        if not self._queue:
            if self._assignment is not None and self._caught_up(self._assignment):
                self._upkeep.run(self._assignment.lease)
            return None
        assignment, record = self._queue[0]
        if not self._was_decided(record):
            self._decide(record, assignment.lease)
        assignment.done(record)
        self._queue.popleft()
        return 0

    def drain(self, assignments: Sequence[Assignment], seconds: float) -> bool:
        """Commands are decided one at a time; nothing is under way between two calls of ``work``."""
        return True

    def closed(self, assignment: Assignment) -> None:
        """Forget what was queued."""
        self._queue = deque(item for item in self._queue if item[0] is not assignment)
        self._unsent = None
        if self._assignment is assignment:
            self._assignment = None

    @staticmethod
    def _caught_up(assignment: Assignment) -> bool:
        """Whether what was on the log when the partition was opened is decided: a command may still have to be
        finished, and only it knows who asked for what."""
        topic = str(Topic.CONTROL)
        return assignment.active and assignment.watermark(topic) >= assignment.starts[topic].end

    # ------------------------------------------------------------ one command

    def _was_decided(self, record: Record) -> bool:
        """Whether the offset was noted. A younger record at a noted offset lies on another log: that one counts."""
        if self._decided is None:
            known = self._store.read_progress("control", "", str(Topic.CONTROL))
            nothing = Progress(lane="control", topic=str(Topic.CONTROL), partition=record.partition, offset=0)
            self._decided = known.get(record.partition, nothing)
        noted = record.offset < self._decided.offset and record.timestamp <= self._decided.written_at
        if noted:
            log.info("command at offset %d was decided before", record.offset)
        return noted

    def _note(self, record: Record, lease: Deadline) -> None:
        decided = Progress(
            lane="control", topic=record.topic, partition=record.partition, offset=record.offset + 1,
            written_at=max(self._clock.now(), record.timestamp), end_offset=record.offset + 1,
        )  # fmt: skip
        self._store.write_progress([decided], lease)
        self._decided = decided

    def _decide(self, record: Record, lease: Deadline) -> None:
        if self._unsent is None or self._unsent[0] is not record:
            try:
                command = decode(record, ControlCommand)
            except Reject as error:
                self._letters.bury(record, error)
                self._note(record, lease)
                return
            answer = self.carry_out(command, lease)
            self.crash_point("carried out")
            if answer.outcome == "refused":
                self._note(record, lease)
            self._unsent = record, self._receipt(command, record, answer)
        receipt = self._unsent[1]
        if receipt is not None:
            self._publish(receipt)
            self._unsent = record, None
        self.crash_point("answered")
        self._note(record, lease)
        self._unsent = None

    def carry_out(self, command: ControlCommand, lease: Deadline) -> Answer:
        """Decide and write. Raises StoreUnavailable, BusUnavailable, LeaseLost; then it is decided again."""
        now = self._clock.now()
        known, active = self._store.read_generations(), self._store.active_generation()
        switching = command.type in ("activate", "rollback")
        if not (switching and command.generation == active):
            for generation in repairs(known, active, now):
                self._write(generation, lease)
                known = {**known, generation.name: generation}
        decision = decide(command, self._evidence(command, known, active), self._policy, now)
        waited: dict[str, object] = {}
        if decision.activate is not None and active is not None:
            waited = self._let_catch_up(command, lease)
            decision = decide(command, self._evidence(command, known, active), self._policy, self._clock.now())
        details = dict(decision.details) | waited
        if decision.refused is not None:
            return Answer("refused", decision.refused, details)
        if decision.create is not None:
            try:
                details |= self._create(command, decision.create, lease)
            except (ConfigError, EncoderUnavailable) as error:
                return Answer("refused", str(error), details)
        if decision.activate is not None:
            self._store.set_active_generation(decision.activate, lease)
            self.crash_point("switched")
        for generation in decision.write:
            self._write(generation, lease)
            self.crash_point("written")
        if decision.drop:
            details |= self._drop(known[command.generation], lease)
        if decision.warnings:
            details["warnings"] = list(decision.warnings)
        return Answer("done", "; ".join(decision.warnings) or None, details)

    def _let_catch_up(self, command: ControlCommand, lease: Deadline) -> dict[str, object]:
        """Nobody should see the past again after a switch: what was logged before it is applied there first, if soon.

        What the conditions allow to be behind is not waited for longer than CATCH_UP_S.
        """
        ends = self._facts.ends_at(self._clock.now())
        behind = unapplied(applied(self._store, command.generation), ends)
        began = self._clock.elapsed()
        for _ in range(int(CATCH_UP_S[command.type] / LOOK_S)):
            if behind == 0 or behind > self._policy.behind_records:
                break
            lease.remaining()
            self.pause(LOOK_S)
            behind = unapplied(applied(self._store, command.generation), ends)
        return {"behind_log": behind, "waited_s": round(self._clock.elapsed() - began, 2)}

    def _write(self, generation: Generation, lease: Deadline) -> None:
        self._store.write_generation(generation, lease)

    # ------------------------------------------------------------ what is found

    def _evidence(self, command: ControlCommand, known: dict[str, Generation], active: str | None) -> Evidence:
        """What the command's conditions need, and no more: each look takes a moment."""
        found = Evidence(known, active)
        present = known.get(command.generation)
        if present is None or present.name == active or command.type in ("create", "report"):
            return found
        if command.type == "drop":
            found = replace(found, members=self._facts.members(present.name))
        if command.type != "ready":
            found = replace(found, instances=self._facts.instances())
        if command.type in ("ready", "activate", "rollback"):
            done = applied(self._store, present.name)
            if present.state == "building":
                found = replace(found, unread=unapplied(done, self._facts.ends_at(present.created_at)))
            if active is not None:
                found = replace(found, behind=unapplied(done, applied(self._store, active)))
        return found

    # ------------------------------------------------------------ making and dropping

    def _create(self, command: ControlCommand, wanted: Declaration, lease: Deadline) -> dict[str, object]:
        """Collections, then the group's first offsets, then the record: what has a record can be consumed."""
        now = self._clock.now()
        backend = self._makers.choose(wanted.encoder)
        reference = self._makers.refer(wanted.encoder, backend)
        if reference.dimension != wanted.encoder.dimension:
            raise ConfigError(
                "declaration.encoder.dimension",
                f"{wanted.encoder.model} makes vectors of dimension {reference.dimension}, "
                f"declared are {wanted.encoder.dimension}",
                "Correct the declaration.",
            )
        generation = Generation(
            name=command.generation, state="building", encoder=wanted.encoder, chunking=wanted.chunking,
            index=wanted.index, backend=backend, reference=reference, created_at=now, state_since=now,
            requested_by=command.requested_by, vectors_from=wanted.vectors_from,
        )  # fmt: skip
        lease.remaining()
        self._store.ensure_generation(generation)
        self.crash_point("collections")
        self._makers.prepare(generation.name)
        self.crash_point("group")
        self._write(generation, lease)
        self.crash_point("written")
        log.info("generation created", extra={"fields": {"name": generation.name, "backend": backend.name}})
        return {"backend": backend.name, "chunks_per_second": backend.chunks_per_second, "state": "building"}

    def _drop(self, generation: Generation, lease: Deadline) -> dict[str, object]:
        """What is freed is noted first: it cannot be counted afterwards."""
        if generation.freed is None:
            counted = freed(self._store, generation)
            generation = generation.model_copy(update={"freed": counted, "version": generation.version + 1})
            self._write(generation, lease)
            self.crash_point("counted")
        lease.remaining()
        self._store.drop_generation(generation.name)
        self.crash_point("dropped")
        now = self._clock.now()
        self._write(
            generation.model_copy(update={"dropped_at": now, "version": generation.version + 1}), lease
        )  # fmt: skip
        assert generation.freed is not None
        return {"freed": generation.freed.model_dump(), "dropped_at": now}

    # ------------------------------------------------------------ the answer

    def _receipt(self, command: ControlCommand, record: Record, answer: Answer) -> Receipt:
        return Receipt(
            lane="control", generation=command.generation, tenant="", event_type=f"control.{command.type}",
            version=command.requested_at, outcome=answer.outcome, reason=answer.reason, request_id=command.request_id,
            times=StageTimes(
                observed_at=command.requested_at, appended_at=record.timestamp, visible_at=self._clock.now()
            ),
            coordinates=coordinates_of(record), details=answer.details,
        )  # fmt: skip

    def _publish(self, receipt: Receipt) -> None:
        value = receipt.model_dump_json(exclude_none=True).encode("utf-8")
        self._publisher.publish([Outgoing(str(Topic.RECEIPTS), receipt.generation or "", value)])
        level = logging.WARNING if receipt.outcome == "refused" else logging.INFO
        log.log(level, "%s %s: %s %s", receipt.event_type, receipt.generation, receipt.outcome, receipt.reason or "")


def main(arguments: Sequence[str]) -> int:
    """``python -m consumers control [--member NAME]``."""
    from consumers.process import parse
    from pipeline.settings import load

    options = parse("control", arguments, "Decides the transitions of generations.")
    return serve(load(), options.member)


def serve(
    settings: Settings, member: str | None = None, *, crash_point: Callable[[str], None] | None = None
) -> int:  # fmt: skip
    """Run until a signal comes; the exit status. ``crash_point`` is where fault tests stop it."""
    from consumers.connected import connected
    from consumers.control_facts import KafkaFacts
    from consumers.index import group_of
    from consumers.index import lane_spec as index_spec
    from consumers.lease import Rechecks
    from consumers.process import Stopped, Stopping, run
    from consumers.runtime import Runtime
    from consumers.store_watch import StoreWatch
    from pipeline.bootstrap import choose_backend, reference_vectors
    from pipeline.bus.consumer import KafkaReader, commit_first_offsets
    from pipeline.bus.interface import Listener, Reader
    from pipeline.clock import SystemClock
    from pipeline.observe import metrics
    from pipeline.operate.audit.restart import verify_after_restart

    def prepare(name: str) -> object:
        topics = [t.topic for t in index_spec(settings, name).topics]
        return commit_first_offsets(settings, group_of(name), topics, ends=[Topic.MAINTENANCE])

    stopping = Stopping()
    clock = SystemClock()
    spec = lane_spec(settings)

    def reader(listener: Listener) -> Reader:
        return KafkaReader(
            settings, GROUP, [Topic.CONTROL], listener, session_s=spec.session_s, member=member, clock=clock
        )

    try:
        with connected(settings, "control", stopping) as (publisher, store):
            lane = ControlLane(
                spec,
                store=store,
                publisher=publisher,
                letters=DeadLetters(publisher, "control", clock),
                facts=KafkaFacts(settings, clock),
                makers=Makers(
                    choose=lambda encoder: choose_backend(settings, encoder),
                    refer=lambda encoder, backend: reference_vectors(settings, encoder, backend),
                    prepare=prepare,
                ),
                policy=settings.generations,
                first=settings.generation,
                clock=clock,
            )
            if crash_point is not None:
                lane.crash_point = crash_point
            rechecks = Rechecks(publisher, clock, None)
            watch = StoreWatch(
                store.healthy, lambda: lane.deciding, lambda stop: verify_after_restart(settings, stop), metrics()
            )
            watch.start()
            try:
                return run(Runtime(lane, reader=reader, store=store, rechecks=rechecks, clock=clock), stopping)
            finally:
                watch.stop()
    except Stopped:
        return 0
