"""Weak evidence: what is told of a reply's hits, and what sorting by date leaves out."""

from __future__ import annotations

import pytest

from infra.bench.strength import Reply, figures, fitted, scores
from query_service.answer.strength import near_best, signals, strength, weak
from query_service.legs import Candidate
from query_service.outcome import Ranked
from schemas.api import SearchHit, SearchResponse
from schemas.api_examples import SEARCH_RESPONSE
from tests.unit.query.world import World

pytestmark = pytest.mark.anyio
MINUTE = 60_000_000


def hit(text: str, distance: float | None = 0.4, *, rerank: float | None = None, fused: float = 0.5) -> SearchHit:
    base = SearchResponse.model_validate(SEARCH_RESPONSE).hits[0]
    scores_ = base.scores.model_copy(
        update={"dense_distance": distance, "rerank": rerank, "fused": fused, "final": fused, "exact": False}
    )
    return base.model_copy(update={"text": text, "title": "", "heading_path": (), "scores": scores_})


def reply(*hits: SearchHit) -> SearchResponse:
    return SearchResponse.model_validate(SEARCH_RESPONSE).model_copy(update={"hits": hits})


@pytest.mark.requirement("B8")
def test_words_of_the_question_in_one_near_passage_are_strong_and_none_are_weak() -> None:
    good = strength("How do I reset the pump?", reply(hit("To reset the pump hold the button.", 0.3)))
    bad = strength("Who audits the vending machines?", reply(hit("To reset the pump hold the button.", 0.75)))
    assert good.score > 0.8 and not weak(good, 0.5)
    assert bad.score < 0.2 and weak(bad, 0.5) and not weak(bad, 0.0)


@pytest.mark.requirement("B8")
def test_an_identifier_that_no_hit_holds_weighs_more_than_nearness() -> None:
    near = hit("Error code E17 means that the transfer status is pending.", 0.35)
    assert strength("What does error code E17 mean?", reply(near)).score > 0.5
    assert weak(strength("What does error code E23 mean?", reply(near)), 0.5)


@pytest.mark.requirement("B8")
def test_nothing_found_is_the_weakest() -> None:
    assert strength("anything", reply()).score == 0.0


@pytest.mark.requirement("B8")
def test_the_rerankers_verdict_counts_where_there_is_one() -> None:
    text = "Shopping carts of the portal"
    high = strength("portal database", reply(hit(text, rerank=6.0))).score
    low = strength("portal database", reply(hit(text, rerank=-11.0))).score
    assert high > low


@pytest.mark.requirement("B8")
def test_signals_stay_between_nothing_and_all() -> None:
    for query in ("what is it?", "E17", "--no-fence", "Übergrößenträger 北京", "X" * 400):
        for hits in ([hit("")], [hit("E17 --no-fence what", None)], [hit("a", 1.9)]):
            assert all(0.0 <= value <= 1.0 for value in signals(query, hits).values()), query


def ranked(name: str, distance: float | None, sparse: float | None, *, exact: bool = False) -> Ranked:
    candidate = Candidate(
        chunk_id=name, document_uid=name, tier="hot", distance=distance, sparse=sparse is not None, exact=exact
    )
    return Ranked(candidate, None, None, 0.0, sparse_score=sparse)  # type: ignore[arg-type]


@pytest.mark.requirement("B8", "E3")
def test_what_is_far_weaker_than_the_best_is_left_out_before_another_order() -> None:
    best, close = ranked("best", 0.4, 10.0), ranked("words", 0.9, 5.0)
    far, named = ranked("far", 0.8, 1.0), ranked("named", None, None, exact=True)
    assert near_best([best, close, far, named]) == [best, close, named]
    assert near_best([far]) == [far], "the best of all is never far from itself"
    assert near_best([]) == []


@pytest.mark.requirement("B8")
def test_weights_are_fitted_and_placed_so_that_few_answerable_questions_are_refused() -> None:
    made = [Reply(f"q{n}", n % 4 != 0, (0.3 + 0.4 * (n % 4 != 0) + 0.001 * (n % 7),) * 5, 0.0) for n in range(200)]
    told = figures(made, scores(made, "plain", fitted(made, "plain")), 0.5)
    assert told["recall"] == 1.0 and told["false_refusals"] <= 0.05


@pytest.mark.requirement("B8", "E3")
async def test_a_search_says_that_nothing_fits_and_newness_alone_brings_nothing_up(world: World) -> None:
    world.principal("user:ann")
    world.document(
        "pump",
        "To reset the pump hold the button for ten seconds, then reset the pump again.",
        updated_at=world.clock.now() - 9 * MINUTE,
    )
    world.document("news", " ".join(["reset", *(f"w{n}" for n in range(60))]), updated_at=world.clock.now() - MINUTE)
    async with world.running() as run:
        fits = await run.search("reset the pump", mode="sparse")
        none = await run.search("audit vending machines reset", mode="sparse")
        newest = await run.search("reset the pump", mode="sparse", sort="newest")
    assert fits["weak"] is False and none["weak"] is True
    assert [hit["document_id"] for hit in fits["hits"]] == ["pump", "news"]
    assert [hit["document_id"] for hit in newest["hits"]] == ["pump"]
