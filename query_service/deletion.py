"""``GET /v1/documents/{document_uid}/deletion``: an operator asks what is left of a deleted document.

For anybody else, of another tenant, and for a document that was never here the answer is the one for what does not
exist. The proof reads the store with the read-only key, the log, and this process's own caches.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Annotated, Any

from fastapi import APIRouter, Query

from pipeline.clock import Clock
from pipeline.operate.deletion import Absent, Embed, Place, Prover
from pipeline.operate.places import at_once
from pipeline.ports import IndexReader
from query_service.callers import Operator
from query_service.documents import NotFound, is_uuid
from query_service.encoders import Encoders
from schemas.api import Problem
from schemas.deletion import DeletionPlace, DeletionResponse
from schemas.documents import AccessRecord, Manifest
from schemas.keys import DocumentRef


@dataclass(frozen=True)
class Proofs:
    """A prover on an open store. ``close`` disconnects."""

    prover: Prover
    close: Callable[[], None]


OpenProofs = Callable[[Embed, Sequence[Place]], Proofs]  # vectors of warm encoders, and this process's caches


class Deletions:
    """Answers one proof at a time; connects at the first."""

    def __init__(
        self, open_proofs: OpenProofs | None, reader: IndexReader, encoders: Encoders, clock: Clock,
        places: Sequence[Place] = (),
    ) -> None:  # fmt: skip
        """``places``: further caches of this process."""
        self._places = (self._caches, *places)
        self._open, self._reader, self._encoders, self._clock = open_proofs, reader, encoders, clock
        self._proofs: Proofs | None = None
        self._turn = asyncio.Lock()

    async def prove(self, tenant: str, uid: str, thorough: bool) -> DeletionResponse:
        """Raises NotFound, NotDeleted, StoreUnavailable or BusUnavailable."""
        if self._open is None or not is_uuid(uid):
            raise NotFound
        async with self._turn:
            try:
                return await asyncio.to_thread(self._prove, self._open, tenant, uid, thorough)
            except Absent as error:
                raise NotFound from error

    def _prove(self, open_proofs: OpenProofs, tenant: str, uid: str, thorough: bool) -> DeletionResponse:
        if self._proofs is None:
            self._proofs = open_proofs(self._encoders.embed_if_warm, self._places)
        return self._proofs.prover.prove(tenant, uid, thorough=thorough)

    def _caches(self, document: DocumentRef, hidden_at: int) -> DeletionPlace:
        """Records of the document in memory that still say something of it; they are dropped by being found."""
        found = sum(_tells(record) for record in self._reader.remembered(document.uid))
        self._reader.forget_document(document.uid)
        note = "embeddings are kept by query, texts not at all; what was found is dropped now"
        return at_once("caches of the query service", "records kept in memory", found, self._clock.now(), note=note)

    def close(self) -> None:
        """Disconnect."""
        if self._proofs is not None:
            self._proofs.close()


def _tells(record: object) -> bool:
    if isinstance(record, Manifest):
        return not record.deleted
    return isinstance(record, AccessRecord) and not record.tombstone


def router(deletions: Deletions) -> APIRouter:
    """The route."""
    routes = APIRouter(prefix="/v1")
    answers: dict[int | str, dict[str, Any]] = {
        401: {"model": Problem, "description": "The token is missing, expired or not valid here."},
        404: {"model": Problem, "description": "Never here, or the token is no operator's: the answers are equal."},
        409: {"model": Problem, "description": "The document is not deleted; the detail says what it is instead."},
        503: {"model": Problem, "description": "Store or log do not answer; nothing is said in the meantime."},
    }

    @routes.get(
        "/documents/{document_uid}/deletion",
        responses=answers,
        summary="What is left of a deleted document (operators)",
    )
    async def deletion(
        document_uid: str,
        operator: Operator,
        thorough: Annotated[bool, Query(description="Also read every object of the tenant; takes long.")] = False,
    ) -> DeletionResponse:
        return await deletions.prove(operator.tenant, document_uid, thorough)

    return routes
