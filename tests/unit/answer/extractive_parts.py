"""Passages and models for tests of answers that are taken from the sources."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Sequence
from typing import Literal

import numpy as np

from pipeline.ports import Vectors
from query_service.answer.extractive import ExtractiveWriter
from query_service.answer.interface import Ask, Source
from query_service.rerank.interface import Reranked
from schemas.api_ranking import EvidencePassage
from schemas.generation import BackendChoice, Generation

GENERATION = Generation(name="g1", state="active", backend=BackendChoice(name="stub", agreement=1.0), created_at=0)


def source(
    number: int, text: str, *, title: str = "Page", path: tuple[str, ...] = (), in_effect: bool = True, rank: int = 0
) -> Source:
    """A passage as it is supplied."""
    return Source(
        number,
        EvidencePassage(
            section_id=f"s{number}", document_uid=f"u{number}", document_id=f"d{number}", source="wiki", title=title,
            url=None, version=1, updated_at=None, effective_from=None, effective_until=None, in_effect=in_effect,
            heading_path=path, text=text, tokens=len(text) // 4, rank=rank or number, chunk_ids=(f"c{number}",),
        ),
    )  # fmt: skip


def ask(question: str, *sources: Source, seconds: float = 5.0, max_tokens: int = 512, **more: str | None) -> Ask:
    """A question as a writer gets it."""
    return Ask(question, (), tuple(sources), max_tokens, time.monotonic() + seconds, **more)


def written(question: Ask, writer: ExtractiveWriter | None = None, sentences: int = 5) -> str:
    """The whole text of a writer, by default of one without models."""
    made = writer or ExtractiveWriter(None, None, lambda: None, sentences)

    async def whole() -> str:
        return "".join([part.text async for part in made.write(question)])

    return asyncio.run(whole())


class WordEncoder:
    """Embeds by groups of words that mean the same: a very small model of meaning."""

    def __init__(self, *groups: str, wait_s: float = 0.0, loaded: bool = True) -> None:
        self._groups = [group.split() for group in groups]
        self._wait = wait_s
        self._loaded = loaded
        self.asked: list[str] = []

    def warm(self, generation: Generation) -> bool:
        """See Encoders."""
        return self._loaded

    async def embed(self, generation: Generation, text: str) -> Vectors:
        """See Encoders."""
        self.asked.append(text)
        await asyncio.sleep(self._wait)
        words = text.casefold().replace(".", " ").replace("?", " ").split()
        vector = np.array([[sum(word in group for word in words) for group in self._groups] + [0.5]], dtype=np.float32)
        return vector / np.linalg.norm(vector)

    async def embed_passage(self, generation: Generation, text: str) -> Vectors:
        """See Encoders."""
        return await self.embed(generation, text)


class WordReranking:
    """Scores passages by one word."""

    def __init__(self, word: str, most: int = 50) -> None:
        self._word = word
        self._most = most
        self.passages: list[str] = []

    async def rank(
        self, query: str, passages: Sequence[str], mode: Literal["fast", "full"], *, wanted: int | None, deadline: float
    ) -> Reranked:
        """See Reranking."""
        self.passages = list(passages)
        scored = [8.0 if self._word in text else -8.0 for text in passages[: self._most]]
        return Reranked(tuple(scored), 1.0)
