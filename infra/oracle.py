"""The answering part of the product alone, in this process: the same writers and checks over passages that are given.

What is given stands in the place of what the search would have found: the labelled passages alone (an oracle context),
or the same passages in another order. All else is the product's own: contradictions, the writer, the check of every
sentence, permissions and versions at the end.
"""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Callable, Coroutine, Iterator, Sequence
from contextlib import AsyncExitStack, contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any, Literal, TypeVar, cast

from infra.errors import InfraError
from pipeline.golden import Question
from pipeline.settings import AuthSettings, Settings
from query_service.scope import Scope
from schemas.api import SearchRequest, SearchResponse
from schemas.api_answer import AnswerRequest, AnswerResponse
from schemas.api_ranking import Evidence, EvidencePassage

if TYPE_CHECKING:
    from query_service.answer.service import AnswerService
    from query_service.app import Parts
    from query_service.querylog.service import LoggedService

READY_S = 120.0
EVERYTHING = 1_000_000  # tokens
_T = TypeVar("_T")


class Given:
    """A search service whose results hold the given passages, whatever was searched for."""

    def __init__(self, service: LoggedService, passages: Sequence[EvidencePassage]) -> None:
        self._service = service
        self._passages = tuple(passages)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._service, name)

    async def searched(self, scope: Scope, request: SearchRequest) -> SearchResponse:
        """See LoggedService."""
        found: SearchResponse = await self._service.searched(scope, request)
        tokens = sum(passage.tokens for passage in self._passages)
        evidence = Evidence(
            mode="sections", passages=self._passages, tokens=tokens, budget=EVERYTHING, complete=True, left_out=0
        )
        return found.model_copy(update={"evidence": evidence, "weak": False})


class Answerer:
    """A query service in this process, asked from any thread; a context that starts and stops it."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="answerer", daemon=True)
        self._stack = AsyncExitStack()
        self._folder = TemporaryDirectory(prefix="answerer-")
        self._parts: Parts | None = None

    def __enter__(self) -> Answerer:
        """Raises InfraError where it does not become ready."""
        self._thread.start()
        try:
            self._parts = self._run(self._open())
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *error: object) -> None:
        try:
            self._run(self._stack.aclose())
        finally:
            self._loop.call_soon_threadsafe(self._loop.stop)
            self._thread.join()
            self._loop.close()
            self._folder.cleanup()

    def answer(self, scope: Scope, request: AnswerRequest, passages: Sequence[EvidencePassage]) -> AnswerResponse:
        """What the answerer says of these passages in this order. Raises what AnswerService.answer raises."""
        return self._run(self._service().over(self._given(passages)).answer(scope, request))

    def _given(self, passages: Sequence[EvidencePassage]) -> LoggedService:
        assert self._parts is not None
        return cast("LoggedService", Given(cast("LoggedService", self._parts.service), passages))

    def _service(self) -> AnswerService:
        assert self._parts is not None
        assert self._parts.answers is not None
        return self._parts.answers

    def _run(self, work: Coroutine[Any, Any, _T]) -> _T:
        return asyncio.run_coroutine_threadsafe(work, self._loop).result()

    async def _open(self) -> Parts:
        from query_service.app import create_app
        from query_service.wiring import dependencies

        app = create_app(dependencies(apart(self._settings, Path(self._folder.name))))
        await self._stack.enter_async_context(app.router.lifespan_context(app))
        parts: Parts = app.state.parts
        end = time.monotonic() + READY_S
        while reasons := parts.state.reasons():
            if time.monotonic() > end:
                raise InfraError(f"A query service in this process is not ready: {', '.join(reasons)}.", "")
            await asyncio.sleep(0.1)
        return parts


def apart(settings: Settings, folder: Path) -> Settings:
    """These settings with receipts in another place, so that two query services read beside each other; no log."""
    query = settings.query.model_copy(update={"receipts_path": folder / "receipts.sqlite"})
    log = settings.querylog.model_copy(update={"enabled": False})
    auth = settings.auth
    if auth.jwt_secret is None:
        auth = AuthSettings.model_validate({"jwt_secret": "x" * 48})
    return settings.model_copy(update={"query": query, "querylog": log, "auth": auth})


def scope_of(question: Question) -> Scope:
    """Of the person who asks."""
    return Scope(tenant=question.tenant, subject=question.user.removeprefix("user:"))


@contextmanager
def oracle_of(
    settings: Settings, style: Literal["extractive", "generated"]
) -> Iterator[Callable[[Question, Sequence[EvidencePassage]], str]]:
    """What the answerer says of given passages alone. It starts when it is first asked."""
    from infra.answer_run import request_of

    started: list[Answerer] = []

    def ask(question: Question, passages: Sequence[EvidencePassage]) -> str:
        if not started:
            started.append(Answerer(settings).__enter__())
        found = started[0].answer(scope_of(question), request_of(question, style), passages)
        return " \n".join(sentence.text for sentence in found.sentences)

    try:
        yield ask
    finally:
        for one in started:
            one.__exit__()
