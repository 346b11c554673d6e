"""Process ``gateway``: changes, CloudEvents and webhooks. What is answered with 2xx is committed on the log."""

from __future__ import annotations

import logging
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Annotated, Any, Literal

from fastapi import FastAPI, Query, Request, Response
from fastapi.exceptions import RequestValidationError
from fastapi.openapi.utils import get_openapi
from pydantic import TypeAdapter
from starlette.exceptions import HTTPException

from consumers.gateway_errors import MEDIA_TYPE, Refused, field_problem, invalid, too_large, unavailable
from consumers.gateway_push import add_events, add_hooks
from consumers.gateway_reading import parse
from consumers.gateway_service import SIGNATURE, TIMESTAMP, Gateway, GatewayDeps, verify
from consumers.gateway_wait import Outcome
from pipeline import docs_page
from pipeline.errors import ConfigError, Retry
from schemas.api_changes import EXAMPLES, MAX_CHANGES, Change, ChangeResult, ChangesProblem, ChangesReply
from schemas.cloudevents import CloudEvent

if TYPE_CHECKING:
    from pipeline.settings import Settings

log = logging.getLogger("headwater.gateway")

NOT_INDEXED = frozenset({"dead_letter", "body_gone", "refused"})
"""Outcomes that leave in the index what was there before."""
Wait = Literal["committed", "applied", "searchable"]
_PROBLEMS: dict[int | str, dict[str, Any]] = {
    code: {"model": ChangesProblem, "description": text, "content": {MEDIA_TYPE: {}}}
    for code, text in (
        (400, "The body is not JSON."),
        (401, "Signature or timestamp is missing or does not fit."),
        (403, "The tenant is being erased."),
        (409, "Another process owns the source."),
        (413, "The request is too large."),
        (422, "Fields that cannot be accepted, by name. Nothing was written."),
        (429, "Bulk changes wait until the index has caught up; Retry-After says when to ask again."),
        (503, "The log did not acknowledge. Send the same request again."),
        (504, "Written, but not applied (or searchable) in time; the answer holds the token."),
    )
}


def create_app(deps: GatewayDeps) -> FastAPI:
    """The application. Raises ConfigError where no secret is set."""
    verify_configured(deps)
    gateway = Gateway(deps)

    @asynccontextmanager
    async def lifespan(app: FastAPI) -> AsyncIterator[None]:
        try:
            yield
        finally:
            gateway.close()

    app = FastAPI(title="Headwater change gateway", version="1", lifespan=lifespan, docs_url=None, redoc_url=None)
    app.state.gateway = gateway
    app.add_exception_handler(Refused, _refused)
    app.add_exception_handler(RequestValidationError, _query_invalid)
    app.add_exception_handler(HTTPException, _http_error)
    app.add_exception_handler(Exception, _unexpected)
    app.middleware("http")(_watched(deps))
    app.openapi = lambda: _openapi(app)  # type: ignore[method-assign]

    @app.post(
        "/v1/changes",
        response_model=ChangesReply,
        responses=_PROBLEMS,
        summary="Tell of changes at a source",
        openapi_extra=_request_body(),
    )
    async def changes(
        request: Request,
        wait: Annotated[Wait, Query(description="Answer once it is on the log, applied, or searchable.")] = "committed",
        wait_ms: Annotated[int, Query(ge=1, le=60_000, description="How long to wait at most.")] = 5_000,
    ) -> ChangesReply:
        """One change, or an array of up to 1,000 of one tenant. All are checked before any is written."""
        body = await _body(request, deps.settings.gateway.max_bytes)
        verify(deps.settings, deps.clock, body, request.headers.get(SIGNATURE), request.headers.get(TIMESTAMP))
        asked = parse(body)
        tenant = gateway.check(asked)
        accepted = await gateway.append(tenant, asked)
        if wait == "committed":
            return ChangesReply(token=accepted.token, results=accepted.results)
        pending, _ = await gateway.wait(accepted, wait, wait_ms / 1000)
        if wait == "applied":
            return ChangesReply(token=accepted.token, applied=True, results=accepted.results)
        outcomes, unread = {d.uid: o for d, o in pending.outcomes.items()}, await gateway.unreadable(accepted)
        results = tuple(_with_outcome(r, outcomes, unread) for r in accepted.results)
        found = all(r.readable is not False and r.outcome not in NOT_INDEXED for r in results)
        return ChangesReply(token=accepted.token, applied=True, indexed=True, searchable=found, results=results)

    add_events(app, deps, gateway, _PROBLEMS, _body)
    add_hooks(app, deps, gateway, _body)
    docs_page.install(app)

    @app.get("/healthz", summary="Whether the process lives")
    async def healthz() -> dict[str, object]:
        """State of each source's writer."""
        return gateway.health()

    @app.get("/metrics", summary="Prometheus metrics", response_class=Response)
    async def metrics() -> Response:
        """Counters and histograms."""
        return Response(deps.metrics.render(), media_type="text/plain; version=0.0.4; charset=utf-8")

    return app


