"""Who asks: every scope comes from a verified token or an API key, checked before a request's body is read.

``middleware.Guard`` asks ``Callers`` for every path that is not open and leaves the scope in the request's state.
Routes take it as ``Caller``, ``Operator`` or ``Evaluator``.
"""

from __future__ import annotations

from typing import Annotated

from fastapi import Depends, Request, Security
from fastapi.security import APIKeyHeader, HTTPBearer
from starlette.datastructures import Headers

from query_service.documents import NotFound
from query_service.keys import PREFIX, ApiKeys
from query_service.scope import Scope, TokenVerifier, Unauthorized

KEY_HEADER = "X-API-Key"
STATE = "caller"


class Callers:
    """Tells who sent a request."""

    def __init__(self, verifier: TokenVerifier, keys: ApiKeys) -> None:
        self._verifier, self._keys = verifier, keys

    async def identify(self, headers: Headers) -> Scope:
        """The scope of the one credential in the headers. Raises Unauthorized or KeysUnavailable."""
        given = headers.getlist("authorization")
        keys = headers.getlist(KEY_HEADER)
        if not given and not keys:
            raise Unauthorized("there is none")
        if len(given) + len(keys) > 1:
            raise Unauthorized("there are several; send one token or one key")
        if keys:
            return self._keys.verify(keys[0].strip())
        scheme, _, credential = given[0].partition(" ")
        credential = credential.strip()
        if scheme.lower() != "bearer":
            raise Unauthorized("the header 'Authorization' lacks the word Bearer before the token")
        if not credential:
            raise Unauthorized("there is none after the word Bearer")
        if credential.startswith(PREFIX):
            return self._keys.verify(credential)
        return await self._verifier.accept(credential)


# These two tell the OpenAPI document how to authenticate; the middleware has done it by then.
_bearer = HTTPBearer(
    auto_error=False, scheme_name="bearer", description="A JWT with sub, tenant, aud and exp, or an API key."
)
_api_key = APIKeyHeader(name=KEY_HEADER, auto_error=False, scheme_name="apiKey", description="An API key.")


async def _verified(
    request: Request,
    bearer: Annotated[object, Security(_bearer)] = None,
    api_key: Annotated[object, Security(_api_key)] = None,
) -> Scope:
    caller = getattr(request.state, STATE, None)
    if not isinstance(caller, Scope):
        raise Unauthorized("there is none")
    return caller


Caller = Annotated[Scope, Depends(_verified)]


async def _operator(caller: Caller) -> Scope:
    if not caller.operator:
        raise NotFound  # for all others the route is not there
    return caller


Operator = Annotated[Scope, Depends(_operator)]


async def _evaluator(caller: Caller) -> Scope:
    if not caller.evaluator:
        raise NotFound
    return caller


Evaluator = Annotated[Scope, Depends(_evaluator)]
