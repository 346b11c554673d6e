"""Protocols between stages, and the small values that cross them.

Everything here is implemented twice: by the real adapter and by the fake in ``tests/fakes``; one contract suite runs
on both.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal, Protocol

import numpy as np
import numpy.typing as npt
from pydantic import BaseModel

from schemas.documents import (
    AccessRecord,
    Chunk,
    ChunkedDocument,
    ExtractedDocument,
    Manifest,
    PageEntry,
    PrincipalRecord,
    Section,
    Tier,
)
from schemas.generation import BackendChoice, EncoderSpec, Generation
from schemas.keys import DocumentRef
from schemas.receipts import Progress

Vectors = npt.NDArray[np.float32]  # shape (n, dimension)


class Deadline(Protocol):
    """How long a store write may still take. Leases implement it."""

    def remaining(self) -> float:
        """Seconds left, at most the configured timeout. Raises LeaseLost when nothing is left."""
        ...

    def check_ended(self) -> None:
        """Call after a write: raises LeaseLost when it ended after the lease, so that a recheck is asked for."""
        ...


# ---------------------------------------------------------------- extract, chunk, embed


class Extractor(Protocol):
    """Bytes to typed blocks."""

    def extract(self, body: bytes, content_type: str, *, path: str | None = None) -> ExtractedDocument:
        """Raises DocumentError (stage 'extract') for a body that cannot be read as what it is."""
        ...


class TokenCounter(Protocol):
    """The encoder's own tokens."""

    def count(self, text: str) -> int:
        """Tokens of ``text`` including special tokens, untruncated."""
        ...

    def offsets(self, text: str) -> Sequence[tuple[int, int]]:
        """Character span of each token of ``text``, special tokens excluded."""
        ...


class Chunker(Protocol):
    """Typed blocks to sections and chunks."""

    def chunk(self, document: DocumentRef, extracted: ExtractedDocument, *, title: str, facets: str) -> ChunkedDocument:
        """``facets`` is the canonical text of all filtered fields, part of every chunk id.

        Raises DocumentError (stage 'chunk') for a document of more than the allowed number of chunks.
        """
        ...


class Embedder(Protocol):
    """Texts to unit vectors."""

    spec: EncoderSpec
    backend: BackendChoice

    def embed_documents(self, texts: Sequence[str]) -> Vectors:
        """Shape (n, dimension), rows in the order of the texts. Raises DocumentError if one would be truncated."""
        ...

    def embed_query(self, text: str) -> Vectors:
        """Shape (1, dimension); a query longer than the encoder reads is cut."""
        ...


# ---------------------------------------------------------------- index


@dataclass(frozen=True)
class ChunkWrite:
    """One chunk as it is stored: searched and filtered fields plus the vector (shape (dimension,))."""

    document: DocumentRef
    chunk: Chunk
    section_id: str
    vector: npt.NDArray[np.float32]
    content_type: str
    allow: tuple[str, ...]
    allow2: tuple[str, ...]
    language: str | None = None
    product: str | None = None
    effective_from: int | None = None
    effective_until: int | None = None


