"""Routes of the gateway for those who push in ways of their own: ``/v1/events`` and ``/v1/hooks``."""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable
from typing import Any

from fastapi import FastAPI, Request, Response

from consumers.gateway_errors import MEDIA_TYPE, Refused
from consumers.gateway_events import BATCH, STRUCTURED, Events, read_events, result_of, status_of
from consumers.gateway_hooks import Hooks
from consumers.gateway_service import SIGNATURE, TIMESTAMP, Gateway, GatewayDeps, verify
from schemas.cloudevents import EXAMPLE, EventResult, EventsReply

ReadBody = Callable[[Request, int], Awaitable[bytes]]
_ORIGIN = re.compile(r"^[A-Za-z0-9][A-Za-z0-9.:/_-]{0,254}$")
_RATE = re.compile(r"^[1-9][0-9]{0,8}$")


def add_events(
    app: FastAPI, deps: GatewayDeps, gateway: Gateway, problems: dict[int | str, Any], read: ReadBody
) -> None:
    """``POST`` and ``OPTIONS /v1/events``."""
    events = Events(gateway, deps.clock)

    @app.post(
        "/v1/events",
        response_model=EventResult | EventsReply,
        responses={**problems, 415: {**problems[400], "description": "Not a CloudEvent in JSON."}},
        summary="Tell of changes as CloudEvents",
        openapi_extra=_events_body(),
    )
    async def take(request: Request) -> Response:
        """One event, structured or binary, or a batch. 2xx only once all of it is on the log; repeats do nothing."""
        body = await read(request, deps.settings.gateway.max_bytes)
        verify(deps.settings, deps.clock, body, request.headers.get(SIGNATURE), request.headers.get(TIMESTAMP))
        found, batch = read_events(request.headers.get("content-type", ""), request.headers.items(), body)
        outcomes = await events.serve(found)
        if not batch:
            (outcome,) = outcomes
            if isinstance(outcome, Refused):
                raise outcome
            return _json(200, outcome)
        status, wait = status_of(outcomes)
        reply = EventsReply(results=tuple(result_of(event, o) for event, o in zip(found, outcomes, strict=True)))
        return _json(status, reply, {"Retry-After": str(wait)} if wait is not None else None)

    @app.options("/v1/events", summary="Whether a sender may deliver here (CloudEvents' abuse protection)")
    async def allowed(request: Request) -> Response:
        """Anybody may send who can sign; a callback address is not called."""
        headers = {"Allow": "POST, OPTIONS"}
        origin, rate = request.headers.get("webhook-request-origin"), request.headers.get("webhook-request-rate")
        if origin is not None:
            if not _ORIGIN.match(origin):
                raise Refused(400, "Not understood", "WebHook-Request-Origin is the name of a host.")
            headers["WebHook-Allowed-Origin"] = origin
            headers["WebHook-Allowed-Rate"] = rate if rate is not None and _RATE.match(rate) else "*"
        return Response(status_code=200, headers=headers)


def add_hooks(app: FastAPI, deps: GatewayDeps, gateway: Gateway, read: ReadBody) -> None:
    """``POST /v1/hooks/{tenant}/{source}``."""
    hooks = Hooks(deps)

    @app.post(
        "/v1/hooks/{tenant}/{source}",
        status_code=202,
        response_class=Response,
        responses={
            code: {"description": text, "content": {MEDIA_TYPE: {}}}
            for code, text in (
                (404, "No such source, no secret, or it does not fit: always the same answer."),
                (413, "The body is too large."),
                (503, "The log did not acknowledge. Send it again."),
            )
        },
        summary="Let a wiki or ticket system say that something happened",
    )
    async def notified(request: Request, tenant: str, source: str) -> Response:
        """Signed as GitHub, Gitea, Confluence or GitLab do, with a bearer token, or as changes are."""
        body = await read(request, deps.settings.gateway.max_bytes)
        known = hooks.check(tenant, source, body, request.headers)
        await gateway.refuse_erased(known.tenant)
        await hooks.notify(known, body, request.headers)
        return Response(status_code=202)


def _json(status: int, reply: EventResult | EventsReply, headers: dict[str, str] | None = None) -> Response:
    body = reply.model_dump_json(exclude_none=True)
    return Response(body, status_code=status, media_type="application/json", headers=headers)


def _events_body() -> dict[str, Any]:
    event = {"$ref": "#/components/schemas/CloudEvent"}
    header = {"in": "header", "required": True, "schema": {"type": "string"}}
    return {
        "requestBody": {
            "required": True,
            "content": {
                STRUCTURED: {"schema": event, "examples": {"access": {"summary": "access", "value": EXAMPLE}}},
                BATCH: {"schema": {"type": "array", "items": event}},
                "application/json": {"schema": {"type": "object"}},
            },
        },
        "parameters": [
            {**header, "name": SIGNATURE, "description": "sha256=<hex HMAC-SHA256 of the raw body with the secret>"},
            {**header, "name": TIMESTAMP, "description": "Seconds since 1970, within 300 s of the server's clock"},
        ],
    }
