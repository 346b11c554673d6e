"""What every lane needs before it starts: topics, a publisher, the store with the collections that all share."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from consumers.process import Stopping
from pipeline.settings import Settings

if TYPE_CHECKING:
    from pipeline.bus.producer import KafkaPublisher
    from pipeline.index.store import WeaviateStore


@contextmanager
def connected(settings: Settings, role: str, stopping: Stopping) -> Iterator[tuple[KafkaPublisher, WeaviateStore]]:
    """Both clients for the block, closed after it; services may start after us. Raises Stopped."""
    from pipeline.bus.producer import KafkaPublisher
    from pipeline.bus.topics import ensure_topics
    from pipeline.index.store import WeaviateStore

    stopping.retry("Kafka", lambda: ensure_topics(settings))
    publisher = stopping.retry("Kafka", lambda: KafkaPublisher(settings, role))
    try:
        store = stopping.retry("Weaviate", lambda: WeaviateStore(settings))
        try:
            stopping.retry("Weaviate", store.ensure_base)
            yield publisher, store
        finally:
            store.close()
    finally:
        publisher.close()
