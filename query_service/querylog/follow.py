"""The thread that keeps the view up to the log's end."""

from __future__ import annotations

import logging
import sqlite3
import threading
import time
from collections.abc import Callable

from pipeline.clock import Clock
from pipeline.errors import HeadwaterError
from pipeline.observe import Metrics
from query_service.files import damaged
from query_service.querylog.view import QueryView
from query_service.tail import LogTail, MadeAnew, Start, TailFactory, another, close, shorter
from schemas.topics import Topic

log = logging.getLogger("headwater.query.log")

TOPICS = (Topic.QUERIES.value,)
POLL_MS = 200
GATHER_S = 0.2  # between two looks, so that a busy service reads batches
PAUSE_S = 1.0
REOPEN_S = 5.0
PRUNE_S = 600.0


class Follower:
    """Owns the view's writing connection. ``view`` is None until the file is open; it may be read from any thread."""

    def __init__(
        self, open_tail: TailFactory, open_view: Callable[[], QueryView], clock: Clock, metrics: Metrics
    ) -> None:
        self._open_tail = open_tail
        self._open_view = open_view
        self._clock = clock
        self._metrics = metrics
        self._stop = threading.Event()
        self._thread: threading.Thread | None = None
        self.view: QueryView | None = None
        self.complete_until: int | None = None
        """Everything that was on the log at this moment (µs) is in the view."""

    def start(self) -> None:
        """Begin to follow the log."""
        self._thread = threading.Thread(target=self._run, name="query-log-tail", daemon=True)
        self._thread.start()

    def stop(self) -> None:
        """End the thread; waits a few seconds for it."""
        self._stop.set()
        if self._thread is not None:
            self._thread.join(timeout=5)

    def _run(self) -> None:
        view: QueryView | None = None
        while not self._stop.is_set():
            tail: LogTail | None = None
            try:
                if view is None:
                    view = self._opened()
                    if view is None:
                        self._stop.wait(REOPEN_S)
                        continue
                tail = self._open_tail(TOPICS, Start(offsets=view.positions()))
                if shorter(tail, view.positions()):
                    log.warning("the log is shorter than the view of queries remembers: it is built again")
                    view.reset()
                    continue
                try:
                    self._follow(tail, view)
                except MadeAnew:
                    log.warning("the log was made anew: the view of queries is built again")
                    view.reset()
            except HeadwaterError as error:
                log.warning("the tail of queries lost the log", extra={"fields": {"error": type(error).__name__}})
            except sqlite3.Error as error:
                log.warning("the view of queries cannot be written", extra={"fields": {"error": str(error)}})
                if view is not None and damaged(error):
                    self.view = self.complete_until = None
                    view.discard()
                    view = None
            except Exception:
                log.exception("the tail of queries failed; it starts again from its recorded positions")
            finally:
                if tail is not None:
                    close(tail, "the tail of queries")
            self._stop.wait(PAUSE_S)
        if view is not None:
            view.close()

    def _opened(self) -> QueryView | None:
        """The file, which is opened again until it can be; the log itself is written all the same."""
        try:
            view = self._open_view()
        except Exception as error:
            log.error("the view of the query log cannot be opened", extra={"fields": {"error": type(error).__name__}})
            return None
        self.view = view
        return view

    def _follow(self, tail: LogTail, view: QueryView) -> None:
        pruned, ids = -PRUNE_S, tail.ids()
        while not self._stop.is_set():
            asked = self._clock.now()
            records = tail.poll(POLL_MS)
            if another(ids, tail.ids()):
                raise MadeAnew("a topic has another id")
            if records:
                unreadable = view.apply(records, {(t, p): o for (t, p), o in tail.positions().items()})
                if unreadable:
                    self._metrics.count("headwater_query_log_unreadable_total", unreadable)
                self._stop.wait(GATHER_S)
            elif tail.behind() <= 0:
                self.complete_until = asked
            if time.monotonic() - pruned >= PRUNE_S:
                view.prune(self._clock.now())
                pruned = time.monotonic()
