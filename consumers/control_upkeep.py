"""What the control consumer does between commands: repair, the first generation, the end of retired ones.

It changes no generation itself beyond repairs: it sends commands to ``control`` like everybody else, so that they are
decided in their order and answered.
"""

from __future__ import annotations

import logging
from typing import Literal

from consumers.control_facts import Facts, applied, unapplied
from pipeline.bus.codec import encode
from pipeline.clock import Clock
from pipeline.generations import Evidence, decide, repairs
from pipeline.ports import Deadline, IndexStore, Outgoing, Publisher
from pipeline.settings import GenerationSettings
from schemas.events import ControlCommand
from schemas.generation import Generation
from schemas.topics import Topic

log = logging.getLogger(__name__)

EVERY_S = 1.0
AGAIN_S = 30.0  # a command that was sent is not sent again before
GROUP_S = 5.0  # pause between two looks at the groups of retired generations

Step = Literal["create", "ready", "activate", "drop"]


class Upkeep:
    """Called when no command waits. ``first`` is the generation that an empty installation gets."""

    def __init__(
        self,
        *,
        store: IndexStore,
        publisher: Publisher,
        facts: Facts,
        policy: GenerationSettings,
        first: str,
        clock: Clock,
    ) -> None:
        self._store = store
        self._publisher = publisher
        self._facts = facts
        self._policy = policy
        self._first = first
        self._clock = clock
        self._due = 0.0
        self._groups_due = 0.0
        self._sent: dict[tuple[Step, str], float] = {}
        self._groupless: set[str] = set()  # retired generations whose group is gone

    def run(self, lease: Deadline) -> None:
        """One round, where one is due. Raises StoreUnavailable, BusUnavailable, LeaseLost."""
        elapsed = self._clock.elapsed()
        if elapsed < self._due:
            return
        known, active = self._store.read_generations(), self._store.active_generation()
        for generation in repairs(known, active, self._clock.now()):
            log.warning("the record of %s did not follow the switch: repaired", generation.name)
            self._store.write_generation(generation, lease)
            known[generation.name] = generation
        if active is None:
            self._begin(known)
        self._end(known, active)
        self._due = self._clock.elapsed() + EVERY_S

    # ------------------------------------------------------------ the first generation

    def _begin(self, known: dict[str, Generation]) -> None:
        """An empty installation: create, and serve as soon as everything that was logged before is applied."""
        first = known.get(self._first)
        if not known:
            self._send("create", self._first)
        elif first is not None and first.state == "ready":
            self._send("activate", self._first)
        elif first is not None and first.state == "building" and self._caught_up(first):
            self._send("ready", self._first)

    def _caught_up(self, first: Generation) -> bool:
        return unapplied(applied(self._store, first.name), self._facts.ends_at(first.created_at)) == 0

    # ------------------------------------------------------------ retired generations

    def _end(self, known: dict[str, Generation], active: str | None) -> None:
        """Delete the groups of retired generations once they are empty, drop collections once their time is over."""
        elapsed = self._clock.elapsed()
        if elapsed < self._groups_due:
            return
        self._groups_due = elapsed + GROUP_S
        for generation in known.values():
            if generation.state != "retired":
                continue
            if generation.name not in self._groupless and self._facts.delete_group(generation.name):
                self._groupless.add(generation.name)
                log.info("the group of retired generation %s is gone", generation.name)
            overdue = generation.drop_after is not None and self._clock.now() >= generation.drop_after
            if generation.dropped_at is None and overdue:
                self._drop(generation, known, active)

    def _drop(self, generation: Generation, known: dict[str, Generation], active: str | None) -> None:
        """Sent only where it will be accepted: nobody waits for a refusal."""
        evidence = Evidence(
            known, active, members=self._facts.members(generation.name), instances=self._facts.instances()
        )
        command = self._command("drop", generation.name)
        if decide(command, evidence, self._policy, self._clock.now()).refused is None:
            self._send("drop", generation.name)

    # ------------------------------------------------------------ sending

    def _command(self, step: Step, name: str) -> ControlCommand:
        now = self._clock.now()
        return ControlCommand(
            type=step, generation=name, request_id=f"control-{step}-{name}-{now}", requested_at=now,
            requested_by="control",
        )  # fmt: skip

    def _send(self, step: Step, name: str) -> None:
        elapsed = self._clock.elapsed()
        if elapsed - self._sent.get((step, name), -AGAIN_S) < AGAIN_S:
            return
        self._publisher.publish([Outgoing(str(Topic.CONTROL), name, encode(self._command(step, name)))])
        self._sent[step, name] = elapsed
