"""What a lane is to the runtime: how it consumes, what is done with its records, and the store of its progress."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, Protocol

from consumers.assignment import Assignment
from pipeline.ports import Deadline, Record
from schemas.receipts import Lane as LaneName
from schemas.receipts import Progress
from schemas.topics import Topic


@dataclass(frozen=True)
class LaneTopic:
    """A topic of a lane. ``progress`` names the lane of its progress records; None keeps Kafka's offset only."""

    topic: Topic
    progress: LaneName | None = None
    first: Literal["beginning", "end"] = "beginning"


@dataclass(frozen=True)
class LaneSpec:
    """How a lane consumes."""

    name: LaneName
    topics: tuple[LaneTopic, ...]
    session_s: float
    generation: str = ""
    timeout_s: float = 5.0  # longest single store call
    safety_window: int = 1000
    window_records: int = 400  # read ahead per slot
    window_bytes: int = 16_000_000
    drain_s: float = 5.0  # longest wait for the piece of work at hand when partitions are given up
    backoff_max_s: float = 5.0


class Lane(Protocol):
    """What is done with the records. No two methods run at once: each is called under the runtime's work lock.

    A lane with threads of its own calls ``Assignment.done`` from any of them, and stops the process with
    ``Runtime.fail``; ``drain`` is where the runtime waits for what they hold.
    """

    spec: LaneSpec

    def opened(self, assignment: Assignment) -> None:
        """A partition begins; its records follow."""
        ...

    def accept(self, assignment: Assignment, record: Record) -> None:
        """Take a record into the lane's queues; no input or output here."""
        ...

    def work(self) -> float | None:
        """Do one bounded piece of work (≤ 100 ms where there is a choice).

        Returns the seconds after which to be called again (0: at once), or None to wait for records. May raise
        Retry or Hold, having kept everything that is to be done again; EndedLate only after ``Rechecks.owe``.
        """
        ...

    def drain(self, assignments: Sequence[Assignment], seconds: float) -> bool:
        """Start nothing more for these partitions and wait until nothing of them is in flight.

        False when that takes longer than ``seconds``: the next owner then waits one lease and rewinds.
        """
        ...

    def closed(self, assignment: Assignment) -> None:
        """A partition is given up: forget everything queued of it, send nothing more for it."""
        ...


class ProgressStore(Protocol):
    """The part of ``pipeline.ports.IndexStore`` that the runtime needs."""

    def read_progress(self, lane: str, generation: str, topic: str) -> dict[int, Progress]: ...
    def write_progress(self, records: Sequence[Progress], deadline: Deadline | None = None) -> None: ...
