"""A small world to search in: the fake store, a log in memory, a bag-of-words encoder, tokens, and the application."""

from __future__ import annotations

import hashlib
import threading
import time
import uuid
from collections.abc import Mapping, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, Literal

import httpx
import jwt
import numpy as np
from pydantic import BaseModel, SecretStr

from pipeline import analysis
from pipeline.bus.interface import Slot
from pipeline.clock import ManualClock
from pipeline.errors import BusUnavailable
from pipeline.observe import Metrics
from pipeline.ports import ChunkWrite, Record, Vectors
from pipeline.settings import AuthSettings, KafkaSettings, QuerySettings, Settings
from pipeline.settings_query import CacheSettings
from query_service.app import Dependencies, Parts, create_app
from query_service.tail import Start
from schemas.access import AccessRule
from schemas.documents import (
    AccessRecord,
    Chunk,
    ChunkEntry,
    Manifest,
    PrincipalPart,
    PrincipalRecord,
    Section,
    Tier,
)
from schemas.events import HoldChanged, MembershipSet
from schemas.generation import BackendChoice, EncoderSpec, Generation
from schemas.keys import DocumentRef, membership_key, partition_of
from schemas.receipts import Progress
from schemas.topics import Topic

BackendName = Literal["torch-fp32", "torch-bf16", "openvino-fp32", "openvino-bf16", "stub"]
SECRET = "0123456789abcdef0123456789abcdef-test"
TENANT = "acme"
GENERATION = "g1"
PARTITIONS = 3
DIMENSION = 64


class WordsEncoder:
    """Texts that share words are near: the sum of one random unit vector a word."""

    def __init__(self, spec: EncoderSpec, backend: BackendChoice) -> None:
        self.spec = spec
        self.backend = backend
        self.queries: list[str] = []

    def vector(self, text: str) -> Vectors:
        total = np.zeros(self.spec.dimension)
        for word in analysis.tokens(text):
            seed = int.from_bytes(hashlib.sha256(word.encode()).digest()[:8], "big")
            total += np.random.default_rng(seed).standard_normal(self.spec.dimension)
        norm = float(np.linalg.norm(total))
        return np.asarray(total / norm if norm else np.eye(1, self.spec.dimension)[0], dtype=np.float32)

    def embed_documents(self, texts: Sequence[str]) -> Vectors:
        return np.stack([self.vector(t) for t in texts])

    def embed_query(self, text: str) -> Vectors:
        self.queries.append(text)
        return self.vector(text).reshape(1, -1)


class FakeLog:
    """Topics in memory; tails follow them."""

    def __init__(self) -> None:
        self.records: dict[tuple[str, int], list[Record]] = {}
        self.markers: dict[tuple[str, int], int] = {}
        self.down = False
        self.made = 0  # how often the topics were made anew
        self.stalled = False  # nothing is read, though the broker answers
        self.starts: list[tuple[tuple[str, ...], Start]] = []
        self._changed = threading.Condition()

    def append(
        self, topic: Topic, key: str | None, value: bytes | None, *, partition_key: str | None = None, at: int = 0
    ) -> Record:
        name = partition_key or key or ""
        slot = (topic.value, partition_of(name, PARTITIONS))
        with self._changed:
            line = self.records.setdefault(slot, [])
            record = Record(slot[0], slot[1], len(line), at, key, value)
            line.append(record)
            self._changed.notify_all()
        return record

    def event(self, event: BaseModel, at: int = 0) -> Record:
        """Append an access or membership event under its right key."""
        value = event.model_dump_json().encode()
        if isinstance(event, MembershipSet):
            key = membership_key(event.tenant, event.principal, event.source)
            return self.append(
                Topic.MEMBERSHIP, key, value, partition_key=membership_key(event.tenant, event.principal), at=at
            )
        document: DocumentRef = event.document  # type: ignore[attr-defined]
        key = document.hold_key(event.hold) if isinstance(event, HoldChanged) else document.key
        return self.append(Topic.ACCESS, key, value, partition_key=document.key, at=at)

    def make_anew(self) -> None:
        """Delete the topics and create them again, under other ids and empty."""
        with self._changed:
            self.records.clear()
            self.made += 1

    def open(self, topics: Sequence[str], start: Start) -> FakeTail:
        self.starts.append((tuple(topics), start))
        if self.down:
            raise BusUnavailable("the log is down")
        return FakeTail(self, topics, start)

    def wait(self, seconds: float) -> None:
        with self._changed:
            self._changed.wait(seconds)


