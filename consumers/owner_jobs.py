"""What an owner is working at, and at which pace."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal

from consumers.owner_requests import Task
from pipeline.sources.connector import Connector, Look
from pipeline.sources.tally import Tally
from schemas.events import Priority
from schemas.keys import DocumentRef


@dataclass(frozen=True)
class Pace:
    """Times in seconds; ``window`` and ``slice`` in documents."""

    walk_s: float = 30.0
    relist_s: float = 5.0  # after a listing that broke off; doubled each time in a row, up to walk_s
    idle_s: float = 1.0
    heartbeat_s: float = 5.0
    second_look_s: float = 1.0
    window: int = 2000
    slice: int = 50
    slice_s: float = 0.1
    rest_s: float = 0.1  # while a job waits for its source
    live_at_most: int = 100  # a look with more documents than this goes in bulk


@dataclass
class Job:
    """Documents still to be read, and what they complete."""

    look: Look
    priority: Priority
    tally: Tally
    mode: Literal["publish", "again", "count"] = "publish"
    confirmed: bool = False  # what is missing is deleted
    task: Task | None = None  # the request that it answers
    met: set[DocumentRef] = field(default_factory=set)  # what other looks met since it began
    read: bool = False  # to its end
    put_off: bool = False  # what it lacks waits for looks that are still to be read
    connector: Connector | None = None  # its own, of a look that only counts
