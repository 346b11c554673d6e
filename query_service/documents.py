"""The use cases behind the routes of one document and its trace, and of freshness."""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import Iterable

from pipeline.clock import Clock
from pipeline.ports import IndexReader
from query_service import assemble, trace
from query_service.admit import admit_document
from query_service.closure import Closures
from query_service.flights import Flights
from query_service.freshness import Freshness
from query_service.gate import Version, version_of
from query_service.overlay import Overlay
from query_service.scope import Narrowing, Scope, narrow
from query_service.state import ServiceState
from schemas.api import DocumentResponse, FreshnessResponse, SearchFilters, SectionView, TraceResponse
from schemas.documents import AccessRecord, Manifest
from schemas.generation import Generation


class NotFound(Exception):
    """Absent or not for this caller: the two cannot be told apart."""


class Documents:
    """Reads of single documents under the same admission as a search."""

    def __init__(
        self,
        reader: IndexReader,
        clock: Clock,
        overlay: Overlay,
        closures: Closures,
        freshness: Freshness,
        state: ServiceState,
        flights: Flights,
    ) -> None:
        self._reader = reader
        self._clock = clock
        self._overlay = overlay
        self._closures = closures
        self._freshness = freshness
        self._state = state
        self._flights = flights

    async def document(self, scope: Scope, uid: str, offset: int, limit: int) -> DocumentResponse:
        """Sections of a document under the same admission. Raises NotFound, NotReady or StoreUnavailable."""
        generation = await self._state.current()
        with self._flights.on(generation.name):
            return await self._document(scope, uid, offset, limit, generation)

    async def _document(
        self, scope: Scope, uid: str, offset: int, limit: int, generation: Generation
    ) -> DocumentResponse:
        narrowing = narrow(scope, SearchFilters(), self._clock.now())
        manifest, _ = await self.admitted(scope, uid, generation, narrowing)
        complete = self._freshness.complete_until(scope.tenant, generation.name).get(manifest.document.source)
        wanted = manifest.sections[offset : offset + limit]
        sections = await self._reader.sections(generation.name, scope.tenant, wanted) if wanted else {}
        if len(sections) < len(set(wanted)):
            # The document moved on between the two reads: its new version stands by now.
            manifest, _ = await self.admitted(scope, uid, generation, narrowing)
            wanted = manifest.sections[offset : offset + limit]
            sections = await self._reader.sections(generation.name, scope.tenant, wanted) if wanted else {}
        record = await self.still_admitted(scope, manifest, narrowing)
        total = len(manifest.sections)
        following = offset + len(wanted)
        return DocumentResponse(
            **assemble.document_facts(manifest, record, self._clock.now(), narrowing.as_of),
            generation=generation.name,
            chunk_total=manifest.chunk_total,
            sections_total=total,
            offset=offset,
            next_offset=following if wanted and following < total else None,
            sections=tuple(
                SectionView(
                    section_id=s, ordinal=place, heading_path=sections[s].heading_path, text=sections[s].text,
                    page=sections[s].page,
                )
                for place, s in enumerate(wanted, start=offset)
                if s in sections
            ),
            complete_until=complete,
        )  # fmt: skip

    async def admitted(
        self, scope: Scope, uid: str, generation: Generation, narrowing: Narrowing
    ) -> tuple[Manifest, AccessRecord]:
        """The document's manifest and record, if the caller may read it now. Raises NotFound or StoreUnavailable."""
        if not is_uuid(uid):
            raise NotFound
        manifests, records = await asyncio.gather(
            self._reader.manifests(generation.name, scope.tenant, [uid]), self._reader.access(scope.tenant, [uid])
        )
        closure = await self._closures.confirmed(scope)
        manifest, record = manifests.get(uid), self._overlay.access(uid, records.get(uid))
        refused = admit_document(manifest, record, closure, narrowing, self._clock.now())
        if manifest is None or record is None or refused is not None or manifest.document.uid != uid:
            raise NotFound
        return manifest, record

    async def still_admitted(self, scope: Scope, manifest: Manifest, narrowing: Narrowing) -> AccessRecord:
        """Admission once more before the answer leaves, with a record read after the text."""
        uid = manifest.document.uid
        records = await self._reader.access(scope.tenant, [uid])
        closure = await self._closures.confirmed(scope)
        record = self._overlay.access(uid, records.get(uid))
        if record is None or admit_document(manifest, record, closure, narrowing, self._clock.now()) is not None:
            raise NotFound
        return record

    async def standing(
        self, scope: Scope, versions: Iterable[Version], generation: str | None, filters: SearchFilters
    ) -> set[Version]:
        """Those that the caller may read now within the filters, and that are still the newest of their documents.

        Raises StoreUnavailable.
        """
        wanted = set(versions)
        if not wanted or generation is None:
            return set()
        narrowing = narrow(scope, filters, self._clock.now())
        uids = sorted({uid for uid, _ in wanted})
        manifests, records = await asyncio.gather(
            self._reader.manifests(generation, scope.tenant, uids), self._reader.access(scope.tenant, uids)
        )
        closure = await self._closures.confirmed(scope)
        now = self._clock.now()
        found: set[Version] = set()
        for uid, manifest in manifests.items():
            record = self._overlay.access(uid, records.get(uid))
            if manifest.document.uid == uid and admit_document(manifest, record, closure, narrowing, now) is None:
                found.add(version_of(manifest))
        return wanted & found

    async def trace(self, scope: Scope, uid: str) -> TraceResponse:
        """Recorded steps of a document that the caller may read; of a deleted one for operators. Raises as
        ``document``."""
        generation = await self._state.current()
        with self._flights.on(generation.name):
            narrowing = narrow(scope, SearchFilters(), self._clock.now())
            try:
                manifest, _ = await self.admitted(scope, uid, generation, narrowing)
            except NotFound:
                if not scope.operator or not await self._deleted(scope, uid, generation):
                    raise
                return await self._traced(scope, uid, generation, deleted=True)
            found = await self._traced(scope, uid, generation, deleted=False)
            await self.still_admitted(scope, manifest, narrowing)
            return found

    async def _traced(self, scope: Scope, uid: str, generation: Generation, *, deleted: bool) -> TraceResponse:
        return await trace.traced(
            self._reader, self._freshness, scope.tenant, uid, generation.name,
            everywhere=scope.operator, deleted=deleted,
        )  # fmt: skip

    async def _deleted(self, scope: Scope, uid: str, generation: Generation) -> bool:
        """Whether a document of the tenant was deleted."""
        if not is_uuid(uid):
            return False
        manifests, records = await asyncio.gather(
            self._reader.manifests(generation.name, scope.tenant, [uid]), self._reader.access(scope.tenant, [uid])
        )
        manifest, record = manifests.get(uid), self._overlay.access(uid, records.get(uid))
        if record is None or record.document.tenant != scope.tenant:
            return manifest is not None and manifest.deleted
        return record.tombstone or (manifest is not None and manifest.deleted)

    # ------------------------------------------------------------ freshness

    async def freshness(self, scope: Scope, window_s: int) -> FreshnessResponse:
        """Freshness of the caller's tenant. A caller without a live record learns of no source."""
        report = await asyncio.to_thread(self._freshness.report, scope.tenant, window_s)
        closure = await self._closures.confirmed(scope)
        return report if closure.principals else report.model_copy(update={"sources": {}})


def is_uuid(text: str) -> bool:
    """Whether it is spelt as our ids are."""
    try:
        return str(uuid.UUID(text)) == text
    except ValueError:
        return False
