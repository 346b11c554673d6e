"""Two generations of the same documents over fakes, asked through the real application, and ways to break one."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import httpx
from starlette.testclient import TestClient

from pipeline.errors import BodyGone
from pipeline.operate.verification.means import Ends, Means
from pipeline.operate.verification.shadow import ShadowClient
from pipeline.operate.verification.verify import Verification
from pipeline.ports import Record
from query_service.app import create_app
from schemas.access import AccessRule
from schemas.documents import Manifest
from schemas.events import ClaimCheck, ContentDeleted, ContentUpserted, InlineBody
from schemas.generation import VerificationSummary
from schemas.keys import DocumentRef
from schemas.receipts import Coordinates, DeadLetter, Progress
from schemas.topics import Topic
from schemas.verification import VerificationReport
from tests.unit.query.world import GENERATION, PARTITIONS, TENANT, FakeLog, World, anyone, ref

OLD, NEW = GENERATION, "g2"
WORDS = (
    *("anchor", "basin", "copper", "delta", "ember", "fjord", "granite", "harbour", "island", "jasmine", "kelp"),
    *("lantern", "meadow", "nectar", "orchid", "pebble", "quartz", "ripple", "saffron", "timber", "umber"),
)


class MemoryLog:
    """``means.Log`` on the log in memory."""

    def __init__(self, log: FakeLog, after: Record | None = None) -> None:
        self._log = log
        self._after = after  # this record and those behind it come after the ends

    def ends(self, topics: Sequence[Topic]) -> Ends:
        found = {str(t): {p: len(self._log.records.get((t.value, p), [])) for p in range(PARTITIONS)} for t in topics}
        if self._after is not None:
            found[self._after.topic][self._after.partition] = self._after.offset
        return found

    def read(self, topic: Topic, wanted: Callable[[str | None], bool] | None = None) -> Iterator[Record]:
        for (name, _), records in sorted(self._log.records.items()):
            if name == topic.value:
                yield from [r for r in records if wanted is None or wanted(r.key)]


class InProcess(httpx.BaseTransport):
    """Requests answered by the application in this process."""

    def __init__(self, client: TestClient) -> None:
        self._client = client

    def handle_request(self, request: httpx.Request) -> httpx.Response:
        answer = self._client.request(
            request.method, request.url.path, content=request.read(), headers=dict(request.headers)
        )
        return httpx.Response(answer.status_code, content=answer.content)


class NoBodies:
    """Claim checks of which none is left."""

    def get(self, path: str, sha256: str) -> bytes:
        raise BodyGone(path)

    def put(self, document: DocumentRef, version: int, body: bytes) -> tuple[str, str]:
        raise NotImplementedError

    def delete(self, path: str) -> None:
        raise NotImplementedError


class Twins(World):
    """``put`` writes a document to the log and to both generations; what a test does afterwards breaks one of them."""

    def __init__(self, tmp_path: Path, **query: Any) -> None:
        super().__init__(tmp_path, **query)
        self.settings = self.settings.model_copy(update={"state_dir": tmp_path / "state"})
        self.generation(NEW)
        self.told: list[VerificationSummary] = []

    def people(self) -> None:
        """Ann is in two groups, bob in one, cid in none; dan has left."""
        self.principal("user:ann", "group:wiki/eng", "group:wiki/boss")
        self.principal("user:bob", "group:wiki/eng")
        self.principal("user:cid")
        self.principal("user:dan", removed=True)
        for group in ("group:wiki/eng", "group:wiki/boss"):
            self.principal(group)

    def corpus(self, count: int = 12) -> None:
        """People, and documents for everyone, for engineers and for the board, each with words of its own."""
        self.people()
        rules = [anyone(), anyone("group:wiki/eng"), anyone("group:wiki/boss")]
        for n in range(count):
            words = f"{WORDS[n % len(WORDS)]} {WORDS[(n * 7 + 3) % len(WORDS)]} number{n}"
            self.put(f"d{n}", f"The {words} stands in the first part.", f"More of {words} here.", rule=rules[n % 3])

    # ------------------------------------------------------------ the log and what follows from it

    def content(self, document: DocumentRef, version: int, access: int, **more: Any) -> Record:
        """Append a content event."""
        event = ContentUpserted(
            **{
                "document": document, "version": version, "access_version": access, "title": document.id,
                "body": InlineBody(text="text"), "observed_at": version, **more,
            }
        )  # fmt: skip
        return self.log.append(Topic.CONTENT, document.key, event.model_dump_json().encode())

    def put(
        self, name: str, *texts: str, rule: AccessRule | None = None, into: Sequence[str] = (OLD, NEW),
        tenant: str = TENANT, **more: Any,
    ) -> DocumentRef:  # fmt: skip
        """A document on the log and in the generations."""
        document, rule = ref(name, tenant=tenant), rule or anyone()
        access, version = self.version(), self.version()
        record = self.content(document, version, access)
        for generation in into:
            self.stand(document, texts, rule, generation, access, version, record.offset, **more)
        self.access(document, rule, version=access, content_version=version)
        return document

    def stand(
        self, document: DocumentRef, texts: Sequence[str], rule: AccessRule, generation: str, access: int,
        version: int, offset: int, **more: Any,
    ) -> Manifest:  # fmt: skip
        """A document in one generation."""
        allow, allow2 = rule.prefilter()
        return self.document(
            document, *texts, rule=rule, generation=generation, record=False,
            **{
                "access_version": access, "content_version": version, "seen_access_version": access,
                "seen_content_version": version, "content_offset": offset, "allow": tuple(allow),
                "allow2": tuple(allow2), "title": f"Title of {document.id}", **more,
            },
        )  # fmt: skip

    def delete(self, document: DocumentRef, into: Sequence[str] = (OLD, NEW)) -> None:
        """Deleted on the log; nothing of it stands in ``into`` afterwards."""
        version = self.version()
        event = ContentDeleted(document=document, version=version, access_version=version, observed_at=version)
        record = self.log.append(Topic.CONTENT, document.key, event.model_dump_json().encode())
        self.access(document, AccessRule.nobody("deleted"), version=version, tombstone=True, not_before=version)
        for generation in into:
            manifest = self.manifest(document, generation)
            ids = [c.chunk_id for c in manifest.chunks]
            self.store.delete_chunks(generation, document.tenant, ids)
            self.store.delete_sections(generation, document.tenant, manifest.sections)
            self.change(
                document, generation, deleted=True, content_version=version, content_offset=record.offset, chunks=(),
                sections=(), chunk_total=0,
            )  # fmt: skip

    def letter(self, document: DocumentRef, offset: int, generation: str, **more: Any) -> None:
        """A dead letter of a content event."""
        slot = next(r for records in self.log.records.values() for r in records if r.key == document.key)
        letter = DeadLetter(
            **{
                "coordinates": Coordinates(topic="content", partition=slot.partition, offset=offset), "lane": "index",
                "generation": generation, "key": document.key, "document": document, "stage": "extract",
                "error_kind": "broken", "reason": "no pages", "attempts": 3, "failed_at": 1, **more,
            }
        )  # fmt: skip
        self.log.append(Topic.DEAD_LETTER, document.key, letter.model_dump_json().encode())

    def unprocessed(self, name: str, *, claim: bool = False) -> tuple[DocumentRef, Record]:
        """A document that is on the log and in neither generation."""
        document, version = ref(name), self.version()
        body = ClaimCheck(path=f"p/{name}", size=1, sha256="0" * 64) if claim else InlineBody(text="x")
        record = self.content(document, version, version, body=body)
        self.access(document, anyone(), version=version, content_version=version)
        return document, record

    def applied(self) -> None:
        """Every lane has read everything that is on the log."""
        self.progress()
        for lane, generation, topic in (
            ("index", OLD, Topic.CONTENT), ("index", NEW, Topic.CONTENT), ("index", OLD, Topic.ACCESS),
            ("index", NEW, Topic.ACCESS), ("access", "", Topic.ACCESS), ("membership", "", Topic.MEMBERSHIP),
        ):  # fmt: skip
            for p in range(PARTITIONS):
                self.read_to(lane, generation, topic, p, len(self.log.records.get((topic.value, p), [])))

    def read_to(self, lane: Any, generation: str, topic: Topic, partition: int, offset: int) -> None:
        """One progress record."""
        now = self.clock.now()
        progress = Progress(
            lane=lane, generation=generation, topic=topic.value, partition=partition, offset=offset, written_at=now
        )
        self.store.write_progress([progress])

    # ------------------------------------------------------------ breaking

    def manifest(self, document: DocumentRef, generation: str = NEW) -> Manifest:
        """As it stands."""
        return self.store.read_manifests(generation, document.tenant, [document.uid])[document.uid]

    def change(self, document: DocumentRef, generation: str = NEW, **fields: Any) -> Manifest:
        """Write the manifest with other fields."""
        changed = self.manifest(document, generation).model_copy(update=fields)
        self.store.write_manifest(generation, changed)
        return changed

    # ------------------------------------------------------------ verifying

    def verify(
        self, *, against: str | None = None, generation: str = NEW, after: Record | None = None,
        client: type[ShadowClient] = ShadowClient,
    ) -> VerificationReport:  # fmt: skip
        """One verification, its searches answered by the application."""
        self.applied() if not self.store.read_progress("index", NEW, "content") else None
        with TestClient(create_app(self.dependencies()), raise_server_exceptions=True) as app:
            shadow = client(self.settings, transport=InProcess(app))
            means = Means(MemoryLog(self.log, after), self.store, NoBodies(), shadow, self.clock, self.clock.advance)
            run = Verification(self.settings, means, generation, against, lambda step, done, total: None)
            return run.run(lambda name, summary: self.told.append(summary))
