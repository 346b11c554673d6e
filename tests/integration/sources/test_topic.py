"""Topics of another program on a real Kafka: offsets, outages of the reader, what retention took."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator
from typing import Any
from uuid import uuid4

import pytest
from kafka import KafkaAdminClient, KafkaProducer, TopicPartition
from kafka.admin import NewPartitions, NewTopic

from pipeline.bus import foreign
from pipeline.bus.foreign import ForeignRecords
from pipeline.clock import SystemClock
from pipeline.errors import BusUnavailable, ConfigError
from pipeline.ports import SourceDeletion, SourceDocument
from pipeline.settings import Settings
from pipeline.settings_sources import TopicSettings
from pipeline.sources.bodies import BodyPlacer
from pipeline.sources.connector import Look, Mark, Seen
from pipeline.sources.ledger import Ledger
from pipeline.sources.topic.source import TopicSource


class Broker:
    """Another program that fills topics."""

    def __init__(self, settings: Settings) -> None:
        self.settings = settings
        self.name = f"foreign{uuid4().hex[:8]}.public.pages"
        self.producer = KafkaProducer(bootstrap_servers=settings.kafka.bootstrap, acks="all")
        self.admin = KafkaAdminClient(bootstrap_servers=settings.kafka.bootstrap)
        self.made: set[str] = set()

    def make(self, partitions: int = 2, **configuration: str) -> None:
        self.admin.create_topics([NewTopic(self.name, partitions, 1, topic_configs=configuration)])
        self.made.add(self.name)

    def send(self, key: Any, value: Any, **headers: bytes) -> None:
        raw = value if isinstance(value, bytes) or value is None else json.dumps(value).encode()
        self.producer.send(self.name, key=json.dumps(key).encode(), value=raw, headers=list(headers.items()))

    def row(self, op: str, lsn: int, id_: int, text: str = "") -> None:
        after = {"id": id_, "title": f"Page {id_}", "text": text} if op != "d" else None
        source = {"lsn": lsn, "table": "pages", "ts_ms": 1_700_000_000_000}
        self.send({"id": id_}, {"before": {"id": id_}, "after": after, "source": source, "op": op})

    def close(self) -> None:
        self.producer.close(timeout=5)
        if self.made:
            self.admin.delete_topics(list(self.made))
        self.admin.close()


@pytest.fixture
def broker(settings: Settings) -> Iterator[Broker]:
    made = Broker(settings)
    yield made
    made.close()


class Follower:
    """Takes looks into a real ledger, as an owner does."""

    def __init__(self, broker: Broker, position: str = "", ledger: Ledger | None = None, **more: Any) -> None:
        clock = SystemClock()
        self.ledger = ledger if ledger is not None else Ledger("acme", "app", clock, BodyPlacer(None))
        settings = TopicSettings.model_validate(
            {"type": "topic", "name": "app", "topics": (broker.name,), "format": "debezium", "allow": ("everyone",)}
            | more
        )
        records = ForeignRecords(
            broker.settings, settings.topics, clock, role="topic-app", bootstrap=settings.bootstrap
        )
        self.source = TopicSource(settings, clock, records=records, known=self.ledger.state)
        self.source.restore(self.ledger.states(), position)
        self.position = position
        self.seen: list[Seen] = []
        self.looks: list[Look] = []

    def step(self) -> None:
        look = self.source.changes(0.1)
        if look is None:
            return
        self.looks.append(look)
        for one in look.seen:
            if isinstance(one, SourceDocument | SourceDeletion):
                self.seen.append(one)
                self.ledger.observe(one)
            else:
                assert isinstance(one, Mark)
        if look.position is not None:
            self.position = look.position

    def until(self, condition: Callable[[], bool], seconds: float = 30) -> None:
        end = time.monotonic() + seconds
        while not condition():
            assert time.monotonic() < end, f"not within {seconds:.0f} s: {[look.problems for look in self.looks[-3:]]}"
            self.step()

    def settle(self) -> None:
        now = SystemClock().now()
        self.until(lambda: any(look.whole and look.began > now for look in self.looks[-3:]))

    def live(self) -> set[str]:
        return {d.id for d, s in self.ledger.states() if not s.deleted}

    def told(self) -> list[str]:
        return [t for look in self.looks for t in (*look.problems, *look.alarms)]


@pytest.mark.requirement("A1", "I9", "F20")
def test_rows_are_followed_and_gone_on_with_after_a_restart(broker: Broker) -> None:
    broker.make()
    for n in range(40):
        broker.row("c", n, n, f"text {n}")
    broker.send({"id": 99}, b"\xff\x00 no JSON")
    broker.row("d", 100, 3)
    broker.send({"id": 3}, None)
    broker.producer.flush()
    first = Follower(broker)
    first.settle()
    assert first.live() == {str(n) for n in range(40)} - {"3"}
    assert len(first.told()) == 1
    assert broker.name in first.told()[0]
    broker.row("u", 200, 1, "changed while nobody read")
    broker.producer.flush()
    first.source.close()
    second = Follower(broker, first.position, first.ledger)
    second.settle()
    assert [s.body for s in second.seen if isinstance(s, SourceDocument)] == [b"changed while nobody read"]
    assert second.told() == []
    assert [f.good for f in second.source.check()] == [True]
    second.source.close()


@pytest.mark.requirement("A1")
def test_a_topic_and_a_partition_that_come_later_are_taken_up(broker: Broker, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(foreign, "GROWTH_S", 0.2)
    follower = Follower(broker)
    follower.until(lambda: any("is not on" in t for t in follower.told()))
    assert [f.good for f in follower.source.check()] == [False]
    broker.make(1)
    broker.row("c", 1, 1, "one")
    broker.producer.flush()
    follower.until(lambda: follower.live() == {"1"})
    broker.admin.create_partitions({broker.name: NewPartitions(3)})
    broker.producer.close()
    broker.producer = KafkaProducer(bootstrap_servers=broker.settings.kafka.bootstrap, acks="all")
    end = time.monotonic() + 20
    while len(broker.producer.partitions_for(broker.name)) < 3:
        assert time.monotonic() < end
        time.sleep(0.1)
    for n in range(2, 12):
        broker.row("c", n, n, "later")
    broker.producer.flush()
    follower.until(lambda: follower.live() == {str(n) for n in range(1, 12)})
    follower.source.close()


@pytest.mark.requirement("I9", "A8")
def test_records_that_are_gone_unread_are_told(broker: Broker) -> None:
    broker.make(1)
    for n in range(10):
        broker.row("c", n, n, "x")
    broker.producer.flush()
    first = Follower(broker)
    first.settle()
    first.source.close()
    for n in range(10, 20):
        broker.row("c", n, n, "x")
    broker.producer.flush()
    broker.admin.delete_records({TopicPartition(broker.name, 0): 15})
    second = Follower(broker, first.position, first.ledger)
    second.settle()
    assert {str(n) for n in range(15, 20)} <= second.live()
    assert any("records 10 to 14 are gone unread" in a for look in second.looks for a in look.alarms)
    second.source.close()
    ahead = json.dumps({broker.name: {"0": 700}})
    third = Follower(broker, ahead)
    third.settle()
    assert third.live() == {str(n) for n in range(15, 20)}
    assert any("made anew" in a for look in third.looks for a in look.alarms)
    third.source.close()


@pytest.mark.requirement("A6", "A7")
def test_a_message_of_the_router_that_comes_twice_counts_once_after_a_restart(broker: Broker) -> None:
    broker.name = f"{uuid4().hex[:8]}.outbox.event.page"
    broker.make(1)

    def send(id_: bytes, text: str) -> None:
        change = {"type": "upsert", "title": "t", "text": text, "access": {"allow": ["user:ann"]}}
        broker.send("kb-1", json.dumps(change), id=id_)
        broker.producer.flush()

    first = Follower(broker, format="outbox")
    for id_, text in ((b"1", "one"), (b"2", "two")):
        send(id_, text)
        first.settle()
    first.source.close()
    for id_, text in ((b"1", "one"), (b"2", "two"), (b"3", "three")):
        send(id_, text)
    second = Follower(broker, first.position, first.ledger, format="outbox")
    second.settle()
    second.source.close()
    seen = [s for s in (*first.seen, *second.seen) if isinstance(s, SourceDocument)]
    assert [s.body for s in seen] == [b"one", b"two", b"three"]
    assert {(s.document.kind, s.document.id) for s in seen} == {("page", "kb-1")}


@pytest.mark.requirement("I8")
def test_a_broker_that_does_not_answer_is_an_outage(broker: Broker) -> None:
    quick = broker.settings.kafka.model_copy(update={"request_timeout_s": 1.0})
    settings = broker.settings.model_copy(update={"kafka": quick})
    records = ForeignRecords(settings, [broker.name], SystemClock(), role="x", bootstrap="127.0.0.1:1")
    with pytest.raises(BusUnavailable, match=r"127\.0\.0\.1:1"):
        records.start({}, 0)
    records.close()
    with pytest.raises(ConfigError, match="bootstrap"):
        ForeignRecords(settings, [broker.name], SystemClock(), role="x", bootstrap=" ,")
