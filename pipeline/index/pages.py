"""Pages of a huge document's manifest: the chunk entries, spread by chunk id so that one look-up needs one page."""

from __future__ import annotations

import uuid
from collections.abc import Sequence

from pydantic import TypeAdapter

from pipeline.errors import DocumentError
from schemas.documents import ChunkEntry, Manifest, PageEntry, page_of
from schemas.keys import DocumentRef, canonical_json

PAGE_NAMESPACE = uuid.UUID("6f2d1c0e-5a53-5c1e-9f0c-6b1d4c8a7e06")
_ENTRIES: TypeAdapter[list[PageEntry]] = TypeAdapter(list[PageEntry])


def page_uid(document: DocumentRef, version: int, page: int) -> str:
    """Id of a page's record."""
    return str(uuid.uuid5(PAGE_NAMESPACE, canonical_json([document.uid, str(version), str(page)])))


def page_uids(document: DocumentRef, version: int, pages: int) -> list[str]:
    """Ids of all pages of a version."""
    return [page_uid(document, version, page) for page in range(pages)]


def check_page(page: int, pages: int, entries: Sequence[PageEntry]) -> None:
    """Refuse entries that a look-up would seek on another page. Raises ValueError."""
    for entry in entries:
        if page_of(entry.chunk_id, pages) != page:
            raise ValueError(f"chunk {entry.chunk_id} does not belong to page {page} of {pages}")


def encode(entries: Sequence[PageEntry]) -> str:
    """A page as JSON."""
    return _ENTRIES.dump_json(list(entries)).decode()


def decode(record: str) -> list[PageEntry]:
    """Entries of a page."""
    return _ENTRIES.validate_json(record)


def filled(manifest: Manifest, pages: Sequence[Sequence[PageEntry]]) -> Manifest:
    """The manifest with the entries of its pages in document order.

    Raises DocumentError (stage 'index', kind 'manifest_pages') when the pages do not hold what the head says.
    """
    entries = sorted((entry for page in pages for entry in page), key=lambda entry: entry.ordinal)
    if len(pages) != manifest.pages or [e.ordinal for e in entries] != list(range(manifest.chunk_total)):
        raise DocumentError(
            f"manifest of {manifest.document.key}: {len(pages)} of {manifest.pages} pages hold {len(entries)} of "
            f"{manifest.chunk_total} chunks; process the document again",
            stage="index",
            kind="manifest_pages",
        )
    chunks = tuple(ChunkEntry.model_validate(e.model_dump(exclude={"ordinal"})) for e in entries)
    return manifest.model_copy(update={"chunks": chunks})
