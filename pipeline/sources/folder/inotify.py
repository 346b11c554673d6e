"""A small reader of Linux' inotify: which paths may have changed, and whether events were lost.

The usual libraries hide a queue overflow and hold back unmatched moves for half a second; an owner needs the first to
walk again and cannot afford the second.
"""

from __future__ import annotations

import ctypes
import errno
import os
import select
import struct
import sys
import time
from dataclasses import dataclass, field

IN_MODIFY, IN_ATTRIB, IN_CLOSE_WRITE = 0x2, 0x4, 0x8
IN_MOVED_FROM, IN_MOVED_TO, IN_CREATE, IN_DELETE = 0x40, 0x80, 0x100, 0x200
IN_DELETE_SELF, IN_MOVE_SELF, IN_UNMOUNT, IN_Q_OVERFLOW, IN_IGNORED = 0x400, 0x800, 0x2000, 0x4000, 0x8000
IN_ONLYDIR, IN_DONT_FOLLOW, IN_ISDIR = 0x1000000, 0x2000000, 0x40000000
_NONBLOCK, _CLOEXEC = os.O_NONBLOCK, os.O_CLOEXEC
_MASK = (
    IN_MODIFY | IN_ATTRIB | IN_CLOSE_WRITE | IN_MOVED_FROM | IN_MOVED_TO | IN_CREATE | IN_DELETE
    | IN_DELETE_SELF | IN_MOVE_SELF | IN_ONLYDIR | IN_DONT_FOLLOW
)  # fmt: skip
_HEADER = struct.Struct("iIII")


@dataclass
class Batch:
    """Paths to look at, below the root. ``lost``: events were lost, or the root itself went: look at everything."""

    paths: set[str] = field(default_factory=set)
    lost: bool = False

    def __bool__(self) -> bool:
        return bool(self.paths) or self.lost


