"""A copy of the sample wiki whose passages do not carry their heading path, in a tenant of its own.

Readers, rules and tiers are those of the original; only what is embedded and what words are looked for in differ.
"""

from __future__ import annotations

import hashlib

from infra.bench.seeding import NoBodies, Placed
from infra.bench.session import Session
from infra.bench.world import FOLDER_TENANT, World
from pipeline import analysis
from pipeline.chunk import chunker_for
from pipeline.clock import SystemClock
from pipeline.embed import token_counter
from pipeline.extract import BlockExtractor
from pipeline.flow import Change, DocumentFlow
from pipeline.ports import Chunker, IndexStore
from schemas.access import AccessRule
from schemas.documents import AccessRecord, Chunk, ChunkedDocument, ExtractedDocument, Manifest, Tier
from schemas.events import AccessSet, ContentUpserted, InlineBody
from schemas.keys import DocumentRef

PLAIN_TENANT = "plain"


class WithoutPaths:
    """``ports.Chunker`` that cuts as another one does and leaves the heading path out of what is searched."""

    def __init__(self, chunker: Chunker) -> None:
        self._chunker = chunker

    def chunk(self, document: DocumentRef, extracted: ExtractedDocument, *, title: str, facets: str) -> ChunkedDocument:
        """See Chunker."""
        made = self._chunker.chunk(document, extracted, title=title, facets=facets)
        return made.model_copy(update={"chunks": tuple(_plain(chunk, title) for chunk in made.chunks)})


def _plain(chunk: Chunk, title: str) -> Chunk:
    digest = hashlib.sha256(chunk.text.encode("utf-8", "replace")).hexdigest()[:32]
    return chunk.model_copy(
        update={
            "embed_text": chunk.text, "embed_hash": digest, "lexical": analysis.lexical(title, chunk.text),
            "identifiers": analysis.identifiers(f"{title}\n{chunk.text}"),
        }
    )  # fmt: skip


def copy_without_paths(session: Session, world: World) -> None:
    """Write the copy, each document in the tier of its original. Raises StoreUnavailable."""
    store, generation, clock = world.store, world.generation(), SystemClock()
    principals = [record.model_copy(update={"tenant": PLAIN_TENANT}) for record in store.walk_principals(FOLDER_TENANT)]
    store.write_principals(PLAIN_TENANT, principals)
    records = {record.document.uid: record for record in store.walk_access(FOLDER_TENANT)}
    counter = token_counter(generation.encoder, world.settings)
    chunker = WithoutPaths(chunker_for(generation.chunking, counter, generation.encoder))
    extractor = BlockExtractor()
    tiers: tuple[Tier, Tier] = ("hot", "cold")
    flows = {
        tier: DocumentFlow(
            store=_placed(store, tier), extractor=extractor, chunker=chunker, bodies=NoBodies(), generation=generation,
            clock=clock,
        )
        for tier in tiers
    }  # fmt: skip
    originals = [m for m in store.walk_manifests(generation.name, FOLDER_TENANT) if not m.deleted and m.chunk_total]
    written: list[AccessRecord] = []
    for number, original in enumerate(originals, 1):
        body = (world.wiki / (original.path or "")).read_text(encoding="utf-8")
        written.append(
            _write(session, world, flows[original.tier], original, records[original.document.uid].rule, body)
        )
        session.progress("without heading paths", number, len(originals))
    store.write_access(PLAIN_TENANT, written)
    session.report.finish("without heading paths", f"{len(originals)} documents")


def _placed(store: IndexStore, tier: Tier) -> IndexStore:
    placed: IndexStore = Placed(store, tier)
    return placed


def _write(
    session: Session, world: World, flow: DocumentFlow, original: Manifest, rule: AccessRule, body: str
) -> AccessRecord:
    version = SystemClock().now()
    document = original.document.model_copy(update={"tenant": PLAIN_TENANT})
    access = AccessSet(
        document=document, version=version, content_version=version + 1, rule=rule, observed_at=version, priority="bulk"
    )
    content = ContentUpserted(
        document=document, version=version + 1, access_version=version, title=original.title, url=original.url,
        path=original.path, content_type=original.content_type, language=original.language, product=original.product,
        effective_from=original.effective_from, effective_until=original.effective_until, body=InlineBody(text=body),
        observed_at=version, priority="bulk",
    )  # fmt: skip
    prepared = flow.prepare(Change(document=document, access=access, content=content))
    prepared.manifest = prepared.manifest.model_copy(update={"tier": original.tier})
    missing = prepared.missing()
    if missing:
        vectors = session.encoder(world).embed_documents([chunk.embed_text for chunk in missing])
        prepared.vectors.update((chunk.embed_hash, row) for chunk, row in zip(missing, vectors, strict=True))
    flow.commit(prepared, None)
    return AccessRecord(document=document, version=version, content_version=version + 1, rule=rule, written_at=version)
