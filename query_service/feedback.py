"""``POST /v1/feedback``: what a person says of an answer that they were given.

A query of somebody else and one that never was are answered alike. The last verdict on a target counts.
"""

from __future__ import annotations

import logging
from typing import Any

from fastapi import APIRouter, Response

from pipeline.clock import Clock
from pipeline.errors import BusUnavailable
from pipeline.observe import Metrics
from query_service import problems
from query_service.callers import Caller
from query_service.documents import NotFound
from query_service.idempotency import Once
from query_service.querylog.log import QueryLog
from query_service.scope import FieldError, Scope
from schemas.api import Problem
from schemas.api_feedback import FeedbackRequest, FeedbackResponse
from schemas.querylog import FeedbackRecord

log = logging.getLogger("headwater.query.feedback")


class Feedback:
    """Takes feedback on queries of the query log."""

    def __init__(self, querylog: QueryLog, clock: Clock, metrics: Metrics) -> None:
        self._log, self._clock, self._metrics = querylog, clock, metrics

    async def give(self, caller: Scope, request: FeedbackRequest) -> FeedbackResponse:
        """Store it. Raises NotFound for a query that is not the caller's, FieldError for a target that the query did
        not show, BusUnavailable."""
        asker = self._log.references.scope(caller)
        shown = await self._log.shown(caller.tenant, asker, request.query_id)
        if shown is None:
            raise NotFound
        for field in ("chunk_id", "document_uid"):
            named = getattr(request, field)
            if named is not None and named not in shown.targets:
                raise FieldError(field, "is not among what this query showed; leave it out or name one of its hits")
        record = FeedbackRecord(
            query_id=request.query_id, at=self._clock.now(), tenant=caller.tenant, scope=asker,
            chunk_id=request.chunk_id, document_uid=request.document_uid, verdict=request.verdict,
            comment=request.comment, text_mode="full",
        )  # fmt: skip
        kept = await self._log.feedback(record)
        self._metrics.count("headwater_feedback_total", verdict=kept.verdict)
        if kept.verdict == "forbidden":
            self._alarm(kept)
        return FeedbackResponse(
            query_id=kept.query_id, chunk_id=kept.chunk_id, document_uid=kept.document_uid, verdict=kept.verdict,
            comment_kept=kept.text_mode, at=kept.at,
        )  # fmt: skip

    def _alarm(self, record: FeedbackRecord) -> None:
        """Somebody saw what they should not: a rule at the source may be wrong, which no machine can tell."""
        self._metrics.count("headwater_forbidden_reports_total")
        where = {
            "query_id": record.query_id, "tenant": record.tenant, "scope": record.scope,
            "document_uid": record.document_uid, "chunk_id": record.chunk_id,
        }  # fmt: skip
        log.error("a person reports an answer that they should not see", extra={"fields": where})


def router(feedback: Feedback) -> APIRouter:
    """The route."""
    routes = APIRouter(prefix="/v1")
    answers: dict[int | str, dict[str, Any]] = {
        401: {"model": Problem, "description": "The token is missing, expired or not valid here."},
        404: {"model": Problem, "description": "No such query of this caller."},
        422: {"model": Problem, "description": "Fields that cannot be used, by name."},
        503: {"model": Problem, "description": "The log does not take it now; nothing was stored."},
    }

    @routes.post(
        "/feedback",
        response_model=FeedbackResponse,
        responses=answers,
        summary="Say what an answer, passage or document was worth",
    )
    async def give(request: FeedbackRequest, caller: Caller, once: Once) -> Response:
        async def work() -> Response:
            try:
                stored = await feedback.give(caller, request)
            except BusUnavailable:
                return problems.unavailable("Feedback cannot be stored at the moment; send it again shortly.")
            return Response(stored.model_dump_json(), media_type="application/json")

        return await once.run(work)

    return routes
