"""An exact index in memory that ranks as the query service does: cosine and BM25, cut at a depth, fused."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
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


@dataclass(frozen=True)
class Measured:
    """A passage with its unit vector, and what each leg gave: cosine, BM25, both fused; None where a leg lacks it."""

    passage: Passage
    vector: npt.NDArray[np.float32]
    cosine: float | None
    sparse: float | None
    fused: float
    exact: bool


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
        dense, sparse = self._legs(query, vector, admitted)
        fused = fuse.rrf([[str(at) for at in dense], [str(at) for at in sparse]])
        return [self.passages[at] for at in self._expanded(self._ordered(query, admitted, dense, sparse, fused))]

    def measured(self, query: str, vector: Vectors, admitted: Mask, dense_share: float) -> list[Measured]:
        """Best first by convex fusion, of the admitted alone, with what each leg gave."""
        dense, sparse = self._legs(query, vector, admitted)
        fused = fuse.convex(
            {str(at): value for at, value in dense.items()}, {str(at): value for at, value in sparse.items()},
            dense_share,
        )  # fmt: skip
        exact = self._exact(query, admitted)
        return [
            Measured(
                self.passages[at],
                self._vectors[at],
                dense.get(at),
                sparse.get(at),
                fused.get(str(at), 0.0),
                at in exact,
            )
            for at in self._ordered(query, admitted, dense, sparse, fused)
        ]

    def _legs(self, query: str, vector: Vectors, admitted: Mask) -> tuple[dict[int, float], dict[int, float]]:
        """Places with their cosine, and with their BM25 score, each best first."""
        cosine = np.where(admitted, self._vectors @ vector.reshape(-1), -2.0)
        dense = [int(at) for at in np.argsort(-cosine, kind="stable")[:DEPTH] if admitted[at]]
        words = np.where(admitted, self._words(query), 0.0)
        sparse = [int(at) for at in np.argsort(-words, kind="stable")[:DEPTH] if words[at] > 0]
        return {at: float(cosine[at]) for at in dense}, {at: float(words[at]) for at in sparse}

    def _exact(self, query: str, admitted: Mask) -> set[int]:
        wanted = set(analysis.identifiers(query))
        if not wanted:
            return set()
        return {at for at in np.flatnonzero(admitted).tolist() if wanted <= set(self.passages[at].chunk.identifiers)}

    def _ordered(
        self, query: str, admitted: Mask, dense: Iterable[int], sparse: Iterable[int], fused: Mapping[str, float]
    ) -> list[int]:
        exact = self._exact(query, admitted)
        listed = dict.fromkeys([*sorted(exact), *dense, *sparse])
        return sorted(listed, key=lambda at: (at not in exact, -fused.get(str(at), 0.0), at))

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