class IndexStore(Protocol):
    """What writers do to the store. All calls are synchronous and raise StoreUnavailable when not acknowledged whole.

    Reads by id return only what exists; a missing tenant is empty. Creation of collections and tenants is idempotent
    and remembered. ``deadline`` None means the configured timeout without a lease.
    """

    def ensure_base(self) -> None:
        """Create the collections that all generations share."""
        ...

    def ensure_generation(self, generation: Generation) -> None:
        """Create Hot, Cold and Records of a generation."""
        ...

    def drop_generation(self, name: str) -> None:
        """Drop the collections of a generation."""
        ...

    # records
    def read_access(self, tenant: str, uids: Sequence[str]) -> dict[str, AccessRecord]: ...
    def write_access(self, tenant: str, records: Sequence[AccessRecord], deadline: Deadline | None = None) -> None: ...
    def read_principals(self, tenant: str, principals: Sequence[str]) -> dict[str, PrincipalRecord]: ...
    def write_principals(
        self, tenant: str, records: Sequence[PrincipalRecord], deadline: Deadline | None = None
    ) -> None: ...
    def read_generations(self) -> dict[str, Generation]: ...
    def write_generation(self, generation: Generation, deadline: Deadline | None = None) -> None: ...
    def active_generation(self) -> str | None:
        """Name of the active generation (one record, so that a switch is one write), or None."""
        ...

    def set_active_generation(self, name: str, deadline: Deadline | None = None) -> None: ...
    def read_progress(self, lane: str, generation: str, topic: str) -> dict[int, Progress]: ...
    def write_progress(self, records: Sequence[Progress], deadline: Deadline | None = None) -> None: ...

    # documents of a generation
    def read_manifests(self, generation: str, tenant: str, uids: Sequence[str]) -> dict[str, Manifest]: ...
    def write_manifest(self, generation: str, manifest: Manifest, deadline: Deadline | None = None) -> None:
        """The commit point: one atomic replace of the head. Chunk entries of paged manifests are in pages."""
        ...

    def write_manifest_page(
        self, generation: str, document: DocumentRef, version: int, page: int, pages: int, entries: Sequence[PageEntry],
        deadline: Deadline | None = None,
    ) -> None: ...  # fmt: skip
    def read_manifest_pages(self, generation: str, manifest: Manifest) -> Manifest:
        """The manifest with its chunk entries filled in from its pages."""
        ...

    def delete_manifest_pages(
        self,
        generation: str,
        document: DocumentRef,
        version: int,
        pages: int,
        deadline: Deadline | None = None,
    ) -> None: ...
    def write_sections(
        self,
        generation: str,
        document: DocumentRef,
        sections: Sequence[Section],
        deadline: Deadline | None = None,
    ) -> None: ...
    def read_sections(self, generation: str, tenant: str, section_ids: Sequence[str]) -> dict[str, Section]: ...
    def delete_sections(
        self, generation: str, tenant: str, section_ids: Sequence[str], deadline: Deadline | None = None
    ) -> None: ...
    def insert_chunks(
        self,
        generation: str,
        tier: Tier,
        tenant: str,
        chunks: Sequence[ChunkWrite],
        *,
        ambiguous: bool = False,
        deadline: Deadline | None = None,
    ) -> None:
        """Insert; with ``ambiguous`` the ids are deleted first and each is probed afterwards (store failures)."""
        ...  # fmt: skip

    def read_vectors(self, generation: str, tenant: str, chunk_ids: Sequence[str]) -> dict[str, Vectors]:
        """Vectors (shape (dimension,)) of chunks found in either tier."""
        ...

    def copy_chunks(
        self,
        generation: str,
        tenant: str,
        chunk_ids: Sequence[str],
        *,
        source: Tier,
        target: Tier,
        deadline: Deadline | None = None,
    ) -> int:
        """Insert the chunks of one tier into the other with their vectors, probe them; the count copied."""
        ...  # fmt: skip

    def delete_chunks(
        self, generation: str, tenant: str, chunk_ids: Sequence[str], *, tiers: Sequence[Tier] = ("hot", "cold"),
        deadline: Deadline | None = None,
    ) -> None: ...  # fmt: skip
    def update_allow(
        self,
        generation: str,
        tenant: str,
        chunk_ids: Sequence[str],
        allow: Sequence[str],
        allow2: Sequence[str],
        deadline: Deadline | None = None,
    ) -> None:
        """Refresh the pre-filter of chunks in both tiers without touching their vectors; absent ids are skipped."""
        ...  # fmt: skip

    def searchable(self, generation: str, tier: Tier, tenant: str, chunk_ids: Sequence[str]) -> set[str]:
        """Those of the chunks that stand in the tier and are found there by their own vector."""
        ...

    def chunk_ids_of(self, generation: str, document: DocumentRef) -> dict[Tier, set[str]]:
        """All chunk ids of a document that stand in each tier, by document filter (audit and recheck only)."""
        ...

    def section_ids_of(self, generation: str, document: DocumentRef) -> set[str]:
        """All section ids of a document, by document filter (audit and recheck only)."""
        ...

    def keyword_matches(self, generation: str, document: DocumentRef, terms: Sequence[str]) -> dict[Tier, set[str]]:
        """Ids of the document's chunks that BM25 still finds for any of the analysed terms (proof of a deletion)."""
        ...

    def vector_matches(self, generation: str, document: DocumentRef, vector: Vectors) -> dict[Tier, set[str]]:
        """Ids of the document's chunks that a search near the vector still finds (proof of a deletion)."""
        ...

    def count_chunks(self, generation: str, tenant: str) -> dict[Tier, int]: ...

    # walks, for verification, audits and erasure: every object that stands when the walk begins and still does when it
    # ends is met; what is written meanwhile may be. A missing tenant is empty.
    def tenants(self, generation: str | None) -> set[str]:
        """Tenants of a generation's collections, of the shared ones where None."""
        ...

    def walk_manifests(self, generation: str, tenant: str) -> Iterator[Manifest]:
        """Heads; entries of paged ones are not filled in."""
        ...

    def walk_access(self, tenant: str) -> Iterator[AccessRecord]: ...
    def walk_principals(self, tenant: str) -> Iterator[PrincipalRecord]: ...
    def walk_chunks(self, generation: str, tier: Tier, tenant: str) -> Iterator[StandingChunk]: ...
    def walk_sections(self, generation: str, tenant: str) -> Iterator[tuple[str, str]]:
        """(section id, document uid)."""
        ...

    def drop_tenant(self, generation: str | None, tenant: str) -> None:
        """Remove a tenant with all its objects from a generation's collections, from the shared ones where None."""
        ...

    def healthy(self) -> bool:
        """Whether every node of the store is up. Raises StoreUnavailable where none answers."""
        ...

    def footprint(self) -> StoreFootprint:
        """Objects, disk and state of the store."""
        ...

    def close(self) -> None: ...


