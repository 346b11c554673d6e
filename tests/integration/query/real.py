"""The world of the unit tests on real Weaviate, real Kafka and the real encoder."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
from pydantic import BaseModel, SecretStr

from pipeline.bootstrap import build_encoder
from pipeline.bus.codec import access_record, membership_record
from pipeline.bus.producer import KafkaPublisher
from pipeline.bus.topics import ensure_topics
from pipeline.clock import SystemClock
from pipeline.index.store import WeaviateStore
from pipeline.observe import Metrics
from pipeline.ports import Embedder, Outgoing, Vectors
from pipeline.settings import AuthSettings, Settings
from pipeline.settings_query import CacheSettings
from query_service.app import Dependencies
from query_service.rerank.service import LoadReranker
from query_service.wiring import dependencies
from schemas.events import MembershipSet
from schemas.generation import EncoderSpec
from schemas.receipts import Progress
from schemas.topics import Topic
from tests.unit.query.world import GENERATION, PARTITIONS, SECRET, BackendName, World

_ENCODERS: dict[str, Embedder] = {}


class RealWorld(World):
    """Documents go into the store as the consumers would leave them; events go to the log."""

    spec = EncoderSpec()
    backend: BackendName = "torch-fp32"
    load_reranker: LoadReranker | None = None

    def __init__(self, settings: Settings) -> None:
        self.settings = settings.model_copy(
            update={
                "auth": AuthSettings(jwt_secret=SecretStr(SECRET)),
                "cache": CacheSettings(answers=0, searches=0),  # tests that ask twice want two searches
            }
        )
        self.clock: Any = SystemClock()
        self.metrics = Metrics()
        ensure_topics(self.settings)
        self.store: Any = WeaviateStore(self.settings)
        self.store.ensure_base()
        self.publisher = KafkaPublisher(self.settings, "test")
        self._version = self.clock.now()
        self.generation(GENERATION, active=True)

    def embedder(self) -> Embedder:
        """The encoder of all these generations, loaded once a session."""
        key = self.spec.model_dump_json() + self.backend
        if key not in _ENCODERS:
            generation = self.store.read_generations()[GENERATION]
            _ENCODERS[key] = build_encoder(self.settings, generation, for_queries=True)
        return _ENCODERS[key]

    def vector(self, text: str) -> Vectors:
        return np.asarray(self.embedder().embed_documents([text])[0], dtype=np.float32)

    def send(self, *events: BaseModel) -> None:
        """Append access and membership events."""
        self.publish([membership_record(e) if isinstance(e, MembershipSet) else access_record(e) for e in events])  # type: ignore[arg-type]

    def publish(self, records: Sequence[Outgoing]) -> None:
        """Append any records."""
        self.publisher.publish(records)

    def applied(self, offsets: Callable[[str, int], int], *, age_s: float = 0.0) -> None:
        """Progress of the access lane by topic and partition."""
        written = self.clock.now() - int(age_s * 1e6)
        self.store.write_progress(
            [
                Progress(lane="access", topic=topic.value, partition=p, offset=offsets(topic, p), written_at=written)
                for topic in (Topic.ACCESS, Topic.MEMBERSHIP)
                for p in range(PARTITIONS)
            ]
        )

    def dependencies(self) -> Dependencies:
        found = dependencies(self.settings, observed=self.metrics)
        # without a reranker of its own a test's order depends on nothing that is loaded in the background
        return replace(found, load_encoder=lambda generation: self.embedder(), load_reranker=self.load_reranker)

    def close(self) -> None:
        """Leave the services; the namespace is the test's own."""
        self.store.drop_generation(GENERATION)
        self.store.close()
        self.publisher.close()
