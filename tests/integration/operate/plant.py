"""Two generations and the access lane on real Kafka and Weaviate, in threads, and writers that push to sources."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from functools import partial

from consumers.gateway_writer import Planned, SourceWriter, Written
from consumers.index import IndexLane, group_of
from consumers.lease import Rechecks
from consumers.owner_log import KafkaOwnerLog
from consumers.runtime import Runtime
from consumers.superseded import PassedByAll
from pipeline.bus.bodies import FsspecBodyStore
from pipeline.bus.consumer import KafkaReader
from pipeline.bus.fetch import RecordFetcher
from pipeline.bus.interface import Listener, Reader
from pipeline.clock import SystemClock
from pipeline.embed.stub import StubEncoder
from pipeline.errors import DocumentError
from pipeline.flow import DocumentFlow
from pipeline.observe import Metrics
from pipeline.ports import SourceDeletion, SourceDocument, SourceMembership, Vectors
from pipeline.sources.bodies import BodyPlacer
from pipeline.sources.changes import Limits
from schemas.access import AccessRule
from schemas.generation import EncoderSpec, Generation
from schemas.keys import DocumentRef
from schemas.topics import Topic
from tests.integration.bus.conftest import Lane, wait_until
from tests.unit.flow.flow_world import DIMENSION, GENERATION, Paragraphs

NAMES = ("g1", "g2")


class Encoder(StubEncoder):
    """Refuses texts that hold a word, until that is mended."""

    def __init__(self, spec: EncoderSpec) -> None:
        super().__init__(spec)
        self.refused = "poison"

    def embed_documents(self, texts: Sequence[str]) -> Vectors:
        if self.refused and any(self.refused in text for text in texts):
            raise DocumentError("the text cannot be embedded", stage="embed", kind="refused")
        return super().embed_documents(texts)


class Plant:
    """Use ``start`` once; ``close`` stops the index consumers and the writers."""

    def __init__(self, lane: Lane) -> None:
        self.lane, self.settings, self.store = lane, lane.settings, lane.store
        self.clock = SystemClock()
        self.bodies = FsspecBodyStore.of(self.settings)
        self.encoders: dict[str, Encoder] = {}
        self.runtimes: list[tuple[Runtime, IndexLane, threading.Thread, RecordFetcher]] = []
        self.writers: dict[str, SourceWriter] = {}
        for name in NAMES:
            spec = EncoderSpec(dimension=DIMENSION)
            made = GENERATION.model_copy(
                update={"name": name, "encoder": spec, "state": "active" if name == "g1" else "standby"}
            )
            self.store.ensure_generation(made)
            self.store.write_generation(made)
            self._index(made)
        self.store.set_active_generation("g1")

    def _index(self, generation: Generation) -> None:
        parts, encoder = Paragraphs(), Encoder(generation.encoder)
        self.encoders[generation.name] = encoder
        rechecks = Rechecks(self.lane.publisher, self.clock, generation.name)
        flow = DocumentFlow(
            store=self.store, extractor=parts, chunker=parts, bodies=self.bodies, generation=generation,
            clock=self.clock, query_deadline_s=0.2,
        )  # fmt: skip
        fetch = RecordFetcher(self.settings, Topic.CONTENT)
        lane = IndexLane(
            settings=self.settings, flow=flow, embedder=encoder, publisher=self.lane.publisher, rechecks=rechecks,
            fetch=fetch, clock=self.clock, metrics=Metrics(),
        )  # fmt: skip

        def reader(listener: Listener) -> Reader:
            return KafkaReader(
                self.settings, group_of(generation.name), [t.topic for t in lane.spec.topics], listener,
                session_s=lane.spec.session_s, clock=self.clock,
            )  # fmt: skip

        runtime = Runtime(lane, reader=reader, store=self.store, rechecks=rechecks, clock=self.clock)
        lane.workers.start()
        thread = threading.Thread(target=runtime.run, name=f"index {generation.name}", daemon=True)
        thread.start()
        self.runtimes.append((runtime, lane, thread, fetch))

    def ready(self) -> None:
        """Wait until every consumer owns its partitions."""
        for runtime, _, _, _ in self.runtimes:
            wait_until(partial(_running, runtime))

    # ------------------------------------------------------------ sources

    def say(self, tenant: str, *seen: SourceDocument | SourceDeletion | SourceMembership) -> Written:
        """Push to the tenant's source ``kb`` as the gateway does."""
        if tenant not in self.writers:
            self.writers[tenant] = SourceWriter(
                tenant,
                "kb",
                open_log=lambda: KafkaOwnerLog(self.settings, tenant, "kb"),
                bodies=BodyPlacer(self.bodies, 60, 1_000_000, self.bodies),
                clock=self.clock,
                observed=Metrics(),
                limits=Limits(),
                passed=PassedByAll(self.store),
            )
        return self.writers[tenant].submit([Planned(s) for s in seen]).result(30)

    def leave(self, tenant: str) -> None:
        """The tenant's writer leaves in order."""
        self.writers.pop(tenant).close()

    def page(self, document: DocumentRef, text: str, *readers: str) -> SourceDocument:
        """A page for these readers."""
        rule = AccessRule.any_of(*(readers or ("user:ann",)))
        return SourceDocument(document=document, title=document.id, body=text.encode(), content_type="text/plain",
                              rule=rule)  # fmt: skip

    def indexed(self, document: DocumentRef, holds: Callable[[str], bool], seconds: float = 30) -> None:
        """Wait until something holds in both generations."""
        wait_until(lambda: all(holds(name) for name in NAMES), seconds)

    def holds(self, document: DocumentRef, chunks: int) -> None:
        """Wait until both generations hold so many chunks of a document."""
        self.indexed(document, lambda name: self.texts(name, document) == chunks)

    def texts(self, name: str, document: DocumentRef) -> int:
        """Live chunks of a document; -1 where it is deleted."""
        manifest = self.store.read_manifests(name, document.tenant, [document.uid]).get(document.uid)
        if manifest is None:
            return 0
        return -1 if manifest.deleted and not manifest.retiring else manifest.chunk_total

    def close(self) -> None:
        """Stop what was started here."""
        for writer in self.writers.values():
            writer.close()
        for runtime, lane, thread, fetch in self.runtimes:
            runtime.stop()
            thread.join(20)
            lane.workers.stop()
            fetch.close()
        for name in NAMES:
            self.store.drop_generation(name)


def _running(runtime: Runtime) -> bool:
    return runtime.health()["state"] == "running"
