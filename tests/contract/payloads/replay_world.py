"""Golden payloads as records, and the real handlers of every lane on the fake store."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from pydantic import BaseModel

from consumers.access import AccessLane, spec_of_access
from consumers.assignment import Assignment
from consumers.control import ControlLane, Makers
from consumers.control import lane_spec as control_spec
from consumers.dead_letter import DeadLetters
from consumers.index import IndexLane
from consumers.lanes import Lane
from consumers.lease import Lease, Rechecks
from consumers.positions import Start
from pipeline.bus.codec import access_record, content_record, membership_record
from pipeline.clock import SystemClock
from pipeline.errors import BodyGone
from pipeline.extract import BlockExtractor
from pipeline.flow import DocumentFlow
from pipeline.observe import Metrics
from pipeline.ports import Appended, Outgoing, Record, Vectors
from pipeline.settings import IndexSettings, KafkaSettings, Settings
from schemas.documents import AccessRecord, Manifest, PrincipalRecord
from schemas.events import (
    AccessSet,
    AccessTombstone,
    ContentDeleted,
    ContentUpserted,
    ControlCommand,
    DocumentState,
    HoldChanged,
    MaintenanceCommand,
    MembershipSet,
    SourceCursor,
    SourceRequest,
)
from schemas.export import PAYLOADS
from schemas.generation import BackendChoice, EncoderSpec, Generation
from schemas.keys import DocumentRef, cursor_key
from schemas.receipts import DeadLetter, Receipt
from schemas.topics import Topic
from tests.fakes.store import FakeStore
from tests.unit.flow.flow_world import Paragraphs
from tests.unit.generations.control_world import FakeFacts, reference

GOLDEN = Path(__file__).parents[3] / "schemas" / "golden"
DIMENSION = 8
GENERATION = Generation(
    name="minilm",
    state="active",
    encoder=EncoderSpec(dimension=DIMENSION),
    backend=BackendChoice(name="stub", agreement=1.0),
    created_at=1,
)
LONG_BODY = "".join(
    f"Line {i}: pump {i % 7} ran for {i * 3 % 59} minutes.\n" + "\n" * (i % 50 == 49) for i in range(2000)
).encode()
"""What the golden claim check points to: more than an event may carry inline."""


def golden(topic: Topic, name: str) -> Any:
    """A golden payload as its model, read from the wire."""
    return PAYLOADS[topic].validate_json((GOLDEN / topic / "v1" / f"{name}.json").read_bytes())


def raw(topic: Topic, name: str) -> bytes:
    """A golden payload as bytes on the log (not re-encoded)."""
    return json.dumps(json.loads((GOLDEN / topic / "v1" / f"{name}.json").read_bytes())).encode("utf-8")


def key_of(event: BaseModel) -> str:
    """The Kafka key under which the codec and the owners write the event."""
    match event:
        case ContentUpserted() | ContentDeleted():
            return content_record(event).key
        case AccessSet() | AccessTombstone() | HoldChanged():
            return access_record(event).key
        case MembershipSet():
            return membership_record(event).key
        case DocumentState():
            return event.document.state_key()
        case SourceCursor():
            return cursor_key(event.tenant, event.source, event.stream)
        case MaintenanceCommand():
            return event.document.key
        case SourceRequest():
            return event.request_id
        case ControlCommand():
            return event.generation
    raise AssertionError(f"no key for {type(event).__name__}")


class Bodies:
    """The one body that golden payloads point to."""

    def __init__(self) -> None:
        self.bodies: dict[str, bytes] = {}

    def put(self, document: DocumentRef, version: int, body: bytes) -> tuple[str, str]:
        raise AssertionError("consumers write no bodies")

    def get(self, path: str, sha256: str) -> bytes:
        if path not in self.bodies:
            raise BodyGone(path)
        return self.bodies[path]

    def delete(self, path: str) -> None:
        raise AssertionError("nothing here deletes bodies")


class Encoder:
    """Vectors from a text's bytes."""

    spec = GENERATION.encoder
    backend = GENERATION.backend

    def embed_documents(self, texts: Sequence[str]) -> Vectors:
        rows = [np.random.default_rng(list(text.encode())).normal(size=DIMENSION) for text in texts]
        return np.array([row / np.linalg.norm(row) for row in rows], dtype=np.float32)

    def embed_query(self, text: str) -> Vectors:
        return self.embed_documents([text])


class Published:
    """A publisher that keeps what was published."""

    def __init__(self) -> None:
        self.records: list[Outgoing] = []

    def publish(self, records: Sequence[Outgoing]) -> list[Appended]:
        self.records.extend(records)
        return [Appended(r.topic, 0, i, 0) for i, r in enumerate(records)]

    def close(self) -> None:
        """Nothing to close."""


