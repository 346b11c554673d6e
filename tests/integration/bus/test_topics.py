"""Creation of topics on the real broker."""

from __future__ import annotations

import threading
from collections.abc import Iterator

import pytest

from pipeline.bus.consumer import KafkaReader
from pipeline.bus.interface import Slot
from pipeline.bus.producer import KafkaPublisher
from pipeline.bus.tail import commit_first_offsets
from pipeline.bus.topics import delete_topics, describe_topics, ensure_topics
from pipeline.errors import BusUnavailable, ConfigError
from pipeline.observe import quiet_kafka
from pipeline.ports import Outgoing
from pipeline.settings import Settings
from schemas.topics import TOPICS, Topic


@pytest.fixture
def topics(settings: Settings) -> Iterator[Settings]:
    """Settings whose topics are deleted afterwards."""
    quiet_kafka()
    yield settings
    delete_topics(settings)


def with_kafka(settings: Settings, **changes: object) -> Settings:
    return settings.model_copy(update={"kafka": settings.kafka.model_copy(update=changes)})


def test_creation_is_idempotent_and_described(topics: Settings) -> None:
    assert len(ensure_topics(topics)) == len(TOPICS)
    assert ensure_topics(topics) == []
    described = {d.topic: d for d in describe_topics(topics)}
    assert set(described) == {spec.topic for spec in TOPICS}
    content, control = described[Topic.CONTENT], described[Topic.CONTROL]
    assert (content.partitions, control.partitions) == (3, 1)
    assert content.configuration["cleanup.policy"] == "compact"
    assert content.configuration["max.compaction.lag.ms"] == "86400000"
    assert content.name == f"{topics.namespace}.content"


@pytest.mark.requirement("I2")
def test_another_partition_count_is_refused_for_the_logs_life(topics: Settings) -> None:
    ensure_topics(topics)
    with pytest.raises(ConfigError, match="fixed for the log's life") as refused:
        ensure_topics(with_kafka(topics, partitions=4))
    assert refused.value.field == "kafka.partitions"


def test_processes_that_start_together_create_once(topics: Settings) -> None:
    errors: list[BaseException] = []

    def create() -> None:
        try:
            ensure_topics(topics)
        except BaseException as error:
            errors.append(error)

    threads = [threading.Thread(target=create) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert errors == []
    assert ensure_topics(topics) == []


def test_more_copies_than_brokers_is_a_setting_to_correct(topics: Settings) -> None:
    with pytest.raises(ConfigError, match=r"kafka\.replication"):
        ensure_topics(with_kafka(topics, replication=3))


def test_no_broker_is_infrastructure_failure(topics: Settings) -> None:
    nowhere = with_kafka(topics, bootstrap="127.0.0.1:9", request_timeout_s=1.0)
    with pytest.raises(BusUnavailable, match="127"):
        ensure_topics(nowhere)


class _Nobody:
    def on_assigned(self, slots: frozenset[Slot]) -> None:
        """Nothing to do."""

    def on_revoked(self, slots: frozenset[Slot], *, lost: bool) -> None:
        """Nothing to do."""


@pytest.mark.requirement("I11")
def test_a_reader_of_topics_that_are_not_there_says_so(topics: Settings) -> None:
    with pytest.raises(ConfigError, match="has 0 partitions"):
        KafkaReader(topics, "g", [Topic.CONTENT], _Nobody(), session_s=6)


@pytest.mark.requirement("I11", "A10")
def test_first_offsets_are_committed_while_the_group_is_empty(topics: Settings) -> None:
    ensure_topics(topics)
    publisher = KafkaPublisher(topics)
    publisher.publish([Outgoing(str(t), f"k{i}", b"x") for i in range(9) for t in (Topic.CONTENT, Topic.MAINTENANCE)])
    publisher.close()
    lanes = [Topic.CONTENT, Topic.MAINTENANCE]
    first = commit_first_offsets(topics, "index.g", lanes, ends=[Topic.MAINTENANCE])
    assert all(first[Slot("content", n)] == 0 for n in range(3))
    assert sum(first[Slot("maintenance", n)] for n in range(3)) == 9
    assert commit_first_offsets(topics, "index.g", lanes) == {}, "what is committed stays"
    reader = KafkaReader(topics, "index.g", lanes, _Nobody(), session_s=6)
    try:
        assert reader.committed(list(first)) == first
    finally:
        reader.close()
