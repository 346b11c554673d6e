"""Whether what was kept may be given now: what came since, and a last check as every reply has it.

An entry is good while no document of the tenant became visible, changed or went since the search behind it began, and
while every document it was made from may be read by this caller, now, in the version that was used. The first is told
by the log (receipts, and the access events that the overlay saw), to its end of now; the second is read from the store.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass

from pipeline.clock import Clock
from pipeline.observe import Metrics
from pipeline.operate.places import at_once
from pipeline.ports import IndexReader
from pipeline.settings_query import CacheSettings
from query_service.admit import admit_document
from query_service.assemble import in_effect
from query_service.cache.keys import Key, asks_anew, digest_of, key_of
from query_service.cache.shelf import Asked, Kept, Mark, Shelf, Used
from query_service.closure import Closures
from query_service.freshness import Freshness
from query_service.overlay import Overlay
from query_service.querylog.entry import current
from query_service.scope import Narrowing, Scope
from schemas.access import Closure
from schemas.api import SearchRequest
from schemas.api_answer import AnswerRequest
from schemas.deletion import DeletionPlace
from schemas.documents import AccessRecord, Manifest
from schemas.generation import Generation
from schemas.keys import DocumentRef

Passed = Callable[[], Awaitable[bool]]
PLACE = "answers and searches kept"


@dataclass(frozen=True, eq=False)
class Ticket:
    """A request that may be answered from what is kept, taken before its search begins: what changes from here on
    makes its reply too old to be kept."""

    key: Key
    scope: Scope
    request: AnswerRequest | SearchRequest
    narrowing: Narrowing
    closure: Closure
    mark: Mark
    memberships: int
    walked: int
    taken_at: float  # by Clock.elapsed; from then on a reply is kept
    at: int  # the same moment by Clock.now


@dataclass(frozen=True)
class Admitted:
    """An entry that may be given now. ``judged_at``: the check began then."""

    entry: Kept
    judged_at: int
    now: int
    complete_until: dict[str, int | None]


class Keeper:
    """One for the process; replies of both kinds share its shelf."""

    def __init__(
        self, settings: CacheSettings, reader: IndexReader, overlay: Overlay, closures: Closures, freshness: Freshness,
        clock: Clock, metrics: Metrics, passed: Passed,
    ) -> None:  # fmt: skip
        """``passed`` tells whether all receipts that are on the log now are counted."""
        self.settings = settings
        self.clock, self.metrics = clock, metrics
        self._reader, self._overlay, self._closures = reader, overlay, closures
        self._freshness, self._passed = freshness, passed
        self._memberships: dict[str, int] = {}
        self.shelf = Shelf(
            {"answers": settings.answers, "searches": settings.searches}, settings.bytes, settings.ttl_s, clock, metrics
        )
        overlay.on_access(self._forget_document)
        overlay.subscribe(self._on_membership)

    # ------------------------------------------------------------ what the log says; the tails' threads

    def _forget_document(self, uid: str) -> None:
        self.shelf.drop_document(uid)

    def _on_membership(self, tenant: str, principal: str) -> None:
        self._memberships[tenant] = self._memberships.get(tenant, 0) + 1
        self.shelf.drop_principal(tenant, principal)

    def mark(self, tenant: str, generation: str) -> Mark:
        """Another value after each change that may change a reply."""
        return (*self._freshness.changes(tenant, generation), *self._overlay.changes(tenant))

    # ------------------------------------------------------------ a request

    async def ticket(
        self, scope: Scope, request: AnswerRequest | SearchRequest, narrowing: Narrowing, generation: Generation
    ) -> Ticket | None:
        """None for a request that is always answered anew. Raises StoreUnavailable."""
        kind = "answers" if isinstance(request, AnswerRequest) else "searches"
        if not (self.settings.answers if kind == "answers" else self.settings.searches):
            return None
        if asks_anew(scope, request, narrowing):
            self.metrics.count("headwater_cache_total", cache=kind, outcome="refused")
            return None
        taken_at, at, mark = self.clock.elapsed(), self.clock.now(), self.mark(scope.tenant, generation.name)
        memberships, walked = self._memberships.get(scope.tenant, 0), self._closures.walked
        closure = await self._closures.resolve(scope)
        if not closure.principals:  # nobody: there is nothing to find
            return None
        key = key_of(scope, request, narrowing, generation.name, closure)
        return Ticket(key, scope, request, narrowing, closure, mark, memberships, walked, taken_at, at)

    async def admitted(self, ticket: Ticket, entry: Kept) -> Admitted | None:
        """The last check; what fails it is forgotten. Raises StoreUnavailable."""
        if (logged := current()) is not None:
            logged.closure = ticket.closure  # there may be no search that tells
        complete = self._complete(ticket)  # before the marks: what is said to be complete is counted in them
        judged_at = self.clock.now()
        uids = sorted({used.uid for used in entry.used})
        passed, (manifests, records) = await asyncio.gather(self._passed(), self._records(ticket.key, uids))
        closure = await self._closures.confirmed(ticket.scope)  # after the records, as every last check
        if not passed:
            return None  # nobody knows what came since; it may be good again
        now = self.clock.now()
        good = digest_of(closure) == ticket.key.closure and entry.mark == self._mark_of(ticket)
        good = good and all(
            self._stands(used, manifests.get(used.uid), records.get(used.uid), closure, ticket.narrowing, now)
            for used in entry.used
        )
        if entry.key.kind == "answers" and ticket.narrowing.as_of is None:  # it was written of what held then
            good = good and not any(_turned(manifest, entry.made_at, now) for manifest in manifests.values())
        if not good or self.clock.elapsed() - entry.kept_at > self.settings.ttl_s:
            if self.shelf.drop(entry.key):
                self.metrics.count("headwater_cache_total", cache=entry.key.kind, outcome="dropped")
            return None
        return Admitted(entry, judged_at, now, complete)

    def _stands(
        self, used: Used, manifest: Manifest | None, stored: AccessRecord | None, closure: Closure,
        narrowing: Narrowing, now: int,
    ) -> bool:  # fmt: skip
        """Whether a document may be read, and is the one that was used, under the rule that was shown."""
        record = self._overlay.access(used.uid, stored)
        if manifest is None or record is None or manifest.document.uid != used.uid:
            return False
        same = used.version in (None, manifest.content_version) and used.access_version in (None, record.version)
        return same and admit_document(manifest, record, closure, narrowing, now) is None

    async def keep(self, ticket: Ticket, reply: bytes, used: tuple[Used, ...], asked: Asked | None = None) -> bool:
        """Keep a reply, unless something changed since the ticket was taken. Raises StoreUnavailable."""
        closure = await self._closures.resolve(ticket.scope)

        def holds() -> bool:
            return (
                digest_of(closure) == ticket.key.closure
                and self._memberships.get(ticket.key.tenant, 0) == ticket.memberships
                and self._closures.walked == ticket.walked  # else the search may have seen a change that we have not
                and self._mark_of(ticket) == ticket.mark
            )

        entry = Kept(
            ticket.key, reply, used, ticket.mark, ticket.closure.principals, ticket.taken_at, asked, ticket.at
        )  # fmt: skip
        kept = self.shelf.put(entry, holds)
        if not kept:
            self.refused(ticket)
        return kept

    def refused(self, ticket: Ticket) -> None:
        """Count a reply that is not kept."""
        self.metrics.count("headwater_cache_total", cache=ticket.key.kind, outcome="refused")

    async def _records(
        self, key: Key, uids: Sequence[str]
    ) -> tuple[dict[str, Manifest], dict[str, AccessRecord]]:  # fmt: skip
        if not uids:
            return {}, {}
        manifests, records = await asyncio.gather(
            self._reader.manifests(key.generation, key.tenant, uids), self._reader.access(key.tenant, uids)
        )
        return manifests, records

    def _mark_of(self, ticket: Ticket) -> Mark:
        return self.mark(ticket.key.tenant, ticket.key.generation)

    def _complete(self, ticket: Ticket) -> dict[str, int | None]:
        """As a search has it."""
        complete = self._freshness.complete_until(ticket.key.tenant, ticket.key.generation)
        sources = ticket.narrowing.sources
        return complete if sources is None else {source: complete.get(source) for source in sorted(sources)}

    # ------------------------------------------------------------ deletions

    def place(self, document: DocumentRef, hidden_at: int) -> DeletionPlace:
        """For the proof of a deletion: replies that the document was used for; they are dropped by being found."""
        found = self.shelf.with_document(document.uid)
        self.shelf.drop_document(document.uid)
        return at_once(PLACE, "replies in memory that it was used for", found, self.clock.now())


def _turned(manifest: Manifest, then: int, now: int) -> bool:
    """Whether a document came into effect or ended since, and so says something else now."""
    start, end = manifest.effective_from, manifest.effective_until
    return in_effect(start, end, then) != in_effect(start, end, now)
