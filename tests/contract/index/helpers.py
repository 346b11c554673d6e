"""Small documents, chunks and vectors for the index contract."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from dataclasses import dataclass
from typing import Any, TypeVar
from uuid import UUID, uuid4, uuid5

import numpy as np

from pipeline import analysis
from pipeline.ports import ChunkWrite, IndexReader, IndexStore, Vectors
from schemas.access import AccessRule
from schemas.documents import AccessRecord, Chunk, ChunkEntry, Manifest
from schemas.generation import BackendChoice, EncoderSpec, Generation
from schemas.keys import DocumentRef

GENERATION = "contract"
DIMENSION = 8
EVERYONE = ("everyone",)
_NAMESPACE = UUID("00000000-0000-5000-8000-000000000001")
T = TypeVar("T")


@dataclass
class Index:
    """An implementation under test: its store, its reader, and a loop to run the reader in."""

    store: IndexStore
    reader: IndexReader
    runner: asyncio.Runner
    put_raw: Callable[[str, str, str, str], None]  # kind of collection, tenant, id, record

    def run(self, call: Coroutine[Any, Any, T]) -> T:
        """Run one call of the reader."""
        return self.runner.run(call)


def generation(name: str = GENERATION) -> Generation:
    """A generation with short vectors."""
    return Generation(
        name=name,
        state="building",
        encoder=EncoderSpec(dimension=DIMENSION),
        backend=BackendChoice(name="stub", agreement=1.0),
        created_at=1,
    )


def document(tenant: str, id_: str = "page-1", *, source: str = "wiki", kind: str = "page") -> DocumentRef:
    """A document."""
    return DocumentRef(tenant=tenant, source=source, kind=kind, id=id_)


def unit(*weights: float) -> Vectors:
    """A unit vector with the given first components."""
    vector = np.zeros(DIMENSION, dtype=np.float32)
    vector[: len(weights)] = weights
    return vector / np.linalg.norm(vector)


def chunk(
    owner: DocumentRef,
    text: str,
    vector: Vectors | None = None,
    *,
    allow: tuple[str, ...] = EVERYONE,
    allow2: tuple[str, ...] | None = None,
    chunk_id: str | None = None,
    **fields: Any,
) -> ChunkWrite:
    """A chunk whose sparse text and identifiers are analysed as the pipeline does."""
    return ChunkWrite(
        document=owner,
        chunk=Chunk(
            chunk_id=chunk_id or str(uuid4()),
            section_ordinal=0,
            ordinal=0,
            heading_path=("Guide", "Details"),
            text=text,
            embed_text=text,
            embed_hash="0" * 32,
            lexical=analysis.lexical(text),
            identifiers=analysis.identifiers(text),
            tokens=3,
        ),
        section_id=str(uuid5(_NAMESPACE, owner.uid)),
        vector=unit(1.0) if vector is None else vector,
        content_type=fields.pop("content_type", "text/markdown"),
        allow=allow,
        allow2=allow if allow2 is None else allow2,
        **fields,
    )


def manifest(owner: DocumentRef, **fields: Any) -> Manifest:
    """A manifest that everyone may read."""
    rule = AccessRule.any_of("everyone")
    return Manifest(**{"document": owner, "rule": rule, "seen_rule": rule, **fields})


def access(owner: DocumentRef, **fields: Any) -> AccessRecord:
    """An access record."""
    return AccessRecord(**{"document": owner, "version": 1, "rule": AccessRule.any_of("everyone"), **fields})


def entries(count: int) -> list[ChunkEntry]:
    """Manifest lines with random ids."""
    return [ChunkEntry(chunk_id=str(uuid4()), section_ordinal=i // 4, embed_hash=f"{i:032x}") for i in range(count)]
