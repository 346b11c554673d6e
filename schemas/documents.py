"""Documents inside the pipeline: typed blocks, sections, chunks, and the manifest that commits them."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from schemas.access import AccessRule, Ends
from schemas.base import ClosedModel, Micros, Version
from schemas.keys import DocumentRef

Tier = Literal["hot", "cold"]
BlockType = Literal["heading", "paragraph", "list", "table", "code", "quote", "math", "footnote"]


class Block(ClosedModel):
    """One typed piece of an extracted document. ``level`` is the heading depth (1 = top); ``text`` is verbatim.

    ``math`` is the source of a displayed formula, ``footnote`` begins with the mark that refers to it (``[^1] …``).
    ``anchors`` are pairs (offset in ``text``, offset in the decoded source), ascending; from an anchor to the next one
    both run alike; one at white space or at the end of the text tells where the text before it ends (pipeline.places).
    The decoded source is counted in code points, without a byte order mark and with line ends as LF.
    Empty where the source is no text or the place is not known.
    """

    type: BlockType
    text: str
    level: int = 0
    language: str | None = Field(default=None, description="Programming language of a code block.")
    header: str | None = Field(default=None, description="Header rows of a table, repeated in each of its pieces.")
    page: int | None = Field(default=None, description="Page or slide, from 1.")
    anchors: tuple[tuple[int, int], ...] = ()


class ExtractedDocument(ClosedModel):
    """The result of extraction: blocks in document order, and what the body says of itself."""

    blocks: tuple[Block, ...]
    title: str | None = None
    language: str | None = Field(default=None, description="Declared by the body, else detected: BCP 47.")
    media_type: str
    pages: int | None = Field(default=None, description="Pages or slides, where the format has them.")
    warnings: tuple[str, ...] = Field(
        default=(), description="What is doubtful, each as 'subject: sentence'; subjects such as charset, ocr, table."
    )


class Section(ClosedModel):
    """A parent passage handed to the generator."""

    section_id: str
    ordinal: int = Field(ge=0)
    heading_path: tuple[str, ...]
    text: str
    page: int | None = None


class Chunk(ClosedModel):
    """A child passage: what is embedded and searched."""

    chunk_id: str
    section_ordinal: int = Field(ge=0)
    ordinal: int = Field(ge=0)
    heading_path: tuple[str, ...]
    text: str
    embed_text: str = Field(description="What the encoder sees: heading path and text, never the document's title.")
    embed_hash: str = Field(description="First 32 hex digits of the sha256 of embed_text.")
    lexical: str = Field(description="Space-joined analysed tokens of title, heading path and text.")
    identifiers: tuple[str, ...] = ()
    tokens: int = Field(ge=0, description="Tokens of embed_text in the encoder's own count, special tokens included.")
    start: int = Field(
        default=-1,
        description="Offset in the decoded source (as in Block.anchors) of its own text, without the overlap, table "
        "header and headings that text may open with; -1 where unknown.",
    )
    end: int = Field(default=-1, description="End of its own text, exclusive; -1 where unknown.")
    page: int | None = Field(default=None, description="Page or slide on which it begins.")
    summary: bool = Field(default=False, description="Sums its document up: a hit stands for the best sections of it.")


class ChunkedDocument(ClosedModel):
    """Sections and chunks of one document version."""

    sections: tuple[Section, ...]
    chunks: tuple[Chunk, ...]


class ChunkEntry(ClosedModel):
    """A manifest's line for a live chunk."""

    chunk_id: str
    section_ordinal: int
    embed_hash: str
    start: int = Field(default=-1, description="As in Chunk: places move with every edit above, so ids leave them out.")
    end: int = -1
    page: int | None = None
    summary: bool = False

    @staticmethod
    def of(chunk: Chunk) -> ChunkEntry:
        """The line of a chunk."""
        return ChunkEntry.model_validate(chunk.model_dump(include=set(ChunkEntry.model_fields)))


def page_of(chunk_id: str, pages: int) -> int:
    """Page of a manifest of ``pages`` pages that lists a chunk id: its first four hex digits modulo the number."""
    return int(chunk_id[:4], 16) % pages


class PageEntry(ChunkEntry):
    """A line of a paged manifest: its place in the document is kept with it."""

    ordinal: int = Field(ge=0)


class Retiring(ClosedModel):
    """Replaced ids that are removed once ``due`` has passed, so that queries in flight still meet the document."""

    chunk_ids: tuple[str, ...] = ()
    section_ids: tuple[str, ...] = ()
    due: Micros


MAX_WARNINGS = 10  # a manifest keeps, of at most WARNING_LENGTH characters each
WARNING_LENGTH = 200