@dataclass(frozen=True)
class StandingChunk:
    """A chunk object as it stands in a tier, without its vector."""

    chunk_id: str
    document_uid: str
    allow: tuple[str, ...]
    allow2: tuple[str, ...]


@dataclass(frozen=True)
class StoreFootprint:
    """The store as a whole. The disk is None where it cannot be told (a remote server)."""

    objects: Mapping[str, int]  # by collection, all tenants
    written: Mapping[str, int] = field(default_factory=dict)  # by collection, ever; absent where it cannot be told
    read_only: tuple[str, ...] = ()  # collections that refuse writes
    disk_bytes: int | None = None  # of the store's own files
    disk_used: float | None = None  # share of the whole disk
    nodes: int = 1


@dataclass(frozen=True)
class Hit:
    """A retrieved candidate before admission."""

    chunk_id: str
    document_uid: str
    tier: Tier
    score: float  # cosine distance for dense (smaller is nearer), the store's BM25 for sparse (tier-local only)
    lexical: str | None = None  # analysed text, where the sparse or the exact leg found it: for scoring, never shown


@dataclass(frozen=True)
class ChunkText:
    """Stored text of a chunk, fetched for admitted ids only."""

    chunk_id: str
    document_uid: str
    section_id: str
    heading_path: tuple[str, ...]
    text: str
    lexical: str
    identifiers: tuple[str, ...]
    source: str
    kind: str
    content_type: str
    language: str | None = None


@dataclass(frozen=True)
class SearchFilter:
    """What a search is narrowed to. ``allow`` None means unfiltered by principals (admission decides)."""

    allow: tuple[str, ...] | None = None
    documents: tuple[str, ...] | None = None
    sources: tuple[str, ...] | None = None
    kinds: tuple[str, ...] | None = None
    content_types: tuple[str, ...] | None = None
    languages: tuple[str, ...] | None = None
    products: tuple[str, ...] | None = None
    as_of: int | None = None
    identifiers: tuple[str, ...] | None = None
    words: tuple[str, ...] | None = None  # analysed; all of them stand in ``lexical``


