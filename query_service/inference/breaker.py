"""A circuit breaker: a server that failed several times in a row is left alone for a while, then asked by one call.

closed ──failures in a row──▶ open ──cool_s──▶ half-open: one call goes through ─ well ─▶ closed
                               ▲                                                └ fails ─▶ open
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from pipeline.errors import Retry
from pipeline.observe import Metrics

log = logging.getLogger("headwater.query.inference")


class CircuitOpen(Retry):
    """The server is left alone. ``seconds`` until it is asked again, at least 0."""

    def __init__(self, server: str, seconds: float) -> None:
        super().__init__(f"{server} failed and is left alone for {seconds:.1f} s")
        self.seconds = seconds


class Breaker:
    """Of one server. Used from threads and from coroutines; no call waits for another.

    ``server`` is a name for logs and metrics, never an address. Exceptions of the classes in ``spared`` are the
    request's fault, not the server's: a caller cannot open the circuit for others with input that the server refuses.
    Those in ``untold`` say nothing of the server at all, neither well nor ill.
    """

    def __init__(
        self,
        server: str,
        failures: int,
        cool_s: float,
        metrics: Metrics,
        *,
        spared: tuple[type[Exception], ...] = (),
        untold: tuple[type[Exception], ...] = (),
        now: Callable[[], float] = time.monotonic,
    ) -> None:
        self._server = server
        self._failures = failures
        self._cool_s = cool_s
        self._metrics = metrics
        self._spared = spared
        self._untold = untold
        self._now = now
        self._lock = threading.Lock()
        self._failed = 0
        self._opened_at: float | None = None
        self._probing = False
        metrics.set("headwater_circuit_open", 0, server=server)

    @property
    def open(self) -> bool:
        """Whether a call would be refused now."""
        with self._lock:
            return self._left() > 0 or (self._opened_at is not None and self._probing)

    @contextmanager
    def call(self) -> Iterator[None]:
        """Around one call of the server. Raises CircuitOpen before it where the server is left alone."""
        probe = self._enter()
        try:
            yield
        except self._spared:
            self._well()
            raise
        except self._untold:
            self._leave(probe)
            raise
        except Exception:
            self._badly(probe)
            raise
        except BaseException:  # cancelled: says nothing of the server
            self._leave(probe)
            raise
        self._well()

    def _left(self) -> float:
        return 0.0 if self._opened_at is None else self._opened_at + self._cool_s - self._now()

    def _enter(self) -> bool:
        with self._lock:
            if self._opened_at is None:
                return False
            left = self._left()
            if left > 0 or self._probing:
                raise CircuitOpen(self._server, max(left, 0.0))
            self._probing = True
            return True

    def _well(self) -> None:
        with self._lock:
            closed = self._opened_at is not None
            self._failed, self._opened_at, self._probing = 0, None, False
        if closed:
            self._metrics.set("headwater_circuit_open", 0, server=self._server)
            log.info("a server is used again", extra={"fields": {"server": self._server}})

    def _badly(self, probe: bool) -> None:
        with self._lock:
            self._failed += 1
            opens = probe or (self._opened_at is None and self._failed >= self._failures)
            if opens:
                self._opened_at = self._now()
            if probe:
                self._probing = False
        if opens:
            self._metrics.set("headwater_circuit_open", 1, server=self._server)
            fields = {"server": self._server, "failures": self._failed, "seconds": self._cool_s}
            log.warning("a server is left alone", extra={"fields": fields})

    def _leave(self, probe: bool) -> None:
        if probe:
            with self._lock:
                self._probing = False
