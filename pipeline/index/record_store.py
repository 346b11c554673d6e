"""Records: access, membership, generations, progress, manifests with their pages, sections."""

from __future__ import annotations

import json
from collections.abc import Sequence

from pipeline.index import pages as manifest_pages
from pipeline.index.connection import translated
from pipeline.index.core import StoreCore
from pipeline.index.objects import ACTIVE_UID, generation_uid, parse, record_object
from pipeline.ports import Deadline
from schemas.documents import AccessRecord, Manifest, PageEntry, PrincipalRecord, Section
from schemas.generation import Generation
from schemas.keys import DocumentRef, principal_uid, progress_uid
from schemas.receipts import Progress

MAX_GENERATIONS = 1000


class RecordStore(StoreCore):
    """Reads and upserts of records; each is one JSON text found by its id."""

    # ------------------------------------------------------------ access lane

    def read_access(self, tenant: str, uids: Sequence[str]) -> dict[str, AccessRecord]:
        """Access records by document uid. Raises Reject for a record that cannot be read."""
        records = self._read_records(self._names.access, tenant, uids)
        return {uid: parse(AccessRecord, record, f"access record {uid}") for uid, record in records.items()}

    def write_access(self, tenant: str, records: Sequence[AccessRecord], deadline: Deadline | None = None) -> None:
        """Replace access records."""
        objects = [
            record_object(r.document.uid, "access", r, r.version)
            for r in records
        ]  # fmt: skip
        self._upsert_records(self._names.access, tenant, objects, deadline)

    def read_principals(self, tenant: str, principals: Sequence[str]) -> dict[str, PrincipalRecord]:
        """Membership records by principal."""
        by_uid = {principal_uid(tenant, p): p for p in principals}
        records = self._read_records(self._names.principals, tenant, list(by_uid))
        return {
            by_uid[uid]: parse(PrincipalRecord, record, f"membership of {by_uid[uid]}")
            for uid, record in records.items()
        }

    def write_principals(
        self, tenant: str, records: Sequence[PrincipalRecord], deadline: Deadline | None = None
    ) -> None:
        """Replace membership records."""
        objects = [record_object(principal_uid(tenant, r.principal), "principal", r, r.version) for r in records]
        self._upsert_records(self._names.principals, tenant, objects, deadline)

    # ------------------------------------------------------------ generations and progress

    def read_generations(self) -> dict[str, Generation]:
        """All generation records by name."""
        with translated("read generations"):
            reply = self._handle(self._names.generations, None).query.fetch_objects(
                limit=MAX_GENERATIONS, return_properties=["record", "type"]
            )
        found = [
            parse(Generation, str(item.properties["record"]), "generation record")
            for item in reply.objects
            if item.properties["type"] == "generation"
        ]
        return {generation.name: generation for generation in found}

    def write_generation(self, generation: Generation, deadline: Deadline | None = None) -> None:
        """Replace a generation's record."""
        uid = generation_uid(generation.name)
        record = record_object(uid, "generation", generation, generation.version)
        self._upsert_records(self._names.generations, None, [record], deadline)

    def active_generation(self) -> str | None:
        """Name of the active generation, or None."""
        records = self._read_records(self._names.generations, None, [ACTIVE_UID])
        return str(json.loads(records[ACTIVE_UID])["active"]) if records else None

    def set_active_generation(self, name: str, deadline: Deadline | None = None) -> None:
        """Switch the active generation: one write."""
        record = record_object(ACTIVE_UID, "active", json.dumps({"active": name}), 0)
        self._upsert_records(self._names.generations, None, [record], deadline)

    def read_progress(self, lane: str, generation: str, topic: str) -> dict[int, Progress]:
        """Progress by partition; asked by id for every partition of the log, so that none is overlooked."""
        ids = [progress_uid(lane, generation, topic, p) for p in range(self._partitions)]
        records = self._read_records(self._names.progress, None, ids)
        found = [parse(Progress, record, "progress record") for record in records.values()]
        return {progress.partition: progress for progress in found}

    def write_progress(self, records: Sequence[Progress], deadline: Deadline | None = None) -> None:
        """Replace progress records."""
        objects = [
            record_object(
                progress_uid(r.lane, r.generation, r.topic, r.partition),
                "progress",
                r,
                r.offset,
            )
            for r in records
        ]
        self._upsert_records(self._names.progress, None, objects, deadline)

    # ------------------------------------------------------------ manifests

    def read_manifests(self, generation: str, tenant: str, uids: Sequence[str]) -> dict[str, Manifest]:
        """Manifests by document uid. Raises Reject for a record that cannot be read."""
        records = self._read_records(self._names.records(generation), tenant, uids)
        return {uid: parse(Manifest, record, f"manifest {uid}") for uid, record in records.items()}

    def write_manifest(
        self, generation: str, manifest: Manifest, deadline: Deadline | None = None
    ) -> None:  # fmt: skip
        """Replace the manifest: the commit point."""
        document = manifest.document
        record = record_object(document.uid, "manifest", manifest, manifest.content_version)
        self._upsert_records(self._names.records(generation), document.tenant, [record], deadline)

    def write_manifest_page(
        self,
        generation: str,
        document: DocumentRef,
        version: int,
        page: int,
        pages: int,
        entries: Sequence[PageEntry],
        deadline: Deadline | None = None,
    ) -> None:
        """Replace one page. Raises ValueError for an entry that belongs to another."""
        manifest_pages.check_page(page, pages, entries)
        uid = manifest_pages.page_uid(document, version, page)
        record = record_object(uid, "page", manifest_pages.encode(entries), version)
        self._upsert_records(self._names.records(generation), document.tenant, [record], deadline)

    def read_manifest_pages(self, generation: str, manifest: Manifest) -> Manifest:
        """The manifest with its entries. Raises DocumentError when pages are missing."""
        if manifest.pages == 0:
            return manifest
        ids = manifest_pages.page_uids(manifest.document, manifest.content_version, manifest.pages)
        records = self._read_records(self._names.records(generation), manifest.document.tenant, ids)
        return manifest_pages.filled(manifest, [manifest_pages.decode(record) for record in records.values()])

    def delete_manifest_pages(
        self,
        generation: str,
        document: DocumentRef,
        version: int,
        pages: int,
        deadline: Deadline | None = None,
    ) -> None:
        """Remove the pages of a version."""
        ids = manifest_pages.page_uids(document, version, pages)
        self._delete_surely(self._names.records(generation), document.tenant, ids, deadline)

    # ------------------------------------------------------------ sections

    def write_sections(
        self,
        generation: str,
        document: DocumentRef,
        sections: Sequence[Section],
        deadline: Deadline | None = None,
    ) -> None:
        """Replace sections."""
        objects = [record_object(s.section_id, "section", s, 0, document.uid) for s in sections]
        self._upsert_records(self._names.records(generation), document.tenant, objects, deadline)

    def read_sections(self, generation: str, tenant: str, section_ids: Sequence[str]) -> dict[str, Section]:
        """Sections by id."""
        records = self._read_records(self._names.records(generation), tenant, section_ids)
        return {uid: parse(Section, record, f"section {uid}") for uid, record in records.items()}

    def delete_sections(
        self, generation: str, tenant: str, section_ids: Sequence[str], deadline: Deadline | None = None
    ) -> None:
        """Remove sections."""
        self._delete_surely(self._names.records(generation), tenant, section_ids, deadline)
