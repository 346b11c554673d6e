"""What a file says of itself: media type, title, language, product and the time in which it holds."""

from __future__ import annotations

import datetime as dt
import html
import posixpath
import re
from dataclasses import dataclass, field
from pathlib import PurePosixPath

import yaml

from pipeline.suffixes import BINARY_SUFFIXES, MEDIA_BY_SUFFIX, TEXT_SUFFIXES, ZIP_SUFFIXES

MAX_TITLE = 1000
MAX_FRONT_MATTER = 65_536
_NULLS = ("", "~", "null")
_HEAD = 262_144  # a title stands near the beginning
_FRONT = re.compile(r"\A\ufeff?---[ \t]*\r?\n(.*?)^(?:---|\.\.\.)[ \t]*\r?$", re.DOTALL | re.MULTILINE)
_DATE = re.compile(r"\d{4}-\d{2}-\d{2}|\d{8}|\d{4}-?W\d{2}-?\d")
_FENCE = re.compile(r"^ {0,3}(`{3,}|~{3,})")
_ATX = re.compile(r"^ {0,3}#[ \t]+(.+?)(?:[ \t]+#+)?[ \t]*$")
_HTML_TITLE = re.compile(r"<title[^>]*>(.*?)</title\s*>", re.DOTALL | re.IGNORECASE)
_HTML_H1 = re.compile(r"<h1[^>]*>(.*?)</h1\s*>", re.DOTALL | re.IGNORECASE)
_TAGS = re.compile(r"<[^>]*>")
_HTML_START = re.compile(rb"\A\s*(?:<!--.*?-->\s*)*<(?:!doctype\s+html|html[\s>])", re.IGNORECASE | re.DOTALL)
_ZIP = b"PK\x03\x04"
_MAGIC = ((b"%PDF-", "application/pdf"), (b"\x89PNG", "image/png"))
_TEXT_TYPES = frozenset(TEXT_SUFFIXES.values())
_BOMS = ((b"\xef\xbb\xbf", "utf-8"), (b"\xff\xfe", "utf-16"), (b"\xfe\xff", "utf-16"))


@dataclass
class Page:
    """Facts of one file. ``problems`` name fields that were left out because they cannot be read."""

    title: str
    content_type: str
    language: str | None = None
    product: str | None = None
    effective_from: int | None = None
    effective_until: int | None = None
    problems: list[str] = field(default_factory=list)


def is_document(name: str) -> bool:
    """Whether a file of this name is a document: not hidden, and of a known kind."""
    return not name.startswith(".") and posixpath.splitext(name)[1].lower() in MEDIA_BY_SUFFIX


def read_page(path: str, body: bytes) -> Page:
    """Facts of the file at ``path`` (below the root) with this content. Never raises."""
    media, charset = media_type(path, body)
    text = body[:_HEAD].decode(charset or "utf-8", "replace").removeprefix("\ufeff") if media in _TEXT_TYPES else ""
    page = Page(title="", content_type=f"{media}; charset={charset}" if charset else media)
    front: dict[str, object] = {}
    if media == "text/markdown":
        front, text = _front_matter(text, page)
    title = _text(front, "title", MAX_TITLE, page) or _heading(media, text)
    title = "" if "\ufffd" in title else title  # another charset: extraction knows it and the title
    page.title = _clean(title)[:MAX_TITLE] or PurePosixPath(path).stem.encode("utf-8", "replace").decode()
    page.language = _text(front, "language", 35, page) or _text(front, "lang", 35, page)
    page.product = _text(front, "product", 255, page)
    _interval(front, page)
    return page


def media_type(path: str, body: bytes) -> tuple[str, str | None]:
    """Media type by name, corrected by what the bytes plainly are; charset where it is certain."""
    start = body[:4096]
    suffix = PurePosixPath(path).suffix.lower()
    if start.startswith(_ZIP):
        return ZIP_SUFFIXES.get(suffix, "application/zip"), None
    for magic, media in _MAGIC:
        if start.startswith(magic):
            return media, None
    if suffix in BINARY_SUFFIXES and not _HTML_START.match(start):
        return BINARY_SUFFIXES[suffix], None
    charset = next((name for bom, name in _BOMS if start.startswith(bom)), None)
    if charset is None and b"\x00" in start:
        return "application/octet-stream", None
    media = TEXT_SUFFIXES.get(suffix, "text/plain")
    if media != "text/html" and _HTML_START.match(start):
        media = "text/html"
    if charset is None and media != "text/html":  # HTML may declare another in its head
        charset = "utf-8" if _is_utf8(body) else None
    return media, charset


