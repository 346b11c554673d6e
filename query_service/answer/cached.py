"""What answering asks of the store of kept answers."""

from __future__ import annotations

from typing import Protocol

from query_service.scope import Scope
from schemas.api import SearchResponse
from schemas.api_answer import AnswerRequest, AnswerResponse


class KeptAnswers(Protocol):
    """Answers given before. What ``find`` gives was admitted for this caller now, in the versions of now."""

    async def find(self, scope: Scope, request: AnswerRequest) -> AnswerResponse | None:
        """With query id, ages, moments and usage of now. Raises StoreUnavailable."""
        ...

    async def keep(self, scope: Scope, request: AnswerRequest, answer: AnswerResponse, found: SearchResponse) -> None:
        """Keep it, if such an answer may be kept at all."""
        ...
