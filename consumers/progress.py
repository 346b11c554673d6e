"""What a lane tells the store of how far it is, and the look whether the store still says so (invariant 11).

A progress record says: everything before its offset is in the store. So a record that lies behind what was written
last means another store (restored from an older copy, or emptied): the partition has to be read again from there.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass

from consumers.assignment import Assignment
from consumers.lanes import LaneSpec, ProgressStore
from consumers.lease import JointLease
from pipeline.bus.interface import Slot
from pipeline.clock import Clock
from pipeline.observe import Metrics
from schemas.receipts import Progress

log = logging.getLogger("headwater.consumer")

PROGRESS_S = 0.2
REFRESH_S = 5.0
# No store restarts, let alone is restored, in less time than this without a call failing.
TRUST_S = 1.0


@dataclass
class Written:
    """What was last written of a slot."""

    offset: int = -1
    end: int = -1
    at: float = -1e9
    committed: int = -1


class ProgressKeeper:
    """Progress records of one lane in this process. ``end_of`` gives a slot's end as last seen, or None."""

    def __init__(
        self, spec: LaneSpec, store: ProgressStore, owner: str, clock: Clock, observed: Metrics,
        end_of: Callable[[Slot], int | None],
    ) -> None:  # fmt: skip
        self._spec = spec
        self._store = store
        self._owner = owner
        self._clock = clock
        self._metrics = observed
        self._seen_end = end_of
        self._written: dict[Slot, Written] = {}
        self._lane_of = {str(t.topic): t.progress for t in spec.topics}
        self._trusted_at = -1e9

    def tracked(self, topic: str) -> bool:
        """Whether the topic has progress records."""
        return self._lane_of[topic] is not None

    def of(self, slot: Slot) -> Written:
        """What was last written of the slot."""
        return self._written.setdefault(slot, Written())

    def forget(self, slots: Iterable[Slot]) -> None:
        """The slots are not ours any more."""
        for slot in slots:
            self._written.pop(slot, None)

    def end_of(self, slot: Slot) -> int:
        """End of the slot as last seen."""
        seen = self._seen_end(slot)
        return seen if seen is not None else max(0, self.of(slot).end)

    def distrust(self) -> None:
        """A call failed: look before the next record is written."""
        self._trusted_at = -1e9

    # ------------------------------------------------------------ store

    def read(self) -> dict[Slot, Progress]:
        """All records of the lane. Raises StoreUnavailable."""
        found = {}
        for topic, lane in self._lane_of.items():
            if lane is not None:
                for partition, record in self._store.read_progress(lane, self._spec.generation, topic).items():
                    found[Slot(topic, partition)] = record
        return found

    def begin(self, assignment: Assignment, offsets: Mapping[Slot, int]) -> None:
        """Write the first records in the own name."""
        self.write(assignment, offsets, clean=False)
        now = self._clock.elapsed()
        for slot, offset in offsets.items():
            self._written[slot] = Written(offset=offset, at=now, committed=offset)
        self._trusted_at = now

    def write(self, assignment: Assignment, offsets: Mapping[Slot, int], *, clean: bool) -> None:
        """Write these offsets. Raises StoreUnavailable, LeaseLost."""
        records = [self._record(slot, offset, clean) for slot, offset in offsets.items() if self.tracked(slot.topic)]
        if records:
            self._store.write_progress(records, assignment.lease)

    def checkpoint(self, assignments: Iterable[Assignment]) -> list[Assignment]:
        """Write what is due: moved and 200 ms old, or unmoved and 5 s old (a sign of life).

        Writes nothing and returns the assignments that the store has forgotten, where there are any.
        """
        now = self._clock.elapsed()
        due = [d for a in assignments if a.active and a.lease.left() > 0 for d in self._due(a, now)]
        if not due:
            return []
        if now - self._trusted_at > TRUST_S:
            forgotten = self._forgotten([(a, slot) for a, slot, _ in due])
            if forgotten:
                return forgotten
        self._write(due, now)
        self._trusted_at = now
        return []

    def _due(self, assignment: Assignment, now: float) -> list[tuple[Assignment, Slot, int]]:
        due = []
        for slot in assignment.slots():
            if not self.tracked(slot.topic):
                continue
            written, offset = self.of(slot), assignment.watermark(slot.topic)
            age = now - written.at
            moved = offset != written.offset or self.end_of(slot) != written.end
            if age >= REFRESH_S or (moved and age >= PROGRESS_S):
                due.append((assignment, slot, offset))
        return due

    def _forgotten(self, due: list[tuple[Assignment, Slot]]) -> list[Assignment]:
        stored = self.read()
        found: list[Assignment] = []
        for assignment, slot in due:
            record = stored.get(slot)
            if (record is None or record.offset < self.of(slot).offset) and assignment not in found:
                log.warning(
                    "the store says less than was written: it was restored or emptied",
                    extra={"fields": {"topic": slot.topic, "partition": slot.partition, "written": self.of(slot).offset,
                                      "stored": record.offset if record is not None else None}},
                )  # fmt: skip
                found.append(assignment)
        return found

    def _write(self, due: list[tuple[Assignment, Slot, int]], now: float) -> None:
        records = [self._record(slot, offset, False) for _, slot, offset in due]
        self._store.write_progress(records, JointLease([assignment.lease for assignment, _, _ in due]))
        for (_, slot, offset), record in zip(due, records, strict=True):
            written = self.of(slot)
            written.offset, written.end, written.at = offset, record.end_offset, now
            labels = {"lane": self._spec.name, "topic": slot.topic, "partition": str(slot.partition)}
            self._metrics.set("headwater_applied_offset", offset, **labels)
            self._metrics.set("headwater_backlog_records", max(0, record.end_offset - offset), **labels)
        left = min(a.lease.left() for a, _, _ in due)
        self._metrics.set("headwater_lease_seconds", left, lane=self._spec.name)

    def _record(self, slot: Slot, offset: int, clean: bool) -> Progress:
        lane = self._lane_of[slot.topic]
        assert lane is not None
        now = self._clock.now()
        return Progress(
            lane=lane,
            generation=self._spec.generation,
            topic=slot.topic,
            partition=slot.partition,
            offset=offset,
            owner=self._owner,
            clean=clean,
            lease_until=now if clean else now + int(self._spec.session_s * 1_000_000),
            written_at=now,
            end_offset=max(offset, self.end_of(slot)),
        )
