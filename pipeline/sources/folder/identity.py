"""Which file is which document. Pure.

A document's id is its path when it was first seen and stays with it over renames. A renamed file is recognised within
one look by device, inode, size and mtime together (inode numbers alone are reused at once), else by its content's
hash. A copy, whose original is still there, is a new document. A path that is used again after its document moved away
or was deleted gives a new id with a suffix, unless the very same content is back, which is a restore.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field

from pipeline.sources.folder.names import document_id
from pipeline.sources.folder.tree import FileMark
from pipeline.sources.states import QUARANTINE, Known
from schemas.keys import DocumentRef

KIND = "page"
_DIGITS = "0123456789abcdefghijklmnopqrstuvwxyz"


@dataclass(slots=True)
class _Entry:
    id: str
    mark: FileMark | None  # None: to be read when it is met, changed or not
    content_hash: bytes | None
    before: FileMark | None = None  # the state in which its file was read last


@dataclass
class Match:
    """Files against known documents, by path."""

    changed: list[str] = field(default_factory=list)
    new: list[str] = field(default_factory=list)
    moved: list[tuple[str, str]] = field(default_factory=list)  # from, to
    vanished: list[str] = field(default_factory=list)


def base36(number: int) -> str:
    """Short spelling of a version."""
    out = ""
    while number:
        number, digit = divmod(number, 36)
        out = _DIGITS[digit] + out
    return out or "0"


class Identity:
    """Paths of live documents, ids in use, and what was deleted from which path."""

    def __init__(self) -> None:
        self._by_path: dict[str, _Entry] = {}
        self._path_of: dict[str, str] = {}
        self._used: set[str] = set()
        self._deleted: dict[str, _Entry] = {}

    def restore(self, states: Iterable[tuple[DocumentRef, Known]]) -> None:
        """Start anew from what the log knows."""
        self.__init__()  # type: ignore[misc]
        for document, known in states:
            path = known.path if known.path is not None else document.id
            before = FileMark.decode(known.revision)
            doubted = QUARANTINE in known.holds or known.quarantine is not None
            entry = _Entry(document.id, None if doubted else before, known.content_hash, before)
            self._used.add(document.id)
            if known.deleted:
                self._deleted[path] = entry
            else:
                self._by_path[path] = entry
                self._path_of[document.id] = path

    def __contains__(self, path: str) -> bool:
        return path in self._by_path

    def __len__(self) -> int:
        return len(self._by_path)

    def paths(self) -> Iterator[str]:
        """Paths of live documents."""
        return iter(self._by_path)

    def id_at(self, path: str) -> str | None:
        """Id of the live document at a path."""
        entry = self._by_path.get(path)
        return entry.id if entry else None

    def last_read(self, path: str) -> FileMark | None:
        """The state in which the file of the live document at a path was read last."""
        entry = self._by_path.get(path)
        return entry.before if entry else None

    def path_of(self, id_: str) -> str | None:
        """Where a live document was last seen."""
        return self._path_of.get(id_)

    def match(
        self, files: Mapping[str, FileMark], scope: Iterable[str], content_hash: Callable[[str], bytes | None]
    ) -> Match:
        """Compare files with the known paths in ``scope``; ``content_hash`` reads a file (None where it cannot)."""
        match = Match()
        for path, mark in files.items():
            known = self._by_path.get(path)
            if known is None:
                match.new.append(path)
            elif known.mark != mark:
                match.changed.append(path)
        gone = {path: self._by_path[path] for path in scope if path in self._by_path and path not in files}
        if gone and match.new:
            self._pair(match, gone, files, content_hash)
        match.vanished = list(gone)
        return match

    def _pair(
        self,
        match: Match,
        gone: dict[str, _Entry],
        files: Mapping[str, FileMark],
        content_hash: Callable[[str], bytes | None],
    ) -> None:
        """Find the new paths of vanished ones; both leave their lists."""
        by_inode = {(e.mark.device, e.mark.inode): path for path, e in gone.items() if e.mark is not None}
        left: list[str] = []
        for path in match.new:
            mark = files[path]
            old = by_inode.get((mark.device, mark.inode))
            entry = gone.get(old) if old is not None else None
            if old is not None and entry is not None and entry.mark is not None and entry.mark.same_file(mark):
                match.moved.append((old, path))
                del gone[old]
            else:
                left.append(path)
        by_hash: dict[bytes, str] = {}
        for path in sorted(gone, reverse=True):
            if (digest := gone[path].content_hash) is not None:
                by_hash[digest] = path
        sizes = {e.mark.size for e in gone.values() if e.mark is not None}
        match.new = []
        for path in left:
            digest = content_hash(path) if by_hash and files[path].size in sizes else None
            old = by_hash.pop(digest, None) if digest is not None else None
            if old is None:
                match.new.append(path)
            else:
                match.moved.append((old, path))
                del gone[old]

    def move(self, old: str, new: str) -> bool:
        """A document's new path. False where it no longer is at the old one or the new one is taken."""
        if old not in self._by_path or new in self._by_path:
            return False
        entry = self._by_path.pop(old)
        entry.mark = None
        self._by_path[new] = entry
        self._path_of[entry.id] = new
        return True

    def claim(self, path: str, content_hash: bytes, version: Callable[[], int]) -> str:
        """Id of the document at a path, a new one where there is none."""
        known = self._by_path.get(path)
        if known is not None:
            return known.id
        before = self._deleted.get(path)
        if before is not None and before.content_hash == content_hash and before.id not in self._path_of:
            del self._deleted[path]
            id_ = before.id
        else:
            id_ = document_id(path)
            while id_ in self._used:
                id_ = f"{document_id(path)}~{base36(version())}"
        self._used.add(id_)
        self._by_path[path] = _Entry(id_, None, content_hash)
        self._path_of[id_] = path
        return id_

    def saw(self, path: str, mark: FileMark, content_hash: bytes) -> None:
        """The state in which a document's file was read."""
        entry = self._by_path[path]
        entry.mark, entry.before, entry.content_hash = mark, mark, content_hash

    def doubt(self, id_: str) -> None:
        """Take the document for changed when it is met next."""
        path = self._path_of.get(id_)
        if path is not None:
            self._by_path[path].mark = None

    def forget(self, id_: str) -> None:
        """The document is deleted; its id stays used."""
        path = self._path_of.pop(id_, None)
        if path is not None:
            self._deleted[path] = self._by_path.pop(path)
