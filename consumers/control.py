"""The control consumer: the one place where generations change state (invariant 7).

Commands come in order from topic ``control`` (one partition, one member at a time). Each is decided by
``pipeline.generations.decide``; records are written before the answer, and repeating a command changes nothing.
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Callable, Sequence
from typing import Literal

from consumers.assignment import Assignment
from consumers.dead_letter import DeadLetters, coordinates_of
from consumers.lanes import LaneSpec, LaneTopic
from pipeline.bus.codec import decode, encode
from pipeline.clock import Clock
from pipeline.errors import ConfigError, Reject
from pipeline.generations import Declaration, decide
from pipeline.ports import IndexStore, Outgoing, Publisher, Record
from pipeline.settings import Settings
from schemas.events import ControlCommand
from schemas.generation import BackendChoice, EncoderSpec, Generation
from schemas.receipts import Outcome, Receipt, StageTimes
from schemas.topics import Topic

log = logging.getLogger(__name__)

GROUP = "control"
FIRST: tuple[Literal["create", "activate"], ...] = ("create", "activate")


def lane_spec(settings: Settings) -> LaneSpec:
    """One topic of one partition; Kafka's offset is enough, since commands may be repeated."""
    return LaneSpec(
        name="control",
        topics=(LaneTopic(Topic.CONTROL),),
        session_s=settings.kafka.index_session_s,
        timeout_s=settings.weaviate.timeout_s,
    )


class ControlLane:
    """Implements ``runtime.Lane``.

    ``choose`` tries the encoder's backends (seconds); ``prepare_group`` commits the first offsets of the new
    generation's consumer group while it is empty.
    """

    def __init__(
        self,
        spec: LaneSpec,
        *,
        store: IndexStore,
        publisher: Publisher,
        letters: DeadLetters,
        choose: Callable[[EncoderSpec], BackendChoice],
        prepare_group: Callable[[str], object],
        clock: Clock,
    ) -> None:
        self.spec = spec
        self._store = store
        self._publisher = publisher
        self._letters = letters
        self._choose = choose
        self._prepare_group = prepare_group
        self._clock = clock
        self._queue: deque[tuple[Assignment, Record]] = deque()

    def opened(self, assignment: Assignment) -> None:
        """Nothing to prepare."""

    def accept(self, assignment: Assignment, record: Record) -> None:
        """Queue one command."""
        self._queue.append((assignment, record))

    def work(self) -> float | None:
        """Decide the oldest command."""
        if not self._queue:
            return None
        assignment, record = self._queue[0]
        try:
            command = decode(record, ControlCommand)
        except Reject as error:
            self._letters.bury(record, error)
        else:
            self._answer(command, record, *self.carry_out(command))
        assignment.done(record)
        self._queue.popleft()
        return 0

    def drain(self, assignments: Sequence[Assignment], seconds: float) -> bool:
        """Commands are decided one at a time; nothing is under way between two calls of ``work``."""
        return True

    def closed(self, assignment: Assignment) -> None:
        """Forget what was queued."""
        self._queue = deque(item for item in self._queue if item[0] is not assignment)

    def carry_out(self, command: ControlCommand) -> tuple[Outcome, str | None]:
        """Decide and write; the outcome with the reason of a refusal. Raises StoreUnavailable, BusUnavailable."""
        known = self._store.read_generations()
        decision = decide(command, known, self._store.active_generation(), self._clock.now())
        if decision.refused is not None:
            return "refused", decision.refused
        if decision.create is not None:
            try:
                self._create(command.generation, decision.create)
            except ConfigError as error:
                return "refused", str(error)
        for generation in decision.write:
            self._store.write_generation(generation)
        if decision.activate is not None:
            self._store.set_active_generation(decision.activate)
        return "done", None

    def _create(self, name: str, wanted: Declaration) -> None:
        """Collections, then the group's first offsets, then the record: what has a record can be consumed."""
        generation = Generation(
            name=name,
            state="ready",
            encoder=wanted.encoder,
            chunking=wanted.chunking,
            index=wanted.index,
            backend=self._choose(wanted.encoder),
            created_at=self._clock.now(),
        )
        self._store.ensure_generation(generation)
        self._prepare_group(name)
        self._store.write_generation(generation)
        log.info("generation created", extra={"fields": {"name": name, "backend": generation.backend.name}})

    def _answer(self, command: ControlCommand, record: Record, outcome: Outcome, reason: str | None) -> None:
        now = self._clock.now()
        receipt = Receipt(
            lane="control", generation=command.generation, tenant="", event_type=f"control.{command.type}",
            version=command.requested_at, outcome=outcome, reason=reason, request_id=command.request_id,
            times=StageTimes(observed_at=command.requested_at, appended_at=record.timestamp, visible_at=now),
            coordinates=coordinates_of(record),
        )  # fmt: skip
        value = receipt.model_dump_json(exclude_none=True).encode("utf-8")
        self._publisher.publish([Outgoing(str(Topic.RECEIPTS), command.generation, value)])
        level = logging.WARNING if outcome == "refused" else logging.INFO
        log.log(level, "%s %s: %s %s", command.type, command.generation, outcome, reason or "")


