"""Process ``owner``: the owners of all configured sources, each in a thread of its own.

An owner that was fenced stands by and takes the source back only when its cursor has stopped moving: whoever fenced it
is then gone. (A transaction that ran into its time limit looks like a fencing too.) After any other failure the source
begins anew from the log, with backoff: nothing is lost, since the log says what it holds and the source is read again.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Sequence
from contextlib import closing
from functools import partial

from consumers.backoff import Backoff
from consumers.connectors import check, connector_of
from consumers.owner_engine import OwnerEngine, OwnerLog
from consumers.owner_jobs import Pace
from consumers.owner_log import AppliedOffsets, KafkaOwnerLog, RequestFeed, cursor_offset
from consumers.owner_requests import Requests
from consumers.process import Stopped, Stopping
from consumers.superseded import PassedByAll
from pipeline.bus.bodies import FsspecBodyStore
from pipeline.bus.topics import ensure_topics
from pipeline.clock import Clock, SystemClock
from pipeline.errors import ConfigError, Crash, HeadwaterError, Retry
from pipeline.health import HealthServer
from pipeline.index.store import WeaviateStore
from pipeline.observe import Metrics, metrics
from pipeline.ports import BodyStore, BodyTree
from pipeline.settings import Settings, load
from pipeline.settings_sources import AnySource
from pipeline.sources.bodies import BodyPlacer
from pipeline.sources.changes import Limits
from pipeline.sources.guard import DeletionGuard

log = logging.getLogger("headwater.owner")


class SourceOwner:
    """Keeps one source owned until it is stopped."""

    def __init__(
        self,
        settings: Settings,
        source: AnySource,
        *,
        open_log: Callable[[], OwnerLog],
        bodies: BodyStore | None,
        clock: Clock,
        requests: Requests | None = None,
        applied: Callable[[], dict[int, int] | None] | None = None,
        tree: BodyTree | None = None,
        passed: Callable[[], dict[int, int] | None] | None = None,
        pace: Pace | None = None,
        observed: Metrics | None = None,
        moves: Callable[[], object] = lambda: None,
        standby_s: float = 15.0,
    ) -> None:
        """``moves`` gives what changes while some owner lives (the newest cursor); ``standby_s`` is how long it must
        not change before a fenced owner takes the source back."""
        self._settings, self.source, self._open_log = settings, source, open_log
        inline = 0 if source.erasable else settings.bodies.inline_limit
        self._bodies = BodyPlacer(bodies, inline, settings.bodies.max_bytes, tree)
        self._clock, self._requests, self._applied, self._passed = clock, requests, applied, passed
        self._pace = pace or Pace(walk_s=source.walk_s)
        self._metrics = observed if observed is not None else metrics()
        self._moves, self._standby_s = moves, standby_s
        self._stop = threading.Event()
        self._engine: OwnerEngine | None = None
        self.state = "starting"
        self.error: str | None = None

    def run(self) -> None:
        """Own the source until ``stop``."""
        backoff = Backoff(first=0.2, most=5.0)
        while not self._stop.is_set():
            try:
                self._own(backoff)
            except Crash as error:
                self._failed("standby", error)
                self._stand_by()
                continue
            except Retry as error:
                self._failed("waiting", error)
            except (HeadwaterError, OSError) as error:
                self._failed("failing", error)
            except Exception as error:  # a fault of ours in one source must not end the others
                log.exception("source %s: begins anew", self.source.name)
                self._failed("failing", error)
            self._stop.wait(backoff.next())
        self.state = "stopped"

    def _own(self, backoff: Backoff) -> None:
        opened = self._open_log()
        engine = OwnerEngine(
            opened,
            connector_of(self._settings, self.source, self._clock),
            tenant=self.source.tenant,
            source=self.source.name,
            clock=self._clock,
            bodies=self._bodies,
            observed=self._metrics,
            limits=Limits(events=self._settings.kafka.transaction_events),
            pace=self._pace,
            guard=DeletionGuard(self._settings.reconcile.missing_share, self._settings.reconcile.missing_count),
            quarantine_s=self._settings.reconcile.quarantine_days * 86_400,
            requests=self._requests,
            applied=self._applied,
            passed=self._passed,
        )
        try:
            engine.start()
            self._engine = engine
            self.state, self.error = "running", None
            while not self._stop.is_set():
                engine.step()
                backoff.reset()
        finally:
            self._engine = None
            engine.close()
            opened.close()

    def _stand_by(self) -> None:
        """Until the owner that took over is gone, or ``stop``."""
        last: object = object()
        while not self._stop.is_set():
            try:
                now = self._moves()
            except Retry as error:
                log.warning("source %s: the log cannot be read: %s", self.source.name, error)
                now = object()
            if now == last:
                return
            last = now
            self._stop.wait(self._standby_s)

    def _failed(self, state: str, error: Exception) -> None:
        self.state, self.error = state, f"{type(error).__name__}: {error}"
        log.warning("source %s is %s: %s", self.source.name, state, error)
        self._metrics.count("headwater_source_errors_total", source=self.source.name, kind=type(error).__name__)

    def wake(self) -> None:
        """Let a waiting owner look for requests (any thread)."""
        engine = self._engine
        if engine is not None:
            engine.wake()

    def stop(self) -> None:
        """Ask ``run`` to return."""
        self._stop.set()
        self.wake()

    def health(self) -> dict[str, object]:
        """State, alarms and problems."""
        engine = self._engine
        page: dict[str, object] = {"tenant": self.source.tenant, "state": self.state, "error": self.error}
        if engine is not None:
            page |= {
                "documents": engine.ledger.live(),
                "busy": engine.busy,
                "degraded": engine.connector.degraded,
                "alarms": engine.alarms[:20],
                "problems": engine.problems[:20],
                "listed": engine.listed.model_dump(mode="json") if engine.listed is not None else None,
            }
        return page


class Owners:
    """The sources of one process and their threads."""

    def __init__(self) -> None:
        self.owners: list[SourceOwner] = []

    def add(self, owner: SourceOwner) -> None:
        """One more source, before ``run``."""
        self.owners.append(owner)

    def run(self) -> None:
        """Until every source has stopped."""
        threads = [
            threading.Thread(target=owner.run, name=f"owner-{owner.source.name}", daemon=True) for owner in self.owners
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()

    def stop(self) -> None:
        """Ask all to stop."""
        for owner in self.owners:
            owner.stop()

    def wake(self, tenant: str, source: str) -> None:
        """Wake the owner of this source."""
        for owner in self.owners:
            if (owner.source.tenant, owner.source.name) == (tenant, source):
                owner.wake()

    def health(self) -> dict[str, object]:
        """For ``/healthz``."""
        return {"state": "running", "sources": {owner.source.name: owner.health() for owner in self.owners}}


def main(arguments: Sequence[str]) -> int:
    """Own every configured source until a signal comes; the exit status."""
    if arguments:
        raise ConfigError("arguments", f"{' '.join(arguments)} is not understood", "The owner takes none.")
    settings = load()
    clock = SystemClock()
    if not settings.sources:
        log.warning("no source is configured: name one under [[sources]] in the settings")
    for source in settings.sources:  # a wrong path is told at once, not by a thread that begins anew for ever
        check(source)
    stopping = Stopping()
    owners = Owners()
    health = HealthServer.from_environment(owners.health)
    try:
        stopping.retry("Kafka", lambda: ensure_topics(settings))
        store = stopping.retry("Weaviate", lambda: WeaviateStore(settings))
        with closing(store), closing(RequestFeed(settings, owners.wake)) as feed:
            applied = AppliedOffsets(store, settings.generation, clock.elapsed)
            for source in settings.sources:
                owners.add(_owner(settings, source, clock, feed, applied, PassedByAll(store)))
            stopping.on_stop(owners.stop)
            if owners.owners:
                owners.run()
            else:
                stopping.event.wait()
    except Stopped:
        return 0
    finally:
        if health is not None:
            health.close()
    return 0


def _owner(
    settings: Settings,
    source: AnySource,
    clock: Clock,
    feed: RequestFeed,
    applied: AppliedOffsets,
    passed: PassedByAll,
) -> SourceOwner:
    bodies = FsspecBodyStore.of(settings)
    return SourceOwner(
        settings,
        source,
        open_log=partial(KafkaOwnerLog, settings, source.tenant, source.name),
        bodies=bodies,
        tree=bodies,
        passed=passed,
        clock=clock,
        requests=feed.of(source.tenant, source.name),
        applied=applied,
        moves=partial(cursor_offset, settings, source.tenant, source.name),
    )
