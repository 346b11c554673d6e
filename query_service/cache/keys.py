"""What two requests must have in common to get the same reply.

Tenant, generation, all principals of the caller, what token and filters narrow, and every field of the request. Fields
that change nothing are named here; a new field of a request is in the key until somebody names it.
"""

from __future__ import annotations

import hashlib
import json
import unicodedata
from dataclasses import asdict, dataclass, replace
from typing import Literal

from query_service.scope import Narrowing, Scope
from schemas.access import Closure
from schemas.api import SearchRequest
from schemas.api_answer import AnswerRequest

Kind = Literal["answers", "searches"]
NO_MATTER = {"cache", "stream", "explain", "after", "wait_ms", "cursor", "max_staleness_s"}


@dataclass(frozen=True)
class Key:
    """Of a kept reply. ``closure``, ``rest`` and ``question`` are digests."""

    kind: Kind
    tenant: str
    generation: str
    closure: str
    rest: str
    question: str

    @property
    def group(self) -> Key:
        """The same without the question."""
        return replace(self, question="")


def key_of(
    scope: Scope, request: AnswerRequest | SearchRequest, narrowing: Narrowing, generation: str, closure: Closure
) -> Key:
    """The key of a request. Settings are not in it: they are read once, and what is kept ends with the process."""
    asked = request.model_dump(mode="json", exclude=NO_MATTER | {"question", "query"})
    narrowed = {name: _plain(value) for name, value in asdict(narrowing).items()}
    rest: list[object] = [asked, narrowed]
    closed, tenant = digest_of(closure), scope.tenant
    if isinstance(request, AnswerRequest):
        return Key("answers", tenant, generation, closed, _digest(rest), _digest(normal(request.question)))
    # The cursor in a reply is sealed for one person and the very words.
    return Key("searches", tenant, generation, closed, _digest([*rest, scope.subject]), _digest(request.query))


def digest_of(closure: Closure) -> str:
    """Of all principals, and of whether they are all."""
    return _digest([closure.complete, sorted(closure.principals)])


def normal(question: str) -> str:
    """Canonical Unicode, one space between words. Case stays: "US" is not "us"."""
    return " ".join(unicodedata.normalize("NFC", question).split())


def asks_anew(scope: Scope, request: AnswerRequest | SearchRequest, narrowing: Narrowing) -> bool:
    """Whether nothing kept may answer it and its reply is not kept: a write is waited for, steps are to be shown, a
    later page, an applicable date that moves with the clock, or because the request says so."""
    if not request.cache or request.after is not None or request.explain:
        return True
    if isinstance(request, SearchRequest) and request.cursor is not None:
        return True
    moves = scope.dated and request.filters.as_of is None
    return moves and narrowing.as_of not in (scope.as_of_from, scope.as_of_until)


def _plain(value: object) -> object:
    return sorted(value) if isinstance(value, frozenset) else value


def _digest(value: object) -> str:
    text = value if isinstance(value, str) else json.dumps(value, sort_keys=True, ensure_ascii=True)
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()
