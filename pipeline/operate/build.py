"""Building a generation: workers join its group until all that was logged when the build began is in its index.

    end of the log now ─▶ workers apply ─▶ every partition has reached it ─▶ command ``ready`` ─▶ workers leave

Nothing of a build lives here: kill it at any point and build again, and it goes on from the progress records.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Mapping
from contextlib import ExitStack, closing, suppress
from dataclasses import dataclass, field

from pydantic import ValidationError

from pipeline.bus.interface import Tail
from pipeline.errors import ConfigError, Retry
from pipeline.operate.progress import TOPICS, BuildProgress, PartitionProgress, ProgressWatch, progress
from pipeline.operate.workers import WorkerPool
from pipeline.ports import ProgressBar, Record
from pipeline.settings import Settings
from schemas.generation import Generation
from schemas.receipts import Receipt
from schemas.topics import Topic

__all__ = ["BuildProgress", "BuildResult", "PartitionProgress", "WorkerPool", "bar", "build", "progress"]

log = logging.getLogger("headwater.build")

LOOK_S = 1.0
ASK_AGAIN_S = 5.0
ANSWER_S = 15.0

OnProgress = Callable[[BuildProgress], None]


@dataclass(frozen=True)
class BuildResult:
    """What a build did. ``state`` is the generation's at the end; ``stopped`` that it was asked to end before its aim.

    Counts are of what this build saw; an earlier one of the same generation did the rest.
    """

    generation: str
    state: str
    stopped: bool
    seconds: float
    documents: int
    chunks_written: int
    chunks_embedded: int
    tokens: int
    dead_letters: int
    restarts: int  # of workers that died
    progress: BuildProgress


@dataclass
class Counts:
    """Of the receipts of one generation's content."""

    generation: str
    documents: set[str] = field(default_factory=set)
    chunks_written: int = 0
    chunks_embedded: int = 0
    tokens: int = 0
    dead_letters: int = 0

    def add(self, record: Record) -> None:
        """Count one record of topic ``receipts``; what is not ours or cannot be read is passed over."""
        if record.value is None or self._quoted not in record.value:
            return
        try:
            receipt = Receipt.model_validate_json(record.value)
        except ValidationError:
            return
        if receipt.lane != "index" or receipt.generation != self.generation:
            return
        self.chunks_written += receipt.chunks_written
        self.chunks_embedded += receipt.chunks_embedded
        self.tokens += receipt.tokens
        if receipt.outcome in ("dead_letter", "parked"):
            self.dead_letters += 1
        elif receipt.event_type.startswith("content") and receipt.document_uid is not None:
            self.documents.add(receipt.document_uid)

    @property
    def _quoted(self) -> bytes:
        return f'"{self.generation}"'.encode()


def bar(show: ProgressBar) -> OnProgress:
    """Progress as a bar of offsets."""

    def told(now: BuildProgress) -> None:
        eta = f", {now.eta_s:.0f} s left" if now.eta_s is not None and now.left else ""
        rate = f", {now.rate:.0f}/s" if now.rate is not None else ""
        show(f"building {now.generation}{rate}{eta}", now.applied, now.total)

    return told


def build(
    settings: Settings,
    generation: str,
    *,
    workers: int | None = None,
    on_progress: OnProgress | None = None,
    stop: threading.Event | None = None,
    requested_by: str = "build",
    environment: Mapping[str, str] | None = None,
) -> BuildResult:
    """Build until every partition has reached the end that it has now and the generation is ``ready``.

    ``stop`` set: workers leave in order within seconds, and the result says ``stopped``. ``environment`` of the
    workers is made from the settings where None. A generation that was built before is kept up by its consumer: then
    no worker is started, and only the wait remains. Raises ConfigError (no such generation, wrong settings of a
    worker), Crash (workers end again and again), StoreUnavailable and BusUnavailable at the start.
    """
    from pipeline.bus.tail import KafkaTail
    from pipeline.index.store import WeaviateStore

    stop = stop if stop is not None else threading.Event()
    began = time.monotonic()
    with ExitStack() as stack:
        store = stack.enter_context(closing(WeaviateStore(settings)))
        record = _living(store.read_generations(), generation)
        changes = stack.enter_context(closing(KafkaTail(settings, TOPICS, since="beginning")))
        receipts = stack.enter_context(closing(KafkaTail(settings, [Topic.RECEIPTS], since="end")))
        watch = ProgressWatch(generation, store, changes)
        counts = Counts(generation)
        pool = stack.enter_context(WorkerPool(settings, generation, variables=environment))
        if record.state == "building":
            pool.start(workers if workers is not None else settings.generations.workers)
        ready = _Ready(settings, generation, requested_by)
        now = watch.look()
        while True:
            if on_progress is not None:
                on_progress(now)
            if now.reached and (record.state != "building" or ready.asked()):
                break
            if _wait(receipts, counts, stop):
                break
            pool.keep()
            with suppress(Retry):  # workers wait for the store or the log to come back, and so do we
                record = _living(store.read_generations(), generation)
                now = watch.look()
        stopped = stop.is_set()
        pool.stop()
        _drain(receipts, counts)
        return BuildResult(
            generation=generation,
            state=_living(store.read_generations(), generation).state,
            stopped=stopped,
            seconds=time.monotonic() - began,
            documents=len(counts.documents),
            chunks_written=counts.chunks_written,
            chunks_embedded=counts.chunks_embedded,
            tokens=counts.tokens,
            dead_letters=counts.dead_letters,
            restarts=pool.restarts,
            progress=now,
        )


def _living(known: Mapping[str, Generation], name: str) -> Generation:
    found = known.get(name)
    if found is None:
        raise ConfigError("generation", f"there is no generation {name}", "Create it first.")
    if found.state == "retired":
        raise ConfigError("generation", f"{name} is retired", "Create another one.")
    return found


class _Ready:
    """Sends the command ``ready`` until it is accepted: the log may have grown faster than the index for a while."""

    def __init__(self, settings: Settings, generation: str, requested_by: str) -> None:
        self._settings = settings
        self._generation = generation
        self._requested_by = requested_by
        self._due = 0.0

    def asked(self) -> bool:
        """Whether the generation is ready."""
        from pipeline.operate.control import Refused, send

        if time.monotonic() < self._due:
            return False
        try:
            send(self._settings, "ready", self._generation, requested_by=self._requested_by, timeout_s=ANSWER_S)
        except (Refused, Retry) as error:  # it still lags, or nobody decides now: both pass
            log.warning("not ready yet: %s", error)
            self._due = time.monotonic() + ASK_AGAIN_S
            return False
        return True


def _wait(receipts: Tail, counts: Counts, stop: threading.Event) -> bool:
    """Count receipts until the next look is due; whether the build is to stop."""
    until = time.monotonic() + LOOK_S
    while not stop.is_set() and time.monotonic() < until:
        try:
            records = receipts.poll(200)
        except Retry:
            stop.wait(LOOK_S)
            continue
        for record in records:
            counts.add(record)
    return stop.is_set()


def _drain(receipts: Tail, counts: Counts) -> None:
    with suppress(Retry):
        while records := receipts.poll(200):
            for record in records:
                counts.add(record)
