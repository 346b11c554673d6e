"""Query services in this process, one for each set of settings that is compared. Started when first asked for."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Sequence
from contextlib import AsyncExitStack
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from infra.bench.ranking.variants import Variant
from infra.bench.world import World
from infra.errors import InfraError
from pipeline.ports import Embedder
from pipeline.settings import AuthSettings, Settings
from query_service.encoders import LoadEncoder
from query_service.rerank.interface import Logits
from query_service.rerank.pairs import Pair, PairReranker, Shape, as_pairs
from schemas.generation import Generation

if TYPE_CHECKING:
    from query_service.app import Parts
    from query_service.service import QueryService

READY_S = 120.0


class Remembering:
    """A reranker that scores each pair once, for variants that differ in what is made of the scores.

    The default model scores a pair alone, so a remembered score is what it would say again.
    """

    def __init__(self, model: PairReranker) -> None:
        self._model = model
        self._known: dict[tuple[str, str], float] = {}
        self._lock = threading.Lock()

    @property
    def name(self) -> str:
        """Of the model."""
        return self._model.name

    @property
    def shape(self) -> Shape:
        """Of the model."""
        return self._model.shape

    def pairs(self, query: str, passages: Sequence[str]) -> list[Pair]:
        """See PairReranker."""
        return self._model.pairs(query, passages)

    def score(self, query: str, passages: Sequence[str]) -> Logits:
        """See Reranker."""
        return self.score_pairs(self.pairs(query, passages)) if passages else np.zeros(0, dtype=np.float32)

    def score_pairs(self, pairs: Sequence[Pair]) -> Logits:
        """See PairReranker."""
        with self._lock:
            new = [pair for pair in pairs if (pair.query, pair.passage) not in self._known]
        if new:
            scores = self._model.score_pairs(new)
            with self._lock:
                self._known.update(((p.query, p.passage), float(s)) for p, s in zip(new, scores, strict=True))
        with self._lock:
            return np.array([self._known[pair.query, pair.passage] for pair in pairs], dtype=np.float32)

    def close(self) -> None:
        """Kept: another service may use it."""


class Variants:
    """The services; use it as an async context."""

    def __init__(self, world: World) -> None:
        self._world = world
        self._stack = AsyncExitStack()
        self._made: dict[tuple[object, ...], QueryService] = {}
        self._encoder: Embedder | None = None
        self._reranker: Remembering | None = None
        self._lock = threading.Lock()

    async def __aenter__(self) -> Variants:
        return self

    async def __aexit__(self, *error: object) -> None:
        await self._stack.aclose()

    async def of(self, variant: Variant) -> QueryService:
        """Ready to be asked, its reranker loaded where the variant uses one. Raises InfraError."""
        key = variant.service()
        if key not in self._made:
            self._made[key] = await self._make(variant, len(self._made))
        return self._made[key]

    async def _make(self, variant: Variant, number: int) -> QueryService:
        from query_service.app import create_app
        from query_service.wiring import dependencies

        settings = variant.settings(_asking_freely(self._world, number))
        made = dependencies(settings)
        made = replace(made, load_encoder=self._shared(made.load_encoder))
        if variant.remembered and made.load_reranker is not None:
            load = made.load_reranker
            made = replace(made, load_reranker=lambda: self._remembering(as_pairs(load())))
        app = create_app(made)
        await self._stack.enter_async_context(app.router.lifespan_context(app))
        parts: Parts = app.state.parts
        end = time.monotonic() + READY_S
        while reasons := parts.state.reasons():
            if time.monotonic() > end:
                raise InfraError(f"A query service for {variant.name!r} is not ready: {', '.join(reasons)}.", "")
            await asyncio.sleep(0.1)
        if variant.fields()["rerank"] != "off" and not await _reranks(parts):
            raise InfraError("There is no reranker to measure.", "`headwater doctor` says what it needs.")
        return parts.service

    def _shared(self, load: LoadEncoder) -> LoadEncoder:
        def one(generation: Generation) -> Embedder:
            with self._lock:
                if self._encoder is None:
                    self._encoder = load(generation)
                return self._encoder

        return one

    def _remembering(self, model: PairReranker) -> Remembering:
        with self._lock:
            if self._reranker is None:
                self._reranker = Remembering(model)
            return self._reranker


async def _reranks(parts: Parts) -> bool:
    if parts.reranking is None:
        return False
    parts.reranking.start()
    return await parts.reranking.loaded()


def _asking_freely(world: World, number: int) -> Settings:
    """The world's settings with receipts of its own; no token is looked at here."""
    settings = world.settings
    query = settings.query.model_copy(update={"receipts_path": world.folder / f"variant-{number}.sqlite"})
    log = settings.querylog.model_copy(update={"enabled": False})
    auth = settings.auth
    if auth.jwt_secret is None:
        auth = AuthSettings.model_validate({"jwt_secret": "x" * 48})
    return settings.model_copy(update={"query": query, "querylog": log, "auth": auth})
