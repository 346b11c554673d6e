"""Files that are whole or absent, and disk space."""

from __future__ import annotations

import errno
import fcntl
import hashlib
import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from infra.errors import DiskFullError, InfraError

MIB = 1024 * 1024


def write_atomic(path: Path, data: bytes, mode: int = 0o600) -> None:
    """Write a file that others see whole or not at all, with ``mode``."""
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    with disk_errors(path):
        handle = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, mode)
        with os.fdopen(handle, "wb") as stream:
            stream.write(data)
            stream.flush()
            os.fsync(stream.fileno())
        os.replace(temporary, path)


def sha256(path: Path) -> str:
    """Hex digest of a file."""
    with path.open("rb") as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()


def existing_parent(path: Path) -> Path:
    """The nearest folder on the way up that exists."""
    path = path.absolute()
    while not path.exists():
        path = path.parent
    return path


def free_mib(path: Path) -> int:
    """Free space for this user at ``path``, in MiB."""
    return shutil.disk_usage(existing_parent(path)).free // MIB


def used_percent(path: Path) -> float:
    """Share of the file system in use, as a database would count it."""
    usage = shutil.disk_usage(existing_parent(path))
    return 100.0 * (usage.total - usage.free) / usage.total


def require_space(path: Path, mib: int, purpose: str, variable: str) -> None:
    """Raise DiskFullError unless ``mib`` MiB are free at ``path``; ``variable`` is the setting that moves it."""
    free = free_mib(path)
    if free < mib:
        raise DiskFullError(
            f"Too little disk space for {purpose}: {free} MiB free at {existing_parent(path)}, {mib} MiB needed.",
            f"Free some space, or set {variable} to a folder on a larger disk.",
        )


@contextmanager
def disk_errors(path: Path) -> Iterator[None]:
    """Turn a full disk into a clear error."""
    try:
        yield
    except OSError as error:
        if error.errno in (errno.ENOSPC, errno.EDQUOT):
            raise DiskFullError(
                f"The disk is full: {path} could not be written.",
                "Free some space and run the same command again.",
            ) from error
        raise


@contextmanager
def exclusive(path: Path, what: str) -> Iterator[None]:
    """Hold a lock file, so that two launchers do not do the same work at once. Freed when the process ends."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("a") as stream:
        try:
            fcntl.flock(stream, fcntl.LOCK_EX)
        except OSError as error:
            raise InfraError(
                f"{what}: {path} cannot be locked ({error}).", "Use a folder on a local file system."
            ) from error
        try:
            yield
        finally:
            fcntl.flock(stream, fcntl.LOCK_UN)
