"""Names made from paths: audiences, groups, document ids, URLs. Injective, whatever bytes a path holds."""

from __future__ import annotations

import hashlib
import os
from urllib.parse import quote

MAX_PRINCIPAL = 1024
MAX_ID = 2048
DENIED = "#deny"


def _escaped(text: str, special: str) -> str:
    """Percent-escape control characters, bytes that are not UTF-8, ``%`` and the special characters."""
    out: list[str] = []
    for char in text:
        if char in special or char == "%" or ord(char) < 32 or ord(char) == 127 or "\ud800" <= char <= "\udfff":
            out.extend(f"%{byte:02X}" for byte in char.encode("utf-8", "surrogateescape"))
        else:
            out.append(char)
    return "".join(out)


def _principal(prefix: str, source: str, name: str) -> str:
    """``prefix:source/name``; a name too long for a principal is replaced by its hash."""
    head = f"{prefix}:{_escaped(source, '/#')}/"
    tail = _escaped(name, "#")
    if tail != tail.strip():
        core = tail.strip()
        before, _, after = tail.partition(core) if core else (tail, "", "")
        tail = "".join(_blank(c) for c in before) + core + "".join(_blank(c) for c in after)
    if len(head) + len(tail) + len(DENIED) > MAX_PRINCIPAL:
        tail = "#" + hashlib.sha256(name.encode("utf-8", "surrogateescape")).hexdigest()
    return head + tail


def _blank(char: str) -> str:
    return "".join(f"%{byte:02X}" for byte in char.encode("utf-8"))


def audience(source: str, folder: str) -> str:
    """The audience of a folder, ``folder`` being its path below the root ("" for the root)."""
    return _principal("audience", source, folder)


def denied(source: str, folder: str) -> str:
    """The audience of those whom a folder denies."""
    return audience(source, folder) + DENIED


def group(source: str, name: str) -> str:
    """A group of ``groups.yaml``: of this source, however others name theirs."""
    return _principal("group", source, name)


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
