"""A document flow on the fake store, with an owner that gives out versions, and a check of what readers could see."""

from __future__ import annotations

import hashlib
import uuid
from collections.abc import Sequence

import numpy as np

from pipeline import analysis
from pipeline.clock import ManualClock
from pipeline.errors import BodyGone
from pipeline.flow import Change, DocumentFlow, Prepared
from pipeline.upkeep import Committed
from schemas.access import AccessRule
from schemas.documents import Block, Chunk, ChunkedDocument, ExtractedDocument, Manifest, Section
from schemas.events import AccessSet, AccessTombstone, ClaimCheck, ContentDeleted, ContentUpserted, InlineBody
from schemas.generation import BackendChoice, EncoderSpec, Generation
from schemas.keys import CHUNK_NAMESPACE, SECTION_NAMESPACE, DocumentRef, canonical_json
from tests.fakes.store import FakeStore

DIMENSION = 8
GENERATION = Generation(
    name="g1", state="active", encoder=EncoderSpec(dimension=DIMENSION), created_at=1,
    backend=BackendChoice(name="stub", agreement=1.0),
)  # fmt: skip
DOCUMENT = DocumentRef(tenant="acme", source="wiki", id="p1")


class Paragraphs:
    """Extractor and chunker in one: each paragraph is a chunk, two chunks are a section."""

    def extract(self, body: bytes, content_type: str, *, path: str | None = None) -> ExtractedDocument:
        blocks = [Block(type="paragraph", text=p) for p in body.decode().split("\n\n") if p.strip()]
        return ExtractedDocument(blocks=tuple(blocks), media_type=content_type)

    def chunk(self, document: DocumentRef, extracted: ExtractedDocument, *, title: str, facets: str) -> ChunkedDocument:
        texts = [b.text for b in extracted.blocks]
        sections = [
            Section(
                section_id=str(uuid.uuid5(SECTION_NAMESPACE, canonical_json([document.key, *texts[i : i + 2]]))),
                ordinal=i // 2, heading_path=(), text="\n\n".join(texts[i : i + 2]),
            )
            for i in range(0, len(texts), 2)
        ]  # fmt: skip
        chunks = []
        for i, text in enumerate(texts):
            lexical = analysis.lexical(title, text)
            chunks.append(
                Chunk(
                    chunk_id=str(uuid.uuid5(CHUNK_NAMESPACE, canonical_json([document.key, text, lexical, facets]))),
                    section_ordinal=i // 2, ordinal=i, heading_path=(), text=text, embed_text=text,
                    embed_hash=hashlib.sha256(text.encode()).hexdigest()[:32], lexical=lexical,
                    tokens=len(text.split()),
                )
            )  # fmt: skip
        return ChunkedDocument(sections=tuple(sections), chunks=tuple(chunks))


class Bodies:
    """Claim checks in a dictionary."""

    def __init__(self) -> None:
        self.bodies: dict[str, bytes] = {}

    def put(self, document: DocumentRef, version: int, body: bytes) -> tuple[str, str]:
        path = f"{document.uid}/{version}"
        self.bodies[path] = body
        return path, hashlib.sha256(body).hexdigest()

    def get(self, path: str, sha256: str) -> bytes:
        if path not in self.bodies:
            raise BodyGone(path)
        return self.bodies[path]

    def delete(self, path: str) -> None:
        self.bodies.pop(path, None)


class Killed(BaseException):
    """Stands for kill -9 at a step."""


