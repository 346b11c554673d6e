"""What a kept reply says of the moment is said anew: ids, ages, what is in effect, completeness, times."""

from __future__ import annotations

import uuid
from typing import TYPE_CHECKING, Literal

from query_service.assemble import in_effect
from schemas.api import SearchHit, SearchResponse
from schemas.api_answer import AnswerResponse, AnswerUsage, Citation
from schemas.api_ranking import Evidence, EvidencePassage

if TYPE_CHECKING:
    from query_service.cache.kept import Admitted


def search(reply: SearchResponse, admitted: Admitted, as_of: int | None, ms: float) -> SearchResponse:
    """The reply as of now. ``as_of``: the moment at which documents are to be in effect, where it is not now."""
    now, at = admitted.now, admitted.now if as_of is None else as_of
    report = reply.rerank.model_copy(update={"ms": 0.0}) if reply.rerank is not None else None
    return reply.model_copy(
        update={
            "query_id": str(uuid.uuid4()),
            "hits": tuple(_hit(hit, now, at) for hit in reply.hits),
            "evidence": _evidence(reply.evidence, at) if reply.evidence is not None else None,
            "complete_until": admitted.complete_until,
            "rerank": report,
            "judged_at": admitted.judged_at,
            "timings_ms": {"cache": round(ms, 3), "total": round(ms, 3)},
            "cached": True,
        }
    )


def answer(
    reply: AnswerResponse, admitted: Admitted, as_of: int | None, ms: float, cached: Literal["exact", "semantic"]
) -> AnswerResponse:
    """The answer as of now; it cost nothing."""
    at = admitted.now if as_of is None else as_of
    return reply.model_copy(
        update={
            "query_id": str(uuid.uuid4()),
            "citations": tuple(_citation(c, admitted.now, at) for c in reply.citations),
            "complete_until": admitted.complete_until,
            "usage": AnswerUsage(),
            "judged_at": admitted.judged_at,
            "timings_ms": {"cache": round(ms, 3), "total": round(ms, 3)},
            "cached": cached,
        }
    )


def _hit(hit: SearchHit, now: int, at: int) -> SearchHit:
    stands = in_effect(hit.effective_from, hit.effective_until, at)
    return hit.model_copy(update={"age_s": _age_s(hit.updated_at, hit.version, now), "in_effect": stands})


def _citation(citation: Citation, now: int, at: int) -> Citation:
    stands = in_effect(citation.effective_from, citation.effective_until, at)
    age_s = _age_s(citation.updated_at, citation.version, now)
    return citation.model_copy(update={"age_s": age_s, "in_effect": stands})


def _evidence(evidence: Evidence, at: int) -> Evidence:
    def passage(p: EvidencePassage) -> EvidencePassage:
        return p.model_copy(update={"in_effect": in_effect(p.effective_from, p.effective_until, at)})

    return evidence.model_copy(update={"passages": tuple(passage(p) for p in evidence.passages)})


def _age_s(updated_at: int | None, version: int, now: int) -> float:
    """As ``assemble.age_s``."""
    return round(max(0, now - (updated_at if updated_at is not None else version)) / 1_000_000, 3)
