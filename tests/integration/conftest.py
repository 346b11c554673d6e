"""What integration tests of several folders share."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from pipeline.bus.topics import delete_topics, ensure_topics
from pipeline.observe import quiet_kafka
from pipeline.settings import Settings


@pytest.fixture
def topics(settings: Settings) -> Iterator[Settings]:
    """Settings whose topics exist, and are deleted afterwards."""
    quiet_kafka()
    ensure_topics(settings)
    yield settings
    delete_topics(settings)
