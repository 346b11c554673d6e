"""A Redmine of canned answers, in the shape that a real one gives."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable
from typing import Any
from urllib.parse import unquote

import httpx

from pipeline.clock import ManualClock
from pipeline.settings_sources import IdentitySettings, RedmineSettings
from pipeline.sources.redmine import Redmine

URL = "http://desk.test"
NOW = 1_796_074_800_000_000  # 2026-11-30T21:00:00Z
READ = ["view_issues", "view_wiki_pages"]
TRACKERS = [{"id": 1, "name": "Bug"}, {"id": 2, "name": "Feature"}]


def issue(id_: int = 1, **changes: Any) -> dict[str, Any]:
    """A row of the list."""
    return {
        "id": id_,
        "project": {"id": 1, "name": "Payments"},
        "tracker": {"id": 1, "name": "Bug"},
        "status": {"id": 1, "name": "New", "is_closed": False},
        "priority": {"id": 2, "name": "Normal"},
        "author": {"id": 5, "name": "Ana X"},
        "subject": f"Issue {id_}",
        "description": "text",
        "start_date": "2026-11-30",
        "due_date": None,
        "done_ratio": 0,
        "is_private": False,
        "estimated_hours": None,
        "created_on": "2026-11-30T20:00:00Z",
        "updated_on": "2026-11-30T20:00:00Z",
        "closed_on": None,
        "attachments": [],
    } | changes


def journal(id_: int, notes: str, **changes: Any) -> dict[str, Any]:
    return {
        "id": id_,
        "user": {"id": 6, "name": "Ben X"},
        "notes": notes,
        "created_on": "2026-11-30T20:05:00Z",
        "private_notes": False,
        "details": [],
    } | changes


def attachment(id_: int, name: str, **changes: Any) -> dict[str, Any]:
    return {
        "id": id_,
        "filename": name,
        "filesize": 5,
        "content_type": "application/octet-stream",
        "description": None,
        "content_url": f"http://inner.example/attachments/download/{id_}/{name}",
        "created_on": "2026-11-30T20:00:00Z",
    } | changes


def project(id_: int = 1, **changes: Any) -> dict[str, Any]:
    return {
        "id": id_,
        "name": f"Project {id_}",
        "identifier": f"p{id_}",
        "status": 1,
        "is_public": False,
        "inherit_members": False,
        "trackers": TRACKERS,
        "enabled_modules": [{"id": 1, "name": "issue_tracking"}, {"id": 2, "name": "wiki"}],
        "created_on": "2026-11-30T19:00:00Z",
        "updated_on": "2026-11-30T19:00:00Z",
    } | changes


def page(title: str, **changes: Any) -> dict[str, Any]:
    """A row of a wiki's index."""
    at = {"created_on": "2026-11-30T20:00:00Z", "updated_on": "2026-11-30T20:00:00Z"}
    return {"title": title, "version": 1} | at | changes


def account(id_: int, login: str, **changes: Any) -> dict[str, Any]:
    return {"id": id_, "login": login, "admin": False, "mail": f"{login}@example.org"} | changes


def member(who: str, id_: int, *roles: int, inherited: bool = False) -> dict[str, Any]:
    given = [{"id": r, "name": f"Role {r}"} | ({"inherited": True} if inherited else {}) for r in roles]
    return {"id": 100 + id_, "project": {"id": 1}, who: {"id": id_, "name": "x"}, "roles": given}


def role(id_: int, permissions: list[str], visibility: str = "default") -> dict[str, Any]:
    return {"id": id_, "name": f"Role {id_}", "issues_visibility": visibility, "permissions": permissions}


