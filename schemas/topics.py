"""Logical topics: their keys, models and retention. Physical names carry the namespace."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum


class Topic(StrEnum):
    """Logical topic names."""

    CONTENT = "content"
    ACCESS = "access"
    MEMBERSHIP = "membership"
    CURSORS = "cursors"
    MAINTENANCE = "maintenance"
    REQUESTS = "requests"
    CONTROL = "control"
    RECEIPTS = "receipts"
    DEAD_LETTER = "dead-letter"
    INSTANCES = "instances"
    QUERIES = "queries"

    def physical(self, namespace: str) -> str:
        """Name on the broker."""
        return f"{namespace}.{self.value}"


@dataclass(frozen=True)
class TopicSpec:
    """How a topic is created: ``partitioned`` ones have the log's partition count, the others a single partition."""

    topic: Topic
    compacted: bool
    partitioned: bool
    retention_days: int | None
    description: str


TOPICS: tuple[TopicSpec, ...] = (
    TopicSpec(Topic.CONTENT, True, True, None, "content events by document"),
    TopicSpec(Topic.ACCESS, True, True, None, "access rules, tombstones and holds by document"),
    TopicSpec(Topic.MEMBERSHIP, True, True, None, "direct parents by principal"),
    TopicSpec(Topic.CURSORS, True, True, None, "owners' cursors and document states"),
    TopicSpec(Topic.MAINTENANCE, False, True, 7, "work for index consumers"),
    TopicSpec(Topic.REQUESTS, False, False, 7, "work for source owners"),
    TopicSpec(Topic.CONTROL, False, False, 365, "transitions of generations"),
    TopicSpec(Topic.RECEIPTS, False, True, 30, "what became of each event"),
    TopicSpec(Topic.DEAD_LETTER, False, True, 30, "coordinates of what could not be processed"),
    TopicSpec(Topic.INSTANCES, False, False, 1, "heartbeats of query services: encoders warm, requests in flight"),
    TopicSpec(Topic.QUERIES, False, True, 30, "one record a query, and feedback, by tenant"),
)
