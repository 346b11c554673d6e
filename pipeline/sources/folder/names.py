"""Names made from paths: audiences, groups, document ids, URLs. Injective, whatever bytes a path holds."""

from __future__ import annotations

import hashlib
import os
from urllib.parse import quote

from schemas import access as principals

MAX_ID = 2048


def audience(source: str, folder: str) -> str:
    """The audience of a folder, ``folder`` being its path below the root ("" for the root)."""
    return principals.audience(source, folder)


def denied(source: str, folder: str) -> str:
    """The audience of those whom a folder denies."""
    return principals.deny_audience(source, folder)


def group(source: str, name: str) -> str:
    """A group of ``groups.yaml``: of this source, however others name theirs."""
    return principals.group(source, name)


def readable(path: str) -> str:
    """The path as valid Unicode; bytes that are not UTF-8 are shown as ``\\xNN``."""
    return os.fsencode(path).decode("utf-8", "backslashreplace").replace("\x00", "")


def document_id(path: str) -> str:
    """The id that a path gives; one too long for an id is cut and marked by its hash."""
    name = readable(path)
    if len(name) <= MAX_ID - 80:  # room for the suffix of a reused path
        return name
    return f"{name[: MAX_ID - 160]}~{hashlib.sha256(os.fsencode(path)).hexdigest()}"


def url(base: str | None, root: str, path: str) -> str:
    """Where readers find the file: below ``base``, else as a file URL."""
    quoted = quote(os.fsencode(path))
    if base:
        return f"{base.rstrip('/')}/{quoted}"
    return f"file://{quote(os.fsencode(os.path.abspath(root)))}/{quoted}"


def folders_of(path: str) -> list[str]:
    """Folders on the way to a file, root first: ``a/b/c.md`` gives "", "a", "a/b"."""
    parts = path.split("/")[:-1]
    return ["/".join(parts[:n]) for n in range(len(parts) + 1)]
