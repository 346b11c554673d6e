"""Writes a synthetic corpus through the real flow and store: everything but the encoder is what production runs.

Documents of the cold tier are written there at once instead of being moved there, so that setting up takes minutes.
"""

from __future__ import annotations

import hashlib
import json
import threading
import time
import uuid
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np

from infra.bench.synthetic import PRINCIPALS, SCOPES, TENANT, Corpus, Made, person, principal, scope
from pipeline import analysis
from pipeline.clock import Clock
from pipeline.embed import StubEncoder
from pipeline.errors import BodyGone, StoreUnavailable
from pipeline.flow import Change, DocumentFlow, facets_of
from pipeline.ports import ChunkWrite, Deadline, IndexStore, Vectors
from schemas.access import AccessRule
from schemas.documents import (
    AccessRecord,
    Block,
    Chunk,
    ChunkedDocument,
    ExtractedDocument,
    PrincipalPart,
    PrincipalRecord,
    Section,
    Tier,
)
from schemas.events import AccessSet, ContentUpserted, InlineBody
from schemas.generation import Generation
from schemas.keys import CHUNK_NAMESPACE, SECTION_NAMESPACE, DocumentRef, canonical_json

THREADS = 3
ATTEMPTS, PAUSE_S = 5, 0.5
TOGETHER = 100  # documents whose manifests are looked up, and whose access records are written, in one call
SECTION = 5  # chunks of a section
CONTENT_TYPE, LANGUAGE = "application/json", "en"


class KnownEncoder(StubEncoder):
    """Answers with the vector that was made for the text."""

    def __init__(self, generation: Generation) -> None:
        super().__init__(generation.encoder)
        self._known: dict[str, Vectors] = {}

    def learn(self, made: Made) -> None:
        """Remember a document's vectors until it is forgotten."""
        self._known.update(zip(made.texts, made.vectors, strict=True))

    def forget(self, made: Made) -> None:
        """The document is written."""
        for text in made.texts:
            self._known.pop(text, None)

    def embed_documents(self, texts: Sequence[str]) -> Vectors:
        """Shape (n, dimension). Raises KeyError for a text that was not made."""
        return np.stack([self._known[text] for text in texts])


class Passages:
    """``ports.Extractor`` and ``ports.Chunker`` of bodies that are lists of passages: each is one chunk."""

    def extract(self, body: bytes, content_type: str, *, path: str | None = None) -> ExtractedDocument:
        """A paragraph for each passage."""
        blocks = tuple(Block(type="paragraph", text=text) for text in json.loads(body))
        return ExtractedDocument(blocks=blocks, media_type=content_type, language=LANGUAGE)

    def chunk(self, document: DocumentRef, extracted: ExtractedDocument, *, title: str, facets: str) -> ChunkedDocument:
        """A chunk for each paragraph, sections of a few."""
        texts = [block.text for block in extracted.blocks]
        sections = tuple(
            _section(document, number, texts[start : start + SECTION])
            for number, start in enumerate(range(0, len(texts), SECTION))
        )
        chunks = tuple(_chunk(document, number, text, title, facets) for number, text in enumerate(texts))
        return ChunkedDocument(sections=sections, chunks=chunks)


def _section(document: DocumentRef, ordinal: int, texts: Sequence[str]) -> Section:
    uid = uuid.uuid5(SECTION_NAMESPACE, canonical_json([document.key, *texts]))
    return Section(section_id=str(uid), ordinal=ordinal, heading_path=(), text="\n\n".join(texts))


def _chunk(document: DocumentRef, ordinal: int, text: str, title: str, facets: str) -> Chunk:
    return Chunk(
        chunk_id=chunk_id(document, text, facets),
        section_ordinal=ordinal // SECTION,
        ordinal=ordinal,
        heading_path=(),
        text=text,
        embed_text=text,
        embed_hash=hashlib.sha256(text.encode()).hexdigest()[:32],
        lexical=analysis.lexical(title, text),
        identifiers=analysis.identifiers(text),
        tokens=len(text.split()),
    )


def chunk_id(document: DocumentRef, text: str, facets: str) -> str:
    """Id of a passage's chunk."""
    return str(uuid.uuid5(CHUNK_NAMESPACE, canonical_json([document.key, text, facets])))


class NoBodies:
    """``ports.BodyStore`` of a corpus whose bodies all ride in their events."""

    def put(self, document: DocumentRef, version: int, body: bytes) -> tuple[str, str]:
        """There is nothing to put."""
        raise BodyGone(f"{document.key}: made documents have inline bodies")

    def get(self, path: str, sha256: str) -> bytes:
        """There is nothing to get."""
        raise BodyGone(path)

    def delete(self, path: str) -> None:
        """There is nothing to delete."""


class Placed:
    """A store whose new chunks go to one tier; everything else is the store's own."""

    def __init__(self, store: IndexStore, tier: Tier) -> None:
        self._store = store
        self._tier = tier

    def __getattr__(self, name: str) -> Any:
        return getattr(self._store, name)

    def insert_chunks(
        self, generation: str, tier: Tier, tenant: str, chunks: Sequence[ChunkWrite], *, ambiguous: bool = False,
        deadline: Deadline | None = None,
    ) -> None:  # fmt: skip
        """Insert where this store places them."""
        self._store.insert_chunks(generation, self._tier, tenant, chunks, ambiguous=ambiguous, deadline=deadline)


