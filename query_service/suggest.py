"""What to try where nothing was found (E4): made of the request and of what the caller may read now, of nothing else.

A word that stands in hidden documents only is neither suggested nor known here: no statistics of the corpus take part.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, replace

from pipeline import analysis
from pipeline.errors import HeadwaterError
from pipeline.ports import IndexReader
from query_service import phrases
from query_service.admit import passes
from query_service.gate import Asked, Gate, version_of
from query_service.matching import Words, matches
from query_service.outcome import Ranked
from query_service.scope import Narrowing
from schemas.access import Closure
from schemas.api import Mode, SearchFilters, SearchRequest
from schemas.api_ranking import Suggestion

DEADLINE_S = 0.15  # of all that is tried
PROBES = 3  # searches that ask which filter hides everything
NEAREST = 30  # passages whose words are compared with those of the query
LEAST = 4  # letters of a word that may be misspelt
LONG = 6  # from here on two letters may be wrong, below one
_QUOTES = re.compile('["\u201c\u201d\u201e\u00ab\u00bb]')
_WORD = re.compile(r"[^\W\d_]+(?:['’\-][^\W\d_]+)*")

Search = Callable[[str, Mode, Narrowing, Closure], Awaitable[Sequence[Ranked]]]


@dataclass(frozen=True)
class Trials:
    """How to try: a cheap search that finds only what the closure may read, and filters inside the caller's scope."""

    search: Search
    narrow: Callable[[SearchFilters], Narrowing]


class Suggester:
    """One for the process; each call serves one request."""

    def __init__(self, reader: IndexReader, gate: Gate) -> None:
        self._reader = reader
        self._gate = gate

    async def suggest(self, request: SearchRequest, asked: Asked, trials: Trials) -> Suggestion | None:
        """A suggestion, or None for nobody and where none was found in time. Raises nothing that the search did not."""
        try:
            async with asyncio.timeout(DEADLINE_S):
                closure = await asked.confirm()
                if not closure.principals or asked.narrowing.products == frozenset():
                    return None
                asked = replace(asked, closure=closure)

                async def search(query: str, mode: Mode, filters: SearchFilters) -> Sequence[Ranked]:
                    return await trials.search(query, mode, trials.narrow(filters), closure)

                return await self._first(request, asked, search, trials)
        except (TimeoutError, HeadwaterError):
            return None

    async def _first(self, request: SearchRequest, asked: Asked, search: _Try, trials: Trials) -> Suggestion:
        query, mode, filters = request.query, request.mode, request.filters
        if phrases.of_query(query):
            plain = " ".join(_QUOTES.sub(" ", query).split())
            if await search(plain, mode, filters):
                return Suggestion(
                    kind="quotes", text="Nothing holds exactly these words. Try without quotes.", query=plain
                )
        if (found := await self._filters(request, search, trials)) is not None:
            return found
        near = await search(query, "dense", filters) if mode == "sparse" else ()
        if near:
            # Before the mode: searching by meaning finds something always, and a misspelt word deserves to be told.
            if (found := await self._spelling(request, asked, near, search)) is not None:
                return found
            text = "Nothing holds these words. Search by meaning as well (mode 'hybrid')."
            return Suggestion(kind="mode", text=text)
        if mode == "dense" and await search(query, "sparse", filters):
            return Suggestion(kind="mode", text="Nothing is near in meaning. Search by words as well (mode 'hybrid').")
        return Suggestion(kind="words", text="Nothing was found. Try fewer words, or others.")

    async def _filters(self, request: SearchRequest, search: _Try, trials: Trials) -> Suggestion | None:
        """The filter without which something is found; all of them where no single one is enough."""
        given = request.filters
        names = [name for name in SearchFilters.model_fields if getattr(given, name) is not None]
        if not names:
            return None
        anything = await search(request.query, request.mode, SearchFilters())
        if not anything:
            return None
        without = {name: given.model_copy(update={name: None}) for name in names}
        if len(names) > 1:
            for name in names:
                narrowing = trials.narrow(without[name])
                if any(passes(ranked.manifest, narrowing) for ranked in anything):
                    return _dropped([name])
            for name in names[: PROBES - 1]:  # the first search does not reach everything
                if await search(request.query, request.mode, without[name]):
                    return _dropped([name])
        return _dropped(names)

    async def _spelling(
        self, request: SearchRequest, asked: Asked, near: Sequence[Ranked], search: _Try
    ) -> Suggestion | None:
        known = await self._words(asked, near[:NEAREST])
        query = request.query
        # From the end, so that places stay true.
        for match in reversed(matches(query, Words(frozenset(analysis.tokens(query))))):
            better = nearest(match.what, known)
            if better is not None:
                query = query[: match.start] + _as_typed(query[match.start : match.end], better) + query[match.end :]
        if query == request.query or not await search(query, request.mode, request.filters):
            return None
        return Suggestion(kind="spelling", text=f"Did you mean: {query}", query=query)

    async def _words(self, asked: Asked, near: Sequence[Ranked]) -> dict[str, str]:
        """Words as they are written by the token that they become, those of titles and headings first. Only what the
        caller may read after it was read."""
        ids = [ranked.candidate.chunk_id for ranked in near]
        texts = await self._reader.chunks(asked.generation.name, asked.tenant, ids)
        readable = await self._gate.readable(asked, [ranked.manifest for ranked in near])
        shown = [
            (ranked.manifest.title, text)
            for ranked in near
            if version_of(ranked.manifest) in readable
            and (text := texts.get(ranked.candidate.chunk_id)) is not None
            and text.document_uid == ranked.candidate.document_uid
        ]
        parts = [title for title, _ in shown] + [h for _, text in shown for h in text.heading_path]
        found: dict[str, str] = {}
        for part in [*parts, *(text.text for _, text in shown)]:
            for match in _WORD.finditer(part):
                tokens = analysis.tokens(match.group())
                if len(tokens) == 1 and len(tokens[0]) >= LEAST:
                    found.setdefault(tokens[0], match.group())
        return found


_Try = Callable[[str, Mode, SearchFilters], Awaitable[Sequence[Ranked]]]


def nearest(word: str, known: dict[str, str]) -> str | None:
    """The known word that is one or two slips of the keyboard away, as it is written; None for a word that is known
    itself, too short, or no word."""
    if word in known or len(word) < LEAST or not word.isalpha():
        return None
    from rapidfuzz.distance import DamerauLevenshtein
    from rapidfuzz.process import extractOne

    slips = 2 if len(word) >= LONG else 1
    found = extractOne(word, known.keys(), scorer=DamerauLevenshtein.distance, score_cutoff=slips)
    return known[found[0]] if found is not None else None


def _as_typed(typed: str, better: str) -> str:
    """A word at the beginning of a heading has a capital only there."""
    return better.lower() if typed.islower() and better.istitle() else better


def _dropped(names: Sequence[str]) -> Suggestion:
    spoken = ", ".join(f"'{name}'" for name in names)
    text = f"Something is found without the filter {spoken}." if len(names) == 1 else (
        f"Something is found without the filters {spoken}."
    )  # fmt: skip
    return Suggestion(kind="filter", text=text, drop_filters=tuple(names))
