"""Which documents a reply was made from, and whether it is one to keep."""

from __future__ import annotations

from query_service.cache.shelf import Used
from query_service.finish import NO_RERANKER
from query_service.rerank.service import FITTED
from schemas.api import SearchResponse
from schemas.api_answer import AnswerResponse
from schemas.api_ranking import RerankReport

_STEADY = (None, NO_RERANKER, "sorted by date")  # reasons for less reranking that will stand


def of_search(reply: SearchResponse) -> tuple[Used, ...]:
    """Hits, other documents with their passages, evidence; of each document once."""
    found: dict[str, Used] = {}
    for hit in reply.hits:
        found[hit.document_uid] = Used(hit.document_uid, hit.source, hit.version, hit.access.version)
    for passage in reply.evidence.passages if reply.evidence is not None else ():
        found.setdefault(passage.document_uid, Used(passage.document_uid, passage.source, passage.version))
    for hit in reply.hits:
        for twin in hit.also:
            found.setdefault(twin.document_uid, Used(twin.document_uid, twin.source))
    return tuple(found.values())


def of_answer(answer: AnswerResponse, search: SearchResponse) -> tuple[Used, ...]:
    """Those of its search, which writer and checker read, and those that it cites."""
    found = {used.uid: used for used in of_search(search)}
    for citation in answer.citations:
        found.setdefault(citation.document_uid, Used(citation.document_uid, citation.source, citation.version))
    return tuple(found.values())


def agrees(reply: SearchResponse) -> bool:
    """Whether hits and evidence show each document in one version: a change between two reads is no reply to keep."""
    versions: dict[str, int] = {}
    told = [(hit.document_uid, hit.version) for hit in reply.hits]
    told += [(p.document_uid, p.version) for p in reply.evidence.passages] if reply.evidence is not None else []
    return all(versions.setdefault(uid, version) == version for uid, version in told)


def worth_keeping(reply: SearchResponse) -> bool:
    """Not what had too little time, and not what was made of more than the documents that it names. Where nothing was
    found, a suggestion may only have come too late."""
    return (
        bool(reply.hits) and not reply.starved and reply.fresh is None and reply.generation is not None
        and not reply.steps and reply.suggestion is None and _ranked_whole(reply.rerank) and agrees(reply)
    )  # fmt: skip


def answer_worth_keeping(answer: AnswerResponse, search: SearchResponse) -> bool:
    """Not a refusal, nor what stands in for an answer, nor half of one; and nothing kept is kept on by another."""
    return (
        answer.answered and answer.refusal is None and answer.kind != "refusal" and answer.fallback is None
        and not answer.incomplete and answer.fresh is None and answer.generation == search.generation
        and answer.cached == "none" and not search.cached and worth_keeping(search)
    )  # fmt: skip


def _ranked_whole(report: RerankReport | None) -> bool:
    """In 'fast' as many passages as fit are scored, so fewer than all is what was asked for."""
    if report is None or report.late:
        return report is None
    fitted = report.asked == "fast" and (report.reason or "").endswith(FITTED)
    return fitted or report.reason in _STEADY
