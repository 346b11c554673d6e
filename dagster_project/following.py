"""Long work of a run: it happens in a thread, the run tells how far it is, and cancelling the run asks it to stop."""

from __future__ import annotations

import threading
import time
from typing import TYPE_CHECKING, Generic, Protocol, TypeVar

from dagster import Failure

if TYPE_CHECKING:
    from dagster import AssetExecutionContext, OpExecutionContext

TELL_S = 10.0
STOP_S = 60.0

T = TypeVar("T")
T_co = TypeVar("T_co", covariant=True)


class Doing(Protocol[T_co]):
    """Long work: it tells how far it is and ends soon after the event is set."""

    def __call__(self, told: Followed, stop: threading.Event, /) -> T_co: ...


class Followed:
    """How far the work is. ``bar`` is a ``ports.ProgressBar``."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._said = ""

    def bar(self, step: str, done: int, total: int | None) -> None:
        """Called by the work."""
        self.say(f"{step}: {done}" + (f" of {total}" if total else ""))

    def say(self, line: str) -> None:
        """Replace the newest line; the log gets one from time to time."""
        with self._lock:
            self._said = line

    @property
    def said(self) -> str:
        """The newest line, empty before there is one."""
        with self._lock:
            return self._said


class Work(Generic[T]):
    """Runs at once in a thread. Leaving the block before it has ended asks it to stop and waits for it."""

    def __init__(self, context: AssetExecutionContext | OpExecutionContext, what: str, work: Doing[T]) -> None:
        self._context, self._what = context, what
        self._told, self._stop = Followed(), threading.Event()
        self._results: list[T] = []
        self._problems: list[BaseException] = []
        self._last, self._said = time.monotonic(), ""

        def run() -> None:
            try:
                self._results.append(work(self._told, self._stop))
            except BaseException as error:
                self._problems.append(error)
            finally:
                self._ended.set()

        # not Thread.join: interrupted by a signal, it takes a running thread for ended (Python 3.11)
        self._ended = threading.Event()
        threading.Thread(target=run, name=what, daemon=True).start()

    def __enter__(self) -> Work[T]:
        return self

    def __exit__(self, *_: object) -> None:
        if not self._ended.is_set():
            self._stop.set()
            self._context.log.info(f"stopping the {self._what}")
            self._ended.wait(STOP_S)

    def goes_on(self) -> bool:
        """Wait a moment and tell how far it is; False once it has ended."""
        ended = self._ended.wait(0.5)
        said = self._told.said
        if said != self._said and time.monotonic() - self._last >= TELL_S:
            self._last, self._said = time.monotonic(), said
            self._context.log.info(said)
        return not ended

    def result(self) -> T:
        """What it made. Raises dagster.Failure with its problem."""
        if self._problems:
            problem = self._problems[0]
            kind = {"kind": type(problem).__name__}
            raise Failure(f"The {self._what} failed: {problem}", metadata=kind) from problem
        return self._results[0]


def followed(context: AssetExecutionContext | OpExecutionContext, what: str, work: Doing[T]) -> T:
    """The work's result. Raises dagster.Failure with its problem, or what cancelled it once it has stopped."""
    with Work(context, what, work) as doing:
        while doing.goes_on():
            continue
    return doing.result()