def _is_utf8(body: bytes) -> bool:
    try:
        body.decode("utf-8")
    except UnicodeDecodeError:
        return False
    return True


def _front_matter(text: str, page: Page) -> tuple[dict[str, object], str]:
    found = _FRONT.match(text[:MAX_FRONT_MATTER])
    if found is None:
        return {}, text
    try:
        # All scalars as text: a date that is none must not cost the title.
        loaded = yaml.load(found.group(1), Loader=yaml.BaseLoader)
    except (yaml.YAMLError, ValueError, RecursionError):
        page.problems.append("front matter is not valid YAML and was passed by")
        loaded = None
    front = {str(k).lower().replace("-", "_"): v for k, v in loaded.items()} if isinstance(loaded, dict) else {}
    return front, text[found.end() :]


def _text(front: dict[str, object], key: str, limit: int, page: Page) -> str | None:
    value = front.get(key)
    if value is None:
        return None
    if not isinstance(value, str):
        page.problems.append(f"front matter: {key} is not text and was passed by")
        return None
    if value in _NULLS:
        return None
    return _clean(value)[:limit] or None


def _heading(media: str, text: str) -> str:
    if media == "text/html":
        for pattern in (_HTML_TITLE, _HTML_H1):
            if (found := pattern.search(text)) and (title := _clean(html.unescape(_TAGS.sub(" ", found.group(1))))):
                return title
        return ""
    return _first_heading(text) if media == "text/markdown" else ""


def _first_heading(text: str) -> str:
    """The first top heading outside code blocks, ATX or underlined."""
    fence: str | None = None
    above = ""
    for line in text.splitlines():
        mark = _FENCE.match(line)
        if fence is not None:
            if mark and mark.group(1).startswith(fence) and not line.strip().strip(fence[0]):
                fence = None
            continue
        if mark:
            fence, above = mark.group(1), ""
            continue
        if found := _ATX.match(line):
            return found.group(1)
        if above and line.strip() and not line.strip().strip("="):
            return above
        above = line.strip()
    return ""


def _clean(text: str) -> str:
    """One line, single blanks, no control characters."""
    return " ".join("".join(c if c.isprintable() else " " for c in text).split())


def _interval(front: dict[str, object], page: Page) -> None:
    nested = front.get("effective")
    if isinstance(nested, dict):
        start, end = nested.get("from"), nested.get("until")
    else:
        start, end = front.get("effective_from", nested), front.get("effective_until")
    begin = _moment(start, "effective_from", page)
    finish = _moment(end, "effective_until", page, end=True)
    if begin is not None and finish is not None and finish <= begin:
        page.problems.append("front matter: effective_until is not later than effective_from; both were passed by")
        return
    page.effective_from, page.effective_until = begin, finish


def _moment(value: object, key: str, page: Page, *, end: bool = False) -> int | None:
    """Microseconds since the epoch; a date is its beginning, as an ``end`` its last moment; without zone it is UTC."""
    if value is None or value in _NULLS:
        return None
    try:
        if isinstance(value, str):
            moment = dt.datetime.fromisoformat(value.strip())
            moment = moment if moment.tzinfo is not None else moment.replace(tzinfo=dt.UTC)
            if end and _DATE.fullmatch(value.strip()):
                moment += dt.timedelta(days=1)  # who writes "until 31 December" means that day too
            micros = (moment - dt.datetime(1970, 1, 1, tzinfo=dt.UTC)) // dt.timedelta(microseconds=1)
            if micros >= 0:
                return micros
    except (ValueError, OverflowError):
        pass
    page.problems.append(f"front matter: {key} is not a date such as 2026-01-31 and was passed by")
    return None
