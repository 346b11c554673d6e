"""The only place where stages meet: one document's events become one committed manifest.

    access event ─┐
    content event ┼─▶ prepare: fence ▸ body ▸ extract ▸ chunk ▸ diff ──▶ texts to embed ──▶ commit:
    maintenance ──┘                                                     chunks ▸ sections ▸ manifest ▸ (later) removal

Order of safety (invariant 2): new sections and chunks, then the manifest (one atomic replace: the commit), then the
caller's receipt, then progress and offset. A crash anywhere leaves the old or the new version whole, never a mix.
The caller serialises all work of a document and owns its partition (invariant 1).
"""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import PurePosixPath

import numpy as np
import numpy.typing as npt

from pipeline.clock import Clock
from pipeline.errors import DocumentError, StoreUnavailable
from pipeline.manifests import ManifestCache
from pipeline.ports import BodyStore, Chunker, ChunkWrite, Deadline, Extractor, IndexStore
from pipeline.suffixes import MEDIA_BY_SUFFIX
from pipeline.upkeep import Committed, Upkeep, prefilter, retired_chunks, retired_sections
from schemas.access import AccessRule
from schemas.documents import (
    MAX_WARNINGS,
    WARNING_LENGTH,
    Chunk,
    ChunkedDocument,
    ChunkEntry,
    ExtractedDocument,
    Manifest,
    Retiring,
    Section,
)
from schemas.events import AccessSet, AccessTombstone, ClaimCheck, ContentDeleted, ContentUpserted
from schemas.generation import Generation
from schemas.keys import DocumentRef, canonical_json
from schemas.receipts import Outcome

MAX_TITLE = 1000

Vector = npt.NDArray[np.float32]


@dataclass
class Change:
    """What is to be done to one document: the newest access and content events read so far, merged."""

    document: DocumentRef
    access: AccessSet | AccessTombstone | None = None
    content: ContentUpserted | ContentDeleted | None = None
    content_offset: int = -1
    ambiguous: bool = False  # an earlier attempt may have left unacknowledged objects
    force: bool = False  # process an equal version again
    repair: frozenset[str] | None = None  # with force: write only these chunk ids again, None means all

    def rewrites(self, chunk_id: str) -> bool:
        """Whether a chunk that is listed already is to be written again."""
        return self.force and (self.repair is None or chunk_id in self.repair)


@dataclass
class Prepared:
    """A change after reading and diffing, before embedding and writing."""

    change: Change
    old: Manifest | None
    manifest: Manifest
    outcome: Outcome
    chunked: ChunkedDocument | None = None
    add: list[Chunk] = field(default_factory=list)
    vectors: dict[str, Vector] = field(default_factory=dict)  # by embed hash
    retire: list[str] = field(default_factory=list)
    retire_sections: list[str] = field(default_factory=list)
    keep: list[str] = field(default_factory=list)
    write: bool = True
    embedded: int = 0
    tokens: int = 0
    extracted_at: int | None = None
    embedded_at: int | None = None
    reason: str | None = None

    def missing(self) -> list[Chunk]:
        """Chunks whose vector is not known yet, one per distinct embedded text."""
        wanted: dict[str, Chunk] = {}
        for chunk in self.add:
            if chunk.embed_hash not in self.vectors:
                wanted.setdefault(chunk.embed_hash, chunk)
        return list(wanted.values())


def facets_of(event: ContentUpserted, media_type: str, language: str | None) -> str:
    """Canonical text of every filtered field of a chunk: part of its id."""
    values = (
        event.document.source, event.document.kind, media_type, language, event.product,
        event.effective_from, event.effective_until,
    )  # fmt: skip
    return canonical_json(["" if v is None else str(v) for v in values])


def title_of(content: ContentUpserted, extracted: ExtractedDocument) -> str:
    """The source's title, unless it is only the file's name and the document says better."""
    name = PurePosixPath(content.path or content.title)
    only_a_name = name.suffix.lower() in MEDIA_BY_SUFFIX and content.title in (name.name, name.stem)
    return extracted.title[:MAX_TITLE] if only_a_name and extracted.title else content.title


