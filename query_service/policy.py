"""Whom replies tell of a document's readers: everybody who may read it (A3), or operators alone.

Applied where a reply leaves, behind the caches: one that is kept serves callers of both kinds.
"""

from __future__ import annotations

from typing import TypeVar

from query_service.scope import Scope
from schemas.api import AccessSummary, DocumentFacts, SearchResponse

Facts = TypeVar("Facts", bound=DocumentFacts)


class Policies:
    """``show``: setting ``query.show_policy``."""

    def __init__(self, show: bool) -> None:
        self._show = show

    def search(self, reply: SearchResponse, scope: Scope) -> SearchResponse:
        """The reply as this caller may see it."""
        if self._show or scope.operator:
            return reply
        return reply.model_copy(update={"hits": tuple(self.facts(hit, scope) for hit in reply.hits)})

    def facts(self, facts: Facts, scope: Scope) -> Facts:
        """A hit, a document or passages of one, as this caller may see it."""
        if self._show or scope.operator:
            return facts
        return facts.model_copy(update={"access": nameless(facts.access)})


def nameless(access: AccessSummary) -> AccessSummary:
    """As many clauses, without names."""
    return access.model_copy(update={"clauses": tuple(() for _ in access.clauses), "named": False})
