"""The query service's shadow route, asked with an operator's token."""

from __future__ import annotations

import time
from typing import Any

import httpx
from pydantic import ValidationError

from pipeline.errors import ConfigError, Retry
from pipeline.settings import Settings
from pipeline.tokens import OPERATOR, sign
from schemas.api import Problem, SearchRequest, SearchResponse
from schemas.api_operator import OperatorSearch

ROUTE = "/v1/operator/search"
SUBJECT = "verification"
TOKEN_S = 600.0
ANSWER_S = 120.0  # the first search of a generation loads its encoder
UNAVAILABLE_S = 60.0
PAUSE_S = 1.0


class ShadowClient:
    """``means.Shadow`` over HTTP. Tokens are renewed before they end."""

    def __init__(self, settings: Settings, *, transport: httpx.BaseTransport | None = None) -> None:
        self._auth = settings.auth
        self._tokens: dict[str, tuple[str, float]] = {}
        self._address = settings.query.address
        self._http = httpx.Client(base_url=self._address, timeout=ANSWER_S, trust_env=False, transport=transport)

    def search(self, tenant: str, seen_as: str, generation: str, request: SearchRequest) -> SearchResponse:
        """See ``means.Shadow``. While the service says that it is not available it is asked again, for a while."""
        body = OperatorSearch(seen_as=seen_as, generation=generation, request=request).model_dump_json()
        end = time.monotonic() + UNAVAILABLE_S
        while True:
            answer = self._post(tenant, body)
            if answer.status_code != 503 or time.monotonic() > end:
                break
            time.sleep(PAUSE_S)
        if answer.is_success:
            return SearchResponse.model_validate_json(answer.content)
        raise self._refused(answer, tenant)

    def _post(self, tenant: str, body: str) -> httpx.Response:
        headers = {"Authorization": f"Bearer {self._token(tenant)}", "Content-Type": "application/json"}
        try:
            return self._http.post(ROUTE, content=body, headers=headers)
        except httpx.HTTPError as error:
            raise Retry(
                f"the query service at {self._address} does not answer ({type(error).__name__}); start it by "
                "`headwater up`, then verify again"
            ) from error

    def _refused(self, answer: httpx.Response, tenant: str) -> Exception:
        if answer.status_code in (401, 404):
            return ConfigError(
                "auth",
                f"the query service at {self._address} takes no operator's token of ours for tenant {tenant}",
                "Verify with the settings that the service runs with; with an identity provider set "
                f"auth.operator_tokens.{tenant} to a valid token with the role operator.",
            )
        try:
            problem = Problem.model_validate_json(answer.content)
            said = "; ".join([problem.detail, *(f"{e.field}: {e.problem}" for e in problem.errors)])
        except ValidationError:
            said = "no reason is given"
        return Retry(f"the query service answers {answer.status_code} to a shadow search: {said}")

    def _token(self, tenant: str) -> str:
        given = self._auth.operator_tokens.get(tenant)
        if given is not None:
            return given.get_secret_value()
        token, until = self._tokens.get(tenant, ("", 0.0))
        if time.monotonic() > until:
            token = self._sign(tenant)
            self._tokens[tenant] = token, time.monotonic() + TOKEN_S / 2
        return token

    def _sign(self, tenant: str) -> str:
        auth = self._auth
        if auth.jwt_secret is None:
            raise ConfigError(
                f"auth.operator_tokens.{tenant}",
                "is not set, and without auth.jwt_secret no token can be signed here",
                "Set it to a token of your identity provider with the role operator for this tenant.",
            )
        secret = auth.jwt_secret.get_secret_value()
        claims: dict[str, Any] = {"roles": [OPERATOR]}
        return sign(secret, SUBJECT, tenant, TOKEN_S, audience=auth.first_audience, issuer=auth.issuer, **claims)[0]

    def close(self) -> None:
        """Disconnect."""
        self._http.close()
