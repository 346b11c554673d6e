"""An exact index in memory that ranks as the query service does: cosine and BM25, cut at a depth, fused."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from pipeline import analysis
from pipeline.ports import Vectors
from query_service import bm25, expand, fuse
from schemas.documents import Chunk

DEPTH = 50  # candidates a leg, as the query service's default
Mask = npt.NDArray[np.bool_]


@dataclass(frozen=True)
class Passage:
    """A chunk, and the name of its document."""

    document: str
    chunk: Chunk


class Index:
    """All passages of a corpus with their vectors."""

    def __init__(self, passages: Sequence[Passage], vectors: Vectors) -> None:
        """``vectors`` are unit vectors, a row a passage."""
        self.passages = tuple(passages)
        self._vectors = vectors
        self._postings: dict[str, list[tuple[int, int]]] = {}
        self._lengths = np.zeros(len(self.passages))
        for at, passage in enumerate(self.passages):
            found = passage.chunk.lexical.split(" ") if passage.chunk.lexical else []
            self._lengths[at] = len(found)
            for term, count in Counter(found).items():
                self._postings.setdefault(term, []).append((at, count))

    def search(self, query: str, vector: Vectors, admitted: Mask) -> list[Passage]:
        """Best first, of the admitted alone. A summary's hit stands for the best sections of its document."""
        cosine = np.where(admitted, self._vectors @ vector.reshape(-1), -2.0)
        dense = [int(at) for at in np.argsort(-cosine, kind="stable")[:DEPTH] if admitted[at]]
        words = np.where(admitted, self._words(query), 0.0)
        sparse = [int(at) for at in np.argsort(-words, kind="stable")[:DEPTH] if words[at] > 0]
        wanted = set(analysis.identifiers(query))
        exact = {
            at
            for at in np.flatnonzero(admitted).tolist()
            if wanted and wanted <= set(self.passages[at].chunk.identifiers)
        }
        fused = fuse.rrf([[str(at) for at in dense], [str(at) for at in sparse]])
        listed = dict.fromkeys([*sorted(exact), *dense, *sparse])
        ranked = sorted(listed, key=lambda at: (at not in exact, -fused.get(str(at), 0.0), at))
        return [self.passages[at] for at in self._expanded(ranked)]

    def _words(self, query: str) -> npt.NDArray[np.float64]:
        """BM25 of every passage, with the query service's weights."""
        scores = np.zeros(len(self.passages))
        average = float(self._lengths.mean()) or 1.0
        for term, times in Counter(bm25.query_terms(analysis.tokens(query))).items():
            found = self._postings.get(term)
            if not found:
                continue
            at, tf = (np.array(column) for column in zip(*found, strict=True))
            norm = bm25.K1 * (1.0 - bm25.B + bm25.B * self._lengths[at] / average)
            scores[at] += times * bm25.idf(len(self.passages), len(found)) * tf / (tf + norm)
        return scores

    def _expanded(self, ranked: Sequence[int]) -> list[int]:
        """Summaries replaced, at their place, by their document's best passages of different sections."""
        out: dict[int, None] = {}
        for at in ranked:
            passage = self.passages[at]
            if not passage.chunk.summary:
                out.setdefault(at)
                continue
            best: dict[int, int] = {}
            for other in ranked:
                one = self.passages[other]
                if one.document == passage.document and not one.chunk.summary:
                    best.setdefault(one.chunk.section_ordinal, other)
            for other in list(best.values())[: expand.SECTIONS] or [at]:
                out.setdefault(other)
        return list(out)
