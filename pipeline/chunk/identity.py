"""Ids: names of all that is searched or filtered of a chunk, and of all that is read of a section."""

from __future__ import annotations

import hashlib
import json
import uuid
from collections import Counter
from collections.abc import Sequence

from pipeline import analysis
from pipeline.chunk.atoms import Atom
from pipeline.chunk.places import source_range
from schemas.documents import Chunk, Section
from schemas.keys import CHUNK_NAMESPACE, SECTION_NAMESPACE, DocumentRef


class Identified:
    """Makes sections and chunks of one document. Equal ones get ids of their own, by how often they stood before.

    Places (``start``, ``end``, ``page``) are no part of an id: they move with every edit above.
    """

    def __init__(self, document: DocumentRef, title: str, facets: str) -> None:
        self._document = document
        self._facets = facets
        self._seen: Counter[str] = Counter()
        self._title = _words(title)
        self._paths: dict[tuple[str, ...], tuple[str, tuple[str, ...]]] = {}

    def section(self, ordinal: int, path: tuple[str, ...], text: str, page: int | None) -> Section:
        """A parent."""
        section_id = self._id(SECTION_NAMESPACE, [self._document.key, list(path), text])
        return Section(section_id=section_id, ordinal=ordinal, heading_path=path, text=text, page=page)

    def chunk(
        self,
        *,
        section_ordinal: int,
        ordinal: int,
        path: tuple[str, ...],
        prefix: str,
        text: str,
        tokens: int,
        own: Sequence[Atom],
        summary: bool = False,
    ) -> Chunk:
        """A child whose embedded text is ``prefix`` and ``text``; ``own`` are its atoms without what it repeats."""
        embed_text = prefix + text
        if path not in self._paths:
            self._paths[path] = _words(*path)
        parts = (self._title, self._paths[path], _words(text))
        lexical = " ".join(words for words, _ in parts if words)
        identifiers = tuple(dict.fromkeys(name for _, names in parts for name in names))[: analysis.MAX_IDENTIFIERS]
        start, end = source_range(own)
        identity = [self._document.key, embed_text, lexical, list(identifiers), self._facets]
        return Chunk(
            chunk_id=self._id(CHUNK_NAMESPACE, identity),
            section_ordinal=section_ordinal,
            ordinal=ordinal,
            heading_path=path,
            text=text,
            embed_text=embed_text,
            embed_hash=hashlib.sha256(embed_text.encode("utf-8", "replace")).hexdigest()[:32],
            lexical=lexical,
            identifiers=identifiers,
            tokens=tokens,
            start=start,
            end=end,
            page=next((atom.block.page for atom in own if atom.block.page is not None), None),
            summary=summary,
        )

    def _id(self, namespace: uuid.UUID, identity: Sequence[object]) -> str:
        key = json.dumps(identity, ensure_ascii=False, separators=(",", ":"))
        seen = hashlib.blake2b(f"{namespace}{key}".encode("utf-8", "replace"), digest_size=16).hexdigest()
        occurrence = self._seen[seen]
        self._seen[seen] += 1
        return str(uuid.uuid5(namespace, f"{key[:-1]},{occurrence}]"))


def _words(*parts: str) -> tuple[str, tuple[str, ...]]:
    """Searched words and identifiers: of each part once, however many chunks it stands in."""
    return analysis.lexical(*parts), analysis.identifiers("\n".join(parts))
