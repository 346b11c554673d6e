"""A thread with one child at a time: gives it documents, replaces it, and says what became of each document."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable
from typing import Protocol

from pipeline.errors import DocumentError, HeadwaterError, Retry
from pipeline.extract.pool.admission import Job
from pipeline.extract.pool.process import WALL_FACTOR, Child, ChildDied, NotStarted, OverLimit, Warden
from pipeline.extract.pool.task import Task
from pipeline.extract.reading import refused

log = logging.getLogger(__name__)

LIGHT_DOCUMENTS, HEAVY_DOCUMENTS = 2000, 200  # read by one child at most
_PATH_LENGTH, _TYPE_LENGTH = 4096, 1024


class Take(Protocol):
    """The next job, or None after ``seconds`` (None: without end). Raises EOFError when the pool closes."""

    def __call__(self, seconds: float | None) -> Job | None: ...


class Finish(Protocol):
    """What became of a job, after how many seconds."""

    def __call__(self, job: Job, outcome: bytes | HeadwaterError, seconds: float) -> None: ...


class Slot(threading.Thread):
    """Lives as long as the pool: the kernel ends a child with the thread that started it."""

    def __init__(
        self,
        *,
        name: str,
        module: str,
        task: Task,
        warden: Warden,
        idle_s: float | None,
        take: Take,
        finish: Finish,
        tell: Callable[[str], None],
    ) -> None:
        super().__init__(name=name, daemon=True)
        self._module = module
        self._task = task
        self._warden = warden
        self._idle_s = idle_s
        self._take = take
        self._finish = finish
        self._tell = tell
        self._child: Child | None = None
        self._next: Child | None = None
        self._child_lock = threading.Lock()
        self._stopping = False
        self._busy = False
        self._starting = False

    def stop(self) -> None:
        """From another thread: give up the document in work. An idle child is ended in order by its thread."""
        with self._child_lock:
            self._stopping = True
            child = self._child if self._busy or self._starting else None
        if child is not None:
            child.interrupt()

    def run(self) -> None:
        """Until the pool closes."""
        while not self._stopping:
            try:
                if self._child is None and not self._task.heavy:
                    self._prepare()
                job = self._take(self._idle_s if self._child is not None else None)
                if job is not None:
                    self._do(job)
                else:
                    self._drop(in_order=True)
            except EOFError:
                break
            except Exception:  # a thread that ends would leave its documents waiting for ever
                log.exception("a thread of the extractor pool failed")
        self._drop(in_order=True)
        if self._next is not None:
            self._next.kill()
            self._next.close()

    def _do(self, job: Job) -> None:
        began = time.monotonic()
        outcome: bytes | HeadwaterError
        try:
            with self._child_lock:
                self._busy = True
            outcome = self._read(job)
        except NotStarted as error:
            outcome = Retry(f"extraction: a child process cannot be started ({error})")
        except Exception as error:
            log.exception("extraction in a child failed")
            self._drop(in_order=False)
            outcome = Retry(f"extraction: {type(error).__name__}: {error}")
        finally:
            with self._child_lock:
                self._busy = False
        self._finish(job, outcome, time.monotonic() - began)
        self._retire()

    def _read(self, job: Job) -> bytes | DocumentError:
        """Raises NotStarted."""
        try:
            return self._ask(job)
        except ChildDied as error:
            first = error
        if self._stopping:
            raise NotStarted("the process is ending")
        log.warning("extraction: a child died (%s); its document is read once more, alone", first.how)
        try:
            return self._ask(job)
        except ChildDied as error:
            return refused(
                f"body: its reader died twice ({first.how}, {error.how}); open and save the document with another "
                "program, or take it out of the source",
                "extractor-died",
            )
        finally:
            self._drop(in_order=True)

    def _ask(self, job: Job) -> bytes | DocumentError:
        """Raises ChildDied, when the child is gone, and NotStarted."""
        child = self._ready()
        header = {
            "content_type": job.content_type[:_TYPE_LENGTH],
            "path": job.path[-_PATH_LENGTH:] if job.path is not None else None,
        }
        try:
            reply = child.ask(header, job.body)
        except OverLimit as error:
            self._gone(child)
            return self._over(error.limit)
        except ChildDied as error:
            self._gone(child)
            if error.cpu_limit:
                return self._over("cpu")
            raise
        if reply.header.get("leaving"):
            self._drop(in_order=True)
        if reply.header.get("ok") is True:
            return reply.payload
        return refused(str(reply.header.get("reason")), str(reply.header.get("kind")))

    def _over(self, limit: str) -> DocumentError:
        task, which = self._task, "heavy_cpu_s" if self._task.heavy else "cpu_s"
        if limit == "memory":
            return refused(
                f"body: reading it takes more than {task.memory >> 20} MB of memory; split it or raise "
                "extraction.memory_mb",
                "memory-limit",
            )
        if limit == "output":
            return refused(
                f"body: over {task.reply_bytes} bytes of extracted text; split it or raise extraction.output_mb",
                "output",
            )
        spent = f"{task.cpu_s:g} s of CPU time" if limit == "cpu" else f"{task.cpu_s * WALL_FACTOR:g} s"
        return refused(f"body: reading it takes more than {spent}; split it or raise extraction.{which}", "time-limit")

    # ------------------------------------------------------------------ the child

    def _ready(self) -> Child:
        """The child, started if need be. Raises NotStarted."""
        if self._child is not None and self._child.alive():
            return self._child
        self._drop(in_order=False)
        child, self._next = self._next or Child(self._module, self._task, self._warden), None
        with self._child_lock:
            self._child, self._starting = child, True
        try:
            if self._stopping:
                raise NotStarted("the process is ending")
            child.await_ready()
        except NotStarted:
            self._drop(in_order=False)
            raise
        finally:
            with self._child_lock:
                self._starting = False
        for missing in child.missing:
            self._tell(missing)
        return child

    def _prepare(self) -> None:
        """A light child ahead of its first document, whose lag its start would be part of."""
        try:
            if not self._stopping:
                self._ready()
        except Exception as error:  # the next document finds out, and says so
            if not self._stopping:
                log.warning("extraction: a child process cannot be started (%s)", error)

    def _retire(self) -> None:
        """End a child that has read many documents or has grown; forget what it printed.

        A light one goes on until its successor is ready: a start takes a second, which is no part of a document's lag.
        """
        child = self._child
        if child is None:
            return
        child.forget_said()
        most = HEAVY_DOCUMENTS if self._task.heavy else LIGHT_DOCUMENTS
        if child.documents < most and child.grown() <= self._task.memory // 2:
            return
        if self._task.heavy:
            self._drop(in_order=True)
        elif self._next is None:
            try:
                self._next = Child(self._module, self._task, self._warden)
            except NotStarted as error:
                log.warning("extraction: a child process cannot be started (%s)", error)
        elif self._next.has_spoken():
            self._drop(in_order=True)
            self._prepare()

    def _gone(self, child: Child) -> None:
        said = child.said()
        if said:
            log.warning("extraction: the child's last words: %r", said)
        self._drop(in_order=False)

    def _drop(self, *, in_order: bool) -> None:
        with self._child_lock:
            child, self._child = self._child, None
        if child is None:
            return
        if in_order:
            child.end()
        else:
            child.kill()
        child.close()


def final(error: DocumentError) -> DocumentError:
    """The same bytes end alike: no second attempt by whoever asked."""
    error.final = True
    return error
