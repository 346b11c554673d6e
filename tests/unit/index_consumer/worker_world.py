"""The index lane's threads on the fake store, without Kafka: records go in by hand, what comes out is kept."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Sequence

import numpy as np

from consumers.assignment import Assignment
from consumers.index import IndexLane
from consumers.lease import Lease, Rechecks
from consumers.positions import Start
from pipeline.bus.codec import encode
from pipeline.clock import SystemClock
from pipeline.errors import BusUnavailable
from pipeline.flow import DocumentFlow
from pipeline.observe import Metrics
from pipeline.ports import Appended, Extractor, Outgoing, Record, Vectors
from pipeline.settings import IndexSettings, Settings, WeaviateSettings
from schemas.access import AccessRule
from schemas.base import ClosedModel
from schemas.documents import Manifest
from schemas.events import AccessSet, ContentDeleted, ContentUpserted, InlineBody, MaintenanceCommand
from schemas.keys import DocumentRef
from schemas.receipts import DeadLetter, Receipt
from schemas.topics import Topic
from tests.fakes.store import FakeStore
from tests.unit.flow.flow_world import DIMENSION, GENERATION, Bodies, Paragraphs


class SlowStub:
    """An encoder whose every text takes ``seconds``; remembers the order of slices."""

    def __init__(self, seconds: float = 0.0) -> None:
        self.spec = GENERATION.encoder
        self.backend = GENERATION.backend
        self.seconds = seconds
        self.slices: list[list[str]] = []
        self.fail: Callable[[Sequence[str]], None] = lambda texts: None

    def embed_documents(self, texts: Sequence[str]) -> Vectors:
        self.slices.append(list(texts))
        self.fail(texts)
        if self.seconds:
            time.sleep(self.seconds * len(texts))
        rows = [np.random.default_rng(abs(hash(t)) % 2**32).normal(size=DIMENSION) for t in texts]
        return np.array([r / np.linalg.norm(r) for r in rows], dtype=np.float32)

    def embed_query(self, text: str) -> Vectors:
        return self.embed_documents([text])


class Log:
    """A publisher that keeps what was published; ``down`` makes it refuse."""

    def __init__(self) -> None:
        self.records: list[Outgoing] = []
        self.down = False

    def publish(self, records: Sequence[Outgoing]) -> list[Appended]:
        if self.down:
            raise BusUnavailable("no broker")
        self.records.extend(records)
        return [Appended(r.topic, 0, i, 0) for i, r in enumerate(records)]

    def close(self) -> None:
        pass

    def receipts(self) -> list[Receipt]:
        return [Receipt.model_validate_json(r.value or b"") for r in self.records if r.topic == Topic.RECEIPTS]

    def letters(self) -> list[DeadLetter]:
        return [DeadLetter.model_validate_json(r.value or b"") for r in self.records if r.topic == Topic.DEAD_LETTER]


class WorkerWorld:
    """One partition of one generation."""

    def __init__(
        self, *, encode_s: float = 0.0, index: IndexSettings | None = None, timeout_s: float = 5.0,
        extractor: Extractor | None = None,
    ) -> None:  # fmt: skip
        self.settings = Settings(
            index=index or IndexSettings(query_deadline_s=0.2), weaviate=WeaviateSettings(timeout_s=timeout_s)
        )
        self.store = FakeStore()
        self.store.ensure_base()
        self.store.ensure_generation(GENERATION)
        self.clock = SystemClock()
        self.bodies = Bodies()
        self.log = Log()
        self.encoder = SlowStub(encode_s)
        self.records: dict[int, Record] = {}
        self.offsets = {str(t): 0 for t in Topic}
        self.rechecks = Rechecks(self.log, self.clock, GENERATION.name)
        parts = Paragraphs()
        flow = DocumentFlow(
            store=self.store, extractor=extractor or parts, chunker=parts, bodies=self.bodies, generation=GENERATION,
            clock=self.clock, query_deadline_s=self.settings.index.query_deadline_s,
        )  # fmt: skip
        self.lane = IndexLane(
            settings=self.settings, flow=flow, embedder=self.encoder, publisher=self.log, rechecks=self.rechecks,
            fetch=lambda partition, offset: self.records.get(offset), clock=self.clock, metrics=Metrics(),
        )  # fmt: skip
        self.confirmed: float | None = None
        self.hook: Callable[[], None] | None = None
        lease = Lease(
            lambda: self.clock.elapsed() if self.confirmed is None else self.confirmed, clock=self.clock,
            session_s=10.0, timeout_s=timeout_s, partition=0, before_write=lambda: self.hook() if self.hook else None,
        )  # fmt: skip
        topics = [str(Topic.CONTENT), str(Topic.ACCESS), str(Topic.MAINTENANCE)]
        self.assignment = Assignment(0, topics, lease, self.clock.elapsed())
        self.assignment.begin({t: Start(0, 0, 0, "test") for t in topics})
        self.lane.opened(self.assignment)
        self.lane.workers.start()

    def close(self) -> None:
        self.lane.workers.stop()

    # ------------------------------------------------------------------ in

    def put_raw(self, topic: Topic, key: str | None, value: bytes | None) -> int:
        offset = self.offsets[str(topic)]
        self.offsets[str(topic)] = offset + 1
        record = Record(str(topic), 0, offset, self.clock.now(), key, value)
        if topic == Topic.CONTENT:
            self.records[offset] = record
        self.assignment.read(record)
        self.lane.accept(self.assignment, record)
        return offset

    def put(self, topic: Topic, document: DocumentRef, event: ClosedModel | ContentUpserted | ContentDeleted) -> int:
        return self.put_raw(topic, document.key, encode(event))

    def page(self, name: str, version: int, text: str, *, access: int = 0, bulk: bool = False, **more: object) -> int:
        event = ContentUpserted.model_validate(
            {
                "document": doc(name), "version": version, "access_version": access, "title": name,
                "body": InlineBody(text=text), "observed_at": version, "priority": "bulk" if bulk else "live", **more,
            }
        )  # fmt: skip
        return self.put(Topic.CONTENT, doc(name), event)

    def gone(self, name: str, version: int) -> int:
        event = ContentDeleted(document=doc(name), version=version, access_version=0, observed_at=version)
        return self.put(Topic.CONTENT, doc(name), event)

    def rule(self, name: str, version: int, *principals: str, content: int = 0) -> int:
        event = AccessSet(
            document=doc(name), version=version, content_version=content, observed_at=version,
            rule=AccessRule.any_of(*principals),
        )  # fmt: skip
        return self.put(Topic.ACCESS, doc(name), event)

    def command(self, name: str, kind: str, **more: object) -> int:
        event = MaintenanceCommand.model_validate(
            {"type": kind, "document": doc(name), "requested_at": self.clock.now(), "priority": "live", **more}
        )
        return self.put(Topic.MAINTENANCE, doc(name), event)

    # ------------------------------------------------------------------ out

    def done(self) -> bool:
        return all(self.assignment.watermark(t) == self.offsets[t] for t in self.assignment.topics)

    def settle(self, seconds: float = 10.0) -> None:
        """Wait until every record is done; fails when that takes too long."""
        self.until(self.done, seconds)

    def until(self, holds: Callable[[], bool], seconds: float = 10.0) -> None:
        end = time.monotonic() + seconds
        while not holds():
            self.lane.work()
            assert time.monotonic() < end, "did not settle"
            threading.Event().wait(0.005)

    def manifest(self, name: str) -> Manifest | None:
        return self.store.read_manifests("g1", "acme", [doc(name).uid]).get(doc(name).uid)

    def texts(self, name: str) -> set[str]:
        manifest = self.manifest(name)
        ids = {e.chunk_id for e in manifest.chunks} if manifest is not None else set()
        held = self.store.tier("g1", "hot", "acme") | self.store.tier("g1", "cold", "acme")
        return {str(held[i].properties["text"]) for i in ids}

    def outcomes(self, name: str) -> list[str]:
        return [r.outcome for r in self.log.receipts() if r.document == doc(name)]


def doc(name: str) -> DocumentRef:
    source, _, rest = name.rpartition("/")
    return DocumentRef(tenant="acme", source=source or "wiki", id=rest)
