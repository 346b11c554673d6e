"""The connector: looks at a tree, whole or in part, and says what is there as documents, memberships and absences."""

from __future__ import annotations

import contextlib
import hashlib
import threading
from collections.abc import Callable, Iterable, Iterator

from pipeline.clock import Clock
from pipeline.ports import SourceDeletion, SourceDocument
from pipeline.sources.connector import Look, Reach, SourceHidden
from pipeline.sources.folder.identity import KIND, Identity, Match
from pipeline.sources.folder.inotify import Batch, Inotify
from pipeline.sources.folder.names import audience, denied, folders_of, readable, url
from pipeline.sources.folder.pages import is_document, read_page
from pipeline.sources.folder.readers import Readers
from pipeline.sources.folder.tree import FileMark, Tree, Unsettled, Walked, hidden, is_special
from pipeline.sources.states import Known
from schemas.keys import DocumentRef

AGAIN_S = 0.05
"""How soon a file that changed while it was read is read again."""


class FolderSource:
    """One tree of one tenant. ``version`` gives the source's next version, for the suffix of a reused path."""

    def __init__(
        self,
        tenant: str,
        source: str,
        root: str,
        *,
        clock: Clock,
        version: Callable[[], int],
        url_base: str | None = None,
        max_bytes: int = 50_000_000,
    ) -> None:
        self._tenant, self._source, self._url_base = tenant, source, url_base
        self._clock, self._version, self._max_bytes = clock, version, max_bytes
        self._tree = Tree(root)
        self._identity = Identity()
        self._readers = Readers(tenant, source, self._tree, clock)
        self._watch: Inotify | None = None
        self._again: dict[str, float] = {}
        self._wakeup = threading.Event()
        self._ended = False  # a folder that is gone has no document left: its audience ends
        self._blind = False  # the root went away and what stands there is not taken for it

    # ------------------------------------------------------------ the connector's port

    def restore(self, states: Iterable[tuple[DocumentRef, Known]], position: str) -> None:
        """Start from what the log knows; a folder needs no cursor."""
        self._identity.restore(states)

    def watch(self) -> None:
        """Begin to watch. Where the system cannot, only the periodic walk sees changes."""
        if self._watch is None:
            with contextlib.suppress(OSError):
                self._watch = Inotify(self._tree.root)

    @property
    def degraded(self) -> str | None:
        """Why changes may have to wait for the periodic walk."""
        if self._watch is None:
            return "nothing is watched: changes wait for the periodic walk"
        return self._watch.degraded

    @property
    def watched(self) -> bool:
        """Whether the watch sees all that happens."""
        return self.degraded is None

    @property
    def behind(self) -> bool:
        """A look holds all that happened with it."""
        return False

    def listing(self) -> Look:
        """A walk over everything."""
        if self._blind and self._tree.same_root():
            self._blind = False
            self.watch()
        began = self._clock.now()
        walked = self._tree.walk()
        if not walked.complete and not walked.folders:
            return Look(began, iter(()), complete=False, listing=True, problems=walked.problems)
        self._readers.refresh_groups()
        self._readers.refresh(sorted(walked.folders), walked.unreadable)
        if walked.complete:
            self._readers.drop(f for f in self._readers.folders() if f not in walked.folders)
        look = self._look(began, walked, self._identity.paths())
        look.listing = True
        look.listed = len(walked.files)
        self._with_memberships(look)
        return look

    def updated(self, since: int, until: int) -> Look:
        """A walk, and all files of which one of the two times that the system keeps lies in the window."""
        began = self._clock.now()
        walked = self._tree.walk()
        paths = [
            path
            for path, mark in sorted(walked.files.items())
            if any(since * 1000 <= at < until * 1000 for at in (mark.mtime_ns, mark.ctime_ns))
        ]
        problems = list(walked.problems)
        seen = self._seen(paths, problems)
        return Look(began, seen, len(paths), listed=len(walked.files), complete=walked.complete, problems=problems)

    def changes(self, timeout: float) -> Look | None:
        """What the watch saw, waiting at most ``timeout`` seconds."""
        batch = self._batch(timeout)
        if batch.lost:
            return self._after_loss()
        paths = batch.paths | self._due()
        if not paths and not self._ended:
            return None
        if not self._tree.same_root():
            problem = "the root folder is gone or another one: nothing is taken for deleted"
            return Look(self._clock.now(), iter(()), complete=False, problems=[problem])
        return self._partial(paths)

    def read(self, document: DocumentRef) -> SourceDocument | SourceHidden | SourceDeletion | None:
        """One document as it is now."""
        path = self._identity.path_of(document.id)
        if document.kind != KIND or path is None:
            return None
        try:
            if self._tree.mark(path) is None:
                return SourceDeletion(document) if self._tree.same_root() else None
        except OSError:
            return None
        return next(self._seen([path], []), None)

    def deleted(self, document: DocumentRef) -> None:
        """The deletion is written: the path is free for another document."""
        path = self._identity.path_of(document.id)
        self._identity.forget(document.id)
        if path is not None and path.rpartition("/")[0] not in self._readers:
            self._ended = True

    def held(self, document: DocumentRef) -> None:
        """The document is hidden: it is read again when it is met, changed or not."""
        self._identity.doubt(document.id)

    def committed(self, position: str) -> None:
        """Nothing to do."""

    def notify(self, document: DocumentRef | None) -> None:
        """The watch says everything; only a waiting ``changes`` returns."""
        self.wake()

    def reach(self) -> Reach | None:
        """There is no way that could be blocked."""
        return None

    def wake(self) -> None:
        """Let a waiting ``changes`` return."""
        self._wakeup.set()
        if self._watch is not None:
            self._watch.wake()

    def close(self) -> None:
        """End the watch."""
        if self._watch is not None:
            self._watch.close()
            self._watch = None

    # ------------------------------------------------------------ looking

    def _batch(self, timeout: float) -> Batch:
        due = [*self._again.values(), *self._readers.again.values()]
        if self._ended:
            timeout = 0.0
        elif due:
            timeout = max(0.0, min(timeout, min(due) - self._clock.elapsed()))
        if self._watch is not None:
            return self._watch.poll(timeout)
        self._wakeup.wait(timeout)
        self._wakeup.clear()
        return Batch()

    def _due(self) -> set[str]:
        now = self._clock.elapsed()
        due = {path for path, at in self._again.items() if at <= now}
        for path in due:
            del self._again[path]
        special = {f"{folder}/.access.yaml" if folder else ".access.yaml" for folder in self._readers.due()}
        return due | special | ({"groups.yaml"} if ".access.yaml" in special else set())

    def _after_loss(self) -> Look:
        """Events were lost, or the root was replaced: watch anew, then walk."""
        self.close()
        if not self._tree.adopt_root():
            self._blind = True
            problem = "the root folder is gone or on another device: nothing is taken for deleted"
            return Look(self._clock.now(), iter(()), complete=False, listing=True, problems=[problem])
        self.watch()
        return self.listing()

    def _partial(self, paths: set[str]) -> Look:
        began = self._clock.now()
        walked, scope, dropped = Walked(), set[str](), set[str]()
        special = {p for p in paths if is_special(p)}
        for path in sorted(paths - special):
            if not hidden(path):
                self._visit(path, walked, scope, dropped)
        changed = self._readers.drop(dropped)
        if "groups.yaml" in special:
            changed |= self._readers.refresh_groups()
        folders = {p.rpartition("/")[0] for p in special if p != "groups.yaml"}
        folders = {f for f in folders if f in self._readers and self._tree.is_folder(f)}
        changed |= self._readers.refresh(sorted(folders | walked.folders), walked.unreadable)
        look = self._look(began, walked, scope)
        look.watched = True
        if changed or self._ended:
            self._with_memberships(look)
        return look

    def _visit(self, path: str, walked: Walked, scope: set[str], dropped: set[str]) -> None:
        """Find out what stands at a path that may have changed: a file, a folder, nothing."""
        scope.add(path)
        if self._tree.is_folder(path):
            inner = self._tree.walk(path)
            walked.files |= inner.files
            walked.folders |= inner.folders
            walked.unreadable |= inner.unreadable
            walked.complete &= inner.complete
            walked.problems += inner.problems
            scope.update(p for p in self._identity.paths() if p.startswith(path + "/"))
            dropped.update(f for f in self._readers.folders() if f.startswith(path + "/") and f not in inner.folders)
            return
        if path in self._readers:  # a folder that went
            scope.update(p for p in self._identity.paths() if p.startswith(path + "/"))
            dropped.update(f for f in self._readers.folders() if f == path or f.startswith(path + "/"))
        if not is_document(path.rpartition("/")[2]):
            return
        try:
            mark = self._tree.mark(path)
        except OSError as error:
            walked.complete = False
            walked.problems.append(f"{readable(path)}: {error.strerror}")
            return
        if mark is not None:
            walked.files[path] = mark

    def _look(self, began: int, walked: Walked, scope: Iterable[str]) -> Look:
        match = self._identity.match(walked.files, list(scope), self._content_hash)
        problems = list(walked.problems)
        absent = [path for path in match.vanished if self._surely_gone(path)] if walked.complete else []
        gone = [self._gone(path) for path in absent if self._same_device(path)]
        missing = [self._gone(path) for path in absent if not self._same_device(path)]
        expected = len(match.changed) + len(match.new) + len(match.moved)
        seen = self._moved_first(match, problems)
        replaced = len(match.changed) + len(match.moved)
        return Look(
            began, seen, expected, replaced, gone=gone, missing=missing, complete=walked.complete, problems=problems
        )

    def _with_memberships(self, look: Look) -> None:
        whole, problems, alarms = self._readers.memberships()
        look.memberships = whole if self._readers.ready else None
        look.undecided = self._readers.undecided() | self._gone_with_documents()
        self._ended = False
        look.problems.extend(problems)
        look.alarms.extend(alarms)

    def _gone_with_documents(self) -> frozenset[str]:
        """Audiences of folders that are gone while documents of theirs are not deleted: hidden for now, they may be
        shown again, to whom they were shown."""
        parents = {path.rpartition("/")[0] for path in self._identity.paths()}
        gone = {f for parent in parents for f in folders_of(f"{parent}/") if f not in self._readers}
        return frozenset(name(self._source, f) for f in gone for name in (audience, denied))

    def _content_hash(self, path: str) -> bytes | None:
        try:
            body, _ = self._tree.read(path, self._max_bytes)
        except (OSError, Unsettled):
            return None
        return hashlib.sha256(body).digest()

    def _surely_gone(self, path: str) -> bool:
        try:
            return self._tree.mark(path) is None and self._tree.same_root()
        except OSError:
            return False

    def _same_device(self, path: str) -> bool:
        """Whether what stood at a path was on the device that is there now: else something was unmounted."""
        known, device = self._identity.last_read(path), self._tree.device_above(path)
        return known is None or known.device == device

    def _gone(self, path: str) -> SourceDeletion:
        id_ = self._identity.id_at(path)
        return SourceDeletion(self._ref(id_ or path), updated_at=self._clock.now())

    def _ref(self, id_: str) -> DocumentRef:
        return DocumentRef(tenant=self._tenant, source=self._source, kind=KIND, id=id_)

    # ------------------------------------------------------------ reading

    def _moved_first(self, match: Match, problems: list[str]) -> Iterator[SourceDocument | SourceHidden]:
        moved = [new for old, new in match.moved if self._identity.move(old, new)]
        return self._seen([*moved, *match.changed, *match.new], problems)

    def _seen(self, paths: Iterable[str], problems: list[str]) -> Iterator[SourceDocument | SourceHidden]:
        for path in paths:
            try:
                body, mark = self._tree.read(path, self._max_bytes)
            except FileNotFoundError:
                continue  # gone meanwhile: the watch or the next walk says so
            except Unsettled:
                self._again[path] = self._clock.elapsed() + AGAIN_S
                continue
            except OSError as error:
                problems.append(f"{readable(path)}: {error.strerror}")
                if (id_ := self._identity.id_at(path)) is not None:
                    yield SourceHidden(self._ref(id_), f"the file cannot be read: {error.strerror}")
                continue
            yield self._document(path, body, mark, problems)

    def _document(self, path: str, body: bytes, mark: FileMark, problems: list[str]) -> SourceDocument:
        digest = hashlib.sha256(body).digest()
        id_ = self._identity.claim(path, digest, self._version)
        updated_at = mark.updated_at(self._identity.last_read(path))
        self._identity.saw(path, mark, digest)
        page = read_page(path, body)
        problems.extend(f"{readable(path)}: {p}" for p in page.problems)
        return SourceDocument(
            document=self._ref(id_),
            title=page.title,
            body=body,
            content_type=page.content_type,
            rule=self._readers.rule(path),
            url=url(self._url_base, self._tree.root, path)[:8192],
            path=readable(path),
            language=page.language,
            product=page.product,
            effective_from=page.effective_from,
            effective_until=page.effective_until,
            revision=mark.encode(),
            updated_at=updated_at,
        )
