"""``GET /v1/why``: an operator asks why a person sees a document or does not.

The answer names principals and versions and no text. Asking is an operator's act: it stands in the query log with the
references of both persons. Without the role the route is not there.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from typing import Annotated, Any

from fastapi import APIRouter, Query
from pydantic import TypeAdapter, ValidationError

from pipeline.clock import Clock
from pipeline.ports import IndexReader
from query_service.callers import Operator
from query_service.documents import is_uuid
from query_service.explain import Explanation, Steps, explain, manifest_report, person, record_report, stepping
from query_service.flights import Flights
from query_service.freshness import Freshness
from query_service.overlay import Overlay
from query_service.querylog.entry import Entry
from query_service.querylog.log import QueryLog
from query_service.scope import FieldError, Scope
from query_service.state import ServiceState
from schemas.access import AccessRule, Principal
from schemas.api import Problem
from schemas.api_why import PendingReport, WhyResponse
from schemas.base import MAX_SAFE_INTEGER
from schemas.documents import AccessRecord, Manifest

_PRINCIPAL: TypeAdapter[str] = TypeAdapter(Principal)


class Why:
    """Reads the records that decide, and explains."""

    def __init__(
        self, reader: IndexReader, overlay: Overlay, freshness: Freshness, state: ServiceState, flights: Flights,
        querylog: QueryLog, clock: Clock,
    ) -> None:  # fmt: skip
        self._reader, self._overlay, self._freshness = reader, overlay, freshness
        self._state, self._flights, self._log, self._clock = state, flights, querylog, clock

    async def ask(
        self, operator: Scope, user: str, uid: str, generation: str | None = None, as_of: int | None = None
    ) -> WhyResponse:
        """For the operator's tenant; ``as_of`` in µs. Raises FieldError, NotReady or StoreUnavailable."""
        seen_as = Scope(tenant=operator.tenant, subject=_subject(user))
        if not is_uuid(uid):
            raise FieldError("document", "is no uid of a document; hits and the query log name it (document_uid)")
        with self._log.watching("why", seen_as, operator=operator, document_uid=uid) as entry:
            active = (await self._state.current()).name  # what is not known well enough explains nothing
            name = generation or active
            if name != active and name not in await self._reader.generations():
                raise FieldError("generation", "there is none of this name")
            entry.generation = name
            with self._flights.on(name):
                return await self._explained(entry, seen_as, uid, name, active, as_of)

    async def _explained(
        self, entry: Entry, seen_as: Scope, uid: str, name: str, active: str, as_of: int | None
    ) -> WhyResponse:
        tenant = seen_as.tenant
        manifests, stored = await asyncio.gather(
            self._reader.manifests(name, tenant, [uid]), self._reader.access(tenant, [uid])
        )
        steps = await self._walk(seen_as)
        waiting = await asyncio.to_thread(self._freshness.standing, tenant, uid, name)
        manifest, record = manifests.get(uid), self._overlay.access(uid, stored.get(uid))
        if record is not None and record.document.tenant != tenant:
            record = None  # the tail knows every tenant's; another's does not exist here
        now, closure = self._clock.now(), steps.walk.closure
        entry.closure = closure
        found = explain(manifest, record, closure, tenant, now)
        known = manifest or record
        alarms = await asyncio.to_thread(self._freshness.alarms, tenant, known.document.source) if known else []
        return WhyResponse(
            query_id=entry.query_id, tenant=tenant, generation=name, active=name == active, judged_at=now,
            allowed=found.allowed, refusal=found.refusal, says=_says(found), document_uid=uid,
            source=known.document.source if known is not None else None,
            kind=known.document.kind if known is not None else None,
            document_id=known.document.id if known is not None else None,
            checks=found.checks,
            person=person(steps, _named(manifest, record), now),
            record=None if record is None else record_report(record, stored.get(uid)),
            rule=found.rule,
            manifest=None if manifest is None else manifest_report(manifest, closure, now if as_of is None else as_of),
            manifest_rule=found.manifest_rule,
            pending=tuple(
                PendingReport(lane=lane, written=written, settled=settled)
                for lane, written, settled in waiting
                if (settled or 0) < written
            ),
            source_alarms=_nearest(alarms, _named(manifest, record)),
        )  # fmt: skip

    async def _walk(self, seen_as: Scope) -> Steps:
        steps = stepping(seen_as.user, self._clock.now())
        frontier = next(steps)
        while True:
            records = await self._reader.principals(seen_as.tenant, frontier)
            newest = {n: self._overlay.principal(seen_as.tenant, n, records.get(n)) for n in frontier}
            try:
                frontier = steps.send(newest)
            except StopIteration as end:
                found: Steps = end.value
                return found


def _subject(user: str) -> str:
    name = user.removeprefix("user:")
    try:
        _PRINCIPAL.validate_python(f"user:{name}")
    except ValidationError:
        raise FieldError("user", "is no user; give the name as in the access rules: ann or user:ann") from None
    return name


def _named(manifest: Manifest | None, record: AccessRecord | None) -> frozenset[str]:
    """Principals that the rules name."""
    rules: list[AccessRule] = [x.rule for x in (manifest, record) if x is not None]
    return frozenset(
        name for rule in rules for name in [*rule.deny, *(g.principal for c in rule.clauses for g in c.any_of)]
    )


def _nearest(alarms: Iterable[str], named: Iterable[str]) -> tuple[str, ...]:
    """Those first that name a container of the document's rules: a folder, a space, a project."""
    containers = {name.partition("/")[2] for name in named if name.startswith("audience:")} - {""}
    return tuple(sorted(alarms, key=lambda alarm: not any(f" {c}/" in alarm or f" {c}:" in alarm for c in containers)))


def _says(found: Explanation) -> str:
    failed = next((c.says for c in found.checks if c.passed is False), None)
    return "may read it" if found.allowed else f"may not read it: {failed}"


def router(why: Why) -> APIRouter:
    """The route."""
    routes = APIRouter(prefix="/v1")
    answers: dict[int | str, dict[str, Any]] = {
        401: {"model": Problem, "description": "The token is missing, expired or not valid here."},
        404: {"model": Problem, "description": "The token is no operator's."},
        422: {"model": Problem, "description": "Fields that cannot be used, by name."},
        503: {"model": Problem, "description": "The index does not answer, or permissions are not known well enough."},
    }

    @routes.get("/why", responses=answers, summary="Why a person sees a document or does not (operators)")
    async def ask(
        operator: Operator,
        user: Annotated[str, Query(min_length=1, max_length=1024, description="The person: ann or user:ann.")],
        document: Annotated[str, Query(min_length=1, max_length=64, description="Uid of the document.")],
        generation: Annotated[
            str | None, Query(pattern=r"^[a-z][a-z0-9_]{0,31}$", description="The active one without it.")
        ] = None,
        as_of: Annotated[int | None, Query(ge=0, le=MAX_SAFE_INTEGER, description="Moment of effect, µs.")] = None,
    ) -> WhyResponse:
        return await why.ask(operator, user, document, generation, as_of)

    return routes
