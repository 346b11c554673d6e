"""``/v1/queries``: the query log for those who improve the service or answer for it.

Evaluators and operators read the log of their tenant. Whom a reference means is for evaluators alone; an operator who
looked as or at a person does not find that person's reference with it, since it would tell whose other queries are.
For everybody else the routes are not there.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Sequence
from typing import Annotated, Any

from fastapi import APIRouter, Depends, Query, Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import Response
from pydantic import ValidationError

from pipeline.clock import Clock
from pipeline.errors import BusUnavailable
from query_service import problems
from query_service.callers import Caller, Evaluator
from query_service.documents import NotFound
from query_service.querylog.log import QueryLog
from query_service.querylog.view import DAY_US, QueryView, Wanted
from query_service.scope import FieldError, Scope
from schemas.api import Problem
from schemas.api_feedback import (
    LoggedFeedback,
    LoggedQuery,
    PurgeRequest,
    PurgeResponse,
    QueriesResponse,
    WhoResponse,
)
from schemas.base import MAX_SAFE_INTEGER
from schemas.querylog import FeedbackRecord, Kind, PurgeRecord, QueryOutcome, QueryRecord, Verdict

ACTS = ("seen_as", "why", "who")
_CURSOR = re.compile(r"([0-9]{1,16})-([0-9a-f-]{36})")
_REFERENCE = re.compile(r"[0-9a-f]{32}")
Moment = Annotated[int | None, Query(ge=0, le=MAX_SAFE_INTEGER)]


async def _log_reader(caller: Caller) -> Scope:
    if not (caller.operator or caller.evaluator):
        raise NotFound  # for all others the route is not there
    return caller


LogReader = Annotated[Scope, Depends(_log_reader)]


def router(log: QueryLog, clock: Clock) -> APIRouter:
    """The routes."""
    routes = APIRouter(prefix="/v1/queries")
    answers: dict[int | str, dict[str, Any]] = {
        401: {"model": Problem, "description": "The token is missing, expired or not valid here."},
        404: {"model": Problem, "description": "Absent, or the token lacks the role: the answers are equal."},
        422: {"model": Problem, "description": "Fields that cannot be used, by name."},
        503: {"model": Problem, "description": "The log or its view does not answer now."},
    }

    @routes.get("", responses=answers, summary="Logged queries, newest first (evaluators, operators)")
    async def queries(
        reader: LogReader,
        since: Moment = None,
        until: Moment = None,
        kind: Annotated[Kind | None, Query()] = None,
        outcome: Annotated[QueryOutcome | None, Query(description="'refused', 'failed', 'late', …")] = None,
        zero: Annotated[bool | None, Query(description="Searches that showed nothing, or those that did.")] = None,
        slower_ms: Annotated[float | None, Query(ge=0, le=1e9, description="That took at least so long.")] = None,
        feedback: Annotated[Verdict | None, Query(description="With this verdict.")] = None,
        any_feedback: Annotated[bool, Query(description="With feedback of any kind.")] = False,
        scope: Annotated[str | None, Query(pattern="^[0-9a-f]{32}$", description="Of this reference.")] = None,
        user: Annotated[str | None, Query(min_length=1, max_length=1000, description="Evaluators only.")] = None,
        limit: Annotated[int, Query(ge=1, le=500)] = 50,
        cursor: Annotated[str | None, Query(max_length=64, description="'next_cursor' of the page before.")] = None,
    ) -> QueriesResponse:
        if user is not None:
            if not reader.evaluator:
                raise FieldError("user", "only the role 'evaluator' may ask for a person by name; leave it out")
            scope = log.references.person(reader.tenant, user.removeprefix("user:"))
        wanted = Wanted(
            since=since, until=until, kind=kind, outcome=outcome, zero=zero, slower_ms=slower_ms, feedback=feedback,
            any_feedback=any_feedback, scope=scope, acts_too=reader.evaluator, before=_place(cursor),
        )  # fmt: skip
        view, now = _view(log), clock.now()
        complete = log.follower.complete_until
        found = await asyncio.to_thread(view.queries, reader.tenant, wanted, limit + 1, now)
        page = found[:limit]
        last = page[-1] if len(found) > limit else None
        return QueriesResponse(
            queries=await _with_feedback(view, reader, page),
            next_cursor=None if last is None else f"{last.at}-{last.query_id}",
            complete_until=complete,
        )

    @routes.get("/who/{reference}", responses=answers, summary="The person behind a reference (evaluators)")
    async def who(reference: str, evaluator: Evaluator) -> WhoResponse:
        if not _REFERENCE.fullmatch(reference):
            raise NotFound
        with log.watching("who", evaluator) as entry:
            entry.request = {"reference": reference}
            subject = await log.who(evaluator.tenant, reference)
        return WhoResponse(scope=reference, user=None if subject is None else f"user:{subject}")

    # The body is read by hand, after the role was checked: what is wrong with it would tell that the route is there.
    @routes.post("/purge", response_model=PurgeResponse, responses=answers, summary="Forget logged queries",
                 openapi_extra=_body_of(PurgeRequest))  # fmt: skip
    async def purge(request: Request, reader: LogReader) -> Response:
        wanted = _purge(await request.body())
        if wanted.user is not None and not reader.evaluator:
            raise FieldError("user", "only the role 'evaluator' may name a person: that tells whose queries they are")
        scope = None if wanted.user is None else log.references.person(reader.tenant, wanted.user.removeprefix("user:"))
        now = clock.now()
        if wanted.before > now:
            raise FieldError("before", "lies in the future; name a moment up to now, in microseconds")
        record = PurgeRecord(
            at=now, tenant=reader.tenant, before=wanted.before, scope=scope, by=log.references.scope(reader)
        )
        try:
            here = await log.purge(record)
        except BusUnavailable:
            return problems.unavailable("The log does not answer at the moment; nothing was forgotten, ask again.")
        reply = PurgeResponse(
            tenant=reader.tenant, before=wanted.before, scope=scope, here=here,
            log_until=wanted.before + longest_us(log.settings.retention_days),
        )  # fmt: skip
        return Response(reply.model_dump_json(), media_type="application/json")

    @routes.get("/{query_id}", responses=answers, summary="One logged query (evaluators, operators)")
    async def query(query_id: str, reader: LogReader) -> LoggedQuery:
        view = _view(log)
        found = await asyncio.to_thread(view.query, reader.tenant, query_id, clock.now())
        if found is None:
            raise NotFound
        return (await _with_feedback(view, reader, [found]))[0]

    return routes


def _view(log: QueryLog) -> QueryView:
    """Raises NotFound where queries are not logged, and BusUnavailable until the file is open."""
    if not log.enabled:
        raise NotFound
    view = log.view
    if view is None:
        raise BusUnavailable("the view of the query log is not open yet")
    return view


async def _with_feedback(view: QueryView, reader: Scope, page: Sequence[QueryRecord]) -> tuple[LoggedQuery, ...]:
    said = await asyncio.to_thread(view.feedback, reader.tenant, [q.query_id for q in page]) if page else {}
    return tuple(shown(reader, q, said.get(q.query_id, ())) for q in page)


def shown(reader: Scope, record: QueryRecord, said: Sequence[FeedbackRecord]) -> LoggedQuery:
    """A record as the reader's role may see it."""
    facts = record.model_dump(exclude={"schema_version", "type"})
    if record.kind in ACTS and not reader.evaluator:
        facts |= {"scope": None, "principals_hash": None, "principals": 0}
        if record.kind == "who":
            facts |= {"request": {}}
    return LoggedQuery(**facts, feedback=tuple(LoggedFeedback.of(f) for f in said))


def _place(cursor: str | None) -> tuple[int, str] | None:
    if cursor is None:
        return None
    parts = _CURSOR.fullmatch(cursor)
    if parts is None:
        raise FieldError("cursor", "is none of this log; begin again without it")
    return int(parts[1]), parts[2]


def longest_us(days: int) -> int:
    """How long a record can stay on the topic: its segment is closed first, and looked at every few minutes."""
    return days * DAY_US + max(DAY_US // 4, days * DAY_US // 30) + 600_000_000


def _purge(raw: bytes) -> PurgeRequest:
    try:
        return PurgeRequest.model_validate_json(raw)
    except ValidationError as error:
        details = [{**e, "loc": ("body", *e["loc"])} for e in error.errors(include_url=False, include_input=False)]
        raise RequestValidationError(details) from None


def _body_of(model: type[PurgeRequest]) -> dict[str, Any]:
    schema = model.model_json_schema()
    return {"requestBody": {"required": True, "content": {"application/json": {"schema": schema}}}}
