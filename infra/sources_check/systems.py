"""All systems that are played, in the order in which they are."""

from __future__ import annotations

from pathlib import Path

from infra.endpoints import Endpoints
from infra.sources_check.play import System


def systems(cache: Path, endpoints: Endpoints) -> list[System]:
    """One of each. ``cache``: where obtained programs are kept; ``endpoints``: the Kafka that a topic is made in."""
    from infra.sources_check.git import GitSystem
    from infra.sources_check.mediawiki import MediaWikiSystem
    from infra.sources_check.outbox import OutboxSystem
    from infra.sources_check.redmine import RedmineSystem
    from infra.sources_check.s3 import S3System
    from infra.sources_check.topic import TopicSystem

    return [
        MediaWikiSystem(),
        RedmineSystem(),
        GitSystem(),
        S3System(cache),
        OutboxSystem(),
        TopicSystem(endpoints),
    ]
