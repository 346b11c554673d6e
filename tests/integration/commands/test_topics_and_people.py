"""What commands read from a real Kafka: topics, backlogs, people."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from infra.commands.lag import known_users
from infra.commands.topics import gather
from infra.errors import InfraError
from pipeline.bus.consumer import commit_first_offsets
from pipeline.bus.producer import KafkaPublisher
from pipeline.bus.topics import delete_topics, ensure_topics
from pipeline.ports import Outgoing
from pipeline.settings import Settings
from schemas.events import MembershipSet
from schemas.keys import membership_key
from schemas.topics import TOPICS, Topic


@pytest.fixture
def log(settings: Settings) -> Iterator[Settings]:
    """A namespace with its topics."""
    ensure_topics(settings)
    yield settings
    delete_topics(settings)


def _publish(settings: Settings, records: list[Outgoing]) -> None:
    publisher = KafkaPublisher(settings, "test")
    try:
        publisher.publish(records)
    finally:
        publisher.close()


@pytest.mark.requirement("A1")
def test_topics_show_records_retention_and_each_groups_backlog(log: Settings) -> None:
    commit_first_offsets(log, "index.minilm", [Topic.CONTENT, Topic.ACCESS])
    _publish(log, [Outgoing(Topic.CONTENT, f"k{n}", b"{}") for n in range(40)])
    commit_first_offsets(log, "late", [Topic.CONTENT], ends=[Topic.CONTENT])
    rows = {row.topic: row for row in gather(log)}
    assert set(rows) == {str(spec.topic) for spec in TOPICS}
    content = rows["content"]
    assert (content.records, content.partitions, content.kept) == (40, 3, "last of each key")
    assert content.name == f"{log.namespace}.content"
    groups = {b.group: b for b in content.groups}
    assert (groups["index.minilm"].records, groups["index.minilm"].partitions) == (40, 3)
    assert 40 / 3 <= groups["index.minilm"].furthest < 40
    assert groups["late"].records == 0
    assert [b.records for b in rows["access"].groups] == [0]
    assert rows["receipts"].kept == "30 days"
    assert rows["control"].partitions == 1


def test_an_empty_namespace_has_no_topics(settings: Settings) -> None:
    assert gather(settings) == []


def test_figures_are_asked_for_by_a_person_who_still_exists(log: Settings) -> None:
    def said(tenant: str, principal: str, source: str, version: int, **more: bool) -> Outgoing:
        event = MembershipSet(tenant=tenant, principal=principal, source=source, version=version, observed_at=1, **more)
        key, place = membership_key(tenant, principal, source), membership_key(tenant, principal)
        return Outgoing(Topic.MEMBERSHIP, key, event.model_dump_json().encode(), partition_key=place)

    with pytest.raises(InfraError, match="no person yet"):
        known_users(log, "acme")
    _publish(
        log,
        [
            said("acme", "user:gone", "wiki", 1),
            said("acme", "user:gone", "wiki", 2, removed=True),
            said("acme", "group:wiki/eng", "wiki", 3),
            said("acme-two", "user:eve", "wiki", 4),
            said("acme", "user:ann", "wiki", 5),
            said("acme", "user:ann", "tickets", 6, removed=True),
        ],
    )
    assert known_users(log, "acme") == ["user:ann"]
    assert known_users(log, "acme-two") == ["user:eve"]
