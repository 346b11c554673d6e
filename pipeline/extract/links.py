"""When a link's address is worth keeping beside its text."""

from __future__ import annotations

MAX_URL = 300
_SCHEMES = (
    "http://",
    "https://",
    "ftp://",
    "sftp://",
    "ssh://",
    "git://",
    "svn://",
    "s3://",
    "gs://",
    "file://",
    "smb://",
)
_GENERIC = frozenset(
    {
        "",
        "here",
        "click here",
        "link",
        "this",
        "this page",
        "this link",
        "this document",
        "more",
        "read more",
        "learn more",
        "details",
        "see here",
        "download",
        "hier",
        "mehr",
        "weiterlesen",
        "ici",
        "aquí",
    }
)


def suffix(text: str, url: str | None) -> str:
    """`` (url)`` for an absolute address that the text does not already show, else nothing.

    Relative addresses and fragments mean nothing outside their page and are dropped, unless the text alone says
    nothing ("here").
    """
    if not url or len(url) > MAX_URL or any(c.isspace() for c in url):
        return ""
    shown = text.strip()
    if url.startswith("//") and len(url) > 2:
        url = f"https:{url}"
    lowered = url.lower()
    if lowered.startswith(_SCHEMES):
        bare = lowered.split("://", 1)[1].rstrip("/")
        return "" if bare in shown.lower() else f" ({url})"
    if lowered.startswith("mailto:"):
        address = url[7:].split("?")[0]
        return "" if not address or address.lower() in shown.lower() else f" ({address})"
    if ":" in url.split("/")[0] or url.startswith("#"):
        return ""  # javascript:, data:, tel: and places on the page itself
    return f" ({url})" if shown and says_nothing(shown) else ""


def says_nothing(text: str) -> bool:
    """Whether a link's text alone does not tell what it leads to ("here")."""
    return text.strip().lower() in _GENERIC
