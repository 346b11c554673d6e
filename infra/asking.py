"""The query service as commands ask it: with a token for one person, errors with a remedy."""

from __future__ import annotations

import time
from collections.abc import Iterator
from types import TracebackType
from typing import Any, TypeVar

import httpx
from pydantic import BaseModel, ValidationError

from infra.commands.tokens import issue
from infra.errors import InfraError
from pipeline.settings import Settings
from pipeline.tokens import OPERATOR
from query_service.client.errors import HeadwaterError as ClientError
from query_service.client.errors import UnexpectedReply
from query_service.client.events import AnswerEvent, EventReader
from schemas.api import FreshnessResponse, Mode, Problem, SearchFilters, SearchRequest, SearchResponse
from schemas.api_answer import AnswerRequest, AnswerResponse
from schemas.api_ranking import EvidenceMode, Expansion, RerankMode, Sort
from schemas.deletion import DeletionResponse
from schemas.wording import plainly

TOKEN_S = 3600.0
ANSWER_S = 300.0  # a small model on few cores writes a few words a second
PROOF_S = 600.0  # a proof reads a partition of the log, and with ``thorough`` a whole tenant
_Model = TypeVar("_Model", bound=BaseModel)


class QueryApi:
    """Asks as any person of any tenant. Raises InfraError where no usable answer comes."""

    def __init__(self, settings: Settings, *, transport: httpx.BaseTransport | None = None) -> None:
        self._settings = settings
        self._tokens: dict[tuple[str, str, tuple[str, ...]], str] = {}
        self.address = settings.query.address
        self._http = httpx.Client(base_url=self.address, timeout=30, trust_env=False, transport=transport)

    def __enter__(self) -> QueryApi:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def search(
        self,
        user: str,
        tenant: str,
        query: str,
        *,
        k: int = 10,
        mode: Mode = "hybrid",
        filters: SearchFilters | None = None,
        expand: Expansion = "none",
        rerank: RerankMode | None = None,
        sort: Sort = "relevance",
        evidence: EvidenceMode = "none",
        cursor: str | None = None,
        token_budget: int | None = None,
    ) -> SearchResponse:
        """``POST /v1/search``."""
        try:
            request = SearchRequest(
                query=query, k=k, mode=mode, filters=filters or SearchFilters(), expand=expand, rerank=rerank,
                sort=sort, evidence=evidence, cursor=cursor, token_budget=token_budget,
                cache=False,  # who asks here judges or measures searches
            )  # fmt: skip
        except ValidationError as error:
            first = error.errors()[0]
            field = ".".join(map(str, first["loc"]))
            raise InfraError(f"{field}: {plainly(first)}.", "Correct it and ask again.") from error
        body = request.model_dump(mode="json", exclude_defaults=True)
        return self._ask(SearchResponse, "POST", "/v1/search", user, tenant, json=body)

    def answer(self, user: str, tenant: str, request: AnswerRequest) -> AnswerResponse:
        """``POST /v1/answer``, in one piece."""
        body = request.model_dump(mode="json", exclude_defaults=True)
        return self._ask(AnswerResponse, "POST", "/v1/answer", user, tenant, json=body, timeout=ANSWER_S)

    def stream_answer(self, user: str, tenant: str, request: AnswerRequest) -> Iterator[AnswerEvent]:
        """``POST /v1/answer``, as its sentences are released; the whole answer is last."""
        body = {**request.model_dump(mode="json", exclude_defaults=True), "stream": True}
        headers = {"Authorization": f"Bearer {self._token(user, tenant, ())}"}
        try:
            with self._http.stream("POST", "/v1/answer", headers=headers, json=body, timeout=ANSWER_S) as reply:
                if not reply.is_success:
                    reply.read()
                    raise InfraError(*_problem(reply))
                reader = EventReader(reply, time.monotonic() + ANSWER_S, self.address)
                for part in reply.iter_bytes():
                    yield from reader.take(part)
                    if reader.ended:
                        return
        except httpx.HTTPError as error:
            raise self._silent(error) from error
        except UnexpectedReply:
            raise self._foreign() from None
        except ClientError as error:  # told in the middle of the stream
            raise InfraError(f"The answer broke off: {error}", "Ask again; `headwater logs query` says more.") from None
        raise InfraError("The answer broke off.", "Ask again; `headwater logs query` says more.")

    def freshness(self, user: str, tenant: str, window_s: int) -> FreshnessResponse:
        """``GET /v1/freshness``."""
        return self._ask(FreshnessResponse, "GET", "/v1/freshness", user, tenant, params={"window_s": window_s})

    def deletion(self, tenant: str, uid: str, *, thorough: bool = False) -> DeletionResponse:
        """``GET /v1/documents/UID/deletion``, as an operator of the tenant."""
        path, options = f"/v1/documents/{uid}/deletion", {"params": {"thorough": thorough}, "timeout": PROOF_S}
        return self._ask(DeletionResponse, "GET", path, "operator", tenant, roles=(OPERATOR,), **options)

    def shows(self, user: str, tenant: str, uid: str) -> bool:
        """``GET /v1/documents/UID``: whether a document is shown to a person."""
        headers = {"Authorization": f"Bearer {self._token(user, tenant, ())}"}
        try:
            answer = self._http.get(f"/v1/documents/{uid}", headers=headers)
        except httpx.HTTPError as error:
            raise InfraError(f"The query service at {self.address} does not answer.", "Read its log.") from error
        if answer.status_code not in (200, 404):
            raise InfraError(*_problem(answer))
        return answer.status_code == 200

    def ready(self) -> bool:
        """Whether the service may answer now."""
        try:
            return self._http.get("/readyz").status_code == 200
        except httpx.HTTPError:
            return False

    def close(self) -> None:
        """Disconnect."""
        self._http.close()

    def _ask(
        self,
        model: type[_Model],
        method: str,
        path: str,
        user: str,
        tenant: str,
        *,
        roles: tuple[str, ...] = (),
        **options: Any,
    ) -> _Model:
        headers = {"Authorization": f"Bearer {self._token(user, tenant, roles)}"}
        try:
            answer = self._http.request(method, path, headers=headers, **options)
        except httpx.HTTPError as error:
            raise self._silent(error) from error
        if not answer.is_success:
            raise InfraError(*_problem(answer))
        try:
            return model.model_validate_json(answer.content)
        except ValidationError as error:
            raise self._foreign() from error

    def _silent(self, error: httpx.HTTPError) -> InfraError:
        return InfraError(
            f"The query service at {self.address} does not answer ({type(error).__name__}).",
            "Start it by `headwater up`; `headwater status` shows what runs.",
        )

    def _foreign(self) -> InfraError:
        return InfraError(
            f"What answers at {self.address} is not this version's query service.",
            "Stop what listens there, or set HEADWATER_QUERY__PORT.",
        )

    def _token(self, user: str, tenant: str, roles: tuple[str, ...]) -> str:
        key = (user, tenant, roles)
        if key not in self._tokens:
            claims = {"roles": list(roles)} if roles else {}
            self._tokens[key] = issue(self._settings, user, tenant, TOKEN_S, **claims)[0]
        return self._tokens[key]


def _problem(answer: httpx.Response) -> tuple[str, str]:
    try:
        problem = Problem.model_validate_json(answer.content)
    except ValidationError:
        return f"The query service answers {answer.status_code}.", "Read `headwater logs query`."
    fields = "; ".join(f"{e.field}: {e.problem}" for e in problem.errors)
    said = f"The query service answers {answer.status_code}: {problem.detail}" + (f" {fields}." if fields else "")
    if answer.status_code == 401:
        return said, "Is it the secret of this state directory? `headwater config check` shows the settings."
    if answer.status_code == 503:
        return said, "Wait a moment; `headwater status` shows what runs."
    return said, "Correct it and ask again."
