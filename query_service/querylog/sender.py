"""From the process to the topic ``queries``: a bounded queue and one thread, so that no search waits for the log."""

from __future__ import annotations

import logging
import threading
import time
from collections import deque
from collections.abc import Callable, Sequence
from itertools import islice

from pipeline.errors import HeadwaterError, Reject
from pipeline.observe import Metrics
from pipeline.ports import Outgoing, Publisher
from query_service.problems import fault
from schemas.topics import Topic

log = logging.getLogger("headwater.query.log")

BATCH = 500
MAX_BYTES = 64 * 1024 * 1024  # of records that wait
GATHER_S = 0.2  # so that a busy service sends batches
PAUSES_S = (0.5, 1.0, 2.0, 5.0)
STOP_S = 3.0
SAY_S = 30.0

OpenPublisher = Callable[[], Publisher]
Make = Callable[[], Outgoing]  # called in the thread: redaction and encoding cost the search nothing


class Outlet:
    """A publisher that is opened at the first record. Any thread."""

    def __init__(self, open_publisher: OpenPublisher) -> None:
        self._open = open_publisher
        self._lock = threading.Lock()
        self._publisher: Publisher | None = None

    def publish(self, records: Sequence[Outgoing]) -> None:
        """Append; returns once the log has them. Raises BusUnavailable or Reject."""
        with self._lock:
            if self._publisher is None:
                self._publisher = self._open()
            publisher = self._publisher
        publisher.publish(records)

    def close(self) -> None:
        """Disconnect."""
        with self._lock:
            publisher, self._publisher = self._publisher, None
        if publisher is not None:
            publisher.close()


class Sender:
    """Queue and thread. ``put`` never waits: a full queue drops the record and counts it."""

    def __init__(self, outlet: Outlet, metrics: Metrics, limit: int) -> None:
        self._outlet = outlet
        self._metrics = metrics
        self._limit = limit
        self._waiting: deque[Make] = deque()
        self._ready: deque[Outgoing] = deque()  # encoded, which takes less room; kept until the log has them
        self._bytes = 0
        self._wake = threading.Event()
        self._ending = threading.Event()
        self._thread: threading.Thread | None = None
        self._said = -SAY_S

    def start(self) -> None:
        """Begin to send."""
        self._thread = threading.Thread(target=self._run, name="query-log", daemon=True)
        self._thread.start()

    def put(self, make: Make) -> bool:
        """Take a record; false where the queue is full."""
        if len(self._waiting) + len(self._ready) >= self._limit or self._bytes >= MAX_BYTES:
            self._metrics.count("headwater_query_log_total", result="dropped")
            self._say("the query log's queue is full; records are dropped")
            return False
        self._waiting.append(make)
        if not self._wake.is_set():
            self._wake.set()
        return True

    def stop(self, seconds: float = STOP_S) -> int:
        """Send what waits, for at most so long; how many records are lost."""
        self._ending.set()
        self._wake.set()
        if self._thread is not None:
            self._thread.join(timeout=seconds)
        lost = len(self._waiting) + len(self._ready)
        if lost:
            self._metrics.count("headwater_query_log_total", lost, result="lost")
            log.warning("records of the query log are lost: the log did not take them", extra={"fields": {"n": lost}})
        return lost

    # ------------------------------------------------------------ thread

    def _run(self) -> None:
        failures = 0
        deadline: float | None = None
        while True:
            if self._ending.is_set():
                deadline = time.monotonic() + STOP_S if deadline is None else deadline
                if not (self._waiting or self._ready) or time.monotonic() > deadline:
                    break
            elif not self._waiting and not self._ready:
                self._wake.wait()
                self._wake.clear()
                self._ending.wait(GATHER_S)
            self._take()
            if not self._ready:
                continue
            if self._send():
                failures = 0
            else:
                if self._ending.wait(PAUSES_S[min(failures, len(PAUSES_S) - 1)]):
                    time.sleep(0.1)
                failures += 1
        try:
            self._outlet.close()
        except Exception:
            log.warning("the connection to the query log did not close in order")

    def _take(self) -> None:
        while self._waiting:
            make = self._waiting.popleft()
            try:
                record = make()
            except Exception as error:  # its text may hold the query's
                log.error("a record of the query log could not be made", extra={"fields": fault(error)})
                self._metrics.count("headwater_query_log_total", result="refused")
                continue
            self._ready.append(record)
            self._bytes += len(record.value or b"")
        self._metrics.set("headwater_query_log_waiting", len(self._ready))

    def _send(self) -> bool:
        """Send the first records; false where the log did not take them."""
        batch = list(islice(self._ready, BATCH))
        try:
            self._outlet.publish(batch)
        except Reject:
            return self._one_by_one(batch)
        except HeadwaterError as error:
            self._say(f"the log does not take records of queries: {error}")
            return False
        except Exception:
            log.exception("sending to the query log failed")
            return False
        self._settled(len(batch), "sent")
        return True

    def _one_by_one(self, batch: Sequence[Outgoing]) -> bool:
        """A record is larger than the log takes: that one is left out."""
        for record in batch:
            try:
                self._outlet.publish([record])
            except Reject:
                self._settled(1, "refused")
            except HeadwaterError:
                return False
            except Exception:
                log.exception("sending to the query log failed")
                return False
            else:
                self._settled(1, "sent")
        return True

    def _settled(self, count: int, result: str) -> None:
        for _ in range(count):
            self._bytes -= len(self._ready.popleft().value or b"")
        self._metrics.count("headwater_query_log_total", count, result=result)
        self._metrics.set("headwater_query_log_waiting", len(self._waiting) + len(self._ready))

    def _say(self, what: str) -> None:
        if time.monotonic() - self._said >= SAY_S:
            self._said = time.monotonic()
            log.warning(what)


def outgoing(tenant: str, value: bytes) -> Outgoing:
    """A record of the topic: all of a tenant's lie in one partition, in order."""
    return Outgoing(str(Topic.QUERIES), tenant, value)
