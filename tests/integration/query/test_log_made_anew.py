"""The topics of permissions are deleted and created again under a running service's tail: nothing is skipped."""

from __future__ import annotations

import pytest

from pipeline.bus.codec import access_record
from pipeline.bus.producer import KafkaPublisher
from pipeline.bus.topics import delete_topics, ensure_topics
from pipeline.clock import SystemClock
from pipeline.observe import Metrics
from pipeline.settings import Settings
from query_service.overlay import Overlay
from query_service.tail import AccessTail
from query_service.wiring import tail_factory
from schemas.access import AccessRule
from schemas.events import AccessSet, AccessTombstone
from schemas.keys import DocumentRef
from tests.product import until

SECRET = DocumentRef(tenant="acme", source="wiki", id="secret")


def opened(version: int) -> AccessSet:
    return AccessSet(
        document=SECRET, version=version, content_version=0, rule=AccessRule.any_of("user:ann"), observed_at=version
    )


@pytest.mark.requirement("A8", "I11")
@pytest.mark.parametrize("more", [0, 30])  # records after the revocation: then the new log is longer than the old
def test_a_revocation_on_a_log_that_was_made_anew_is_met(topics: Settings, more: int) -> None:
    clock, overlay = SystemClock(), Overlay()
    tail = AccessTail(tail_factory(topics, clock), overlay, clock, Metrics(), 15, topics.kafka.partitions)
    publisher = KafkaPublisher(topics)
    tail.start()
    try:
        publisher.publish([access_record(opened(n)) for n in range(1, 11)])
        until(lambda: overlay.access(SECRET.uid, None) and tail.alive() and sum(tail.partitions().values()) == 10, 60)
        delete_topics(topics)
        publisher.close()
        until(lambda: not _exists(topics), 60)
        ensure_topics(topics)
        publisher = KafkaPublisher(topics)
        gone = AccessTombstone(document=SECRET, version=50, not_before=50, observed_at=50)
        publisher.publish([access_record(gone), *(access_record(opened(n)) for n in range(1, more + 1))])
        until(lambda: getattr(overlay.access(SECRET.uid, None), "tombstone", False), 60)
        until(tail.alive, 60)
        assert sum(tail.partitions().values()) == 1 + more
    finally:
        tail.stop()
        publisher.close()


def _exists(settings: Settings) -> bool:
    from pipeline.bus.topics import describe_topics

    return any(described.partitions for described in describe_topics(settings))
