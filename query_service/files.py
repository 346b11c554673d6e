"""Local SQLite files that are views of the log: a damaged one is removed, and the log fills another."""

from __future__ import annotations

import logging
import sqlite3
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

log = logging.getLogger("headwater.query.files")

View = TypeVar("View")


def damaged(error: sqlite3.Error) -> bool:
    """Whether the file cannot be used any more; a full disk or a lock passes."""
    return getattr(error, "sqlite_errorcode", 0) & 0xFF in (sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB)


def opened(path: Path, make: Callable[[], View]) -> View:
    """The view that ``make`` opens at ``path``; a damaged file is removed first. Raises sqlite3.Error, OSError."""
    try:
        return make()
    except sqlite3.Error as error:
        if not damaged(error):
            raise
    remove(path)
    return make()


def remove(path: Path) -> None:
    """Remove the file with what SQLite keeps beside it."""
    log.error("a view of the log is damaged; it is built again from the log", extra={"fields": {"file": path.name}})
    for beside in ("", "-wal", "-shm"):
        path.with_name(path.name + beside).unlink(missing_ok=True)
