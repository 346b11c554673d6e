"""What the canary says to the change gateway and asks of the query service: plain HTTP, as any client does."""

from __future__ import annotations

import hashlib
import hmac
import time
from collections.abc import Sequence

import httpx
import jwt
from pydantic import TypeAdapter, ValidationError

from pipeline.errors import ConfigError
from pipeline.settings import Settings
from schemas.api import SearchResponse
from schemas.api_changes import Change, ChangesReply

ALGORITHM = "HS256"
TOKEN_S = 300
TIMEOUT_S = 5.0
_AWAY = (408, 425, 429)
_CHANGES: TypeAdapter[list[Change]] = TypeAdapter(list[Change])


class Away(Exception):
    """A service does not answer, or says that it cannot at the moment."""


class Refused(Exception):
    """A service answers and says no: settings that do not fit together, or a contract that was broken."""


def address(host: str, port: int) -> str:
    """Base URL; a server that listens everywhere is reached here."""
    host = {"0.0.0.0": "127.0.0.1", "::": "::1", "": "127.0.0.1"}.get(host, host)
    return f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"


def sign(secret: bytes, body: bytes, now: float) -> dict[str, str]:
    """Headers by which the gateway knows the sender; ``now`` in seconds since the epoch."""
    digest = hmac.new(secret, body, hashlib.sha256).hexdigest()
    return {"X-Headwater-Timestamp": str(int(now)), "X-Headwater-Signature": f"sha256={digest}"}


class GatewayClient:
    """``POST /v1/changes``."""

    def __init__(self, settings: Settings, transport: httpx.BaseTransport | None = None) -> None:
        if settings.gateway.secret is None:
            raise ConfigError("gateway.secret", "is not set", "Set HEADWATER_GATEWAY__SECRET, or canary.enabled=false.")
        self._secret = settings.gateway.secret.get_secret_value().encode("utf-8")
        base = address(settings.gateway.host, settings.gateway.port)
        self._http = httpx.Client(base_url=base, timeout=TIMEOUT_S, trust_env=False, transport=transport)

    def send(self, changes: Sequence[Change]) -> ChangesReply:
        """Returns once the changes are on the log. Raises Away or Refused."""
        body = _CHANGES.dump_json(list(changes), exclude_none=True)
        headers = {"Content-Type": "application/json", **sign(self._secret, body, time.time())}
        try:
            answer = self._http.post("/v1/changes", content=body, headers=headers)
        except httpx.HTTPError as error:
            raise Away(f"the change gateway: {type(error).__name__}") from error
        _check("the change gateway", answer)
        try:
            return ChangesReply.model_validate_json(answer.content)
        except ValidationError as error:
            raise Refused("the change gateway answers with something that is not a reply to changes") from error

    def close(self) -> None:
        """Disconnect."""
        self._http.close()


class QueryClient:
    """``POST /v1/search`` and ``GET /v1/documents``, as people of one tenant."""

    def __init__(self, settings: Settings, tenant: str, transport: httpx.BaseTransport | None = None) -> None:
        if settings.auth.jwt_secret is None:
            raise ConfigError(
                "auth.jwt_secret",
                "is not set, so the canary cannot sign its tokens",
                "Set HEADWATER_AUTH__JWT_SECRET, or HEADWATER_CANARY__ENABLED=false where others sign tokens.",
            )
        self._auth = settings.auth
        self._key = settings.auth.jwt_secret.get_secret_value()
        self._tenant = tenant
        base = address(settings.query.host, settings.query.port)
        self._http = httpx.Client(base_url=base, timeout=TIMEOUT_S, trust_env=False, transport=transport)

    def found(self, user: str, uid: str, word: str) -> bool:
        """Whether a search for the word shows the document with the word in it. Raises Away or Refused."""
        body = {"query": word, "k": 10, "duplicates": "keep", "rerank": "off", "cache": False}
        answer = self._ask("POST", "/v1/search", user, json=body)
        _check("the query service", answer)
        try:
            hits = SearchResponse.model_validate_json(answer.content).hits
        except ValidationError as error:
            raise Refused("the query service answers with something that is not a search response") from error
        return any(hit.document_uid == uid and word in hit.text for hit in hits)

    def shown(self, user: str, uid: str, word: str) -> bool:
        """Whether anything of the document can be had: a hit of a search, or its page. Raises Away or Refused."""
        if self.found(user, uid, word):
            return True
        answer = self._ask("GET", f"/v1/documents/{uid}", user)
        if answer.status_code == 404:
            return False
        _check("the query service", answer)
        return True

    def _ask(self, method: str, path: str, user: str, json: object = None) -> httpx.Response:
        headers = {"Authorization": f"Bearer {self._token(user)}"}
        try:
            return self._http.request(method, path, headers=headers, json=json)
        except httpx.HTTPError as error:
            raise Away(f"the query service: {type(error).__name__}") from error

    def _token(self, user: str) -> str:
        now = int(time.time())
        claims: dict[str, object] = {
            "sub": user.removeprefix("user:"),
            "tenant": self._tenant,
            "aud": self._auth.first_audience,
            "iat": now,
            "exp": now + TOKEN_S,
        }
        if self._auth.issuer:
            claims["iss"] = self._auth.issuer
        return jwt.encode(claims, self._key, algorithm=ALGORITHM)

    def close(self) -> None:
        """Disconnect."""
        self._http.close()


def _check(who: str, answer: httpx.Response) -> None:
    if answer.is_success:
        return
    if answer.status_code in _AWAY or answer.status_code >= 500:
        raise Away(f"{who} answers {answer.status_code}")
    try:
        said = answer.json()
        detail = str(said.get("detail", "")) if isinstance(said, dict) else ""
    except ValueError:
        detail = ""
    raise Refused(f"{who} answers {answer.status_code}. {detail}".rstrip())
