"""The bus contract runs on the log in memory and on Kafka."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest

from pipeline.bus.consumer import KafkaReader, KafkaTail, read_compacted
from pipeline.bus.producer import KafkaAppender, KafkaPublisher
from pipeline.bus.topics import delete_topics, ensure_topics
from pipeline.observe import Metrics, quiet_kafka
from pipeline.settings import Settings
from tests.contract.bus.helpers import Bus
from tests.fakes.bus import MemoryAppender, MemoryBroker, MemoryPublisher, MemoryReader, MemoryTail, scan


def _memory() -> Iterator[Bus]:
    broker = MemoryBroker(partitions=3)
    yield Bus(
        publisher=lambda: MemoryPublisher(broker),
        appender=lambda name: MemoryAppender(broker, name),
        reader=lambda group, topics, listener, **options: MemoryReader(broker, group, topics, listener, **options),
        tail=lambda topics, **options: MemoryTail(broker, topics, **options),
        scan=lambda topic, **options: scan(broker, topic, **options),
    )


def _kafka(settings: Settings) -> Iterator[Bus]:
    quiet_kafka()
    ensure_topics(settings)
    bus = Bus(
        publisher=lambda: KafkaPublisher(settings),
        appender=lambda name: KafkaAppender(settings, name, observed=Metrics()),
        reader=lambda group, topics, listener, **options: KafkaReader(
            settings, group, topics, listener, **({"session_s": 6.0} | options)
        ),
        tail=lambda topics, **options: KafkaTail(settings, topics, **options),
        scan=lambda topic, **options: read_compacted(settings, topic, **options),
    )
    yield bus
    bus.close()
    delete_topics(settings)


@pytest.fixture(params=["memory", "kafka"])
def bus(request: pytest.FixtureRequest) -> Iterator[Bus]:
    """A log of three partitions."""
    if request.param == "memory":
        yield from _memory()
    else:
        yield from _kafka(request.getfixturevalue("settings"))


@pytest.fixture
def until() -> Callable[[Callable[[], bool]], None]:
    """Call until true; fails after 20 s."""
    import time

    def wait(condition: Callable[[], bool]) -> None:
        deadline = time.monotonic() + 20
        while not condition():
            assert time.monotonic() < deadline, "the condition did not come true within 20 s"

    return wait
