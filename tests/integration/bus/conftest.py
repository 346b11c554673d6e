"""Access consumers on real Kafka and Weaviate, in threads of the test."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

import pytest

from consumers.access import GROUP, AccessLane, log_scan, spec_of_access
from consumers.dead_letter import DeadLetters
from consumers.lease import Rechecks
from consumers.runtime import Hooks, Runtime
from pipeline.bus.codec import access_record, membership_record
from pipeline.bus.consumer import KafkaReader
from pipeline.bus.interface import Listener, Reader
from pipeline.bus.producer import KafkaAppender, KafkaPublisher
from pipeline.bus.tail import read_compacted
from pipeline.bus.topics import delete_topics, ensure_topics
from pipeline.clock import SystemClock
from pipeline.index.schema import Collections
from pipeline.index.store import WeaviateStore
from pipeline.observe import Metrics, quiet_kafka
from pipeline.settings import Settings
from schemas.documents import AccessRecord, PrincipalRecord
from schemas.events import ACCESS_ONLY, AccessSet, AccessTombstone, HoldChanged, MembershipSet
from schemas.keys import DocumentRef
from schemas.receipts import Receipt
from schemas.topics import Topic


def wait_until(condition: Callable[[], bool], seconds: float = 30) -> None:
    """Until true; fails after ``seconds``."""
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, f"the condition did not come true within {seconds:.0f} s"
        time.sleep(0.01)


@dataclass
class Consumer:
    """One access consumer in threads."""

    runtime: Runtime
    observed: Metrics
    thread: threading.Thread
    errors: list[BaseException]

    def state(self) -> object:
        """Of its health page."""
        return self.runtime.health()["state"]

    def stop(self) -> None:
        """Leave in order."""
        self.runtime.stop()
        self.thread.join(20)
        assert not self.thread.is_alive()


@dataclass
class Lane:
    """The access lane of one namespace."""

    settings: Settings
    store: WeaviateStore
    publisher: KafkaPublisher
    consumers: list[Consumer] = field(default_factory=list)
    appenders: list[KafkaAppender] = field(default_factory=list)

    def consumer(self, *, store: Any = None, member: str | None = None, hooks: Hooks | None = None) -> Consumer:
        """Start a consumer and wait until its partitions are open."""
        clock, observed = SystemClock(), Metrics()
        spec = spec_of_access(self.settings)
        rechecks = Rechecks(self.publisher, clock, ACCESS_ONLY)
        used = store if store is not None else self.store
        lane = AccessLane(
            spec,
            store=used,
            publisher=self.publisher,
            rechecks=rechecks,
            dead_letters=DeadLetters(self.publisher, "access", clock, observed=observed),
            scan=log_scan(self.settings),
            clock=clock,
            partitions=self.settings.kafka.partitions,
            observed=observed,
        )

        def reader(listener: Listener) -> Reader:
            topics = [topic.topic for topic in spec.topics]
            return KafkaReader(
                self.settings, GROUP, topics, listener, session_s=spec.session_s, isolation="read_uncommitted",
                member=member, clock=clock,
            )  # fmt: skip

        runtime = Runtime(
            lane, reader=reader, store=used, rechecks=rechecks, clock=clock, hooks=hooks, observed=observed
        )
        errors: list[BaseException] = []

        def run() -> None:
            try:
                runtime.run()
            except BaseException as error:
                errors.append(error)

        thread = threading.Thread(target=run, name="consumer", daemon=True)
        consumer = Consumer(runtime, observed, thread, errors)
        self.consumers.append(consumer)
        thread.start()
        wait_until(lambda: bool(errors) or consumer.state() in ("running", "holding"))
        assert errors == []
        return consumer

    def owner(self, name: str = "owner") -> KafkaAppender:
        """A source's owner."""
        appender = KafkaAppender(self.settings, name, observed=Metrics())
        self.appenders.append(appender)
        return appender

    def send(self, *events: AccessSet | AccessTombstone | HoldChanged | MembershipSet) -> None:
        """Append without a transaction."""
        records = [membership_record(e) if isinstance(e, MembershipSet) else access_record(e) for e in events]
        self.publisher.publish(records)

    def record(self, document: DocumentRef) -> AccessRecord | None:
        """The document's record in the store."""
        return self.store.read_access(document.tenant, [document.uid]).get(document.uid)

    def principal(self, tenant: str, name: str) -> PrincipalRecord | None:
        """The principal's record in the store."""
        return self.store.read_principals(tenant, [name]).get(name)

    def receipts(self) -> list[Receipt]:
        """All receipts so far."""
        found = read_compacted(self.settings, Topic.RECEIPTS)
        return [Receipt.model_validate_json(record.value or b"") for record in found]

    def applied(self, topic: str = "access") -> int:
        """Sum of the applied offsets in the store."""
        lane = "membership" if topic == "membership" else "access"
        return sum(p.offset for p in self.store.read_progress(lane, "", topic).values())

    def close(self) -> None:
        """Stop everything."""
        for consumer in self.consumers:
            consumer.runtime.stop()
        for consumer in self.consumers:
            consumer.thread.join(20)
        for appender in self.appenders:
            appender.close()
        self.publisher.close()


@pytest.fixture
def lane(settings: Settings) -> Iterator[Lane]:
    """An empty access lane."""
    quiet_kafka()
    ensure_topics(settings)
    store = WeaviateStore(settings)
    store.ensure_base()
    made = Lane(settings, store, KafkaPublisher(settings))
    yield made
    made.close()
    names = Collections(settings.namespace)
    client = store._connection.client()
    for name in (names.access, names.principals, names.progress, names.generations):
        client.collections.delete(name)
    store.close()
    delete_topics(settings)