class DocumentFlow(Upkeep):
    """Processes the changes of documents of one generation against the store."""

    def __init__(
        self,
        *,
        store: IndexStore,
        extractor: Extractor,
        chunker: Chunker,
        bodies: BodyStore,
        generation: Generation,
        clock: Clock,
        query_deadline_s: float = 5.0,
        staged_above: int = 500,
        cache_documents: int = 10_000,
        crash_point: Callable[[str], None] = lambda _: None,
    ) -> None:
        super().__init__(
            store=store,
            generation=generation,
            clock=clock,
            manifests=ManifestCache(store, generation.name, cache_documents, clock),
            removal_wait=int(query_deadline_s * 1_000_000),
            crash_point=crash_point,
        )
        self.extractor = extractor
        self.chunker = chunker
        self.bodies = bodies
        self.staged_above = staged_above
        # Later it is as old as the donor: there would be nothing to take over.
        self.donor = generation.vectors_from if generation.state == "building" else None
        self._chunking = hashlib.sha256(generation.chunking.model_dump_json().encode()).hexdigest()[:16]

    # ------------------------------------------------------------------ reading and diffing

    def prepare(self, change: Change) -> Prepared:
        """Fence, read and diff. Raises DocumentError, BodyGone, StoreUnavailable."""
        old = self.manifests.get(change.document, fresh=change.force)
        manifest = _with_access(old, change)
        content = change.content
        if content is None:
            return self._access_only(change, old, manifest)
        committed = old.content_version if old is not None else 0
        if content.version < committed:
            prepared = self._access_only(change, old, manifest)
            prepared.outcome = "superseded"
            return prepared
        if content.version == committed and not change.force:
            # equal: the unfinished tail (removal, refresh, receipt) is finished
            prepared = self._access_only(change, old, manifest)
            prepared.outcome = "deleted" if manifest.deleted else "unchanged"
            return prepared
        if isinstance(content, ContentDeleted):
            return self._deletion(change, content, old, manifest)
        return self._upsert(change, content, old, manifest)

    def _access_only(self, change: Change, old: Manifest | None, manifest: Manifest) -> Prepared:
        allow, allow2 = prefilter(manifest.seen_rule)
        refresh = (
            not manifest.deleted and manifest.chunk_total > 0 and (manifest.allow, manifest.allow2) != (allow, allow2)
        )
        if refresh:
            manifest = manifest.model_copy(update={"allow": allow, "allow2": allow2})
        keep = [c.chunk_id for c in self._entries(old)] if refresh and old is not None else []
        if change.access is None:
            outcome: Outcome = "unchanged"
        elif old is not None and change.access.version < old.seen_access_version:
            outcome = "superseded"
        else:
            outcome = "refreshed" if refresh else "unchanged"
        return Prepared(
            change=change,
            old=old,
            manifest=manifest,
            outcome=outcome,
            keep=keep,
            write=manifest != old or refresh,
        )

    def _deletion(self, change: Change, content: ContentDeleted, old: Manifest | None, manifest: Manifest) -> Prepared:
        retire = [c.chunk_id for c in self._entries(old)] + retired_chunks(manifest)
        sections = list(manifest.sections) + retired_sections(manifest)
        deleted = manifest.model_copy(
            update={
                "deleted": True, "content_version": content.version, "access_version": content.access_version,
                "rule": AccessRule.nobody("deleted"), "digest": "", "sections": (), "chunks": (), "chunk_total": 0,
                "pages": 0, "warnings": (), "title": "", "url": None, "path": None, "moving": None, "allow": (),
                "allow2": (),
                "content_offset": change.content_offset, "indexed_at": self.clock.now(),
            }
        )  # fmt: skip
        return Prepared(
            change=change,
            old=old,
            manifest=deleted,
            outcome="deleted",
            retire=retire,
            retire_sections=sections,
        )

    def _upsert(self, change: Change, content: ContentUpserted, old: Manifest | None, manifest: Manifest) -> Prepared:
        body = self._body(content)
        digest = self._digest(content, body)
        allow, allow2 = prefilter(manifest.seen_rule)
        head = {
            "deleted": False, "content_version": content.version, "access_version": content.access_version,
            "rule": _paired_rule(manifest, content), "digest": digest, "url": content.url,
            "path": content.path, "product": content.product,
            "effective_from": content.effective_from, "effective_until": content.effective_until,
            "updated_at": content.source_facts.updated_at, "source_revision": content.source_facts.revision,
            "content_offset": change.content_offset, "indexed_at": self.clock.now(), "allow": allow, "allow2": allow2,
        }  # fmt: skip
        live = old is not None and not old.deleted
        if live and old is not None and old.digest == digest and not change.force:
            refresh = (old.allow, old.allow2) != (allow, allow2)
            keep = [c.chunk_id for c in self._entries(old)] if refresh else []
            return Prepared(
                change=change, old=old, manifest=manifest.model_copy(update=head), outcome="unchanged", keep=keep,
                extracted_at=self.clock.now(),
            )  # fmt: skip
        extracted = self.extractor.extract(body, content.content_type, path=content.path)
        language = content.language or extracted.language
        title = title_of(content, extracted)
        chunked = self.chunker.chunk(
            content.document, extracted, title=title, facets=facets_of(content, extracted.media_type, language)
        )
        # What the digest covers and extraction decides: an unchanged document keeps it.
        head.update(language=language, title=title, content_type=extracted.media_type)
        head["warnings"] = tuple(w[:WARNING_LENGTH] for w in extracted.warnings[:MAX_WARNINGS])
        return self._diff(change, old, manifest, head, chunked)

    def _diff(
        self, change: Change, old: Manifest | None, manifest: Manifest, head: Mapping[str, object],
        chunked: ChunkedDocument,
    ) -> Prepared:  # fmt: skip
        live = old is not None and not old.deleted
        before = {c.chunk_id: c for c in self._entries(old, lost=change.force)} if live else {}
        after = {c.chunk_id for c in chunked.chunks}
        # an id that is only retiring counts as new: its pre-filter was not kept up while it was out
        add = [c for c in chunked.chunks if c.chunk_id not in before or change.rewrites(c.chunk_id)]
        retire = [i for i in before if i not in after]
        old_sections = set(manifest.sections) if live else set()
        now_sections = {s.section_id for s in chunked.sections}
        retiring = _strike(manifest.retiring, after, now_sections)
        gone_sections = sorted(old_sections - now_sections)
        if retire or gone_sections:
            due = self.clock.now() + self.removal_wait
            retiring = (
                *retiring,
                Retiring(chunk_ids=tuple(retire), section_ids=tuple(gone_sections), due=due),
            )
        pages = 0
        if len(chunked.chunks) > self.staged_above:
            pages = -(-len(chunked.chunks) // 200)
        new = manifest.model_copy(
            update={
                **head,
                "sections": tuple(s.section_id for s in chunked.sections),
                "chunks": () if pages else tuple(ChunkEntry.of(c) for c in chunked.chunks),
                "chunk_total": len(chunked.chunks),
                "pages": pages,
                "retiring": retiring,
                "tier": "hot" if add or old is None else manifest.tier,
                "moving": None if add else manifest.moving,
                "changed_at": manifest.changed_at if after == set(before) else _changed_at(change, self.clock.now()),
            }
        )
        keep = [i for i in after if i in before] if old is not None and _allow_of(old) != _allow_of(new) else []
        prepared = Prepared(
            change=change, old=old, manifest=new, outcome="indexed", chunked=chunked, add=add, retire=retire,
            retire_sections=gone_sections, keep=keep, extracted_at=self.clock.now(),
        )  # fmt: skip
        prepared.vectors = self._known_vectors(change, before, add)
        return prepared

    def _known_vectors(
        self, change: Change, before: Mapping[str, ChunkEntry], add: Sequence[Chunk]
    ) -> dict[str, Vector]:
        """Vectors of equal embedded texts from the document's old chunks; after a broken attempt also of staged ids."""
        by_hash = {entry.embed_hash: chunk_id for chunk_id, entry in before.items()}
        wanted = {by_hash[c.embed_hash]: c.embed_hash for c in add if c.embed_hash in by_hash}
        if change.ambiguous or change.force:
            wanted.update({c.chunk_id: c.embed_hash for c in add if c.chunk_id not in wanted})
        found = self._vectors(self.generation.name, change.document.tenant, wanted)
        if self.donor is not None:
            found |= self._donated(self.donor, change.document, {c.embed_hash for c in add} - found.keys())
        return found

    def _vectors(self, generation: str, tenant: str, wanted: Mapping[str, str]) -> dict[str, Vector]:
        """By embed hash, of chunk id -> embed hash."""
        if not wanted:
            return {}
        found = self.store.read_vectors(generation, tenant, list(wanted))
        return {wanted[i]: v for i, v in found.items() if v.shape == (self.generation.encoder.dimension,)}

    def _donated(self, donor: str, document: DocumentRef, wanted: set[str]) -> dict[str, Vector]:
        """Vectors of equal embedded texts that another generation of the same encoder has of the document.

        What it cannot give, because it lags or its collections are gone, is embedded.
        """
        if not wanted:
            return {}
        try:
            manifest = self.store.read_manifests(donor, document.tenant, [document.uid]).get(document.uid)
            if manifest is None:
                return {}
            entries = self.store.read_manifest_pages(donor, manifest).chunks
            listed = {e.chunk_id: e.embed_hash for e in entries if e.embed_hash in wanted}
            return self._vectors(donor, document.tenant, listed)
        except (StoreUnavailable, DocumentError):
            return {}

    def _body(self, content: ContentUpserted) -> bytes:
        body = content.body
        if isinstance(body, ClaimCheck):
            return self.bodies.get(body.path, body.sha256)
        if body.text is not None:
            return body.text.encode("utf-8")
        try:
            return base64.b64decode(body.base64 or "", validate=True)
        except ValueError as error:
            raise DocumentError(f"body.base64 is not valid: {error}", stage="body", kind="base64") from error

    def _digest(self, content: ContentUpserted, body: bytes) -> str:
        parts = [
            self._chunking, content.content_type, content.title, content.path or "",
            facets_of(content, content.content_type, content.language), hashlib.sha256(body).hexdigest(),
        ]  # fmt: skip
        return hashlib.sha256(canonical_json(parts).encode("utf-8")).hexdigest()

    # ------------------------------------------------------------------ writing

    def stage(self, prepared: Prepared, chunks: Sequence[Chunk], deadline: Deadline | None) -> None:
        """Write some of the new chunks ahead of the commit: huge documents are staged slice by slice."""
        if chunks:
            tenant = prepared.change.document.tenant
            self.store.insert_chunks(
                self.generation.name, "hot", tenant, self._writes(prepared, chunks),
                ambiguous=prepared.change.ambiguous or prepared.change.force, deadline=deadline,
            )  # fmt: skip

    def _writes(self, prepared: Prepared, chunks: Sequence[Chunk]) -> list[ChunkWrite]:
        manifest = prepared.manifest
        return [
            ChunkWrite(
                document=manifest.document, chunk=chunk, section_id=manifest.sections[chunk.section_ordinal],
                vector=prepared.vectors[chunk.embed_hash], content_type=manifest.content_type, allow=manifest.allow,
                allow2=manifest.allow2, language=manifest.language, product=manifest.product,
                effective_from=manifest.effective_from, effective_until=manifest.effective_until,
            )
            for chunk in chunks
        ]  # fmt: skip

    def commit(
        self, prepared: Prepared, deadline: Deadline | None, *, staged: frozenset[str] = frozenset()
    ) -> Committed:
        """Write in the order of invariant 2. Raises StoreUnavailable or LeaseLost; repeating it converges."""
        if not prepared.write:
            tail = self._finish_tail(prepared.manifest, deadline)
            return self._committed(prepared, removed=tail)
        name, document = self.generation.name, prepared.change.document
        remaining = [c for c in prepared.add if c.chunk_id not in staged]
        old_sections = set(prepared.old.sections) if prepared.old is not None and not prepared.old.deleted else set()
        sections: list[Section] = []
        if prepared.chunked is not None:
            sections = [
                s for s in prepared.chunked.sections if s.section_id not in old_sections or prepared.change.force
            ]
        if sections:
            self.store.write_sections(name, document, sections, deadline)
        self.crash_point("sections")
        self.stage(prepared, remaining, deadline)
        self.crash_point("chunks")
        if prepared.keep:
            allow, allow2 = prepared.manifest.allow, prepared.manifest.allow2
            self.store.update_allow(name, document.tenant, prepared.keep, allow, allow2, deadline)
        self.crash_point("allow")
        if prepared.outcome == "deleted" and prepared.retire + prepared.retire_sections:
            return self._commit_deletion(prepared, deadline)
        self.manifests.put(prepared.manifest, self._all_entries(prepared), deadline)
        self.crash_point("manifest")
        self._drop_old_pages(prepared, deadline)
        return self._committed(prepared, removed=0)

    def _commit_deletion(self, prepared: Prepared, deadline: Deadline | None) -> Committed:
        """Of a deleted document everything goes at once; until it has gone its ids stay listed as retiring."""
        now = self.clock.now()
        gone = Retiring(chunk_ids=tuple(prepared.retire), section_ids=tuple(prepared.retire_sections), due=now)
        listed = prepared.manifest.model_copy(update={"retiring": (gone,)})
        self.manifests.put(listed, None, deadline)
        self.crash_point("manifest")
        removed = self._remove(listed, listed.retiring, deadline)
        self.manifests.put(listed.model_copy(update={"retiring": ()}), None, deadline)
        self._drop_old_pages(prepared, deadline)
        return self._committed(prepared, removed=removed)

    def _all_entries(self, prepared: Prepared) -> list[ChunkEntry] | None:
        if not prepared.manifest.pages or prepared.chunked is None:
            return None
        return [ChunkEntry.of(c) for c in prepared.chunked.chunks]

    def _drop_old_pages(self, prepared: Prepared, deadline: Deadline | None) -> None:
        old = prepared.old
        if old is not None and old.pages and old.content_version != prepared.manifest.content_version:
            self.store.delete_manifest_pages(
                self.generation.name, old.document, old.content_version, old.pages, deadline
            )

    def _committed(self, prepared: Prepared, removed: int) -> Committed:
        retiring = prepared.manifest.retiring if prepared.outcome != "deleted" else ()
        return Committed(
            outcome=prepared.outcome, visible_at=self.clock.now(), chunks_total=prepared.manifest.chunk_total,
            chunks_embedded=prepared.embedded, chunks_written=len(prepared.add), chunks_removed=removed,
            tokens=prepared.tokens, remove_due=min((r.due for r in retiring), default=None), reason=prepared.reason,
        )  # fmt: skip


# ---------------------------------------------------------------------- pure helpers


def _with_access(old: Manifest | None, change: Change) -> Manifest:
    """The manifest after the newest access event: seen_rule always follows, rule only while the content is as new."""
    closed = AccessRule.nobody("no access event has been read")
    manifest = old or Manifest(document=change.document, rule=closed, seen_rule=closed)
    event = change.access
    if event is None or event.version <= manifest.seen_access_version:
        return manifest
    if isinstance(event, AccessTombstone):
        rule, content_version = AccessRule.nobody("deleted"), event.version
    else:
        rule, content_version = event.rule, event.content_version
    update: dict[str, object] = {
        "seen_rule": rule, "seen_access_version": event.version, "seen_content_version": content_version,
    }  # fmt: skip
    if content_version <= manifest.content_version:
        update["rule"] = rule
    return manifest.model_copy(update=update)


def _paired_rule(manifest: Manifest, content: ContentUpserted) -> AccessRule:
    """The rule to commit with ``content``.

    A rule that was read with newer content may be wider than this content allows (a redaction): then nobody, until
    the newer content arrives.
    """
    if manifest.seen_content_version <= content.version:
        return manifest.seen_rule
    return AccessRule.nobody("the newest rule belongs to newer content")


def _changed_at(change: Change, now: int) -> int:
    """When the text changed: at its source, where that is told, else when the owner saw it. So a generation that is
    built from the log tells old documents from recent ones."""
    content = change.content
    if not isinstance(content, ContentUpserted):
        return now
    return min(now, content.source_facts.updated_at or content.observed_at)


def _allow_of(manifest: Manifest) -> tuple[tuple[str, ...], tuple[str, ...]]:
    return manifest.allow, manifest.allow2


def _strike(retiring: Sequence[Retiring], chunks: set[str], sections: set[str]) -> tuple[Retiring, ...]:
    """Take ids that return before their removal off the retiring lists (invariant 6)."""
    kept = (
        Retiring(
            chunk_ids=tuple(i for i in r.chunk_ids if i not in chunks),
            section_ids=tuple(i for i in r.section_ids if i not in sections),
            due=r.due,
        )
        for r in retiring
    )
    return tuple(r for r in kept if r.chunk_ids or r.section_ids)
