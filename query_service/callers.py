"""Who asks, as a dependency of routes: every scope comes from a verified token."""

from __future__ import annotations

from typing import Annotated

from fastapi import Depends, Request
from fastapi.security import HTTPAuthorizationCredentials, HTTPBearer

from query_service.scope import Scope, TokenVerifier, Unauthorized
from query_service.service import NotFound

_bearer = HTTPBearer(auto_error=False, description="A JWT with sub, tenant, aud and exp.")


async def _verified(
    request: Request, credentials: Annotated[HTTPAuthorizationCredentials | None, Depends(_bearer)]
) -> Scope:
    if credentials is None:
        raise Unauthorized("there is none")
    verifier: TokenVerifier = request.app.state.parts.verifier
    return verifier.verify(credentials.credentials)


Caller = Annotated[Scope, Depends(_verified)]


async def _operator(caller: Caller) -> Scope:
    if not caller.operator:
        raise NotFound  # for all others the route is not there
    return caller


Operator = Annotated[Scope, Depends(_operator)]