class World:
    """One document's life in one generation."""

    def __init__(self, store: FakeStore | None = None, *, staged_above: int = 500) -> None:
        self.store = store or FakeStore()
        self.store.ensure_base()
        self.store.ensure_generation(GENERATION)
        self.clock = ManualClock()
        self.bodies = Bodies()
        self.embedded: list[str] = []
        self.kill_at: str | None = None
        self.staged_above = staged_above
        self.flow = self._flow()
        self.offset = 0

    def _flow(self) -> DocumentFlow:
        parts = Paragraphs()
        return DocumentFlow(
            store=self.store, extractor=parts, chunker=parts, bodies=self.bodies, generation=GENERATION,
            clock=self.clock, query_deadline_s=5.0, staged_above=self.staged_above, crash_point=self._crash_point,
        )  # fmt: skip

    def restart(self) -> None:
        """A new process: nothing is remembered but the store."""
        self.kill_at = None
        self.flow = self._flow()

    def _crash_point(self, step: str) -> None:
        if self.kill_at == step:
            raise Killed(step)

    # ------------------------------------------------------------------ events

    def content(self, version: int, text: str, *, title: str = "T", access: int = 0, **more: object) -> ContentUpserted:
        return ContentUpserted.model_validate(
            {
                "document": DOCUMENT, "version": version, "access_version": access, "title": title,
                "body": InlineBody(text=text), "observed_at": version, **more,
            }
        )  # fmt: skip

    def stored(self, version: int, text: str) -> ContentUpserted:
        path, digest = self.bodies.put(DOCUMENT, version, text.encode())
        body = ClaimCheck(path=path, size=len(text), sha256=digest)
        return self.content(version, "").model_copy(update={"body": body})

    def deleted(self, version: int) -> ContentDeleted:
        return ContentDeleted(document=DOCUMENT, version=version, access_version=version, observed_at=version)

    def rule(self, version: int, *principals: str, content: int = 0, not_before: int = 0) -> AccessSet:
        return AccessSet(
            document=DOCUMENT, version=version, content_version=content, not_before=not_before,
            rule=AccessRule.any_of(*principals), observed_at=version,
        )  # fmt: skip

    def tombstone(self, version: int) -> AccessTombstone:
        return AccessTombstone(document=DOCUMENT, version=version, not_before=version, observed_at=version)

    # ------------------------------------------------------------------ processing

    def apply(
        self, content: ContentUpserted | ContentDeleted | None = None,
        access: AccessSet | AccessTombstone | None = None, *, ambiguous: bool = False, force: bool = False,
    ) -> Committed:  # fmt: skip
        self.offset += 1
        change = Change(
            DOCUMENT, access=access, content=content, content_offset=self.offset, ambiguous=ambiguous, force=force
        )
        prepared = self.flow.prepare(change)
        self.embed(prepared)
        return self.flow.commit(prepared, None)

    def embed(self, prepared: Prepared) -> None:
        for chunk in prepared.missing():
            seed = int(chunk.embed_hash[:8], 16)
            vector = np.random.default_rng(seed).normal(size=DIMENSION).astype(np.float32)
            prepared.vectors[chunk.embed_hash] = vector / np.linalg.norm(vector)
            prepared.embedded += 1
            self.embedded.append(chunk.embed_text)

    # ------------------------------------------------------------------ looking

    def manifest(self) -> Manifest | None:
        return self.store.read_manifests("g1", "acme", [DOCUMENT.uid]).get(DOCUMENT.uid)

    def standing(self) -> set[str]:
        ids = self.store.chunk_ids_of("g1", DOCUMENT)
        return set(ids["hot"]) | set(ids["cold"])

    def visible(self) -> tuple[str, ...]:
        """Texts of the chunks that the manifest lists, in order; fails where one of them is not whole."""
        manifest = self.manifest()
        if manifest is None:
            return ()
        texts: list[str] = []
        for entry in self.flow.manifests.entries(manifest):
            held = [self.store.tier("g1", t, "acme").get(entry.chunk_id) for t in ("hot", "cold")]
            found = [h for h in held if h is not None]
            assert found, f"listed chunk {entry.chunk_id} does not stand"
            assert any(h.vector is not None for h in found), f"listed chunk {entry.chunk_id} has no vector"
            texts.append(str(found[0].properties["text"]))
        sections = self.store.read_sections("g1", "acme", list(manifest.sections))
        assert set(sections) == set(manifest.sections), "a listed section does not stand"
        return tuple(texts)

    def allow(self) -> set[tuple[str, ...]]:
        held = [self.store.tier("g1", t, "acme").get(i) for t in ("hot", "cold") for i in self.standing()]
        return {tuple(h.properties["allow"]) for h in held if h is not None}  # type: ignore[arg-type]

    def settle(self) -> None:
        """Let the query deadline pass and finish removals."""
        self.clock.advance(6)
        while self.flow.remove_due(DOCUMENT, None) is not None:
            self.clock.advance(6)


def texts(*paragraphs: str) -> str:
    return "\n\n".join(paragraphs)


def assert_settled(world: World, expected: Sequence[str]) -> None:
    """Exactly the expected chunks are visible, and nothing else stands."""
    assert world.visible() == tuple(expected)
    manifest = world.manifest()
    listed = set() if manifest is None else {e.chunk_id for e in world.flow.manifests.entries(manifest)}
    assert world.standing() == listed
