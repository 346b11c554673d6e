"""A bucket as a remote system: listings tell everything, an object's key is its document."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any
from urllib.parse import quote

from pipeline.clock import Clock
from pipeline.errors import ConfigError
from pipeline.ports import SourceDocument
from pipeline.settings_sources import S3Settings
from pipeline.sources.connector import Reach, SourceUnavailable
from pipeline.sources.folder.access import ACCESS_FILE, GROUPS_FILE
from pipeline.sources.folder.names import readable, url
from pipeline.sources.folder.pages import is_document, read_page
from pipeline.sources.folder.tree import hidden, is_special
from pipeline.sources.remote.contract import (
    Absent,
    Answer,
    Capabilities,
    Changes,
    Fetched,
    Finding,
    Listed,
    Page,
    Readership,
    Unreadable,
)
from pipeline.sources.s3.access import BucketAccess, Scan, fault
from pipeline.sources.s3.events import event_keys
from pipeline.sources.s3.store import Item, Missing, Refused, Store
from schemas.keys import DocumentRef

KIND = "page"
CURSOR = "listing"
"""The only cursor: nothing but a listing tells what happened."""


class Bucket:
    """Documents of one bucket, or of one folder of it. A key is a document; another key is another document."""

    capabilities = Capabilities(deletions="listing", push="webhook", access="poll", kinds=(KIND,), feed=False)

    def __init__(self, settings: S3Settings, clock: Clock, *, max_bytes: int, client: Any = None) -> None:
        """``client``: another one than boto3 makes of the settings. Raises ConfigError."""
        self._settings, self._max_bytes = settings, max_bytes
        self._root = f"{settings.prefix.rstrip('/')}/" if settings.prefix.rstrip("/") else ""
        self._store = Store(settings, clock, client)
        self._access = BucketAccess(settings.tenant, settings.name, self._root, self._store, clock)
        self._scan: Scan | None = None  # of the listing that is under way
        self._at: str | None = None  # where it goes on

    @property
    def reach(self) -> Reach:
        """The way to the store."""
        return self._store.reach

    def start(self) -> str:
        """The cursor, once the bucket answers."""
        self._store.keys(self._root, None)
        return CURSOR

    def listing(self, at: str | None) -> Page:
        """A page of keys, in their order: a key that stands is met, whatever is written meanwhile."""
        if at is None:
            self._scan = Scan()
        elif at != self._at:
            self._scan = None  # begun by another process: it saw the pages before
        page, self._at = self._page(at, self._scan)
        if self._scan is not None and self._at is None:
            self._access.take(self._scan)
        return page

    def changes(self, cursor: str) -> Changes:
        """Nothing about documents; whether access files are to be read again."""
        return Changes(cursor, access=self._access.due())

    def fetch(self, document: DocumentRef) -> Answer:
        """The object as it is; text and revision are of one answer."""
        path = self._path(document.id)
        if path is not None and is_special(path):
            self._access.doubt(path)  # a notification named it
            return Absent("an access file is no document")
        if document.kind != KIND or path is None or not _document(path):
            return Absent("no key of this source")
        try:
            item, body = self._store.get(document.id, self._max_bytes + 1)
        except Missing:
            return Absent("the bucket has no such key")
        except Refused as error:
            return Unreadable(
                f"the store does not give it ({error}): grant s3:GetObject, or restore it from its archive"
            )
        page = read_page(path, body)
        return Fetched(
            SourceDocument(
                document=document,
                title=page.title,
                body=body,
                content_type=page.content_type,
                rule=self._access.rule(path),
                url=self._url(document.id, path)[:8192],
                path=readable(path),
                language=page.language,
                product=page.product,
                effective_from=page.effective_from,
                effective_until=page.effective_until,
                revision=item.revision,
                updated_at=item.modified * 1_000_000,
            ),
            problems=tuple(f"{readable(path)}: {problem}" for problem in page.problems),
        )

    def readers(self) -> Readership:
        """As access files and ``groups.yaml`` say; the first time with a listing of its own to find them."""
        if not self._access.scanned:
            scan, at = Scan(), None
            while True:
                _, at = self._page(at, scan)
                if at is None:
                    break
            self._access.take(scan)
        return self._access.readership()

    def check(self) -> list[Finding]:
        """Whether keys can be listed and read, and what is wrong with the access files."""
        where = f"bucket {self._settings.bucket}" + (f", folder {self._root}" if self._root else "")
        try:
            page, _ = self._page(None, None)
            found = [_pages(where, page)]
            if page.documents:
                found.append(self._readable(page.documents[0].document))
            told = self.readers()
        except SourceUnavailable as error:
            return [Finding(str(error), False, "Check sources.endpoint, the keys and the account's rights.")]
        except ConfigError as error:
            return [Finding(f"{error.field}: {error.problem}", False, error.remedy)]
        remedy = f"Correct {GROUPS_FILE} or the {ACCESS_FILE}."
        return found + [Finding(text, False, remedy) for text in [*told.alarms, *told.problems]]

    def event_refs(self, payload: bytes) -> list[DocumentRef]:
        """Documents that an event notification of the store names; access files among them, by their keys.

        Raises ValueError where it is no notification.
        """
        keys = event_keys(payload, self._settings.bucket)
        paths = [(key, self._path(key)) for key in keys]
        return [self._ref(key) for key, path in paths if path is not None and (is_special(path) or _document(path))]

    def listen(self, notify: Callable[[DocumentRef | None], None]) -> None:
        """A store says nothing by itself; its notifications arrive at the gateway."""

    def committed(self, cursor: str) -> None:
        """Nothing to do."""

    def close(self) -> None:
        """Disconnect."""
        self._store.close()

    def _page(self, at: str | None, scan: Scan | None) -> tuple[Page, str | None]:
        keys = self._store.keys(self._root, at)
        scan = scan if scan is not None else Scan()
        scan.at = keys.at if scan.at is None else scan.at
        listed = tuple(self._listed(item) for item in keys.items if scan.add(item.key[len(self._root) :], item))
        return Page(listed, keys.next), keys.next

    def _listed(self, item: Item) -> Listed:
        return Listed(self._ref(item.key), item.revision, item.modified * 1_000_000)

    def _readable(self, document: DocumentRef) -> Finding:
        answer = self.fetch(document)
        if isinstance(answer, Fetched):
            return Finding(f"{document.id} can be read", True)
        return Finding(f"{document.id} cannot be read: {answer.reason}", False, "Grant s3:GetObject on its objects.")

    def _path(self, key: str) -> str | None:
        """A key's path below the root, None where it is elsewhere."""
        return key[len(self._root) :] if key.startswith(self._root) else None

    def _url(self, key: str, path: str) -> str:
        base = self._settings.url_base
        return url(base, "", path) if base else f"s3://{self._settings.bucket}/{quote(key)}"

    def _ref(self, key: str) -> DocumentRef:
        return DocumentRef(tenant=self._settings.tenant, source=self._settings.name, kind=KIND, id=key)


def _document(path: str) -> bool:
    return fault(path) is None and not hidden(path) and is_document(path.rpartition("/")[2])


def _pages(where: str, page: Page) -> Finding:
    if page.documents:
        counted = f"{len(page.documents)} pages" + (" and more" if page.next else "")
        return Finding(f"{where} can be listed: {counted}", True)
    if page.next:
        return Finding(f"{where} can be listed; no page among the first keys", True)
    return Finding(f"{where} holds no page", False, "Check sources.prefix: pages end in .md, .html, .docx, .pdf …")
