"""Listing everything, and following what changes.

Issues are asked for from a time on, in whole seconds and inclusive; wiki pages by the index of each project; projects
by their list. The clock is the source's: the newest update seen. After it a while is asked for again, until what could
have become visible late has done so; then the cursor is settled and quiet polls ask for nothing old.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from datetime import UTC, datetime, timedelta
from typing import Any

from pipeline.clock import Clock
from pipeline.settings_sources import RedmineSettings
from pipeline.sources.connector import SourceUnavailable
from pipeline.sources.redmine.api import LIMIT, Api, Refused
from pipeline.sources.redmine.roles import ISSUES, WIKI
from pipeline.sources.redmine.rows import Fields, Naming, Row, digest, moment
from pipeline.sources.remote.contract import Changes, Listed, Page, Touched
from schemas.keys import DocumentRef

WIKIS = 25
"""Indexes of wikis that are compared in one poll; the others have their turn in the next ones."""
AHEAD_US = 3600 * 1_000_000
"""An update that lies further ahead of our clock than this moves no cursor: it would hide everything until then."""
SECOND = timedelta(seconds=1)
_BEGINNING = "1970-01-01T00:00:00Z"


@dataclass
class Cursor:
    """``at``: newest update seen. ``since`` and ``after``: within a round, from where on, and by id where one second
    has more rows than a page. ``shape``: of projects and custom fields, ``open``: of whom projects are open to."""

    at: str = _BEGINNING
    settled: bool = False
    since: str | None = None
    after: int | None = None
    shape: str = ""
    open: str = ""
    wikis: int = 0  # the last comparison of wikis that was told

    def text(self) -> str:
        return json.dumps(asdict(self), sort_keys=True)

    @staticmethod
    def of(text: str) -> Cursor | None:
        """None where it is no cursor of this source."""
        try:
            return Cursor(**json.loads(text))
        except (ValueError, TypeError):
            return None


class Follower:
    """Keeps the projects and fields as last seen, and the wikis' indexes."""

    def __init__(self, api: Api, naming: Naming, settings: RedmineSettings, clock: Clock) -> None:
        self._api, self._naming, self._settings, self._clock = api, naming, settings, clock
        self._projects: dict[int, Row] | None = None
        self._fields: Fields | None = None
        self._wikis: dict[int, dict[DocumentRef, str]] = {}
        self._turn = 0  # project whose wiki was compared last
        self._told: tuple[int, dict[int, dict[DocumentRef, str]], int] | None = None  # what a cursor must come back for
        self._met = clock.elapsed()  # when the newest update was seen first
        self._began = self._met  # when this round of asking began

    # -- what is known of the instance ----------------------------------------------------------------------------

    @property
    def fields(self) -> Fields:
        if self._fields is None:
            self._look()
        assert self._fields is not None
        return self._fields

    def projects(self) -> list[Row]:
        """Covered projects that can be read, asked for now."""
        self._look()
        assert self._projects is not None
        return list(self._projects.values())

    def covers(self, project: int) -> bool:
        """Whether documents of this project belong to the source."""
        if self._settings.projects is None:
            return True
        if self._projects is None or project not in self._projects:
            self._look()
        assert self._projects is not None
        return project in self._projects

    def _look(self) -> None:
        rows = self._api.projects()
        wanted = self._settings.projects
        self._projects = {r["id"]: r for r in rows if wanted is None or r.get("identifier") in wanted}
        try:
            self._fields = Fields(self._api.get("/custom_fields.json").get("custom_fields") or ())
        except Refused:  # only administrators see which fields are shown to whom: none is shown then
            self._fields = Fields(())

    # -- listing ----------------------------------------------------------------------------------------------------

    def listing(self, at: str | None) -> Page:
        """A page of issues by their id, then wiki by wiki."""
        state = json.loads(at) if at is not None else {"issues": 0}
        if at is None or self._projects is None:
            self._look()
        if "issues" in state:
            return self._issues(int(state["issues"]))
        return self._next_wiki(int(state["wiki"]))

    def _issues(self, after: int) -> Page:
        rows, full, total = self._page({"issue_id": (">=", [str(after + 1)])}, "id:asc")
        if any(row["id"] <= after for row in rows):
            raise SourceUnavailable("issues are not listed by id: is it a Redmine of version 4.2 or newer?")
        documents = tuple(
            Listed(
                self._naming.issue(row),
                self._naming.issue_revision(row, self.fields),
                updated_at=moment(row.get("updated_on")),
                children=None,  # the list knows no private notes
            )
            for row in rows
        )
        following = {"issues": rows[-1]["id"]} if full else {"wiki": 0}
        return Page(documents, json.dumps(following), total if after == 0 else None)

    def _next_wiki(self, after: int) -> Page:
        rest = sorted(id_ for id_ in self._projects or {} if id_ > after)
        if not rest:
            return Page(())
        documents = tuple(
            Listed(ref, revision, updated_at=updated, children=None)
            for ref, (revision, updated) in self._index(rest[0]).items()
        )
        return Page(documents, json.dumps({"wiki": rest[0]}) if len(rest) > 1 else None)

    def _index(self, project: int) -> dict[DocumentRef, tuple[str, int | None]]:
        """Pages of a project's wiki with revision and update; none where it has no wiki, or is gone meanwhile."""
        if WIKI not in _modules((self._projects or {}).get(project, {})):
            return {}
        try:
            rows = self._api.get(f"/projects/{project}/wiki/index.json").get("wiki_pages") or ()
        except Refused:
            return {}
        naming = self._naming
        return {
            naming.wiki(project, row): (naming.wiki_revision(project, row), moment(row.get("updated_on")))
            for row in rows
        }

    # -- changes ----------------------------------------------------------------------------------------------------

    def start(self) -> str:
        """A cursor of now."""
        self._look()
        newest, _, _ = self._page({}, "updated_on:desc", limit=1)
        cursor = Cursor(shape=self._shape(), open=self._open())
        self._met = self._began = self._clock.elapsed()
        for row in newest:
            cursor.at = max(cursor.at, self._bounded(row))
        return cursor.text()

    def changes(self, text: str) -> Changes:
        """One page of what was updated; with the first of a round also what happened to projects and wikis."""
        cursor = Cursor.of(text)
        if cursor is None:
            return Changes(self.start(), relist=True, access=True)
        touched: list[Touched] = []
        gone: list[DocumentRef] = []
        relist = access = False
        if cursor.since is None:
            self._look()
            self._began = self._clock.elapsed()
            relist, access = self._shape() != cursor.shape, self._open() != cursor.open
            cursor.shape, cursor.open = self._shape(), self._open()
            cursor.since = self._from(cursor)
            self._compare_wikis(cursor, touched, gone)
        touched += [Touched(self._naming.issue(row)) for row in self._updated(cursor)]
        more = cursor.since is not None
        return Changes(cursor.text(), tuple(touched), tuple(gone), access=access or relist, relist=relist, more=more)

    def _from(self, cursor: Cursor) -> str:
        """Whence a round asks."""
        if cursor.settled:
            return _shifted(cursor.at, SECOND)
        return _shifted(cursor.at, -timedelta(seconds=int(self._settings.overlap_s)))

    def _updated(self, cursor: Cursor) -> list[Row]:
        """Rows of this page of the round; moves the cursor on.

        A row that is updated meanwhile moves to the end, where it is met again: so pages go by time, not by position.
        Where all of a page fell into one second, pages go by id from that second on.
        """
        assert cursor.since is not None
        filters = {"updated_on": (">=", [cursor.since])}
        if cursor.after is not None:
            filters["issue_id"] = (">=", [str(cursor.after + 1)])
        rows, full, _ = self._page(filters, "updated_on:asc,id:asc" if cursor.after is None else "id:asc")
        newest = max([cursor.at, *(self._bounded(row) for row in rows)])
        if newest > cursor.at:
            cursor.at, cursor.settled = newest, False
            self._met = self._clock.elapsed()
        last = str(rows[-1]["updated_on"]) if rows else ""
        if not full and cursor.after is None:
            self._end(cursor)
        elif not full:
            cursor.since, cursor.after = _shifted(str(cursor.since), SECOND), None
        elif cursor.after is not None:
            cursor.after = rows[-1]["id"]
        elif last > cursor.since:
            cursor.since = last
        else:
            cursor.after = 0
        return rows

    def _end(self, cursor: Cursor) -> None:
        cursor.since = None
        quiet = self._began - self._met
        cursor.settled = cursor.settled or quiet >= self._settings.overlap_s + SECOND.total_seconds()

    def _page(
        self, filters: Mapping[str, tuple[str, list[str]]], sort: str, limit: int = LIMIT
    ) -> tuple[list[Row], bool, int | None]:
        """Rows, whether the page is full, how many there are. Raises SourceUnavailable where they are not sorted."""
        wanted = dict(filters)
        if self._settings.projects is not None:
            if not self._projects:
                return [], False, 0
            wanted["project_id"] = ("=", [str(id_) for id_ in self._projects])
        answer = self._api.issues(wanted, sort, limit)
        rows: list[Row] = answer["issues"]
        column, _, order = sort.partition(",")[0].partition(":")
        values: list[Any] = [row.get(column) for row in rows]
        if order == "asc" and values != sorted(values):
            raise SourceUnavailable(f"issues do not come sorted by {column}: is it a Redmine of version 4.2 or newer?")
        most = answer.get("limit")
        return rows, len(rows) >= (most if isinstance(most, int) and most else limit), answer.get("total_count")

    def _bounded(self, row: Row) -> str:
        """When a row was updated, "" where that lies in the future."""
        at = moment(row.get("updated_on"))
        return str(row["updated_on"]) if at is not None and at < self._clock.now() + AHEAD_US else ""

    def _compare_wikis(self, cursor: Cursor, touched: list[Touched], gone: list[DocumentRef]) -> None:
        """What was told counts as known only when its cursor comes back: an answer may be lost, and is asked again."""
        if self._told is not None and self._told[0] == cursor.wikis:
            _, self._wikis, self._turn = self._told
        cursor.wikis += 1
        known = sorted(id_ for id_, row in (self._projects or {}).items() if WIKI in _modules(row))
        state, last = {id_: pages for id_, pages in self._wikis.items() if id_ in known}, self._turn
        turn = [id_ for id_ in known if id_ > self._turn] + [id_ for id_ in known if id_ <= self._turn]
        for project in turn[:WIKIS]:
            before = self._wikis.get(project, {})
            now = {ref: revision for ref, (revision, _) in self._index(project).items()}
            touched += [Touched(ref, revision) for ref, revision in now.items() if before.get(ref) != revision]
            gone += [ref for ref in before if ref not in now]
            state[project], last = now, project
        self._told = (cursor.wikis, state, last)

    def _shape(self) -> str:
        """Of what decides which documents there are and what they show: another one needs a listing."""
        rows = (self._projects or {}).values()
        projects = sorted((r["id"], r.get("status"), sorted(_modules(r) & {ISSUES, WIKI})) for r in rows)
        return digest(projects, self.fields.shape)

    def _open(self) -> str:
        rows = (self._projects or {}).values()
        return digest(
            sorted((r["id"], r.get("is_public"), r.get("inherit_members"), str(r.get("parent"))) for r in rows)
        )


def _modules(row: Row) -> set[str]:
    return {str(m.get("name")) for m in row.get("enabled_modules") or ()}


def _shifted(at: str, by: timedelta) -> str:
    """A time as Redmine takes it: whole seconds, UTC."""
    moved = max(datetime.fromisoformat(at) + by, datetime(1970, 1, 1, tzinfo=UTC))
    return moved.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