@dataclass(frozen=True)
class TermStatistics:
    """Corpus statistics over both tiers of a tenant in a generation, unfiltered."""

    chunks: int
    average_length: float
    document_frequency: Mapping[str, int]


class IndexReader(Protocol):
    """What the query service asks of the store; asynchronous, read-only. Raises StoreUnavailable."""

    async def dense(
        self, generation: str, tier: Tier, tenant: str, vector: Vectors, where: SearchFilter, limit: int
    ) -> list[Hit]: ...
    async def sparse(
        self, generation: str, tier: Tier, tenant: str, query: str, where: SearchFilter, limit: int
    ) -> list[Hit]:
        """BM25 over ``lexical``; ``query`` is already analysed."""
        ...

    async def exact(self, generation: str, tier: Tier, tenant: str, where: SearchFilter, limit: int) -> list[Hit]:
        """Chunks that hold all of ``where.identifiers``, unranked."""
        ...

    async def listing(self, generation: str, tier: Tier, tenant: str, where: SearchFilter, limit: int) -> list[Hit]:
        """Chunks that pass the filter, unranked: all of them where there are fewer than ``limit`` (at most 10,000)."""
        ...

    async def statistics(self, generation: str, tenant: str, terms: Sequence[str]) -> TermStatistics: ...
    async def access(self, tenant: str, uids: Sequence[str]) -> dict[str, AccessRecord]: ...
    async def principals(self, tenant: str, principals: Sequence[str]) -> dict[str, PrincipalRecord]: ...
    async def manifests(self, generation: str, tenant: str, uids: Sequence[str]) -> dict[str, Manifest]: ...
    async def page_entries(self, generation: str, manifest: Manifest, chunk_ids: Sequence[str]) -> dict[str, PageEntry]:
        """For a paged manifest: the entries of those of the given chunk ids that it lists."""
        ...

    async def page_span(self, generation: str, manifest: Manifest, first: int, last: int) -> list[PageEntry]:
        """For a paged manifest: the entries whose ordinals are within, both ends included, in order."""
        ...

    async def chunks(self, generation: str, tenant: str, chunk_ids: Sequence[str]) -> dict[str, ChunkText]: ...
    async def lexical(self, generation: str, tenant: str, chunk_ids: Mapping[Tier, Sequence[str]]) -> dict[str, str]:
        """Analysed text of chunks, asked in the tier in which each was found (in both where it has moved since)."""
        ...

    async def passages(
        self, generation: str, tenant: str, chunk_ids: Mapping[Tier, Sequence[str]], *, vectors: bool = False
    ) -> tuple[dict[str, ChunkText], dict[str, Vectors]]:
        """Stored text of chunks, asked in the tier in which each was found (in both where it has moved since), and
        where wanted their vectors, shape (dimension,); absent where the chunk left that tier."""
        ...

    async def sections(self, generation: str, tenant: str, section_ids: Sequence[str]) -> dict[str, Section]: ...
    async def generations(self) -> dict[str, Generation]: ...
    async def active_generation(self) -> str | None: ...
    async def progress(self) -> list[Progress]: ...
    def remembered(self, uid: str) -> list[BaseModel]:
        """Records of a document that this reader keeps in memory; any thread."""
        ...

    def forget_document(self, uid: str) -> None:
        """Keep none of a document's records in memory; any thread."""
        ...

    def forget(self, generation: str) -> None:
        """Release what is kept of a generation that nobody asks for any more."""
        ...

    async def close(self) -> None: ...


# ---------------------------------------------------------------- bus


