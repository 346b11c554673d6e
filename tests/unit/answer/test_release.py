"""What leaves: sentences in their order, citations numbered by use, nothing whose passage was taken away."""

from __future__ import annotations

from typing import Any

import pytest

from pipeline.clock import ManualClock
from query_service.answer.interface import Draft, Source, Verdict
from query_service.answer.release import Released
from query_service.answer.stale import stale
from query_service.gate import Version
from query_service.scope import Scope
from schemas.api import SearchCounts, SearchFilters, SearchResponse
from schemas.api_answer import AnswerRequest
from schemas.api_ranking import EvidencePassage

pytestmark = pytest.mark.anyio


def passage(number: int, **changes: Any) -> EvidencePassage:
    fields: dict[str, Any] = {
        "section_id": f"s{number}", "document_uid": f"d{number}", "document_id": f"d{number}.md", "source": "wiki",
        "title": f"D{number}", "url": None, "version": 10 + number, "updated_at": None, "heading_path": (),
        "text": f"Fact {number}.", "tokens": 3, "rank": number, "chunk_ids": (f"c{number}",), **changes,
    }  # fmt: skip
    return EvidencePassage.model_validate(fields)


class Admits:
    """Everything but what was taken away; notes what was asked."""

    def __init__(self) -> None:
        self.gone: set[str] = set()
        self.asked: list[set[Version]] = []

    async def standing(
        self, scope: Scope, versions: set[Version], generation: str | None, filters: SearchFilters
    ) -> set[Version]:
        assert generation == "g1"
        self.asked.append(set(versions))
        return {v for v in versions if v[0] not in self.gone}


def found(**changes: Any) -> SearchResponse:
    fields: dict[str, Any] = {
        "query_id": "q", "generation": "g1", "hits": (), "complete_until": {}, "fresh": None,
        "counts": SearchCounts(dense=0, sparse=0, exact=0, admitted=0), "starved": False, "judged_at": 5,
        "timings_ms": {}, **changes,
    }  # fmt: skip
    return SearchResponse.model_validate(fields)


def released(admits: Admits) -> Released:
    sources = tuple(Source(number, passage(number)) for number in (1, 2, 3))
    return Released(Scope(tenant="acme", subject="ann"), admits, sources, found(), ManualClock())


def says(*cited: int, score: float = 0.9) -> Verdict:
    return Verdict(True, score, cited, {n: f"Fact {n}." for n in cited})


@pytest.mark.requirement("B8")
async def test_citations_are_numbered_in_the_order_of_use_and_quotes_join() -> None:
    made = released(Admits())
    made.judge(Draft("B."), says(2), qualified=False)
    made.judge(Draft("A and C."), says(3, 1), qualified=True)
    made.judge(Draft("b."), says(2), qualified=False)  # the same words again
    made.judge(Draft("B too."), Verdict(True, 0.8, (2,), {2: "More."}), qualified=False)
    await made.admit()
    assert made.text("Unsure:") == "B.[^1] Unsure: A and C.[^2][^3] B too.[^1]"
    assert [c.document_uid for c in made.citations] == ["d2", "d3", "d1"]
    assert made.citations[0].quote == "Fact 2. … More."
    assert [c.number for c in made.event(1).citations] == [2, 3] and made.event(2).citations == ()


@pytest.mark.requirement("B8")
async def test_what_is_not_supported_is_told_and_not_released() -> None:
    made = released(Admits())
    made.judge(Draft("No."), Verdict(False, 0.1, reason="number"), qualified=False)
    await made.admit()
    assert made.sentences == [] and made.withheld == made.unsupported == 1
    assert (made.told[0].text, made.told[0].reason) == ("No.", "number")


@pytest.mark.requirement("B9", "A8")
async def test_a_sentence_waits_for_every_passage_that_it_rests_on() -> None:
    admits = Admits()
    made = released(admits)
    admits.gone = {"d3"}
    made.judge(Draft("Both."), says(1, 3), qualified=False)
    made.judge(Draft("One."), says(1), qualified=False)
    await made.admit()
    assert [s.text for s in made.sentences] == ["One."] and made.withdrawn == 1
    assert admits.asked == [{("d1", 11), ("d3", 13)}], "in the version that was read"


@pytest.mark.requirement("B9", "A8")
async def test_what_is_taken_away_later_is_not_in_the_whole_answer() -> None:
    admits = Admits()
    made = released(admits)
    for number in (1, 2):
        made.judge(Draft(f"Fact {number}."), says(number), qualified=False)
    await made.admit()
    admits.gone = {"d1"}
    made.clock.advance(1)  # type: ignore[attr-defined]
    await made.recheck()
    assert [s.text for s in made.sentences] == ["Fact 2."] and [c.document_uid for c in made.citations] == ["d2"]
    assert made.text("") == "Fact 2.[^2]" and made.number_of(1) is None and made.withdrawn == 1
    assert made.judged_at == made.clock.now()


@pytest.mark.requirement("B8")
def test_staleness_is_asked_of_the_sources_of_the_answer() -> None:
    now = 100_000_000
    sources = [Source(1, passage(1))]
    behind = found(complete_until={"wiki": 80_000_000, "tickets": None})
    assert not stale(AnswerRequest(question="q"), behind, sources, now)
    assert not stale(AnswerRequest(question="q", max_staleness_s=20), behind, sources, now)
    assert stale(AnswerRequest(question="q", max_staleness_s=19), behind, sources, now)
    named = AnswerRequest(question="q", max_staleness_s=20, filters=SearchFilters(sources=("tickets",)))
    assert stale(named, behind, sources, now), "nobody knows how complete it is"
    assert stale(AnswerRequest(question="q", max_staleness_s=20), behind, [], now), "nothing found: any source counts"
