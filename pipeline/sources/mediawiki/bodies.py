"""One page or file as it is now."""

from __future__ import annotations

import hashlib
from typing import Any

from pipeline.ports import SourceDocument
from pipeline.sources.connector import SourceUnavailable
from pipeline.sources.mediawiki.api import DENIED, Refused, WikiApi, updated_at
from pipeline.sources.mediawiki.render import PLAIN, Page, Rendered, rendered
from pipeline.sources.mediawiki.site import FILE, Scope, Site
from pipeline.sources.remote.contract import Absent, Answer, Fetched, Unreadable
from schemas.keys import DocumentRef

WORDLESS = ("image/", "audio/", "video/")
"""Files without text of their own: what is said about them on their page stands for them."""


class _Not(Exception):
    """Why there is nothing to read."""

    def __init__(self, answer: Absent | Unreadable) -> None:
        super().__init__(answer.reason)
        self.answer = answer


def fetched(api: WikiApi, scope: Scope, site: Site, document: DocumentRef, most: int) -> Answer:
    """A document; files have at most ``most`` bytes."""
    try:
        page = _page(api, scope, site, document)
        content = _content(api, scope, site, page, most)
    except _Not as error:
        return error.answer
    except Refused as error:
        if error.code in DENIED:
            return Unreadable(f"the wiki does not let our account read it ({error.code})")
        raise
    namespace, title = int(page["ns"]), str(page["title"])
    return Fetched(
        SourceDocument(
            document=document,
            title=title,
            body=content.body,
            content_type=content.content_type,
            rule=scope.rule(namespace),
            url=scope.url(title, int(page["pageid"])),
            path=title,
            revision=scope.revision(page),
            updated_at=updated_at(page),
        )
    )


def _page(api: WikiApi, scope: Scope, site: Site, document: DocumentRef) -> dict[str, Any]:
    """What the wiki says of the page; rendered later, so that a change in between only shows as one more to come."""
    if document.kind not in ("page", "file") or not document.id.isascii() or not document.id.isdigit():
        raise _Not(Absent("no page of this wiki has such an id"))
    asked = {
        "pageids": document.id,
        "prop": "info|revisions" + ("|imageinfo" if document.kind == "file" else ""),
        "rvprop": "ids|timestamp|content",
        "rvslots": "main",
        "iiprop": "url|sha1|mime|size|timestamp",
    }
    pages = api.query(asked).get("query", {}).get("pages", [])
    page: dict[str, Any] = pages[0] if pages else {"missing": True}
    if page.get("missing") or page.get("invalid"):
        raise _Not(Absent("the page is deleted"))
    if page["ns"] not in scope.namespaces(site):
        raise _Not(Absent(f"it lies in namespace {page['ns']}, which is not indexed"))
    if (page["ns"] == FILE) != (document.kind == "file"):
        raise _Not(Absent(f"it is no {document.kind} any more"))
    if page.get("redirect"):
        raise _Not(Absent("it is a redirect: the page that it leads to stands for it"))
    return page


def _content(api: WikiApi, scope: Scope, site: Site, page: dict[str, Any], most: int) -> Rendered:
    file = next(iter(page.get("imageinfo", [])), None)
    if file is not None and not file.get("filemissing") and not str(file.get("mime", "")).startswith(WORDLESS):
        return _file(api, scope, file, most)
    slot, number = _slot(page)
    if slot.get("contentmodel", "wikitext") != "wikitext":
        return Rendered(str(slot["content"]).encode(), PLAIN)
    about = Page(str(page["title"]), int(page["ns"]), number)
    return rendered(api, scope, site, about, str(slot["content"]))


def _slot(page: dict[str, Any]) -> tuple[dict[str, Any], int]:
    """The main slot and its revision. A sysop is shown hidden text beside the flag: the flag counts."""
    for one in page.get("revisions", []):
        slot: dict[str, Any] = one.get("slots", {}).get("main", {})
        if one.get("texthidden") or slot.get("texthidden"):
            raise _Not(Unreadable("the text of its newest revision is hidden"))
        if "content" in slot:
            return slot, int(one["revid"])
    raise _Not(Unreadable("the wiki does not give its text"))


def _file(api: WikiApi, scope: Scope, file: dict[str, Any], most: int) -> Rendered:
    if file.get("filehidden") or "url" not in file:
        raise _Not(Unreadable("the file is hidden"))
    if int(file.get("size", 0)) > most:
        raise _Not(
            Unreadable(f"the file has {file['size']} bytes; bodies.max_bytes = {most}: shorten it or raise the limit")
        )
    status, body = api.file(str(file["url"]), most)
    if status == 403:
        raise _Not(
            Unreadable(
                "the wiki does not give the file's bytes to a bot password; "
                f"sign in with the account's own name and password in sources.{scope.settings.name}"
            )
        )
    if status != 200:
        raise _Not(Unreadable(f"the file's bytes are not there (status {status})"))
    if hashlib.sha1(body, usedforsecurity=False).hexdigest() != file.get("sha1"):
        raise SourceUnavailable(f"{file['url']} changed while it was read")
    return Rendered(body, str(file.get("mime") or "application/octet-stream"))