class Desk:
    """What a Redmine holds. ``answers`` overrides paths: a status, or what makes an answer of a request."""

    def __init__(self) -> None:
        self.issues: dict[int, dict[str, Any]] = {}
        self.journals: dict[int, list[dict[str, Any]]] = {}
        self.projects: dict[int, dict[str, Any]] = {1: project()}
        self.wikis: dict[int, dict[str, dict[str, Any]]] = {}
        self.users: dict[int, dict[str, Any]] = {}
        self.groups: dict[int, list[int]] = {}
        self.roles: dict[int, dict[str, Any]] = {
            1: role(1, READ),
            2: role(2, READ),
            3: role(3, [*READ, "view_private_notes"], "all"),
            4: role(4, READ),
            5: role(5, READ, "own"),
        }
        self.members: dict[int, list[dict[str, Any]]] = {}
        self.trackers: dict[str, list[int]] = {}  # login → trackers that are seen, where not all
        self.fields: list[dict[str, Any]] = []
        self.files: dict[int, bytes] = {}
        self.answers: dict[str, int | Callable[[httpx.Request], httpx.Response]] = {}
        self.asked: list[httpx.URL] = []
        self.count: Counter[str] = Counter()
        self.clock = ManualClock(NOW)
        self.limit = 100

    def system(self, **changes: Any) -> Redmine:
        given = {
            "type": "redmine",
            "name": "desk",
            "url": URL,
            "api_key": "secret",
            "requests_per_s": 1000,
            "identity": IdentitySettings(join="login"),
        }
        settings = RedmineSettings.model_validate(given | changes)
        return Redmine("acme", settings, (), self.clock, max_bytes=100, transport=httpx.MockTransport(self._answer))

    def _answer(self, request: httpx.Request) -> httpx.Response:
        self.asked.append(request.url)
        path = unquote(request.url.raw_path.decode().partition("?")[0])
        self.count[path] += 1
        given = self.answers.get(path)
        if given is not None:
            return httpx.Response(given) if isinstance(given, int) else given(request)
        parts = path.removesuffix(".json").strip("/").split("/")
        found = self._found(parts, request)
        return found if isinstance(found, httpx.Response) else httpx.Response(200, json=found)

    def _found(self, parts: list[str], request: httpx.Request) -> dict[str, Any] | httpx.Response:
        match parts:
            case ["issues"]:
                return self._issues(request.url.params)
            case ["issues", id_]:
                row = self.issues.get(int(id_))
                return _or_404({"issue": row | {"journals": self.journals.get(int(id_), [])}} if row else None)
            case ["projects"]:
                return self._listed("projects", list(self.projects.values()), request)
            case ["projects", id_]:
                login = request.headers.get("X-Redmine-Switch-User", "")
                seen = self.trackers.get(login)
                rows = [t for t in TRACKERS if seen is None or t["id"] in seen]
                return {"project": self.projects[int(id_)] | {"trackers": rows}}
            case ["projects", id_, "memberships"]:
                return self._listed("memberships", self.members.get(int(id_), []), request)
            case ["projects", id_, "wiki", "index"]:
                return {"wiki_pages": list(self.wikis.get(int(id_), {}).values())}
            case ["projects", id_, "wiki", title]:
                row = self.wikis.get(int(id_), {}).get(title)
                return _or_404({"wiki_page": {"text": "h1. Text", "attachments": []} | row} if row else None)
            case ["users"]:
                return self._listed("users", list(self.users.values()), request)
            case ["groups"]:
                return {"groups": [{"id": id_, "name": "g"} for id_ in self.groups]}
            case ["groups", id_]:
                return {"group": {"id": int(id_), "users": [{"id": u} for u in self.groups[int(id_)]]}}
            case ["roles"]:
                return {"roles": [{"id": id_} for id_ in self.roles if id_ > 2]}
            case ["roles", id_]:
                return _or_404({"role": self.roles[int(id_)]} if int(id_) in self.roles else None)
            case ["custom_fields"]:
                return {"custom_fields": self.fields}
            case ["attachments", "download", id_, _]:
                return httpx.Response(200, content=self.files[int(id_)], headers={"content-type": "text/plain"})
        return httpx.Response(404)

    def _issues(self, params: httpx.QueryParams) -> dict[str, Any]:
        rows = list(self.issues.values())
        assert params["op[status_id]"] == "*"
        for name in params.get_list("f[]"):
            operator, values = params[f"op[{name}]"], params.get_list(f"v[{name}][]")
            if name == "issue_id":
                assert operator == ">="
                rows = [r for r in rows if r["id"] >= int(values[0])]
            elif name == "updated_on":
                assert operator == ">=" and values[0].endswith("Z") and "." not in values[0]
                rows = [r for r in rows if r["updated_on"] >= values[0]]
            elif name == "project_id":
                rows = [r for r in rows if str(r["project"]["id"]) in values]
        for column in reversed(params["sort"].split(",")):
            name, _, order = column.partition(":")
            rows.sort(key=lambda r: r[name], reverse=order == "desc")
        limit = min(int(params["limit"]), self.limit)
        return {"issues": rows[:limit], "total_count": len(rows), "offset": 0, "limit": limit}

    def _listed(self, key: str, rows: list[dict[str, Any]], request: httpx.Request) -> dict[str, Any]:
        offset, limit = int(request.url.params.get("offset", 0)), min(int(request.url.params["limit"]), self.limit)
        return {key: rows[offset : offset + limit], "total_count": len(rows), "offset": offset, "limit": limit}


def _or_404(found: dict[str, Any] | None) -> dict[str, Any] | httpx.Response:
    return json.loads(json.dumps(found)) if found is not None else httpx.Response(404)
