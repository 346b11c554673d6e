"""A large corpus by seeded perturbation of really embedded passages: texts, vectors, readers. Pure.

Vectors move along the differences of other passages, so they stay where real ones lie, plus a little noise; texts
have some words exchanged for others of the same corpus. Every document can be made again alone, from its number.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from schemas.documents import Tier
from schemas.keys import DocumentRef

REVISION = 1
"""Part of a cached corpus's fingerprint: raise it when the same seed makes something else."""
PRINCIPALS, READERS = 4_000, 8
SCOPES = (1, 10, 100, 1_000)
CHUNKS = 10  # of a document
HOT_SHARE = 5  # every fifth document stands in the hot tier
EXCHANGED = 0.15  # of the words
TENANT, SOURCE = "corpus", "made"

Vector = npt.NDArray[np.float32]
Matrix = npt.NDArray[np.float32]


@dataclass(frozen=True)
class Made:
    """One document: what it says, its chunks' vectors (shape (chunks, dimension)), who may read it."""

    number: int
    document: DocumentRef
    title: str
    texts: tuple[str, ...]
    vectors: Matrix
    readers: tuple[str, ...]
    tier: Tier


def principal(number: int) -> str:
    """Name of a group."""
    return f"group:{SOURCE}/p{number:04d}"


def scope(count: int, seed: int) -> list[str]:
    """The groups of a person with ``count`` principals; a smaller scope is part of a larger one."""
    order = np.random.default_rng([seed, 1]).permutation(PRINCIPALS)
    return [principal(int(number)) for number in order[:count]]


def person(count: int) -> str:
    """Who has that scope."""
    return f"p{count}"


class Corpus:
    """``documents`` of CHUNKS chunks each, made from passages and their vectors (shape (n, dimension), unit length)."""

    def __init__(self, passages: Sequence[str], vectors: Matrix, *, documents: int, seed: int = 41) -> None:
        if len(passages) != len(vectors) or len(passages) < 3:
            raise ValueError(f"{len(passages)} passages and {len(vectors)} vectors; needs as many, and three at least")
        self.passages = tuple(passages)
        self.vectors = vectors
        self.documents = documents
        self.seed = seed
        self._words = [passage.split() for passage in passages]
        counts = Counter(word for words in self._words for word in words)
        self._vocabulary = list(counts)
        weights = np.array([counts[word] for word in self._vocabulary], dtype=np.float64)
        self._cumulated = np.cumsum(weights / weights.sum())

    @property
    def chunks(self) -> int:
        """Chunks in all."""
        return self.documents * CHUNKS

    def made(self, number: int) -> Made:
        """One document; the same each time."""
        drawn = np.random.default_rng([self.seed, 2, number])
        chosen = drawn.integers(len(self.passages), size=CHUNKS)
        readers = drawn.choice(PRINCIPALS, size=READERS, replace=False)
        return Made(
            number=number,
            document=DocumentRef(tenant=TENANT, source=SOURCE, id=f"made-{number}"),
            title=f"Made {number}",
            texts=tuple(f"{number}.{i} {self.text(int(base), drawn)}" for i, base in enumerate(chosen)),
            vectors=perturbed(self.vectors, chosen, drawn),
            readers=tuple(principal(int(reader)) for reader in sorted(readers)),
            tier=tier_of(number),
        )

    def text(self, base: int, drawn: np.random.Generator) -> str:
        """A passage with some of its words exchanged, frequent words more often put in than rare ones."""
        words = list(self._words[base])
        places = np.flatnonzero(drawn.random(len(words)) < EXCHANGED)
        picks = np.searchsorted(self._cumulated, drawn.random(len(places)), side="right")
        for place, pick in zip(places, picks, strict=True):
            words[place] = self._vocabulary[min(int(pick), len(self._vocabulary) - 1)]
        return " ".join(words)

    def question(self, number: int) -> str:
        """A query of 6 to 10 consecutive words of some passage; distinct for distinct numbers."""
        drawn = np.random.default_rng([self.seed, 3, number])
        words = self._words[int(drawn.integers(len(self._words)))]
        length = int(drawn.integers(6, 11))
        start = int(drawn.integers(max(1, len(words) - length)))
        return " ".join([*words[start : start + length], str(number)])


def tier_of(number: int) -> Tier:
    """A fifth of the documents is hot."""
    return "hot" if number % HOT_SHARE == 0 else "cold"


def perturbed(vectors: Matrix, bases: npt.NDArray[np.int64], drawn: np.random.Generator) -> Matrix:
    """Unit vectors near those of the bases, shape (len(bases), dimension): cosine to them about 0.75 to 0.95."""
    count, dimension = len(bases), vectors.shape[1]
    one, other = drawn.integers(len(vectors), size=(2, count))
    along = unit(vectors[one] - vectors[other] + 1e-6)
    noise = unit(drawn.standard_normal((count, dimension)).astype(np.float32))
    reach = drawn.uniform(0.3, 0.7, size=(count, 1)).astype(np.float32)
    moved: Matrix = unit(vectors[bases] + reach * along + np.float32(0.15) * noise)
    return moved


def unit(vectors: Matrix) -> Matrix:
    """Each row to length 1."""
    made: Matrix = (vectors / np.linalg.norm(vectors, axis=1, keepdims=True)).astype(np.float32)
    return made


def recall(found: Sequence[Sequence[str]], wanted: Sequence[Sequence[str]]) -> float | None:
    """Mean share of the wanted that was found; questions without anything wanted do not count."""
    shares = [len(set(ours) & set(theirs)) / len(theirs) for ours, theirs in zip(found, wanted, strict=True) if theirs]
    return sum(shares) / len(shares) if shares else None
