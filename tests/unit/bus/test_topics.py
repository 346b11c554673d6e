"""Topic configuration follows from the settings and the list of topics alone."""

from __future__ import annotations

import pytest

from pipeline.bus.producer import partition_for
from pipeline.bus.topics import DAY_MS, configuration_of, partitions_of, spec_of
from pipeline.ports import Outgoing
from pipeline.settings import Settings
from schemas.keys import partition_of
from schemas.topics import TOPICS, Topic


@pytest.mark.requirement("A8")
def test_segments_of_compacted_topics_roll_at_a_quarter_of_the_compaction_lag() -> None:
    for spec in TOPICS:
        options = configuration_of(spec)
        assert options["message.timestamp.type"] == "LogAppendTime"
        if spec.compacted:
            assert options["cleanup.policy"] == "compact"
            assert int(options["segment.ms"]) * 4 <= int(options["max.compaction.lag.ms"])
            assert int(options["delete.retention.ms"]) == 90 * DAY_MS
        else:
            assert options["cleanup.policy"] == "delete"
            assert int(options["retention.ms"]) == (spec.retention_days or 0) * DAY_MS
            assert int(options["segment.ms"]) < int(options["retention.ms"])


def test_document_topics_have_equal_partition_counts() -> None:
    settings = Settings()
    counts = {str(spec.topic): partitions_of(spec, settings) for spec in TOPICS}
    assert counts["content"] == counts["access"] == counts["maintenance"] == counts["membership"] == 12
    assert counts["control"] == counts["requests"] == 1
    with pytest.raises(KeyError):
        spec_of("nowhere")


@pytest.mark.requirement("I2")
def test_the_producer_sets_the_partition() -> None:
    settings = Settings()
    assert partition_for(Outgoing(str(Topic.ACCESS), "hold", b"", "doc"), settings) == partition_of("doc", 12)
    assert partition_for(Outgoing(str(Topic.ACCESS), "doc", b""), settings) == partition_of("doc", 12)
    assert partition_for(Outgoing(str(Topic.CONTROL), "any", b""), settings) == 0
