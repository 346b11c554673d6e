"""A wiki in memory that answers as MediaWiki's API does."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable
from typing import Any
from urllib.parse import parse_qsl

import httpx

from pipeline.clock import ManualClock, micros_of
from pipeline.settings_sources import MediaWikiSettings, Person
from pipeline.sources.mediawiki.api import stamp
from pipeline.sources.mediawiki.system import MediaWiki
from schemas.keys import DocumentRef

START = micros_of("2026-11-30T12:00:00+00:00")
NAMESPACES = {-1: "Special", 0: "", 1: "Talk", 2: "User", 6: "File", 10: "Template", 3002: "HR", 3003: "HR talk"}
CONTENT = (0, 3002)


class FakeWiki:
    """Rows are appended by the tests in the shape that a real wiki gives them."""

    def __init__(self) -> None:
        self.now = START
        self.rc: list[dict[str, Any]] = []
        self.log: list[dict[str, Any]] = []
        self.pages: dict[int, dict[str, Any]] = {}
        self.texts: dict[int, str | None] = {}  # None: hidden
        self.models: dict[int, str] = {}
        self.files: dict[int, bytes] = {}
        self.users: list[dict[str, Any]] = []
        self.rights: dict[str, list[str]] = {"*": ["read"], "user": ["read"], "hr": [], "bot": []}
        self.dependants: dict[str, list[int]] = {}
        self.templates: Callable[[str], list[dict[str, Any]]] = lambda text: []
        self.denied: set[str] = set()  # titles
        self.errors: list[httpx.Response] = []  # given first
        self.asked: list[dict[str, str]] = []
        self.page_size = 500
        self.signed_in = False
        self.login: dict[str, Any] = {"result": "Success"}

    # ------------------------------------------------------------ what happens

    def page(self, id_: int, title: str, text: str | None = "Text.", ns: int = 0, **more: Any) -> DocumentRef:
        self.pages[id_] = {
            "pageid": id_,
            "ns": ns,
            "title": title,
            "lastrevid": id_ * 10,
            "touched": stamp(self.now),
        } | more
        self.texts[id_] = text
        return ref(id_, "file" if ns == 6 else "page")

    def edited(self, id_: int, title: str, ns: int = 0, **more: Any) -> dict[str, Any]:
        row = {"type": "edit", "ns": ns, "title": title, "pageid": id_, "revid": id_ * 10, "old_revid": 1}
        return self._recent(row | more)

    def logged(
        self,
        type_: str,
        action: str,
        title: str,
        *,
        ns: int = 0,
        page: int = 0,
        params: Any = None,
        recent: bool = True,
    ) -> None:
        """A row of the log, and of recent changes unless it was lost there."""
        logid = len(self.log) + 1000
        common = {"ns": ns, "title": title, "timestamp": stamp(self.now), "logid": logid}
        event = {"type": type_, "action": action, "pageid": 0, "logpage": page, "params": params or {}}
        self.log.append(common | event)
        if recent:
            told = {"type": "log", "pageid": page, "revid": 0, "old_revid": 0, "logtype": type_, "logaction": action}
            self._recent(common | told | {"logparams": params or {}})

    def _recent(self, row: dict[str, Any]) -> dict[str, Any]:
        whole = {"timestamp": stamp(self.now), "rcid": len(self.rc) + 1} | row
        self.rc.append(whole)
        return whole

    # ------------------------------------------------------------ the API

    def transport(self) -> httpx.MockTransport:
        return httpx.MockTransport(self._answer)

    def _answer(self, request: httpx.Request) -> httpx.Response:
        if request.url.path.startswith("/w/images/"):
            return httpx.Response(200, content=self.files.get(int(request.url.path.rpartition("/")[2]), b""))
        assert request.url.path == "/w/api.php"
        asked = dict(parse_qsl(request.url.query.decode(), keep_blank_values=True))
        asked |= dict(parse_qsl(request.content.decode(), keep_blank_values=True))
        self.asked.append(asked)
        if self.errors:
            return self.errors.pop(0)
        if asked.get("assert") == "user" and not self.signed_in:
            return error("assertuserfailed")
        denied = self.denied & set(asked.get("titles", "").split("|"))
        if denied:
            return error("accessdenied")
        answer = getattr(self, f"_{asked['action']}")(asked)
        return httpx.Response(200, json={"curtimestamp": stamp(self.now), "batchcomplete": True} | answer)

    def _login(self, asked: dict[str, str]) -> dict[str, Any]:
        assert asked["lgtoken"] == "token"
        self.signed_in = self.login["result"] == "Success"
        return {"login": self.login}

    def _parse(self, asked: dict[str, str]) -> dict[str, Any]:
        text = asked["text"]
        return {"parse": {"text": f"<p>{text}</p>", "templates": self.templates(text)}}

    def _query(self, asked: dict[str, str]) -> dict[str, Any]:
        if asked.get("type") == "login":
            return {"query": {"tokens": {"logintoken": "token"}}}
        if asked.get("meta") == "siteinfo":
            return {"query": self._siteinfo()}
        if asked.get("meta") == "userinfo":
            return {"query": {"userinfo": {"name": "Connector", "rights": self.rights["*"], "groups": []}}}
        lists = asked.get("list", "")
        if "recentchanges" in lists:
            return self._rows(asked)
        if lists == "allusers":
            return self._part("allusers", self.users, asked, "aufrom")
        if lists == "logevents":
            return {"query": {"logevents": [r for r in self.log if r["type"] == asked["letype"]]}}
        if asked.get("prop") == "transcludedin":
            return self._transcluded(asked)
        return self._pages(asked)

    def _rows(self, asked: dict[str, str]) -> dict[str, Any]:
        query: dict[str, Any] = {}
        more: dict[str, Any] = {}
        for prefix, name, rows in (("rc", "recentchanges", self.rc), ("le", "logevents", self.log)):
            if name not in asked["list"]:
                continue
            if asked.get(f"{prefix}continue") == "nonsense":
                raise AssertionError("tests give the error themselves")
            if "continue" in asked and f"{prefix}continue" not in asked:
                continue  # this one was at its end
            found = sorted((r for r in rows if r["timestamp"] >= asked.get(f"{prefix}start", "")), key=_moment)
            first = int(asked.get(f"{prefix}continue", 0))
            size = min(self.page_size, int(asked[f"{prefix}limit"]))
            query[name] = found[first : first + size]
            if len(found) > first + size:
                more |= {f"{prefix}continue": str(first + size), "continue": "-||"}
        return {"query": query} | ({"continue": more, "batchcomplete": False} if more else {})

    def _part(self, name: str, rows: list[dict[str, Any]], asked: dict[str, str], token: str) -> dict[str, Any]:
        first = int(asked.get(token, 0))
        part = {"query": {name: rows[first : first + self.page_size]}}
        following = first + self.page_size
        return part | ({"continue": {token: following, "continue": "-||"}} if following < len(rows) else {})

    def _transcluded(self, asked: dict[str, str]) -> dict[str, Any]:
        pairs = [(t, p) for t in asked["titles"].split("|") for p in self.dependants.get(t, [])]
        first = int(asked.get("ticontinue", 0))
        pages = []
        for title, page in pairs[first : first + self.page_size]:
            ns = self.pages[page]["ns"] if page in self.pages else 0
            pages.append(
                {"title": title, "transcludedin": [{"pageid": page, "ns": ns, "title": "x", "redirect": False}]}
            )
        following = first + self.page_size
        more = {"continue": {"ticontinue": following, "continue": "||"}} if following < len(pairs) else {}
        return {"query": {"pages": pages}} | more

    def _pages(self, asked: dict[str, str]) -> dict[str, Any]:
        if "pageids" in asked:
            chosen = [self.pages.get(int(i), {"pageid": int(i), "missing": True}) for i in asked["pageids"].split("|")]
            return {"query": {"pages": [self._shown(p, asked) for p in chosen]}}
        if "titles" in asked:
            wanted = asked["titles"].split("|")
            return {"query": {"pages": [self._shown(p, asked) for p in self.pages.values() if p["title"] in wanted]}}
        if asked.get("generator") == "allpages":
            namespace = int(asked["gapnamespace"])
            redirects = asked.get("gapfilterredir", "all") == "all"
            all_ = [p for p in self.pages.values() if p["ns"] == namespace and (redirects or not p.get("redirect"))]
            rows = [self._shown(p, asked) for p in sorted(all_, key=lambda p: str(p["title"]))]
            return self._part("pages", rows, asked, "gapcontinue")
        return {}

    def _shown(self, page: dict[str, Any], asked: dict[str, str]) -> dict[str, Any]:
        if page.get("missing"):
            return page
        id_ = page["pageid"]
        shown = dict(page)
        if "intestactions" in asked:
            shown["actions"] = {"read": page["title"] not in self.denied}
        if "revisions" in asked["prop"]:
            slot: dict[str, Any] = {"contentmodel": self.models.get(id_, "wikitext")}
            if "content" in asked["rvprop"]:
                hidden = self.texts[id_] is None
                slot |= {"texthidden": True, "content": "shown to a sysop"} if hidden else {"content": self.texts[id_]}
            shown["revisions"] = [{"revid": page["lastrevid"], "timestamp": page["touched"], "slots": {"main": slot}}]
        if "imageinfo" in asked["prop"] and id_ in self.files:
            body = self.files[id_]
            image = {"url": f"http://wiki.test/w/images/{id_}", "mime": "text/plain", "timestamp": page["touched"]}
            image["sha1"] = hashlib.sha1(body, usedforsecurity=False).hexdigest()
            shown["imageinfo"] = [image | {"size": len(body)} | page.get("image", {})]
        shown.pop("image", None)
        return shown

    def _siteinfo(self) -> dict[str, Any]:
        names = {str(i): {"id": i, "name": n, "canonical": n, "content": i in CONTENT} for i, n in NAMESPACES.items()}
        return {
            "general": {"generator": "MediaWiki 1.39.17"},
            "namespaces": names,
            "namespacealiases": [{"id": -1, "alias": "Spezial"}],
            "usergroups": [{"name": name, "rights": rights} for name, rights in self.rights.items()],
            "statistics": {"pages": len(self.pages)},
        }


def _moment(row: dict[str, Any]) -> str:
    return str(row["timestamp"])


def error(code: str, **headers: str) -> httpx.Response:
    return httpx.Response(200, headers=headers, text=json.dumps({"error": {"code": code, "info": "No."}}))


def ref(page: int, kind: str = "page") -> DocumentRef:
    return DocumentRef(tenant="acme", source="wiki", kind=kind, id=str(page))


def connect(
    wiki: FakeWiki,
    people: tuple[Person, ...] = (),
    clock: ManualClock | None = None,
    max_bytes: int = 1000,
    **more: Any,
) -> MediaWiki:
    given = {"type": "mediawiki", "name": "wiki", "url": "http://wiki.test/w", "requests_per_s": 1000, "overlap_s": 15}
    settings = MediaWikiSettings.model_validate(given | more)
    moved = clock or ManualClock(START)
    return MediaWiki("acme", settings, people, moved, max_bytes=max_bytes, transport=wiki.transport())