def verify_configured(deps: GatewayDeps) -> None:
    """Raises ConfigError where nobody could sign."""
    secret = deps.settings.gateway.secret
    if secret is None or not secret.get_secret_value():
        raise ConfigError("gateway.secret", "is not set", "Set HEADWATER_GATEWAY__SECRET to a long random string.")


async def _body(request: Request, limit: int) -> bytes:
    """The raw bytes, never more than the limit in memory. Raises Refused (413)."""
    declared = request.headers.get("content-length", "")
    if declared.isdigit() and int(declared) > limit:
        raise too_large(limit)
    parts: list[bytes] = []
    size = 0
    async for part in request.stream():
        size += len(part)
        if size > limit:
            raise too_large(limit)
        parts.append(part)
    return b"".join(parts)


def _with_outcome(
    result: ChangeResult, outcomes: Mapping[str, Outcome], unread: Mapping[str, str | None]
) -> ChangeResult:
    uid, update = result.document_uid or "", dict[str, Any]()
    if uid in outcomes:
        update = {"outcome": outcomes[uid].outcome, "reason": outcomes[uid].reason}
    if uid in unread:
        why = unread[uid]
        update["readable"] = why is None
        if why is not None:
            before = update.get("reason", result.reason)
            update["reason"] = why if before is None else f"{before}; {why}"
    return result.model_copy(update=update)


def _answer(refused: Refused) -> Response:
    headers = {"Retry-After": str(refused.retry_after)} if refused.retry_after is not None else None
    body = refused.problem.model_dump_json(exclude_none=True)
    return Response(body, status_code=refused.problem.status, media_type=MEDIA_TYPE, headers=headers)


async def _refused(request: Request, error: Exception) -> Response:
    assert isinstance(error, Refused)
    return _answer(error)


async def _query_invalid(request: Request, error: Exception) -> Response:
    assert isinstance(error, RequestValidationError)
    fields = [field_problem(".".join(str(p) for p in item["loc"][1:]), str(item["msg"])) for item in error.errors()]
    return _answer(invalid(fields))


async def _http_error(request: Request, error: Exception) -> Response:
    assert isinstance(error, HTTPException)
    title = {404: "Not found", 405: "Method not allowed"}.get(error.status_code, "Not served")
    return _answer(Refused(error.status_code, title, "Changes go to POST /v1/changes, events to /v1/events."))


async def _unexpected(request: Request, error: Exception) -> Response:
    if isinstance(error, Retry):
        return _answer(unavailable("Something below is not ready; send the same request again."))
    log.exception("a request failed", exc_info=error)
    return _answer(Refused(500, "Failed", "The request failed here; its changes may be on the log. Send it again."))


def _watched(deps: GatewayDeps) -> Callable[[Request, Callable[[Request], Awaitable[Response]]], Awaitable[Response]]:
    async def watch(request: Request, call: Callable[[Request], Awaitable[Response]]) -> Response:
        started = time.perf_counter()
        response = await call(request)
        route = getattr(request.scope.get("route"), "path", "other")
        deps.metrics.count("headwater_requests_total", route=route, status=str(response.status_code))
        deps.metrics.observe("headwater_request_seconds", time.perf_counter() - started, route=route)
        return response

    return watch


def _schema() -> dict[str, Any]:
    return TypeAdapter(Change | list[Change]).json_schema(ref_template="#/components/schemas/{model}")


def _request_body() -> dict[str, Any]:
    schema = _schema()
    schema.pop("$defs", None)
    examples = {name: {"summary": name, "value": value} for name, value in EXAMPLES.items()}
    header = {"in": "header", "required": True, "schema": {"type": "string"}}
    return {
        "requestBody": {"required": True, "content": {"application/json": {"schema": schema, "examples": examples}}},
        "parameters": [
            {**header, "name": SIGNATURE, "description": "sha256=<hex HMAC-SHA256 of the raw body with the secret>"},
            {**header, "name": TIMESTAMP, "description": "Seconds since 1970, within 300 s of the server's clock"},
        ],
    }


def _openapi(app: FastAPI) -> dict[str, Any]:
    if not app.openapi_schema:
        made = get_openapi(title=app.title, version=app.version, routes=app.routes, description=_DESCRIPTION)
        event = CloudEvent.model_json_schema(ref_template="#/components/schemas/{model}")
        defined = _schema().get("$defs", {}) | event.pop("$defs", {}) | {"CloudEvent": event}
        made.setdefault("components", {}).setdefault("schemas", {}).update(defined)
        app.openapi_schema = made
    return app.openapi_schema


_DESCRIPTION = (
    "A source that pushes: documents, their readers, and who belongs to which group. At least once: sending a change "
    f"again writes nothing. Up to {MAX_CHANGES} changes a request, all of one tenant, checked before one is written."
)


def main(arguments: Sequence[str]) -> int:
    """Serve until a signal comes; the exit status."""
    from consumers.gateway_main import run
    from pipeline.settings import load

    if arguments:
        raise ConfigError("arguments", f"{' '.join(arguments)} is not understood", "The gateway takes none.")
    settings: Settings = load()
    return run(settings)