class ReplayWorld:
    """One partition, with an access, an index and a control consumer on one store."""

    def __init__(self) -> None:
        self.store = FakeStore()
        self.store.ensure_base()
        self.store.ensure_generation(GENERATION)
        self.store.write_generation(GENERATION)
        self.store.set_active_generation(GENERATION.name)
        self.clock = SystemClock()
        self.bodies = Bodies()
        self.published = Published()
        self.settings = Settings(
            kafka=KafkaSettings(partitions=1), index=IndexSettings(query_deadline_s=0.0), generation=GENERATION.name
        )
        self.facts = FakeFacts()
        self._records: list[Record] = []
        self._index = self._index_lane()
        self._lanes: list[tuple[Lane, Assignment]] = []
        self._join(self._access_lane(), Topic.ACCESS, Topic.MEMBERSHIP, Topic.MAINTENANCE)
        self._join(self._index, Topic.CONTENT, Topic.ACCESS, Topic.MAINTENANCE)
        self._join(self._control_lane(), Topic.CONTROL)
        self._index.workers.start()

    def close(self) -> None:
        """Stop the index consumer's threads."""
        self._index.workers.stop()

    # ------------------------------------------------------------ wiring

    def _access_lane(self) -> AccessLane:
        return AccessLane(
            spec_of_access(self.settings),
            store=self.store,
            publisher=self.published,
            rechecks=Rechecks(self.published, self.clock, None),
            dead_letters=DeadLetters(self.published, "access", self.clock, observed=Metrics()),
            scan=lambda topic, partition, wanted: [r for r in self._records if r.topic == topic and wanted(r.key)],
            clock=self.clock,
            partitions=1,
            observed=Metrics(),
        )

    def _index_lane(self) -> IndexLane:
        flow = DocumentFlow(
            store=self.store,
            extractor=BlockExtractor(),
            chunker=Paragraphs(),
            bodies=self.bodies,
            generation=GENERATION,
            clock=self.clock,
            query_deadline_s=0.0,
        )
        return IndexLane(
            settings=self.settings,
            flow=flow,
            embedder=Encoder(),
            publisher=self.published,
            rechecks=Rechecks(self.published, self.clock, GENERATION.name),
            fetch=self._fetch,
            clock=self.clock,
            metrics=Metrics(),
        )

    def _control_lane(self) -> ControlLane:
        return ControlLane(
            control_spec(self.settings),
            store=self.store,
            publisher=self.published,
            letters=DeadLetters(self.published, "control", self.clock, observed=Metrics()),
            facts=self.facts,
            makers=Makers(
                choose=lambda spec: BackendChoice(name="stub", agreement=1.0),
                refer=lambda spec, backend: reference(spec.dimension),
                prepare=lambda name: None,
            ),
            policy=self.settings.generations,
            first=GENERATION.name,
            clock=self.clock,
        )

    def _join(self, lane: Lane, *topics: Topic) -> None:
        lease = Lease(self.clock.elapsed, clock=self.clock, session_s=10.0, timeout_s=5.0, partition=0)
        assignment = Assignment(0, [str(t) for t in topics], lease, self.clock.elapsed())
        assignment.begin({str(t): Start(0, 0, 0, "test") for t in topics})
        lane.opened(assignment)
        self._lanes.append((lane, assignment))

    def _fetch(self, partition: int, offset: int) -> Record | None:
        found = [r for r in self._records if r.topic == Topic.CONTENT and r.offset == offset]
        return found[0] if found else None

    # ------------------------------------------------------------ in

    def replay(self, topic: Topic, name: str, **changes: Any) -> Any:
        """Feed one golden payload (with some fields replaced) to every lane that reads the topic; its model."""
        payload = {**json.loads(raw(topic, name)), **changes}
        event = PAYLOADS[topic].validate_json(json.dumps(payload))
        self.feed(topic, key_of(event), json.dumps(payload).encode("utf-8"))
        return event

    def feed(self, topic: Topic, key: str | None, value: bytes | None) -> int:
        """One record to every lane that reads the topic; its offset."""
        offset = sum(1 for r in self._records if r.topic == topic)
        record = Record(str(topic), 0, offset, self.clock.now(), key, value)
        self._records.append(record)
        for lane, assignment in self._lanes:
            if str(topic) in assignment.topics:
                assignment.read(record)
                lane.accept(assignment, record)
        self._settle()
        return offset

    def _settle(self) -> None:
        end = time.monotonic() + 10.0
        while not all(self._finished(assignment) for _, assignment in self._lanes):
            for lane, _ in self._lanes:
                lane.work()
            assert time.monotonic() < end, "did not settle"
            threading.Event().wait(0.002)

    def _finished(self, assignment: Assignment) -> bool:
        return all(
            assignment.watermark(topic) == sum(1 for r in self._records if r.topic == topic)
            for topic in assignment.topics
        )

    # ------------------------------------------------------------ out

    def access(self, document: DocumentRef) -> AccessRecord:
        return self.store.read_access(document.tenant, [document.uid])[document.uid]

    def principal(self, tenant: str, name: str) -> PrincipalRecord:
        return self.store.read_principals(tenant, [name])[name]

    def manifest(self, document: DocumentRef) -> Manifest:
        return self.store.read_manifests(GENERATION.name, document.tenant, [document.uid])[document.uid]

    def texts(self, document: DocumentRef) -> list[str]:
        """Texts of the live chunks in order."""
        hot, cold = (self.store.tier(GENERATION.name, tier, document.tenant) for tier in ("hot", "cold"))
        held = hot | cold
        manifest = self.manifest(document)
        entries = manifest.chunks or self.store.read_manifest_pages(GENERATION.name, manifest).chunks
        return [str(held[e.chunk_id].properties["text"]) for e in entries]

    def receipts(self) -> list[Receipt]:
        return [
            Receipt.model_validate_json(r.value or b"") for r in self.published.records if r.topic == Topic.RECEIPTS
        ]

    def letters(self) -> list[DeadLetter]:
        found = [r for r in self.published.records if r.topic == Topic.DEAD_LETTER]
        return [DeadLetter.model_validate_json(r.value or b"") for r in found]
