"""Searches that the real cross-encoder ranks again, on real Weaviate and Kafka."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pytest

from pipeline.errors import ConfigError
from pipeline.observe import Metrics
from pipeline.settings import Settings
from query_service.rerank import files
from query_service.rerank.interface import Logits, Reranker, RerankerUnavailable
from query_service.rerank.load import load_reranker
from tests.integration.query.real import RealWorld
from tests.unit.query.world import anyone

pytestmark = pytest.mark.anyio
QUERY = "How many people live in Berlin?"


class Watched:
    """A reranker, and what it was shown."""

    def __init__(self, inner: Reranker) -> None:
        self._inner = inner
        self.name = inner.name
        self.shown: list[str] = []
        self.down = False

    def score(self, query: str, passages: Sequence[str]) -> Logits:
        self.shown += passages
        if self.down:
            raise RerankerUnavailable("no answer")
        return self._inner.score(query, passages)

    def close(self) -> None:
        self._inner.close()


@pytest.fixture
def watched(world: RealWorld, cache_dir: Path) -> Watched:
    host = Settings(cache_dir=cache_dir)
    try:
        files.verified(host)
    except ConfigError as error:
        pytest.skip(str(error))
    made = Watched(load_reranker(host, Metrics()))
    world.load_reranker = lambda: made
    world.principal("user:ann")
    world.principal("user:bob")
    world.document("museums", "Berlin is well known for its museums, and many people live there for them.")
    world.document("people", "Berlin had a population of 3,520,031 registered inhabitants in an area of 892 km².")
    world.document("york", "New York City is famous for the Metropolitan Museum of Art.")
    world.document("secret", "How many people live in Berlin is a secret: 3,913,644.", rule=anyone("user:bob"))
    return made


@pytest.mark.requirement("B4", "I3")
async def test_a_search_is_ranked_again_among_what_its_caller_may_read(world: RealWorld, watched: Watched) -> None:
    async with world.running() as run:
        await run.parts.reranking.loaded()
        watched.shown.clear()
        reply = await run.search(QUERY, rerank="full")
        assert reply["hits"][0]["document_id"] == "people"
        assert {hit["document_id"] for hit in reply["hits"]} == {"people", "museums", "york"}
        report = reply["rerank"]
        assert (report["asked"], report["done"], report["candidates"]) == ("full", "full", 3)
        assert report["model"] == files.MODEL and report["ms"] > 0 and not report["late"]
        scores = {hit["document_id"]: hit["scores"]["rerank"] for hit in reply["hits"]}
        assert scores["people"] > scores["museums"] > scores["york"]
        assert len(watched.shown) == 3 and not any("secret" in text for text in watched.shown)
        assert (await run.search(QUERY, "bob", rerank="full"))["rerank"]["candidates"] == 4


@pytest.mark.requirement("B4", "B12")
async def test_without_the_reranker_the_fused_order_is_served_and_said(world: RealWorld, watched: Watched) -> None:
    async with world.running() as run:
        await run.parts.reranking.loaded()
        off = await run.search(QUERY, rerank="off")
        assert off["rerank"]["done"] == "off" and off["rerank"]["candidates"] == 0
        watched.down = True
        down = await run.search(QUERY, rerank="full")
        assert down["rerank"]["done"] == "off" and down["rerank"]["reason"] == "the reranker does not answer"
        assert [hit["chunk_id"] for hit in down["hits"]] == [hit["chunk_id"] for hit in off["hits"]]