class FakeTail:
    """``query_service.tail.LogTail`` on a FakeLog."""

    def __init__(self, log: FakeLog, topics: Sequence[str], start: Start) -> None:
        self._log = log
        self._at: dict[tuple[str, int], int] = {}
        for slot in [(t, p) for t in topics for p in range(PARTITIONS)]:
            line = log.records.get(slot, [])
            by_time = next((r.offset for r in line if start.since is None or r.timestamp >= start.since), len(line))
            at = min(start.offsets.get(slot, by_time), len(line))
            self._at[slot] = min(at, start.not_after.get(slot, at))

    def poll(self, timeout_ms: int = 200) -> list[Record]:
        if self._log.down:
            raise BusUnavailable("the log is down")
        found = self._take()
        if not found:
            self._log.wait(min(timeout_ms, 10) / 1000)
            found = self._take()
        return found

    def _take(self) -> list[Record]:
        found: list[Record] = []
        for slot, at in self._at.items():
            if self._log.stalled:
                break
            new = self._log.records.get(slot, [])[at:]
            found.extend(new)
            self._at[slot] = at + len(new)
        return found

    def behind(self) -> int:
        if self._log.down:
            raise BusUnavailable("the log is down")
        return sum(len(self._log.records.get(slot, [])) - at for slot, at in self._at.items())

    def positions(self) -> Mapping[Slot, int]:
        return {Slot(*slot): at for slot, at in self._at.items()}

    def ends(self) -> Mapping[Slot, int]:
        if self._log.down:
            raise BusUnavailable("the log is down")
        return {Slot(*slot): len(self._log.records.get(slot, [])) for slot in self._at}

    def ids(self) -> Mapping[str, str]:
        return {topic: f"{topic}-{self._log.made}" for topic, _ in self._at}

    def close(self) -> None:
        pass


def ref(name: str, source: str = "wiki", kind: str = "page", tenant: str = TENANT) -> DocumentRef:
    return DocumentRef(tenant=tenant, source=source, kind=kind, id=name)


def chunk_id(document: DocumentRef, text: str) -> str:
    return str(uuid.uuid5(uuid.NAMESPACE_OID, f"{document.key}\n{text}"))


def anyone(*principals: str, deny: Sequence[str] = ()) -> AccessRule:
    return AccessRule.any_of(*(principals or ("everyone",)), deny=deny)


