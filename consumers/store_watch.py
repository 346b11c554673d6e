"""Notices that the store was away and has recent deletes verified again once it is back (F19).

A process that starts does not know what happened before it, so it verifies once as well. The store is asked every
half second; no server restarts in less.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable

from pipeline.errors import HeadwaterError, Retry
from pipeline.observe import Metrics

log = logging.getLogger("headwater.store")

PROBE_S = 0.5
AGAIN_S = 10.0


class StoreWatch:
    """``healthy`` asks the store; ``wanted`` says whether this process is the one to act (one of several members).

    ``verify`` mends and gives (documents verified, of these back, still not mended); it may raise Retry.
    """

    def __init__(
        self,
        healthy: Callable[[], bool],
        wanted: Callable[[], bool],
        verify: Callable[[Callable[[], bool]], tuple[int, int, int]],
        observed: Metrics,
    ) -> None:
        self._healthy = healthy
        self._wanted = wanted
        self._verify = verify
        self._metrics = observed
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run, name="store-watch", daemon=True)
        self._up = False  # unknown at the start, which counts as away
        self._owed = False
        self._wait = 0.0

    def start(self) -> None:
        """Watch until ``stop``, in a thread of its own."""
        self._thread.start()

    def stop(self) -> None:
        """End the thread; a verification under way gives up at its next step."""
        self._stopping.set()
        self._thread.join(timeout=30)

    def _run(self) -> None:
        while not self._stopping.wait(PROBE_S):
            self.step(PROBE_S)

    def step(self, seconds: float) -> None:
        """One look, ``seconds`` after the last one."""
        up = self._ask()
        if up and not self._up:
            log.info("the store is there: recent deletes are verified")
            self._metrics.count("headwater_store_returns_total")
            self._owed, self._wait = True, 0.0
        self._up = up
        self._wait -= seconds
        if up and self._owed and self._wait <= 0 and self._wanted():
            self._owed = not self._verified()
            self._wait = AGAIN_S

    def _ask(self) -> bool:
        try:
            return self._healthy()
        except Retry:
            return False

    def _verified(self) -> bool:
        try:
            examined, back, left = self._verify(self._stopping.is_set)
        except HeadwaterError as error:
            log.warning("recent deletes could not be verified yet: %s", error)
            return False
        self._metrics.count("headwater_deletes_verified_total", examined)
        self._metrics.count("headwater_deletes_undone_total", back)
        if back:
            log.error("deleted documents were back", extra={"fields": {"documents": back, "not mended yet": left}})
        return left == 0