@dataclass(frozen=True)
class Record:
    """A record read from the log."""

    topic: str  # logical name (schemas.topics.Topic value)
    partition: int
    offset: int
    timestamp: int  # append time, microseconds
    key: str | None  # None when missing or not UTF-8
    value: bytes | None
    headers: tuple[tuple[str, bytes], ...] = ()


@dataclass(frozen=True)
class Outgoing:
    """A record to append. ``partition_key`` decides the partition (the document key for holds)."""

    topic: str
    key: str
    value: bytes | None
    partition_key: str | None = None
    headers: tuple[tuple[str, bytes], ...] = ()


@dataclass(frozen=True)
class Appended:
    """Where a record was written."""

    topic: str
    partition: int
    offset: int
    timestamp: int


class Publisher(Protocol):
    """Plain idempotent producer (receipts, maintenance, requests, control, dead letters)."""

    def publish(self, records: Sequence[Outgoing]) -> list[Appended]:
        """Append and wait until all are acknowledged. Raises BusUnavailable."""
        ...

    def close(self) -> None: ...


class Appender(Protocol):
    """The owner's fenced transactional producer."""

    def append(self, records: Sequence[Outgoing]) -> list[Appended]:
        """All records in one transaction (≤ the configured number of events). Raises BusUnavailable, or Crash when
        fenced by another owner."""
        ...

    def close(self) -> None: ...


class BodyStore(Protocol):
    """Claim checks through fsspec: tenant/source/document/version, never shared."""

    def put(self, document: DocumentRef, version: int, body: bytes) -> tuple[str, str]:
        """Path and sha256 of the written body. Raises BusUnavailable."""
        ...

    def get(self, path: str, sha256: str) -> bytes:
        """Raises BodyGone when it is missing, DocumentError when its hash differs, Retry when unreachable."""
        ...

    def delete(self, path: str) -> None: ...


class BodyTree(Protocol):
    """All that lies in a body store of one document or source, unfinished writes included."""

    def of_document(self, document: DocumentRef) -> list[str]:
        """Paths. Raises BusUnavailable."""
        ...

    def of_source(self, tenant: str, source: str) -> list[str]:
        """Paths. Raises BusUnavailable."""
        ...

    def delete(self, path: str) -> None:
        """A missing one is fine. Raises BusUnavailable."""
        ...


# ---------------------------------------------------------------- sources


@dataclass(frozen=True)
class SourceDocument:
    """The whole state of a document as a connector read it just now."""

    document: DocumentRef
    title: str
    body: bytes
    content_type: str
    rule: object  # schemas.access.AccessRule
    url: str | None = None
    path: str | None = None
    language: str | None = None
    product: str | None = None
    effective_from: int | None = None
    effective_until: int | None = None
    revision: str | None = None
    updated_at: int | None = None
    redacted: bool = False  # older content must never be admitted again


@dataclass(frozen=True)
class SourceDeletion:
    """A document that is gone at its source."""

    document: DocumentRef
    reason: str = "deleted at the source"
    updated_at: int | None = None


@dataclass(frozen=True)
class SourceMembership:
    """A principal's direct parents as a connector read them just now."""

    tenant: str
    principal: str
    parents: tuple[str, ...]
    removed: bool = False
    until: Mapping[str, int] = field(default_factory=dict, hash=False)  # by parent: when it ends (µs, exclusive)


@dataclass(frozen=True)
class SourceAccess:
    """A document's rule alone changed."""

    document: DocumentRef
    rule: object
    updated_at: int | None = None


Observation = SourceDocument | SourceDeletion | SourceMembership | SourceAccess


@dataclass
class Observed:
    """What one look at a source yielded, in order, with the cursor position after it."""

    observations: Iterator[Observation]
    position: str = ""
    complete: bool = True
    priority: Literal["live", "bulk"] = "live"
    seen_before: int = 0  # everything before this moment (µs) is in the observations
    errors: list[str] = field(default_factory=list)


ProgressBar = Callable[[str, int, int | None], None]  # step, done, total