def first_generation(settings: Settings, clock: Clock) -> list[Outgoing]:
    """The commands that give an empty installation its first generation; harmless when sent twice."""
    now = clock.now()
    return [
        Outgoing(
            str(Topic.CONTROL),
            settings.generation,
            encode(
                ControlCommand(
                    type=step, generation=settings.generation, request_id=f"first-{step}", requested_at=now,
                    requested_by="control",
                )
            ),
        )
        for step in FIRST
    ]  # fmt: skip


def main(arguments: Sequence[str]) -> int:
    """``python -m consumers control``."""
    from consumers.index import group_of
    from consumers.index import lane_spec as index_spec
    from consumers.lease import Rechecks
    from consumers.process import Stopped, Stopping, parse, run
    from consumers.runtime import Runtime
    from pipeline.bootstrap import choose_backend
    from pipeline.bus.consumer import KafkaReader, commit_first_offsets
    from pipeline.bus.interface import Listener, Reader
    from pipeline.bus.producer import KafkaPublisher
    from pipeline.bus.topics import ensure_topics
    from pipeline.clock import SystemClock
    from pipeline.index.store import WeaviateStore
    from pipeline.settings import load

    options = parse("control", arguments, "Decides the transitions of generations.")
    settings = load()
    stopping = Stopping()
    clock = SystemClock()
    try:
        stopping.retry("Kafka", lambda: ensure_topics(settings))
        publisher = stopping.retry("Kafka", lambda: KafkaPublisher(settings, "control"))
        store = stopping.retry("Weaviate", lambda: WeaviateStore(settings))
        stopping.retry("Weaviate", store.ensure_base)
    except Stopped:
        return 0

    def prepare_group(name: str) -> object:
        topics = [t.topic for t in index_spec(settings, name).topics]
        return commit_first_offsets(settings, group_of(name), topics, ends=[Topic.MAINTENANCE])

    spec = lane_spec(settings)
    lane = ControlLane(
        spec, store=store, publisher=publisher, letters=DeadLetters(publisher, "control", clock),
        choose=lambda encoder: choose_backend(settings, encoder), prepare_group=prepare_group, clock=clock,
    )  # fmt: skip

    def reader(listener: Listener) -> Reader:
        return KafkaReader(
            settings, GROUP, [Topic.CONTROL], listener, session_s=spec.session_s, member=options.member, clock=clock
        )

    if not stopping.retry("Weaviate", store.read_generations):
        publisher.publish(first_generation(settings, clock))
    rechecks = Rechecks(publisher, clock, None)
    runtime = Runtime(lane, reader=reader, store=store, rechecks=rechecks, clock=clock)
    try:
        return run(runtime, stopping)
    finally:
        publisher.close()
        store.close()
