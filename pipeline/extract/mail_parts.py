"""The parts of a mail and their headers, whatever is wrong with them."""

from __future__ import annotations

import re
from email import policy
from email.header import decode_header
from email.message import Message
from typing import Any

from pipeline.extract import charset
from pipeline.extract.media import HTML, MAIL

CALENDARS = frozenset({"text/calendar", "application/ics"})
_MAX_HEADER = 20_000  # characters that are read of one
_AS_IT_CAME = policy.compat32.clone(mangle_from_=False, max_line_length=None)
_HIDDEN_FIELD = re.compile(rb"^(?:resent-)?bcc[ \t]*:[^\n]*\n?(?:[ \t][^\n]*\n?)*", re.IGNORECASE | re.MULTILINE)
_BASE64_LINE = re.compile(r"[A-Za-z0-9+/=]+\Z")


def header(message: Any, name: str) -> str:
    """A header's text on one line, whatever its encoding; empty where it is missing."""
    raw = next((str(value) for key, value in message.raw_items() if key.lower() == name.lower()), "")
    text = _decoded(raw[:_MAX_HEADER]).encode("utf-8", "replace").decode("utf-8")
    return " ".join("".join(char if char.isprintable() else " " for char in text).split())


def _decoded(raw: str) -> str:
    """A header with its encoded words read; bytes beyond ASCII, which are against the rules, are guessed."""
    if any("\udc80" <= char <= "\udcff" for char in raw):
        return charset.decode(raw.encode("ascii", "surrogateescape"), None, markup=False)[0]
    try:
        words = decode_header(raw)
    except Exception:  # an encoded word that is broken stands as it is
        return raw
    return "".join(word if isinstance(word, str) else _word(word, label) for word, label in words)


def _word(word: bytes, label: str | None) -> str:
    try:
        return word.decode(label or "ascii")
    except (LookupError, ValueError):  # no charset's name holds a NUL
        return charset.decode(word, None, markup=False)[0]


def content_type(part: Any) -> str:
    """Media type in lower case."""
    try:
        return str(part.get_content_type()).lower()
    except Exception:  # a header beyond the library
        return "application/octet-stream"


def disposition(part: Any) -> str:
    """``attachment``, ``inline`` or nothing."""
    try:
        return str(part.get_content_disposition() or "")
    except Exception:
        return ""


def filename(part: Any) -> str:
    """Name of the file that the part is; empty without one."""
    try:
        return " ".join(_decoded(part.get_filename() or "").split())
    except Exception:
        return ""


def declared(part: Any, kind: str) -> str:
    """Media type with the charset of a text."""
    label = charset_label(part)
    return f"{kind}; charset={label}" if label and kind.startswith("text/") else kind


def charset_label(part: Any) -> str | None:
    """The charset that a part declares, whatever is wrong with how it says so."""
    try:
        label = part.get_content_charset()
    except Exception:
        return None
    return str(label) if label else None


def fields_to_show(data: bytes) -> bytes:
    """Header fields of a returned mail, without those of hidden recipients."""
    return _HIDDEN_FIELD.sub(b"", data)


def payload(part: Any) -> bytes:
    """The part's bytes with its transfer encoding undone."""
    data = part.get_payload(decode=True)
    return data if isinstance(data, bytes) else b""


def text_payload(part: Any) -> bytes:
    """The bytes of a text; those of a text that only claims to be base64 are taken as they are."""
    raw = part.get_payload()
    if isinstance(raw, str) and str(part.get("Content-Transfer-Encoding", "")).strip().lower() == "base64":
        first = next((line.strip() for line in raw.split("\n", 50)[:50] if line.strip()), "")
        if not _BASE64_LINE.match(first):
            return raw.encode("utf-8", "surrogateescape")
    return payload(part)


def children(part: Any) -> list[Any]:
    """Parts of a multipart; none where its boundary never comes."""
    payload = part.get_payload()
    return [child for child in payload if isinstance(child, Message)] if isinstance(payload, list) else []


def ranked(parts: list[Any]) -> tuple[list[Any], list[Any]]:
    """Alternatives with the richest first, and what is no alternative in truth (invitations)."""
    extra = [part for part in parts if content_type(part) in CALENDARS]
    bodies = [(_rank(part), index, part) for index, part in enumerate(parts) if part not in extra]
    return [part for rank, _, part in sorted(bodies, key=lambda one: (-one[0], one[1]))], extra


def _rank(part: Any) -> int:
    """3 where HTML is in it, 2 for plain text, 1 for anything else."""
    work, best = [part], 1
    for _ in range(1000):
        if not work:
            break
        one = work.pop()
        kind = content_type(one)
        if kind == HTML:
            return 3
        best = 2 if kind == "text/plain" else best
        work.extend(reversed(children(one)))
    return best


def inner_mail(part: Any, name: str) -> tuple[str, bytes, str]:
    """Name, source and type of a mail that is attached."""
    inside = part.get_payload()
    message = inside[0] if isinstance(inside, list) and inside else None
    if message is None:
        return name or "unnamed mail", payload(part), MAIL
    title = name or header(message, "Subject") or "unnamed mail"
    encoding = str(part.get("Content-Transfer-Encoding", "")).strip().lower()
    if encoding in ("base64", "quoted-printable"):  # against the rules, but met
        bare = Message()
        bare["Content-Transfer-Encoding"] = encoding
        bare.set_payload(message.get_payload())
        return title, payload(bare), MAIL
    return title, message.as_bytes(policy=_AS_IT_CAME), MAIL
