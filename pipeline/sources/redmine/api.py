"""Redmine's REST API: answers as they are, lists to their end."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import httpx

from pipeline.clock import Clock
from pipeline.settings_sources import RedmineSettings
from pipeline.sources.connector import Reach, SourceUnavailable
from pipeline.sources.remote.http import HttpApi

LIMIT = 100
"""Rows that the server gives at most, whatever is asked for."""
TRIES = 3
_KEY, _AS = "X-Redmine-API-Key", "X-Redmine-Switch-User"
_OPEN = "1|5"  # active and closed; archived projects are in no list


class Refused(Exception):
    """It answered, and not with what was asked for. ``status``: 403 not for us, 404 not there, 412 no such account."""

    def __init__(self, path: str, status: int) -> None:
        super().__init__(f"{path}: {status}")
        self.status = status


class Api:
    """One Redmine, asked with the key of the settings."""

    def __init__(self, settings: RedmineSettings, clock: Clock, transport: httpx.BaseTransport | None) -> None:
        self._http = HttpApi(
            settings.url,
            clock,
            timeout_s=settings.timeout_s,
            per_second=settings.requests_per_s,
            headers={_KEY: settings.api_key.get_secret_value()},
            transport=transport,
        )

    @property
    def reach(self) -> Reach:
        return self._http.reach

    def get(self, path: str, params: Mapping[str, Any] | None = None, *, user: str | None = None) -> dict[str, Any]:
        """One answer; ``user`` is the login of whom to ask as, "" is nobody. Raises Refused, SourceUnavailable."""
        headers = {} if user is None else {_KEY: ""} if user == "" else {_AS: user}
        response = self._http.get(path, params, headers=headers)
        if response.status_code != 200:
            raise Refused(path, response.status_code)
        try:
            found = response.json()
        except ValueError as error:
            raise SourceUnavailable(f"{path} is not JSON: is the url of the settings a Redmine's?") from error
        if not isinstance(found, dict):
            raise SourceUnavailable(f"{path} is not an object: is the url of the settings a Redmine's?")
        return found

    def everything(self, path: str, key: str, params: Mapping[str, Any] | None = None) -> list[dict[str, Any]]:
        """All rows of a list. Pages go by position: a deletion moves a row out of sight, so the count decides.

        Raises SourceUnavailable where it does not come to rest.
        """
        for _ in range(TRIES):
            rows, total = self._pages(path, key, params or {})
            if total is None or len(rows) == total:
                return list(rows.values())
        raise SourceUnavailable(f"{path} changes faster than it can be read")

    def _pages(self, path: str, key: str, params: Mapping[str, Any]) -> tuple[dict[int, dict[str, Any]], int | None]:
        rows: dict[int, dict[str, Any]] = {}
        offset = 0
        while True:
            answer = self.get(path, {**params, "limit": LIMIT, "offset": offset})
            part = answer.get(key)
            if not isinstance(part, list):
                raise SourceUnavailable(f"{path} has no {key}")
            rows |= {row["id"]: row for row in part}
            total = answer.get("total_count")
            offset += len(part)
            if total is None or not part or offset >= total:
                return rows, total

    def projects(self) -> list[dict[str, Any]]:
        """Active and closed projects, with their modules and trackers."""
        return self.everything("/projects.json", "projects", {"status": _OPEN, "include": "enabled_modules,trackers"})

    def issues(self, filters: Mapping[str, tuple[str, list[str]]], sort: str, limit: int = LIMIT) -> dict[str, Any]:
        """One page of issues, closed ones too. ``filters``: field → operator and values."""
        params: dict[str, Any] = {"f[]": ["status_id", *filters], "op[status_id]": "*", "v[status_id][]": [""]}
        for name, (operator, values) in filters.items():
            params |= {f"op[{name}]": operator, f"v[{name}][]": values}
        path = "/issues.json"
        try:
            answer = self.get(path, {**params, "sort": sort, "limit": limit, "include": "attachments"})
        except Refused as refused:
            raise SourceUnavailable(
                f"{path} is refused ({refused.status}): is the key an administrator's?"
            ) from refused
        if not isinstance(answer.get("issues"), list):
            raise SourceUnavailable(f"{path} has no issues")
        return answer

    def file(self, path: str, most: int) -> tuple[httpx.Response, bytes]:
        """A file's bytes. Raises Refused, SourceUnavailable."""
        response, body = self._http.body(path, most)
        if response.status_code != 200:
            raise Refused(path, response.status_code)
        return response, body

    def close(self) -> None:
        self._http.close()


def ids(rows: Any) -> Iterator[int]:
    """Ids of rows that stand in another one."""
    return (row["id"] for row in rows or () if isinstance(row, dict) and isinstance(row.get("id"), int))
