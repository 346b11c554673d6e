"""The extractor that lets children read: what a document does to its reader stays with that document."""

from __future__ import annotations

import hashlib
import logging
import os
import threading
import time
from collections import OrderedDict
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

from pydantic import ValidationError

from pipeline.errors import DocumentError, HeadwaterError, Retry, StillExtracting
from pipeline.extract import media, sniff
from pipeline.extract.pool.admission import FRESH_S, Job, Key, Line, Signal
from pipeline.extract.pool.process import Warden
from pipeline.extract.pool.slot import Slot, final
from pipeline.extract.pool.task import Task
from pipeline.extract.reading import Limits, refused
from schemas.documents import ExtractedDocument

if TYPE_CHECKING:
    from pipeline.settings import ExtractionSettings

log = logging.getLogger(__name__)

KEPT = 64  # finished results that nobody fetched yet
KEPT_BYTES = 64 << 20
KEPT_S = 120.0
_LOOK_S = 5.0  # how often an idle thread looks for what has expired
_CLOSE_S = 10.0
_HEAVY_IDLE_S = 60.0

Observe = Callable[[str, float, str], None]


class ExtractorPool:
    """``BlockExtractor`` in child processes. Thread-safe. Starts nothing until the first document or ``warm``.

    Two classes of children: light ones for markup and text, heavy ones for what is slow and hungry (``media.Format``).
    ``observe`` is told of every document that was read: media type, seconds in the child, outcome ('ok' or the kind of
    the error). ``module`` is what children run.
    """

    def __init__(
        self,
        settings: ExtractionSettings,
        *,
        patience_s: float | None = None,
        observe: Observe | None = None,
        module: str = "pipeline.extract.pool.child",
        heavy_idle_s: float = _HEAVY_IDLE_S,
    ) -> None:
        self._settings = settings
        self._patience_s = patience_s
        self._observe = observe
        self._module = module
        self._heavy_idle_s = heavy_idle_s
        self._lock = threading.Lock()
        self._crews = {heavy: _Crew(self._lock, settings.heavy if heavy else settings.light) for heavy in (False, True)}
        self._jobs: dict[Key, Job] = {}
        self._finished: OrderedDict[Key, int] = OrderedDict()  # bytes of each
        self._finished_bytes = 0
        self._warden: Warden | None = None
        self._folder: Path | None = None
        self._closing = False
        self._told: set[str] = set()

    def extract(self, body: bytes, content_type: str, *, path: str | None = None) -> ExtractedDocument:
        """As ``BlockExtractor.extract``, within the limits of the settings.

        With ``patience_s``, raises StillExtracting after that many seconds: asking again with the same arguments gets
        the result. Raises DocumentError (stage 'extract') as the reader does, and with kind 'time-limit',
        'memory-limit', 'output', 'extractor-died' or 'reader-failed' for a document that its child did not survive or
        bear; Retry where no child can be started or the pool is closed.
        """
        declared, _ = sniff.parse_content_type(content_type)
        try:
            kind = sniff.media_type(body, declared, path)
        except DocumentError as error:
            raise final(error) from None
        form = media.BY_MEDIA.get(kind)
        heavy = form is not None and form.heavy
        key = (hashlib.sha256(body).hexdigest(), content_type, path)
        until = None if self._patience_s is None else time.monotonic() + self._patience_s
        while True:
            job, room = self._job(key, body, kind, heavy)
            signal = job.done if job is not None else room
            left = None if until is None else max(0.0, until - time.monotonic())
            if not signal.wait(left):
                what = "is being read" if job is not None else "waits for room among the extractors"
                raise StillExtracting(f"body: the document {what}", signal.when)
            if job is not None:
                return self._fetched(job)

    @property
    def folder(self) -> Path | None:
        """Where the children's private folders are; None before the first child."""
        return self._folder

    def warm(self) -> None:
        """Start the light children ahead of the first document; returns at once. Raises Retry where that cannot be."""
        with self._lock:
            try:
                for _ in range(0 if self._closing else self._crews[False].size):
                    self._hire(heavy=False)
            except (OSError, RuntimeError) as error:
                raise Retry(f"extraction: a child process cannot be started ({error})") from error

    def close(self) -> None:
        """End all children; documents in work are given up. Returns when they are gone. May be called twice."""
        with self._lock:
            self._closing = True
            unfinished = [job for job in self._jobs.values() if job.outcome is None]
            signals = [signal for crew in self._crews.values() for signal in crew.line.clear()]
            slots = [slot for crew in self._crews.values() for slot in crew.slots]
            for crew in self._crews.values():
                crew.changed.notify_all()
            for job in unfinished:
                job.outcome = Retry("extraction: this process is ending")
        for slot in slots:
            slot.stop()
        for job in unfinished:
            job.done.fire()
        for signal in signals:
            signal.fire()
        until = time.monotonic() + _CLOSE_S
        for slot in slots:
            slot.join(max(0.0, until - time.monotonic()))
        with self._lock:
            warden, self._warden = self._warden, None
            self._jobs.clear()
            self._finished.clear()
            self._finished_bytes = 0
        if warden is not None:
            warden.close()

    # ------------------------------------------------------------------ documents

    def _job(self, key: Key, body: bytes, kind: str, heavy: bool) -> tuple[Job | None, Signal]:
        """The document's job, taken in now if there is room; else the signal of room."""
        with self._lock:
            if self._closing:
                raise Retry("extraction: this process is ending")
            self._drop_expired()
            job = self._jobs.get(key)
            if job is not None:
                return job, job.done
            crew = self._crews[heavy]
            room = crew.line.admit(key)
            if room is not None:
                crew.changed.notify()  # an idle thread looks sooner for offers that nobody takes up
                return None, room
            job = Job(key=key, body=body, content_type=key[1], path=key[2], media=kind)
            self._jobs[key] = job
            crew.line.queue.append(job)
            if len(crew.line.queue) > crew.idle:
                try:
                    self._hire(heavy)
                except (OSError, RuntimeError) as error:  # no process, no thread
                    if not crew.slots:
                        crew.line.queue.remove(job)
                        del self._jobs[key]
                        crew.line.leave()
                        raise Retry(f"extraction: a child process cannot be started ({error})") from error
            crew.changed.notify()
            return job, job.done

    def _fetched(self, job: Job) -> ExtractedDocument:
        with self._lock:
            self._forget(job)
        outcome = job.outcome
        assert outcome is not None
        if isinstance(outcome, DocumentError):
            # A new one for each who asks: an exception that is raised twice grows two tracebacks.
            raise final(refused(outcome.reason, outcome.kind))
        if isinstance(outcome, HeadwaterError):
            raise type(outcome)(str(outcome))
        try:
            return ExtractedDocument.model_validate_json(outcome)
        except ValidationError as error:
            raise final(
                refused(
                    f"body: its reader gave no document ({error.error_count()} faults); report it with the document",
                    "reader-failed",
                )
            ) from None

    def _finish(self, heavy: bool, job: Job, outcome: bytes | HeadwaterError, seconds: float) -> None:
        """A slot is done with a job."""
        with self._lock:
            signals = self._crews[heavy].line.leave()
            if job.outcome is None:
                job.outcome, job.done_at = outcome, time.monotonic()
                job.body = b""
                size = len(outcome) if isinstance(outcome, bytes) else 0
                self._finished[job.key] = size
                self._finished_bytes += size
                self._drop_expired()
        job.done.fire()
        for signal in signals:
            signal.fire()
        if self._observe is not None:
            told = "ok" if isinstance(outcome, bytes) else getattr(outcome, "kind", type(outcome).__name__)
            try:
                self._observe(job.media, seconds, told)
            except Exception:
                log.exception("the observer of extraction failed")

    def _drop_expired(self) -> None:
        """Results that nobody fetched: too old, too many, too big together. The newest one stays."""
        now = time.monotonic()
        while self._finished:
            job = self._jobs[next(iter(self._finished))]
            crowded = len(self._finished) > KEPT or self._finished_bytes > KEPT_BYTES
            if now - job.done_at <= KEPT_S and not (crowded and len(self._finished) > 1):
                return
            self._forget(job)

    def _forget(self, job: Job) -> None:
        if self._jobs.get(job.key) is job:
            del self._jobs[job.key]
            self._finished_bytes -= self._finished.pop(job.key, 0)

    # ------------------------------------------------------------------ children

    def _hire(self, heavy: bool) -> None:
        """One more slot of the class, if it may have one."""
        crew = self._crews[heavy]
        if len(crew.slots) >= crew.size:
            return
        if self._warden is None:
            self._warden = Warden()
            self._folder = self._warden.folder
        slot = Slot(
            name=f"extract-{'heavy' if heavy else 'light'}-{len(crew.slots)}",
            module=self._module,
            task=_task(self._settings, heavy),
            warden=self._warden,
            idle_s=self._heavy_idle_s if heavy else None,
            take=lambda seconds: self._take(heavy, seconds),
            finish=lambda job, outcome, seconds: self._finish(heavy, job, outcome, seconds),
            tell=self._tell_missing,
        )
        slot.start()
        crew.slots.append(slot)

    def _take(self, heavy: bool, seconds: float | None) -> Job | None:
        """The next job, or None after some seconds. Raises EOFError once the pool is closing."""
        crew = self._crews[heavy]
        with self._lock:
            until = None if seconds is None else time.monotonic() + seconds
            crew.idle += 1
            try:
                while True:
                    if self._closing:
                        raise EOFError("closing")
                    if crew.line.queue:
                        return crew.line.queue.popleft()
                    left = _LOOK_S if until is None else until - time.monotonic()
                    if left <= 0:
                        return None
                    crew.changed.wait(min(left, FRESH_S if crew.line.crowded else _LOOK_S))
                    self._drop_expired()
                    offers = crew.line.offers()
                    if offers:
                        self._fire_unlocked(offers)
            finally:
                crew.idle -= 1

    def _fire_unlocked(self, signals: list[Signal]) -> None:
        self._lock.release()
        try:
            for signal in signals:
                signal.fire()
        finally:
            self._lock.acquire()

    def _tell_missing(self, missing: str) -> None:
        with self._lock:
            if missing in self._told:
                return
            self._told.add(missing)
        log.warning("%s", missing)


class _Crew:
    """One class of children: its line, its slots, how many of them wait for a job."""

    def __init__(self, lock: threading.Lock, size: int) -> None:
        self.size = size
        self.line = Line(2 * size)
        self.slots: list[Slot] = []
        self.idle = 0
        self.changed = threading.Condition(lock)


def _task(settings: ExtractionSettings, heavy: bool) -> Task:
    return Task(
        parent=os.getpid(),
        heavy=heavy,
        memory=settings.memory_mb << 20,
        file_bytes=settings.unpacked_mb << 20,
        reply_bytes=4 * (settings.output_mb << 20) + (16 << 20),
        cpu_s=settings.heavy_cpu_s if heavy else settings.cpu_s,
        limits=limits(settings),
    )


def limits(settings: ExtractionSettings) -> Limits:
    """What a reader is told of the settings."""
    return Limits(
        output_bytes=settings.output_mb << 20,
        nesting=settings.nesting,
        unpacked_bytes=settings.unpacked_mb << 20,
        pages=settings.pages,
        ocr=settings.ocr,
        ocr_languages=settings.ocr_languages,
        ocr_pages=settings.ocr_pages,
    )
