"""Whether an answer would rest on sources that are further behind than the caller accepts."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from query_service.answer.interface import Source
from schemas.api import SearchResponse
from schemas.api_answer import AnswerRequest


def stale(request: AnswerRequest, response: SearchResponse, sources: Sequence[Source], now: int) -> bool:
    """By ``max_staleness_s``: of the sources that passages come from and those that the filter names; where there are
    none of these, of all. A source of which nobody knows how complete it is counts as behind. ``now`` in µs."""
    if request.max_staleness_s is None:
        return False
    named = {source.passage.source for source in sources} | set(request.filters.sources or ())
    return behind(request.max_staleness_s, named or response.complete_until, response.complete_until, now)


def behind(limit_s: float, names: Iterable[str], complete_until: Mapping[str, int | None], now: int) -> bool:
    """Whether any of the sources is not known to be complete up to ``limit_s`` seconds before ``now`` (µs)."""
    until = (complete_until.get(name) for name in names)
    return any(moment is None or moment < now - limit_s * 1e6 for moment in until)
