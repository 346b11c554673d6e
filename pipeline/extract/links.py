"""When a link's address is worth keeping beside its text."""

from __future__ import annotations

MAX_URL = 120
_GENERIC = frozenset(
    {
        "",
        "here",
        "click here",
        "link",
        "this",
        "this page",
        "this link",
        "more",
        "read more",
        "see here",
        "hier",
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
    lowered = url.lower()
    if lowered.startswith(("http://", "https://")):
        bare = lowered.split("://", 1)[1].rstrip("/")
        return "" if bare in shown.lower() else f" ({url})"
    if lowered.startswith("mailto:"):
        address = url[7:].split("?")[0]
        return "" if not address or address.lower() in shown.lower() else f" ({address})"
    if ":" in url.split("/")[0] or url.startswith("#"):
        return ""  # javascript:, data:, tel: and places on the page itself
    return f" ({url})" if shown.lower() in _GENERIC and shown else ""
