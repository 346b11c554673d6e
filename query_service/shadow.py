"""Shadow searches: an operator asks any generation as a person of the tenant would see it.

Verification compares two generations by it. The pipeline is the one that answers everybody: the person's own closure,
admission, fusion. Nothing of the operator's token widens it; every search is in the query log with both references.
Without the role the route is not there.
"""

from __future__ import annotations

from fastapi import APIRouter, Request, Response
from fastapi.exceptions import RequestValidationError
from pydantic import ValidationError

from pipeline.ports import IndexReader
from query_service.callers import Operator
from query_service.scope import FieldError, Scope
from query_service.service import QueryService
from schemas.api_operator import OperatorSearch
from schemas.generation import Generation


def router(service: QueryService, reader: IndexReader) -> APIRouter:
    """``POST /v1/operator/search``."""
    routes = APIRouter(prefix="/v1/operator", include_in_schema=False)

    # The body is read by hand, after the role was checked: what is wrong with it would tell that the route is there.
    @routes.post("/search")
    async def search(request: Request, caller: Operator) -> Response:
        wanted = _body(await request.body())
        seen_as = Scope(
            tenant=caller.tenant,
            subject=wanted.seen_as,
            as_of_from=caller.as_of_from,
            as_of_until=caller.as_of_until,
            products=caller.products,
        )
        found = await service.shadow(caller, seen_as, wanted.request, await _generation(reader, wanted.generation))
        return Response(found.model_dump_json(), media_type="application/json")

    return routes


def _body(raw: bytes) -> OperatorSearch:
    try:
        wanted = OperatorSearch.model_validate_json(raw)
    except ValidationError as error:
        details = [{**e, "loc": ("body", *e["loc"])} for e in error.errors(include_url=False, include_input=False)]
        raise RequestValidationError(details) from None
    if wanted.request.after is not None:
        raise FieldError("request.after", "a shadow search waits for nothing; leave it out")
    return wanted


async def _generation(reader: IndexReader, name: str) -> Generation:
    found = (await reader.generations()).get(name)
    if found is None or found.state == "retired":
        raise FieldError("generation", "there is none of this name that can be searched")
    return found
