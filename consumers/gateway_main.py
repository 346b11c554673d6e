"""Wires the change gateway to Kafka and Weaviate and serves it."""

from __future__ import annotations

import json
import logging
from collections.abc import Iterator
from contextlib import closing, contextmanager

from consumers.connectors import hints_of
from consumers.erasing import Erasing
from consumers.gateway import create_app, verify_configured
from consumers.gateway_service import Gateway, GatewayDeps
from consumers.gateway_wait import ReceiptTail, ReceiptWatch, StoreCheck
from consumers.owner_log import AppliedOffsets, KafkaOwnerLog
from consumers.process import Stopped, Stopping
from consumers.superseded import PassedByAll
from pipeline.bus.bodies import FsspecBodyStore
from pipeline.bus.producer import KafkaPublisher
from pipeline.bus.tail import read_compacted
from pipeline.bus.topics import ensure_topics
from pipeline.clock import SystemClock
from pipeline.health import HealthServer
from pipeline.index.store import WeaviateStore
from pipeline.observe import metrics
from pipeline.ports import Publisher
from pipeline.settings import Settings
from schemas.topics import Topic

log = logging.getLogger("headwater.gateway")


def dependencies(settings: Settings, store: WeaviateStore, watch: ReceiptWatch, publisher: Publisher) -> GatewayDeps:
    """The real parts."""
    clock, bodies = SystemClock(), FsspecBodyStore.of(settings)
    return GatewayDeps(
        settings=settings,
        clock=clock,
        metrics=metrics(),
        open_log=lambda tenant, source: KafkaOwnerLog(settings, tenant, source),
        bodies=bodies,
        receipts=watch,
        publisher=publisher,
        refs_of=hints_of(settings, clock),
        check=StoreCheck(store, settings.generation),
        applied=AppliedOffsets(store, settings.generation, clock.elapsed),
        tree=bodies,
        passed=PassedByAll(store),
        erasing=Erasing(store, clock.elapsed),
    )


def known_tenants(settings: Settings) -> set[str]:
    """Tenants whose changes came by this gateway's own source before. Raises BusUnavailable."""
    found: set[str] = set()
    for record in read_compacted(settings, Topic.CURSORS):
        try:
            parts = json.loads(record.key or "")
        except ValueError:
            continue
        if isinstance(parts, list) and len(parts) > 2 and parts[1:3] == [settings.gateway.source, "cursor"]:
            found.add(parts[0])
    return found


def run(settings: Settings) -> int:
    """Serve until a signal comes; the exit status. Raises ConfigError."""
    import uvicorn

    class Server(uvicorn.Server):
        """Leaves the signals to ``Stopping``, which knows what else has to end."""

        @contextmanager
        def capture_signals(self) -> Iterator[None]:
            yield

        def leave(self) -> None:
            self.should_exit = True

    watch = ReceiptWatch()
    stopping = Stopping()
    try:
        stopping.retry("Kafka", lambda: ensure_topics(settings))
        store = stopping.retry("Weaviate", lambda: WeaviateStore(settings))
        publisher = stopping.retry("Kafka", lambda: KafkaPublisher(settings, "gateway"))
        tenants = stopping.retry("Kafka", lambda: known_tenants(settings))
    except Stopped:
        return 0
    with closing(store), closing(publisher), closing(ReceiptTail(settings, watch)):
        deps = dependencies(settings, store, watch, publisher)
        verify_configured(deps)
        app = create_app(deps)
        gateway: Gateway = app.state.gateway
        for tenant in sorted(tenants):  # their first request need not wait, and they are known to be complete
            gateway.writer(tenant, settings.gateway.source).submit([])
        config = uvicorn.Config(
            app,
            host=settings.gateway.host,
            port=settings.gateway.port,
            log_config=None,
            access_log=False,
            server_header=False,
        )
        server = Server(config)
        health = HealthServer.from_environment(gateway.health)
        stopping.on_stop(server.leave)
        try:
            server.run()
        finally:
            if health is not None:
                health.close()
    return 0 if server.started else 1
