"""The canary: now and then a document travels the real path, and what people would notice is measured from outside.

Every ``canary.every_s`` seconds a round (``canary_round``): written through the change gateway, found through the
query API, revoked, deleted. Late or wrong is an alarm in the log and in the metrics, never the end of the process;
while gateway or query service are away it waits.
"""

from __future__ import annotations

import logging
import secrets
from collections.abc import Callable, Sequence
from dataclasses import asdict
from typing import Literal

from consumers.backoff import Backoff
from consumers.canary_client import Away, GatewayClient, QueryClient, Refused
from consumers.canary_round import Leaving, Revocation, Round, Runner, Wait, slots
from consumers.process import Stopping
from pipeline.clock import Clock, SystemClock
from pipeline.errors import ConfigError
from pipeline.health import HealthServer
from pipeline.observe import Metrics, metrics
from pipeline.settings import Settings, load

log = logging.getLogger("headwater.canary")

FIRST_PAUSE_S, LONGEST_PAUSE_S = 1.0, 30.0


class Canary:
    """Rounds for ever, one partition after the other, and a page that shows the last one."""

    def __init__(self, settings: Settings, runner: Runner, clock: Clock, observed: Metrics | None = None) -> None:
        self._every = settings.canary.every_s
        self._runner = runner
        self._clock = clock
        self._metrics = observed if observed is not None else metrics()
        self._slots = slots(settings.canary.tenant, settings.gateway.source, settings.kafka.partitions)
        # A process that is started again and again must not stay with the first partitions.
        self._turn = int(clock.now() / 1e6 / self._every)
        self._backoff = Backoff(FIRST_PAUSE_S, min(LONGEST_PAUSE_S, max(FIRST_PAUSE_S, self._every)))
        self._state: Literal["starting", "running", "waiting", "alarm"] = "starting"
        self._waiting_for: str | None = None
        self._rounds = 0
        self._last: Round | None = None
        self._last_ok: Round | None = None

    def run(self, wait: Wait) -> None:
        """Until ``wait`` says that the process is to stop."""
        pause = 0.0
        while not wait(pause):
            try:
                pause = self.once()
            except Leaving:
                return

    def once(self) -> float:
        """One round, or one try of it; the pause before the next in seconds. Raises Leaving."""
        begun = self._clock.elapsed()
        try:
            done = self._round()
        except Away as error:
            return self._away(str(error))
        except Refused as error:
            return self._alarmed("refused", str(error))
        except Leaving:
            raise
        except Exception as error:
            log.exception("the canary's round failed")
            return self._alarmed("unexpected", type(error).__name__)
        self._finished(done)
        return max(0.0, self._every - (self._clock.elapsed() - begun))

    def _round(self) -> Round:
        slot = self._slots[self._turn % len(self._slots)]
        # By whole turns through the partitions: every partition sees both ways.
        cycle = self._turn // len(self._slots)
        revocation: Revocation = "membership" if cycle % 2 == 0 else "access"
        return self._runner.run(slot, revocation, f"canary{secrets.token_hex(6)}")

    def _finished(self, done: Round) -> None:
        self._turn += 1
        self._rounds += 1
        self._backoff.reset()
        self._last, self._waiting_for = done, None
        for step, seconds in done.seconds.items():
            if seconds is not None:
                self._metrics.observe("headwater_canary_seconds", seconds, step=step)
        fields = {"fields": asdict(done)}
        if done.failures:
            self._state = "alarm"
            for failure in done.failures:
                self._metrics.count("headwater_canary_failures_total", step=failure.partition(":")[0])
            log.error("alarm: %s", "; ".join(done.failures), extra=fields)
            return
        self._state, self._last_ok = "running", done
        self._metrics.set("headwater_canary_last_success", self._clock.now() / 1e6)
        log.info("round", extra=fields)

    def _away(self, why: str) -> float:
        if self._state != "waiting":
            log.warning("waiting for %s", why)
        self._state, self._waiting_for = "waiting", why
        return self._backoff.next()

    def _alarmed(self, step: str, why: str) -> float:
        self._metrics.count("headwater_canary_failures_total", step=step)
        log.error("alarm: %s: %s", step, why)
        self._state, self._waiting_for = "alarm", why
        return self._backoff.next()

    def health(self) -> dict[str, object]:
        """For ``/healthz``: the process is well while it tries; what it found is ``state`` and ``last``."""
        return {
            "state": self._state,
            "waiting_for": self._waiting_for,
            "every_s": self._every,
            "rounds": self._rounds,
            "last": asdict(self._last) if self._last is not None else None,
            "last_ok": asdict(self._last_ok) if self._last_ok is not None else None,
        }


def main(arguments: Sequence[str]) -> int:
    """``python -m consumers canary``: rounds until a signal comes; the exit status."""
    if arguments:
        raise ConfigError("arguments", f"{' '.join(arguments)} is not understood", "The canary takes none.")
    settings = load()
    clock = SystemClock()
    tenant, source = settings.canary.tenant, settings.gateway.source
    gateway = GatewayClient(settings)
    query = QueryClient(settings, tenant)
    stopping = Stopping()
    wait: Callable[[float], bool] = stopping.event.wait
    canary = Canary(settings, Runner(tenant, source, gateway, query, clock, wait), clock)
    health = HealthServer.from_environment(canary.health)
    try:
        canary.run(wait)
    finally:
        if health is not None:
            health.close()
        query.close()
        gateway.close()
    log.info("left in order")
    return 0
