"""Freshness tokens: whether a write is in the answers of the active generation, and waiting until it is."""

from __future__ import annotations

import asyncio
import time

from pipeline.clock import Clock
from pipeline.ports import IndexReader
from query_service.admit import admit_document
from query_service.freshness import Changes
from query_service.overlay import Overlay
from query_service.scope import FieldError, Narrowing
from query_service.supply import ResolveClosure
from query_service.tail import ACCESS_TOPICS, AccessTail
from schemas.documents import AccessRecord, Manifest
from schemas.tokens import FreshnessToken, TokenDocument
from schemas.topics import Topic

RECHECK_S = 0.05


def read_token(text: str, tenant: str) -> FreshnessToken:
    """The token of this tenant. Raises FieldError naming ``after``."""
    try:
        token = FreshnessToken.decode(text)
    except ValueError as error:
        raise FieldError("after", str(error)) from error
    if token.tenant != tenant:
        raise FieldError("after", "this freshness token belongs to another tenant")
    return token


class Waiter:
    """Checks tokens against the store, under the tail's overlay. A token grants nothing: it only makes one wait.

    Anybody can make one up. So of a document that the caller may not read, only the exact versions that stand now are
    confirmed: whoever guesses learns as much as of a document that does not exist.
    """

    def __init__(self, reader: IndexReader, overlay: Overlay, tail: AccessTail, changes: Changes, clock: Clock) -> None:
        self._reader = reader
        self._overlay = overlay
        self._tail = tail
        self._changes = changes
        self._clock = clock

    async def wait(self, token: FreshnessToken, generation: str, wait_ms: int, resolve: ResolveClosure) -> bool:
        """Whether all of the token is visible within ``wait_ms``. Raises StoreUnavailable."""
        deadline = time.monotonic() + wait_ms / 1000
        while True:
            if await self.visible(token, generation, resolve):
                return True
            left = deadline - time.monotonic()
            if left <= 0:
                return False
            await self._changes.wait(min(left, RECHECK_S))

    async def visible(self, token: FreshnessToken, generation: str, resolve: ResolveClosure) -> bool:
        """Whether content is in the generation and access is applied, for all that the token names."""
        documents, positions = await asyncio.gather(
            self._documents_visible(token, generation, resolve), self._positions_reached(token, generation)
        )
        return documents and positions

    async def _documents_visible(self, token: FreshnessToken, generation: str, resolve: ResolveClosure) -> bool:
        wanted = {d.ref(token.tenant).uid: d for d in token.documents}
        if not wanted:
            return True
        uids = sorted(wanted)
        manifests, records = await asyncio.gather(
            self._reader.manifests(generation, token.tenant, uids), self._reader.access(token.tenant, uids)
        )
        guessed: list[tuple[Manifest | None, AccessRecord | None]] = []
        for uid, document in wanted.items():
            manifest, record = manifests.get(uid), self._overlay.access(uid, records.get(uid))
            content = manifest.content_version if manifest is not None else 0
            access = record.version if record is not None else 0
            if content < document.content or access < document.access:
                return False
            if not _exact(document, content, access):
                guessed.append((manifest, record))
        if not guessed:
            return True
        closure, everything, now = await resolve(), Narrowing(token.tenant), self._clock.now()
        return all(admit_document(m, r, closure, everything, now) is None for m, r in guessed)

    async def _positions_reached(self, token: FreshnessToken, generation: str) -> bool:
        if not token.positions:
            return True
        progress = await self._reader.progress()
        reached = {
            (p.topic, p.partition): p.offset
            for p in progress
            if p.generation == (generation if p.topic == Topic.CONTENT.value else "")
        }
        if self._tail.alive():
            # What the tail has read is in force here, whether the store has it yet or not.
            for slot, offset in self._tail.partitions().items():
                if slot[0] in ACCESS_TOPICS:
                    reached[slot] = max(reached.get(slot, 0), offset)
        return all(reached.get((p.topic.value, p.partition), 0) > p.offset for p in token.positions)


def _exact(document: TokenDocument, content: int, access: int) -> bool:
    """Whether the token names the versions that stand now: only who was given it knows them."""
    return document.content in (0, content) and document.access in (0, access)