class Seeder:
    """Writes documents of a corpus; ``write`` may run in several threads, each on documents of its own."""

    def __init__(self, store: IndexStore, generation: Generation, clock: Clock) -> None:
        self._store = store
        self._encoder = KnownEncoder(generation)
        self._clock = clock
        self._lock = threading.Lock()
        self._version = clock.now()
        tiers: tuple[Tier, Tier] = ("hot", "cold")
        passages = Passages()
        self._flows = {
            tier: DocumentFlow(
                store=Placed(store, tier), extractor=passages, chunker=passages, bodies=NoBodies(),
                generation=generation, clock=clock, cache_documents=4 * TOGETHER,
            )
            for tier in tiers
        }  # fmt: skip

    def write(self, batch: Sequence[Made]) -> None:
        """Write documents; a store that does not answer for a moment is asked again. Raises StoreUnavailable."""
        for attempt in range(ATTEMPTS):
            try:
                self._write(batch, again=attempt > 0)
                return
            except StoreUnavailable:
                if attempt == ATTEMPTS - 1:
                    raise
                for flow in self._flows.values():
                    flow.manifests.forget()
                time.sleep(PAUSE_S * 2**attempt)

    def _write(self, batch: Sequence[Made], *, again: bool) -> None:
        """Chunks, sections and manifests by the flow, then the access records that admit readers."""
        records: list[AccessRecord] = []
        for tier, flow in self._flows.items():
            placed = [made for made in batch if made.tier == tier]
            flow.manifests.prefetch(made.document for made in placed)
            records += [self._commit(flow, made, again) for made in placed]
        self._store.write_access(TENANT, records)

    def _commit(self, flow: DocumentFlow, made: Made, again: bool) -> AccessRecord:
        change, access = self._events(made)
        change.ambiguous = again  # what was not acknowledged may stand there without a vector
        prepared = flow.prepare(change)
        prepared.manifest = prepared.manifest.model_copy(update={"tier": made.tier})
        self._encoder.learn(made)
        missing = prepared.missing()
        vectors = self._encoder.embed_documents([chunk.embed_text for chunk in missing]) if missing else ()
        prepared.vectors.update((chunk.embed_hash, row) for chunk, row in zip(missing, vectors, strict=True))
        self._encoder.forget(made)
        flow.commit(prepared, None)
        return AccessRecord(
            document=made.document, version=access.version, content_version=access.content_version, rule=access.rule,
            written_at=self._clock.now(),
        )  # fmt: skip

    def _events(self, made: Made) -> tuple[Change, AccessSet]:
        with self._lock:
            version = self._version = self._version + 2
        access = AccessSet(
            document=made.document, version=version, content_version=version + 1,
            rule=AccessRule.any_of(*made.readers), observed_at=version, priority="bulk",
        )  # fmt: skip
        return Change(document=made.document, access=access, content=content_of(made, version)), access

    def people(self, seed: int) -> None:
        """Records of all groups, and of one person for each scope."""
        with self._lock:
            version = self._version = self._version + 2
        names = [principal(number) for number in range(PRINCIPALS)]
        records = [_record(name, (), version) for name in names]
        records += [_record(f"user:{person(count)}", tuple(scope(count, seed)), version) for count in SCOPES]
        self._store.write_principals(TENANT, records)


def content_of(made: Made, version: int) -> ContentUpserted:
    """The content event that follows the access event of ``version``."""
    return ContentUpserted(
        document=made.document, version=version + 1, access_version=version, title=made.title, language=LANGUAGE,
        content_type=CONTENT_TYPE, body=InlineBody(text=json.dumps(made.texts)), observed_at=version, priority="bulk",
    )  # fmt: skip


def chunk_ids(made: Made) -> list[str]:
    """Ids of a document's chunks, in the order of its texts."""
    facets = facets_of(content_of(made, 1), CONTENT_TYPE, LANGUAGE)
    return [chunk_id(made.document, text, facets) for text in made.texts]


def _record(name: str, parents: tuple[str, ...], version: int) -> PrincipalRecord:
    return PrincipalRecord.of(TENANT, name, {"made": PrincipalPart(parents=parents, version=version)})


def seed(
    store: IndexStore, generation: Generation, clock: Clock, corpus: Corpus, progress: Callable[[int, int], None]
) -> None:
    """Write the whole corpus. Raises StoreUnavailable; writing it again converges."""
    seeder = Seeder(store, generation, clock)
    seeder.people(corpus.seed)
    numbers = range(corpus.documents)
    groups = [numbers[start : start + TOGETHER] for start in range(0, corpus.documents, TOGETHER)]
    done = 0

    def write(numbers: range) -> int:
        seeder.write([corpus.made(number) for number in numbers])
        return len(numbers)

    with ThreadPoolExecutor(THREADS, thread_name_prefix="seed") as pool:
        for written in pool.map(write, groups):
            done += written
            progress(done, corpus.documents)
