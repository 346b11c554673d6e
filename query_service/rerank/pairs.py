"""Pairs of query and passage as a cross-encoder reads them: cut to its tokens, only the passage by what is too much."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

from pipeline.errors import ConfigError
from query_service.rerank.interface import Logits, Reranker

if TYPE_CHECKING:
    from tokenizers import Encoding, Tokenizer

QUERY_SHARE = 0.5  # of a pair's tokens that a query may take; longer ones are cut, so that a passage is always read
MOST_CHARS_PER_TOKEN = 20  # what lies beyond is not looked at
CHARS_PER_TOKEN = 4  # where nobody counts
PADDING = ("[PAD]", "<pad>")


@dataclass(frozen=True)
class Pair:
    """One pair, already cut. ``ids`` and ``types`` are empty where the model makes tokens itself."""

    query: str
    passage: str
    tokens: int
    ids: Sequence[int] = ()
    types: Sequence[int] = ()


@dataclass(frozen=True)
class Shape:
    """How a model is best called: ``part`` pairs of one query at a time, ``batch`` parts in one call, ``workers`` calls
    at once."""

    part: int = 1
    batch: int = 1
    workers: int = 1


class PairReranker(Reranker, Protocol):
    """A reranker whose pairs are counted before they are scored, and may come from several queries."""

    @property
    def shape(self) -> Shape: ...

    def pairs(self, query: str, passages: Sequence[str]) -> list[Pair]:
        """In the order of the passages."""
        ...

    def score_pairs(self, pairs: Sequence[Pair]) -> Logits:
        """Shape (n,), in their order. With ``shape.batch`` 1 they are of one query. Raises RerankerUnavailable."""
        ...


class Whole:
    """A plain reranker as a PairReranker: each request's passages in parts of ``most``, tokens estimated."""

    def __init__(self, reranker: Reranker, most: int = 32) -> None:
        self._reranker = reranker
        self.name = reranker.name
        self.shape = Shape(part=most)

    def score(self, query: str, passages: Sequence[str]) -> Logits:
        """See Reranker."""
        return self._reranker.score(query, passages)

    def pairs(self, query: str, passages: Sequence[str]) -> list[Pair]:
        """See PairReranker."""
        return [estimated(query, passage, 512) for passage in passages]

    def score_pairs(self, pairs: Sequence[Pair]) -> Logits:
        """See PairReranker."""
        return self._reranker.score(pairs[0].query, [pair.passage for pair in pairs])

    def close(self) -> None:
        """See Reranker."""
        self._reranker.close()


def as_pairs(reranker: Reranker) -> PairReranker:
    """The reranker itself where it counts pairs, else ``Whole``."""
    if all(hasattr(reranker, name) for name in ("shape", "pairs", "score_pairs")):
        return reranker  # type: ignore[return-value]
    return Whole(reranker)


def estimated(query: str, passage: str, max_tokens: int) -> Pair:
    """A pair whose tokens are guessed from its characters, and that is cut only where it is absurdly long."""
    most = max_tokens * MOST_CHARS_PER_TOKEN
    query, passage = query[: int(most * QUERY_SHARE)], passage[:most]
    return Pair(query, passage, min(max_tokens, 3 + (len(query) + len(passage)) // CHARS_PER_TOKEN))


class PairTokenizer:
    """A model folder's own tokenizer; thread-safe."""

    def __init__(self, folder: Path, max_tokens: int) -> None:
        """Raises ConfigError when the folder has no fast tokenizer."""
        from tokenizers import Tokenizer

        path = folder / "tokenizer.json"
        try:
            self._pairs: Tokenizer = Tokenizer.from_file(str(path))
            self._plain: Tokenizer = Tokenizer.from_file(str(path))
        except Exception as error:  # the library raises bare exceptions
            raise ConfigError(
                "rerank.weights",
                f"{path} cannot be read: {error}",
                "Save the model with a fast tokenizer (tokenizer.json).",
            ) from error
        self._max_tokens = max_tokens
        # files come with a padding and a truncation of their own
        for tokenizer in (self._pairs, self._plain):
            tokenizer.no_padding()
            tokenizer.no_truncation()
        self._pairs.enable_truncation(max_tokens, strategy="only_second")
        self.pad = next((i for i in map(self._plain.token_to_id, PADDING) if i is not None), 0)
        self._special = self._plain.num_special_tokens_to_add(True)

    def pairs(self, query: str, passages: Sequence[str]) -> list[Pair]:
        """At most ``max_tokens`` each, in the order of the passages. A query alone takes at most half of them."""
        query = self._cut(query)
        most = self._max_tokens * MOST_CHARS_PER_TOKEN
        texts = [passage[:most] for passage in passages]
        found = self._pairs.encode_batch([(query, text) for text in texts]) if texts else []
        return [
            Pair(query, text[: _end(one)], len(one.ids), one.ids, one.type_ids)
            for text, one in zip(texts, found, strict=True)
        ]

    def _cut(self, query: str) -> str:
        limit = max(1, int((self._max_tokens - self._special) * QUERY_SHARE))
        query = query[: limit * MOST_CHARS_PER_TOKEN]
        offsets = self._plain.encode(query, add_special_tokens=False).offsets
        return query if len(offsets) <= limit else query[: offsets[limit - 1][1]]


def _end(encoding: Encoding) -> int:
    """Where the last token of the passage ends in its text."""
    of = encoding.sequence_ids
    return max((end for (_, end), which in zip(encoding.offsets, of, strict=True) if which == 1), default=0)