class Inotify:
    """Watches a folder and all below it. One thread calls ``poll``; ``wake`` may come from any."""

    def __init__(self, root: str, *, quiet_s: float = 0.02, longest_s: float = 0.05, writing_s: float = 0.15) -> None:
        """``quiet_s`` of silence end a batch, at the latest after ``longest_s``; a file that is being written waits
        for its closing, or for ``writing_s`` without a write. Raises OSError where the system has no inotify."""
        if not sys.platform.startswith("linux"):
            raise OSError(errno.ENOSYS, "this system has no inotify")
        self._libc = ctypes.CDLL(None, use_errno=True)
        self._fd = self._libc.inotify_init1(_NONBLOCK | _CLOEXEC)
        if self._fd < 0:
            raise OSError(ctypes.get_errno(), "inotify_init1")
        self._wake_read, self._wake_write = os.pipe2(_NONBLOCK | _CLOEXEC)
        self._root = root
        self._quiet, self._longest, self._writing_s = quiet_s, longest_s, writing_s
        self._paths: dict[int, str] = {}
        self._watches: dict[str, int] = {}
        self._batch = Batch()
        self._writing: dict[str, float] = {}  # open for writing, as far as we know: when last written
        self._moving: set[int] = set()  # cookies of moves whose other half has not come yet
        self.degraded: str | None = None  # why some folders are not watched
        self.add("")

    def add(self, folder: str) -> None:
        """Watch a folder and all below it, and look at all that is there already."""
        todo = [folder]
        while todo:
            current = todo.pop()
            if not self._add_one(current):
                continue
            try:
                with os.scandir(os.path.join(self._root, current)) as entries:
                    for entry in entries:
                        if entry.name.startswith(".") or not entry.is_dir(follow_symlinks=False):
                            continue
                        todo.append(f"{current}/{entry.name}" if current else entry.name)
            except OSError:
                continue  # gone again, or not ours to read: the walk reports it

    def _add_one(self, folder: str) -> bool:
        target = os.fsencode(os.path.join(self._root, folder) if folder else self._root)
        watch = self._libc.inotify_add_watch(self._fd, target, _MASK)
        if watch >= 0:
            old = self._paths.get(watch)
            if old is not None and old != folder:
                self._watches.pop(old, None)
            self._paths[watch], self._watches[folder] = folder, watch
            return True
        code = ctypes.get_errno()
        if code in (errno.ENOSPC, errno.ENOMEM):
            self.degraded = (
                "the system's limit of watches is reached: changes wait for the periodic walk; "
                "raise fs.inotify.max_user_watches"
            )
        return False

    def poll(self, timeout: float) -> Batch:
        """Changed paths, waiting at most ``timeout`` seconds for the first; then until it has been quiet."""
        started = time.monotonic()
        first: float | None = None
        while True:
            now = time.monotonic()
            self._settle(now)
            if first is None and self._batch:
                first = now
            wait = self._wait(now, started, timeout, first)
            ready = select.select([self._fd, self._wake_read], [], [], max(0.0, wait))[0]
            if self._wake_read in ready:
                self._drain_wakes()
                return self._take()
            if self._fd in ready:
                self._read()
            elif wait <= 0 or first is not None:
                return self._take()
            if first is not None and wait <= 0:
                return self._take()  # it never gets quiet: do not wait for that

    def _wait(self, now: float, started: float, timeout: float, first: float | None) -> float:
        """Seconds until there is something to return, or nothing more to wait for."""
        if first is None:
            left = started + timeout - now
            closing = min(self._writing.values(), default=now + left) + self._writing_s - now
            return min(left, closing) if self._writing else left
        extra = 0.01 if self._moving else 0.0
        return min(self._quiet, first + self._longest + extra - now)

    def _settle(self, now: float) -> None:
        """Files not written for a while count as closed: their writer may keep them open for ever."""
        for path in [p for p, at in self._writing.items() if now - at >= self._writing_s]:
            del self._writing[path]
            self._batch.paths.add(path)

    def _take(self) -> Batch:
        batch, self._batch = self._batch, Batch()
        self._moving.clear()
        return batch

    def _read(self) -> None:
        try:
            data = os.read(self._fd, 262_144)
        except BlockingIOError:
            return
        position = 0
        while position + _HEADER.size <= len(data):
            watch, mask, cookie, length = _HEADER.unpack_from(data, position)
            position += _HEADER.size
            name = os.fsdecode(data[position : position + length].rstrip(b"\0"))
            position += length
            self._event(watch, mask, cookie, name)

    def _event(self, watch: int, mask: int, cookie: int, name: str) -> None:
        if mask & IN_Q_OVERFLOW:
            self._batch.lost = True
            return
        folder = self._paths.get(watch)
        if folder is None:
            return
        if mask & IN_IGNORED:
            self._forget(watch)
            return
        if mask & (IN_DELETE_SELF | IN_MOVE_SELF | IN_UNMOUNT):
            if folder == "":
                self._batch.lost = True
            return
        if not name:
            return
        path = f"{folder}/{name}" if folder else name
        if mask & IN_ISDIR:
            self._folder_event(path, mask, cookie)
        else:
            self._file_event(path, mask, cookie)

    def _folder_event(self, path: str, mask: int, cookie: int) -> None:
        if path.rpartition("/")[2].startswith("."):
            return
        if mask & (IN_MOVED_FROM | IN_DELETE):
            self._unwatch(path)
        if mask & (IN_CREATE | IN_MOVED_TO):
            self.add(path)
        if mask & ~(IN_ISDIR | IN_MODIFY | IN_CLOSE_WRITE):
            self._batch.paths.add(path)
        self._pair(mask, cookie)

    def _file_event(self, path: str, mask: int, cookie: int) -> None:
        if mask & (IN_CREATE | IN_MODIFY):
            self._writing[path] = time.monotonic()
            self._batch.paths.discard(path)
        if mask & (IN_CLOSE_WRITE | IN_MOVED_FROM | IN_MOVED_TO | IN_DELETE):
            self._writing.pop(path, None)
            self._batch.paths.add(path)
        elif mask & IN_ATTRIB and path not in self._writing:
            self._batch.paths.add(path)
        self._pair(mask, cookie)

    def _pair(self, mask: int, cookie: int) -> None:
        if mask & IN_MOVED_FROM:
            self._moving.add(cookie)
        elif mask & IN_MOVED_TO:
            self._moving.discard(cookie)

    def _unwatch(self, folder: str) -> None:
        """A folder that was moved keeps its watch in the kernel under the old name: end it, and those below."""
        for known in [f for f in self._watches if f == folder or f.startswith(folder + "/")]:
            watch = self._watches.pop(known)
            self._paths.pop(watch, None)
            self._libc.inotify_rm_watch(self._fd, watch)

    def _forget(self, watch: int) -> None:
        folder = self._paths.pop(watch, None)
        if folder is not None and self._watches.get(folder) == watch:
            del self._watches[folder]

    def wake(self) -> None:
        """Let a waiting ``poll`` return."""
        try:
            os.write(self._wake_write, b"!")
        except OSError:
            return  # full: it will return anyway; closed: nobody waits

    def _drain_wakes(self) -> None:
        try:
            while os.read(self._wake_read, 4096):
                pass
        except BlockingIOError:
            return

    def close(self) -> None:
        """End all watches."""
        for fd in (self._fd, self._wake_read, self._wake_write):
            os.close(fd)