class Manifest(ClosedModel):
    """What is live of a document in a generation. Replacing it is the commit point (invariant 2)."""

    document: DocumentRef
    deleted: bool = False
    content_version: Version = 0
    access_version: Version = Field(default=0, description="Access version that the content demands.")
    rule: AccessRule = Field(description="The rule paired with the committed content.")
    seen_rule: AccessRule = Field(description="The newest rule that the index consumer read from the access topic.")
    seen_access_version: Version = 0
    seen_content_version: Version = Field(default=0, description="Content that seen_rule was read with.")
    digest: str = Field(default="", description="Hash of everything that chunks and sections are made from.")
    title: str = ""
    url: str | None = None
    path: str | None = None
    content_type: str = ""
    language: str | None = None
    product: str | None = None
    effective_from: Micros | None = None
    effective_until: Micros | None = None
    updated_at: Micros | None = Field(default=None, description="Last update at the source.")
    source_revision: str | None = None
    sections: tuple[str, ...] = Field(default=(), description="Section ids in order.")
    chunks: tuple[ChunkEntry, ...] = Field(default=(), description="Live chunks in order; empty where paged.")
    pages: int = Field(default=0, ge=0, description="Number of id pages of a huge document; 0 means inline.")
    warnings: tuple[str, ...] = Field(default=(), description="What extraction doubts, at most MAX_WARNINGS.")
    chunk_total: int = Field(default=0, ge=0)
    tier: Tier = "hot"
    moving: Tier | None = Field(default=None, description="Tier whose copies are still to be removed.")
    retiring: tuple[Retiring, ...] = ()
    allow: tuple[str, ...] = Field(default=(), description="Pre-filter last written to every chunk.")
    allow2: tuple[str, ...] = ()
    content_offset: int = Field(default=-1, description="Offset of the content event in its partition.")
    indexed_at: Micros = 0
    changed_at: Micros = Field(
        default=0,
        description="When the text last changed, by the source's clock where it tells: what tiers go by. Moves, "
        "rechecks, changed rules and new attributes of the same text do not count.",
    )
    moved_at: Micros = Field(default=0, description="When the copies in the present tier were made, while 'moving'.")
    attempt: str = ""


class AccessRecord(ClosedModel):
    """The one small record that every query checks per document."""

    document: DocumentRef
    version: Version
    content_version: Version = 0
    not_before: Version = 0
    tombstone: bool = False
    rule: AccessRule
    holds: dict[str, Version] = Field(default_factory=dict, description="Active holds and their versions.")
    lifted: dict[str, Version] = Field(default_factory=dict, description="Lifted holds and their versions.")
    written_at: Micros = 0
    attempt: str = ""


class PrincipalPart(ClosedModel):
    """What one source says of a principal."""

    parents: tuple[str, ...] = ()
    until: Ends = Field(default_factory=dict)
    removed: bool = False
    version: Version


class PrincipalRecord(ClosedModel):
    """A principal's direct parents in the store: the union of what its sources say, each fenced by its own version."""

    tenant: str
    principal: str
    parents: tuple[str, ...]
    until: Ends = Field(default_factory=dict)
    removed: bool = False
    version: Version
    parts: dict[str, PrincipalPart] = Field(default_factory=dict, description="By source; '' where none is named.")
    closed: dict[str, Version] = Field(
        default_factory=dict,
        description="By source: log offset of its unreadable newest record. While one stands the principal is nobody.",
    )
    written_at: Micros = 0
    attempt: str = ""

    @staticmethod
    def of(
        tenant: str, principal: str, parts: dict[str, PrincipalPart], closed: dict[str, int] | None = None
    ) -> PrincipalRecord:
        """The union of the parts: removed where every source ended the principal, or where one cannot be read."""
        live = [] if closed else [part for part in parts.values() if not part.removed]
        parents = tuple(sorted({parent for part in live for parent in part.parents}))
        return PrincipalRecord(
            tenant=tenant,
            principal=principal,
            parents=parents,
            until=_last_ends(parents, live),
            removed=not live,
            version=max((part.version for part in parts.values()), default=0),
            parts=parts,
            closed=closed if closed is not None else {},
        )

    def parents_at(self, now: int) -> tuple[str, ...]:
        """The parents whose end has not come at ``now`` (µs)."""
        return tuple(p for p in self.parents if p not in self.until or now < self.until[p])

    def merged(self, parts: dict[str, PrincipalPart]) -> PrincipalRecord:
        """With each source's newest part of the two; self when nothing is newer."""
        newer = {s: p for s, p in parts.items() if s not in self.parts or p.version > self.parts[s].version}
        merged = {**self.parts, **newer}
        return PrincipalRecord.of(self.tenant, self.principal, merged, dict(self.closed)) if newer else self


def _last_ends(parents: tuple[str, ...], parts: list[PrincipalPart]) -> dict[str, int]:
    """A parent that several sources name ends when the last of them ends it."""
    found: dict[str, int] = {}
    for parent in parents:
        ends = [part.until.get(parent) for part in parts if parent in part.parents]
        known = [end for end in ends if end is not None]
        if len(known) == len(ends):
            found[parent] = max(known)
    return found