class World:
    """Puts documents and principals into the store; makes tokens and the application."""

    spec = EncoderSpec(dimension=DIMENSION)
    backend: BackendName = "stub"

    def __init__(self, tmp_path: Path, **query: Any) -> None:
        from tests.fakes.store import FakeStore

        self.clock = ManualClock()
        self.store = FakeStore()
        self.store.ensure_base()
        self.log = FakeLog()
        self.metrics = Metrics()
        self.encoders: list[WordsEncoder] = []
        self.settings = Settings(
            auth=AuthSettings(jwt_secret=SecretStr(SECRET)),
            kafka=KafkaSettings(partitions=PARTITIONS),
            cache=CacheSettings(answers=0, searches=0),  # tests that ask twice want two searches
            query=QuerySettings(receipts_path=tmp_path / "receipts.sqlite", **query),
        )
        self._version = self.clock.now()
        self.generation(GENERATION, active=True)

    # ------------------------------------------------------------ content

    def version(self) -> int:
        self._version += 1
        return self._version

    def generation(self, name: str, *, active: bool = False) -> Generation:
        made = Generation(
            name=name,
            state="active" if active else "ready",
            encoder=self.spec,
            backend=BackendChoice(name=self.backend, agreement=1.0),
            created_at=self.clock.now(),
        )
        self.store.ensure_generation(made)
        self.store.write_generation(made)
        if active:
            self.store.set_active_generation(name)
        return made

    def principal(
        self, name: str, *parents: str, removed: bool = False, tenant: str = TENANT, source: str = "wiki"
    ) -> None:
        part = PrincipalPart(parents=() if removed else parents, removed=removed, version=self.version())
        self.store.write_principals(tenant, [PrincipalRecord.of(tenant, name, {source: part})])

    def document(
        self,
        document: DocumentRef | str,
        *texts: str,
        rule: AccessRule | None = None,
        tier: Tier = "hot",
        generation: str = GENERATION,
        record: bool = True,
        summary: str | None = None,
        **manifest: Any,
    ) -> Manifest:
        """Write sections, chunks, manifest and (unless ``record`` is false) the access record of one document.

        ``summary`` is the text of one more chunk, which sums the document up. Each text stands 100 characters after the
        one before in the source, on a page of its own.
        """
        texts = (*texts, summary) if summary is not None else texts
        document = ref(document) if isinstance(document, str) else document
        rule = rule if rule is not None else anyone()
        access_version, content_version = self.version(), self.version()
        allow, allow2 = rule.prefilter()
        title = manifest.pop("title", document.id)
        writes, sections = [], []
        for i, text in enumerate(texts):
            section = str(uuid.uuid5(uuid.NAMESPACE_OID, f"{document.key} section {text}"))
            sections.append(Section(section_id=section, ordinal=i, heading_path=("Top", f"Part {i}"), text=text))
            chunk = Chunk(
                chunk_id=chunk_id(document, text), section_ordinal=i, ordinal=i, heading_path=("Top", f"Part {i}"),
                text=text, embed_text=text, embed_hash=hashlib.sha256(text.encode()).hexdigest()[:32],
                lexical=analysis.lexical(title, text), identifiers=analysis.identifiers(text), tokens=10,
            )  # fmt: skip
            fields = ("language", "product", "effective_from", "effective_until")
            writes.append(
                ChunkWrite(
                    document=document, chunk=chunk, section_id=section, vector=self.vector(text),
                    content_type=manifest.get("content_type", "text/markdown"), allow=tuple(allow),
                    allow2=tuple(allow2), **{f: manifest.get(f) for f in fields},
                )
            )  # fmt: skip
        self.store.write_sections(generation, document, sections)
        self.store.insert_chunks(generation, tier, document.tenant, writes)
        entries = tuple(
            ChunkEntry(
                chunk_id=w.chunk.chunk_id, section_ordinal=i, embed_hash=w.chunk.embed_hash, start=100 * i,
                end=100 * i + len(w.chunk.text), page=i + 1, summary=w.chunk.text == summary,
            )
            for i, w in enumerate(writes)
        )  # fmt: skip
        made = Manifest(
            **{
                "document": document, "content_version": content_version, "access_version": access_version,
                "rule": rule, "seen_rule": rule, "seen_access_version": access_version, "title": title,
                "url": f"https://wiki.example/{document.id}", "content_type": "text/markdown",
                "updated_at": self.clock.now() - 60_000_000, "sections": tuple(s.section_id for s in sections),
                "chunks": entries, "chunk_total": len(entries), "tier": tier, **manifest,
            }
        )  # fmt: skip
        self.store.write_manifest(generation, made)
        if record:
            self.access(document, rule, version=access_version, content_version=content_version)
        return made

    def access(
        self, document: DocumentRef, rule: AccessRule | None = None, *, version: int | None = None, **fields: Any
    ) -> AccessRecord:
        made = AccessRecord(
            document=document,
            version=self.version() if version is None else version,
            rule=rule if rule is not None else anyone(),
            **fields,
        )
        self.store.write_access(document.tenant, [made])
        return made

    def progress(self, offset: int = 0, *, age_s: float = 0.0, topics: Sequence[Topic] | None = None) -> None:
        """The access lane's progress records, all partitions."""
        written = self.clock.now() - int(age_s * 1e6)
        for topic in topics or (Topic.ACCESS, Topic.MEMBERSHIP):
            lane = "access" if topic is Topic.ACCESS else "membership"
            self.store.write_progress(
                [
                    Progress(lane=lane, topic=topic.value, partition=p, offset=offset, written_at=written)
                    for p in range(PARTITIONS)
                ]
            )

    # ------------------------------------------------------------ callers and the application

    def vector(self, text: str) -> Vectors:
        if not self.encoders:
            self.load_encoder(self.store.read_generations()[GENERATION])
        return self.encoders[0].vector(text)

    def load_encoder(self, generation: Generation) -> WordsEncoder:
        self.encoders.append(WordsEncoder(generation.encoder, generation.backend))
        return self.encoders[-1]

    def token(self, sub: str = "ann", tenant: str = TENANT, key: str = SECRET, **claims: Any) -> str:
        payload = {"sub": sub, "tenant": tenant, "aud": "headwater", "exp": int(time.time()) + 600, **claims}
        return jwt.encode({k: v for k, v in payload.items() if v is not None}, key, algorithm="HS256")

    def dependencies(self) -> Dependencies:
        return Dependencies(
            settings=self.settings, reader=self.store.reader(), open_tail=self.log.open,
            load_encoder=self.load_encoder, clock=self.clock, metrics=self.metrics,
        )  # fmt: skip

    @asynccontextmanager
    async def running(self, *, ready: bool = True) -> Any:
        """The application with its threads and a client on it."""
        app = create_app(self.dependencies())
        if ready:
            self.progress()
        async with app.router.lifespan_context(app):
            transport = httpx.ASGITransport(app=app, raise_app_exceptions=False)
            async with httpx.AsyncClient(transport=transport, base_url="http://query.test") as client:
                running = Running(self, app.state.parts, client)
                if ready:
                    await running.until_ready()
                yield running


