"""Settings to the application's real dependencies. Heavy imports happen inside the functions."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from pipeline.bus.codec import encode
from pipeline.clock import Clock, SystemClock
from pipeline.observe import Metrics, metrics
from pipeline.operate.deletion import Embed, Place, Prover
from pipeline.ports import Outgoing, Publisher
from pipeline.settings import Settings
from query_service.app import Dependencies
from query_service.deletion import OpenProofs, Proofs
from query_service.querylog.log import People
from query_service.rerank.service import LoadReranker
from query_service.tail import ACCESS_TOPICS, LogTail, Start, TailFactory
from schemas.instances import InstanceHeartbeat
from schemas.topics import Topic


def dependencies(settings: Settings, clock: Clock | None = None, observed: Metrics | None = None) -> Dependencies:
    """Weaviate to read, Kafka to follow, the generation's encoder for queries. Connects to nothing yet."""
    from pipeline.bootstrap import build_encoder
    from pipeline.embed.tokens import token_counter
    from pipeline.index.reader import WeaviateReader
    from query_service.generate.openai_server import generator_of

    settings, clock = located(settings), clock or SystemClock()
    observed = observed if observed is not None else metrics()
    return Dependencies(
        settings=settings,
        reader=WeaviateReader(settings),
        open_tail=tail_factory(settings, clock),
        load_encoder=lambda generation: build_encoder(settings, generation, for_queries=True),
        clock=clock,
        metrics=observed,
        load_reranker=reranker(settings, observed),
        generator=generator_of(settings, observed),
        open_proofs=proofs_factory(settings, clock),
        pulse=KafkaPulse(settings),
        open_publisher=lambda: _publisher(settings),
        people=people(settings),
        load_counter=lambda generation: token_counter(generation.encoder, settings),
    )


def reranker(settings: Settings, observed: Metrics) -> LoadReranker | None:
    """The configured reranker, None where it is off."""
    from query_service.rerank.load import load_reranker

    return None if settings.rerank.backend == "off" else lambda: load_reranker(settings, observed)


def _publisher(settings: Settings) -> Publisher:
    """Where records of the query log and feedback go."""
    from pipeline.bus.producer import KafkaPublisher

    return KafkaPublisher(settings, "query-log")


def people(settings: Settings) -> People:
    """All principals of a tenant, read with the read-only key: among them is the one behind a reference."""

    def read(tenant: str) -> Iterator[str]:
        from pipeline.index.store import WeaviateStore

        store = WeaviateStore(reading(settings))
        try:
            yield from (record.principal for record in store.walk_principals(tenant))
        finally:
            store.close()

    return read


class KafkaPulse:
    """``heartbeat.Pulse`` on Kafka. Connects at the first beat."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._publisher: Publisher | None = None

    def send(self, beat: InstanceHeartbeat) -> None:
        """See ``Pulse``."""
        from pipeline.bus.producer import KafkaPublisher

        if self._publisher is None:
            self._publisher = KafkaPublisher(self._settings, "query")
        self._publisher.publish([Outgoing(str(Topic.INSTANCES), beat.instance, encode(beat))])

    def close(self) -> None:
        """See ``Pulse``."""
        if self._publisher is not None:
            self._publisher.close()


def reading(settings: Settings) -> Settings:
    """The settings with the store's read-only key, where there is one."""
    key = settings.weaviate.read_api_key or settings.weaviate.api_key
    return settings.model_copy(update={"weaviate": settings.weaviate.model_copy(update={"api_key": key})})


def proofs_factory(settings: Settings, clock: Clock) -> OpenProofs:
    """Proofs of deletions over a store that is opened with the read-only key, where there is one."""

    def open_proofs(embed: Embed, caches: Sequence[Place]) -> Proofs:
        from pipeline.index.store import WeaviateStore

        only = reading(settings)
        store = WeaviateStore(only)
        return Proofs(Prover(only, store, clock=clock, embed=embed, more=caches), store.close)

    return open_proofs


def located(settings: Settings) -> Settings:
    """With the receipt store in the state directory, unless the settings place it elsewhere."""
    if "receipts_path" in settings.query.model_fields_set:
        return settings
    query = settings.query.model_copy(update={"receipts_path": settings.state_dir / "receipts.sqlite"})
    return settings.model_copy(update={"query": query})


def tail_factory(settings: Settings, clock: Clock) -> TailFactory:
    """Opens tails of Kafka: uncommitted for the access lane (an aborted access event was still truly read)."""

    def open_tail(topics: Sequence[str], start: Start) -> LogTail:
        from pipeline.bus.interface import Slot
        from pipeline.bus.tail import KafkaTail

        return KafkaTail(
            settings,
            [Topic(t) for t in topics],
            since="beginning" if start.since is None else max(0, clock.now() - start.since) / 1_000_000,
            offsets={Slot(*slot): offset for slot, offset in start.offsets.items()},
            not_after={Slot(*slot): offset for slot, offset in start.not_after.items()},
            isolation="read_uncommitted" if set(topics) <= set(ACCESS_TOPICS) else "read_committed",
            clock=clock,
        )

    return open_tail
