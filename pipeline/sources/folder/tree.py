"""Walking and reading the tree: what is there, as the file system says, and bytes that were not half written."""

from __future__ import annotations

import os
import stat
from dataclasses import dataclass, field

from pipeline.errors import ConfigError
from pipeline.sources.folder.access import ACCESS_FILE, GROUPS_FILE
from pipeline.sources.folder.names import readable
from pipeline.sources.folder.pages import is_document


@dataclass(frozen=True, slots=True)
class FileMark:
    """What tells one state of a file from another. ``ctime`` moves even where ``mtime`` is set back."""

    device: int
    inode: int
    size: int
    mtime_ns: int
    ctime_ns: int

    @staticmethod
    def of(info: os.stat_result) -> FileMark:
        """From a stat."""
        return FileMark(info.st_dev, info.st_ino, info.st_size, info.st_mtime_ns, info.st_ctime_ns)

    def updated_at(self, before: FileMark | None = None) -> int:
        """When the file became as it is, in µs: ``mtime``, or ``ctime`` where it differs from ``before`` but its text
        does not say when (moved, or dated back)."""
        dated_back = before is not None and before != self and self.mtime_ns <= before.mtime_ns
        return max(0, (max(self.mtime_ns, self.ctime_ns) if dated_back else self.mtime_ns) // 1000)

    def encode(self) -> str:
        """As it is kept as the document's revision."""
        return f"{self.device:x}:{self.inode:x}:{self.size:x}:{self.mtime_ns:x}:{self.ctime_ns:x}"

    @staticmethod
    def decode(text: str | None) -> FileMark | None:
        """The mark in a revision, None where it holds none."""
        try:
            parts = [int(p, 16) for p in (text or "").split(":")]
            return FileMark(*parts)
        except (ValueError, TypeError):
            return None

    def same_file(self, other: FileMark) -> bool:
        """Whether it is one file that was moved: inode numbers are reused at once, so size and mtime must agree."""
        return (self.device, self.inode, self.size, self.mtime_ns) == (
            other.device,
            other.inode,
            other.size,
            other.mtime_ns,
        )


@dataclass
class Walked:
    """What a walk met. ``complete`` is false where something could not be listed: absence then means nothing."""

    files: dict[str, FileMark] = field(default_factory=dict)
    folders: set[str] = field(default_factory=set)
    unreadable: set[str] = field(default_factory=set)  # folders that could not be listed
    complete: bool = True
    problems: list[str] = field(default_factory=list)


class Unsettled(Exception):
    """A file changed while it was read: look again a little later."""


class Tree:
    """The files below one root. Paths are relative to it, with ``/``, as ``os.fsdecode`` gives them."""

    def __init__(self, root: str | os.PathLike[str]) -> None:
        self.root = os.path.realpath(root)
        try:
            info = os.stat(self.root)
        except OSError as error:
            raise ConfigError("sources.path", f"{root}: {error.strerror}", "Name an existing folder.") from error
        if not stat.S_ISDIR(info.st_mode):
            raise ConfigError("sources.path", f"{root} is not a folder", "Name an existing folder.")
        self._identity = (info.st_dev, info.st_ino)

    def same_root(self) -> bool:
        """Whether the root is still the folder that it was: an unmounted one looks empty, not gone."""
        try:
            info = os.stat(self.root)
        except OSError:
            return False
        return (info.st_dev, info.st_ino) == self._identity

    def adopt_root(self) -> bool:
        """Take the folder that stands there now for the root. False where none does, or one on another device."""
        try:
            info = os.stat(self.root)
        except OSError:
            return False
        if info.st_dev != self._identity[0] or not stat.S_ISDIR(info.st_mode):
            return False
        self._identity = (info.st_dev, info.st_ino)
        return True

    def walk(self, below: str = "") -> Walked:
        """All documents and folders below a folder; symbolic links and hidden names are passed by."""
        walked = Walked()
        if not self.same_root():
            walked.complete = False
            walked.problems.append("the root folder is gone or another one: nothing is taken for deleted")
            return walked
        todo = [below]
        while todo:
            folder = todo.pop()
            try:
                self._list(folder, walked, todo)
            except FileNotFoundError:
                continue  # went away while we walked: its files are gone like others
            except NotADirectoryError:
                continue
            except OSError as error:
                walked.complete = False
                walked.folders.add(folder)
                walked.unreadable.add(folder)
                walked.problems.append(f"{readable(folder) or '.'}: {error.strerror}")
        return walked

    def _list(self, folder: str, walked: Walked, todo: list[str]) -> None:
        with os.scandir(self.absolute(folder)) as entries:
            found = sorted(entries, key=lambda e: e.name)
        walked.folders.add(folder)
        for entry in found:
            path = f"{folder}/{entry.name}" if folder else entry.name
            try:
                if entry.is_dir(follow_symlinks=False):
                    if not entry.name.startswith("."):
                        todo.append(path)
                elif entry.is_file(follow_symlinks=False) and is_document(entry.name):
                    walked.files[path] = FileMark.of(entry.stat(follow_symlinks=False))
            except FileNotFoundError:
                continue
            except OSError as error:
                walked.complete = False
                walked.problems.append(f"{readable(path)}: {error.strerror}")

    def absolute(self, path: str) -> str:
        """The path in the file system."""
        return os.path.join(self.root, path) if path else self.root

    def mark(self, path: str) -> FileMark | None:
        """State of a document's file, None where there is none. Raises OSError where that cannot be said."""
        if not self._inside(path):
            return None
        try:
            info = os.lstat(self.absolute(path))
        except (FileNotFoundError, NotADirectoryError):
            return None
        return FileMark.of(info) if stat.S_ISREG(info.st_mode) else None

    def device_above(self, path: str) -> int | None:
        """Device of the nearest folder above a path that is there; None where that cannot be said."""
        folder = path
        while folder:
            folder = folder.rpartition("/")[0]
            try:
                return os.lstat(self.absolute(folder)).st_dev
            except (FileNotFoundError, NotADirectoryError):
                continue
            except OSError:
                return None
        return None

    def is_folder(self, path: str) -> bool:
        """Whether a folder that belongs to the tree is there."""
        if not self._inside(path):
            return False
        try:
            return stat.S_ISDIR(os.lstat(self.absolute(path)).st_mode)
        except OSError:
            return False

    def read(self, path: str, limit: int) -> tuple[bytes, FileMark]:
        """A file's bytes (one more than ``limit`` at most) and the state that they belong to.

        Raises Unsettled where it changed meanwhile, FileNotFoundError where it is gone or no regular file.
        """
        if not self._inside(path):
            raise FileNotFoundError(path)
        try:
            handle = os.open(self.absolute(path), os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
        except NotADirectoryError as error:
            raise FileNotFoundError(path) from error
        with os.fdopen(handle, "rb") as file:
            before = os.fstat(file.fileno())
            if not stat.S_ISREG(before.st_mode):
                raise FileNotFoundError(path)
            body = file.read(limit + 1)
            after = FileMark.of(os.fstat(file.fileno()))
        if FileMark.of(before) != after or (len(body) != after.size and len(body) <= limit):
            raise Unsettled(path)
        return body, after

    def _inside(self, path: str) -> bool:
        """Whether no folder on the way is a symbolic link: it might lead to other readers' files, or out."""
        parent = os.path.dirname(self.absolute(path)) if path else self.root
        return os.path.realpath(parent) == parent

    def read_special(self, folder: str, name: str) -> bytes | None:
        """An access or groups file, None where there is none. Raises OSError, a link included, and Unsettled."""
        path = f"{folder}/{name}" if folder else name
        try:
            body, _ = self.read(path, 1_000_001)
            return body
        except FileNotFoundError:
            if os.path.lexists(self.absolute(path)):
                raise OSError(f"{readable(path)} is not a regular file") from None
            return None


def is_special(path: str) -> bool:
    """Whether the path is an access file, or the groups file of the root."""
    return path == GROUPS_FILE or path.rpartition("/")[2] == ACCESS_FILE


def hidden(path: str) -> bool:
    """Whether a folder or the file itself is hidden (an access file is not, for this)."""
    *folders, name = path.split("/")
    return any(f.startswith(".") for f in folders) or (name.startswith(".") and name != ACCESS_FILE)