class Running:
    """A running application, and short ways to ask it."""

    def __init__(self, world: World, parts: Parts, client: httpx.AsyncClient) -> None:
        self.world = world
        self.parts = parts
        self.client = client

    async def until_ready(self) -> None:
        await self.until(lambda: not self.parts.state.reasons())

    async def until(self, condition: Any, seconds: float = 10.0) -> None:
        import asyncio

        deadline = time.monotonic() + seconds
        while not condition():
            assert time.monotonic() < deadline, f"not reached: {self.parts.state.reasons()}"
            await asyncio.sleep(0.01)

    def headers(self, sub: str = "ann", **claims: Any) -> dict[str, str]:
        return {"Authorization": f"Bearer {self.world.token(sub, **claims)}"}

    async def post(self, body: Any, sub: str = "ann", **claims: Any) -> httpx.Response:
        return await self.client.post("/v1/search", json=body, headers=self.headers(sub, **claims))

    async def search(self, query: str, sub: str = "ann", *, claims: dict[str, Any] | None = None, **body: Any) -> Any:
        # Most tests ask which documents are met, and give all the same words.
        reply = await self.post({"query": query, "duplicates": "keep", **body}, sub, **(claims or {}))
        assert reply.status_code == 200, reply.text
        return reply.json()

    async def ids(
        self, query: str, sub: str = "ann", *, claims: dict[str, Any] | None = None, **body: Any
    ) -> list[str]:
        reply = await self.search(query, sub, claims=claims, **body)
        return [hit["document_id"] for hit in reply["hits"]]

    async def get(self, path: str, sub: str = "ann", **claims: Any) -> httpx.Response:
        return await self.client.get(path, headers=self.headers(sub, **claims))
