"""One Redmine, as the contract of remote systems wants it."""

from __future__ import annotations

import re
from collections.abc import Callable
from urllib.parse import quote

import httpx

from pipeline.clock import Clock
from pipeline.settings_sources import Person, RedmineSettings
from pipeline.sources.connector import Reach, SourceUnavailable
from pipeline.sources.redmine import check
from pipeline.sources.redmine.api import Api, Refused
from pipeline.sources.redmine.bodies import Bodies, file_path
from pipeline.sources.redmine.follow import Follower
from pipeline.sources.redmine.readers import Readers
from pipeline.sources.redmine.rows import ATTACHMENT, ISSUE, NOTE, WIKI, Naming, Row, born, private_notes
from pipeline.sources.remote.contract import (
    Absent,
    Answer,
    Capabilities,
    Changes,
    Child,
    Fetched,
    Finding,
    Page,
    Readership,
    Unreadable,
    parent_of,
)
from schemas.access import AccessRule
from schemas.keys import DocumentRef

CAPABILITIES = Capabilities(
    deletions="listing",
    undated=(
        "a note is edited, deleted or made private or public",
        "an attachment of a wiki page is added or deleted",
    ),
    access="poll",
    kinds=(ISSUE, WIKI),
    child_kinds=(NOTE, ATTACHMENT),
)
_ISSUE_ID = re.compile(r"([0-9]{1,18})@([0-9]{1,18})")
_WIKI_ID = re.compile(r"([0-9]{1,18})/(.+)@([0-9]{1,18})", re.DOTALL)
_CHILD_ID = re.compile(r"[^:]+:.+/([0-9]{1,18})@([0-9]{1,18})", re.DOTALL)


class Redmine:
    """A source; its name is that of the settings. ``max_bytes`` bounds an attachment."""

    def __init__(
        self,
        tenant: str,
        settings: RedmineSettings,
        people: tuple[Person, ...],
        clock: Clock,
        *,
        max_bytes: int,
        transport: httpx.BaseTransport | None = None,
    ) -> None:
        self._settings, self._max_bytes = settings, max_bytes
        self._api = Api(settings, clock, transport)
        self._naming = Naming(tenant, settings.name, text=settings.text, open_to_all=settings.anonymous == "everyone")
        self._follower = Follower(self._api, self._naming, settings, clock)
        self._readers = Readers(self._api, self._naming, settings, people, clock)
        self._bodies = Bodies(settings.url, settings.text)

    @property
    def capabilities(self) -> Capabilities:
        return CAPABILITIES

    @property
    def reach(self) -> Reach:
        return self._api.reach

    def start(self) -> str:
        """A cursor of now."""
        return self._follower.start()

    def listing(self, at: str | None) -> Page:
        """Issues by id, then the wikis."""
        return self._follower.listing(at)

    def changes(self, cursor: str) -> Changes:
        """Updated issues, changed wikis, changed projects."""
        return self._follower.changes(cursor)

    def readers(self) -> Readership:
        """Who may read what, by projects and their roles."""
        return self._readers.read(self._follower.projects())

    def check(self) -> list[Finding]:
        """What the key can see."""
        return check.findings(self._api, self._settings)

    def listen(self, notify: Callable[[DocumentRef | None], None]) -> None:
        """A Redmine says nothing by itself."""

    def committed(self, cursor: str) -> None:
        """It keeps nothing for us."""

    def close(self) -> None:
        """Disconnect."""
        self._api.close()

    def fetch(self, document: DocumentRef) -> Answer:
        """One document as it is now; a private note or an attachment by what it hangs on."""
        try:
            if document.kind == ISSUE:
                return self._issue(document)
            if document.kind == WIKI:
                return self._wiki(document)
            return self._child(document)
        except Refused as refused:
            return _refusal(refused)

    def _issue(self, document: DocumentRef) -> Answer:
        row = self._issue_row(document)
        if isinstance(row, Absent):
            return row
        naming = self._naming
        rule, revision = naming.issue_rule(row), naming.issue_revision(row, self._follower.fields)
        children = (*naming.notes(row), *naming.attachments(document, row, rule))
        return Fetched(self._bodies.issue(document, row, self._follower.fields, rule, revision), children)

    def _issue_row(self, document: DocumentRef) -> Row | Absent:
        found = _ISSUE_ID.fullmatch(document.id)
        if found is None:
            return Absent("its id is none of a Redmine's issue")
        row: Row = self._api.get(f"/issues/{found.group(1)}.json", {"include": "journals,attachments"})["issue"]
        if born(row) != int(found.group(2)):
            return Absent("deleted; another issue has its number now")
        if not self._follower.covers(row["project"]["id"]):
            return Absent("moved to a project that is not among the source's")
        return row

    def _wiki(self, document: DocumentRef) -> Answer:
        found = self._wiki_row(document)
        if isinstance(found, Absent):
            return found
        project, row = found
        rule, revision = self._naming.wiki_rule(project), self._naming.wiki_revision(project, row)
        children = self._naming.attachments(document, row, rule)
        return Fetched(self._bodies.wiki(document, project, row, rule, revision), children)

    def _wiki_row(self, document: DocumentRef) -> tuple[int, Row] | Absent:
        found = _WIKI_ID.fullmatch(document.id)
        if found is None:
            return Absent("its id is none of a Redmine's wiki page")
        project, title = int(found.group(1)), found.group(2)
        if not self._follower.covers(project):
            return Absent("its project is not among the source's")
        try:
            path = f"/projects/{project}/wiki/{quote(title, safe='')}.json"
            row: Row = self._api.get(path, {"include": "attachments"})["wiki_page"]
        except SourceUnavailable:
            if self._renamed(project, title):  # the old title redirects
                return Absent("renamed")
            raise
        if row["title"] != title or born(row) != int(found.group(3)):
            return Absent("deleted; another page has its title now")
        return project, row

    def _renamed(self, project: int, title: str) -> bool:
        rows = self._api.get(f"/projects/{project}/wiki/index.json").get("wiki_pages") or ()
        return all(row.get("title") != title for row in rows)

    def _child(self, document: DocumentRef) -> Answer:
        found = _CHILD_ID.fullmatch(document.id)
        parent = parent_of(document, CAPABILITIES) if found is not None else None
        if parent is None or found is None or parent.kind not in CAPABILITIES.kinds:
            return Absent("its id is none of a Redmine's note or attachment")
        id_, made = int(found.group(1)), int(found.group(2))
        if parent.kind == WIKI:
            page = self._wiki_row(parent)
            if isinstance(page, Absent):
                return page
            project, row = page
            rule = self._naming.wiki_rule(project)
        else:
            issue = self._issue_row(parent)
            if isinstance(issue, Absent):
                return issue
            row, rule = issue, self._naming.issue_rule(issue)
            if document.kind == NOTE:
                return self._note(document, row, id_, made)
        files = self._naming.attachments(parent, row, rule)
        for one, file in zip(files, row.get("attachments") or (), strict=True):
            if file["id"] == id_ and born(file) == made:
                return self._attachment(one, file, rule)
        return Absent("the attachment was deleted")

    def _note(self, document: DocumentRef, row: Row, id_: int, made: int) -> Answer:
        for one, journal in zip(self._naming.notes(row), private_notes(row), strict=True):
            if journal["id"] == id_ and born(journal) == made:
                return Fetched(self._bodies.note(document, row, journal, one.rule, one.revision))
        return Absent("the note was deleted or is not private any more")

    def _attachment(self, one: Child, file: Row, rule: AccessRule) -> Answer:
        if (file.get("filesize") or 0) > self._max_bytes:
            return Unreadable(f"it has {file['filesize']} bytes, more than {self._max_bytes}")
        response, body = self._api.file(file_path(file), self._max_bytes)
        if len(body) > self._max_bytes:
            return Unreadable(f"it has more than {self._max_bytes} bytes")
        served = response.headers.get("content-type", "")
        return Fetched(self._bodies.attachment(one.document, file, body, served, rule, one.revision))


def _refusal(refused: Refused) -> Answer:
    """Hidden is 403, as in an archived project or one whose module is off; what is not there is 404."""
    if refused.status in (404, 410):
        return Absent("not there (404)")
    if refused.status == 403:
        return Unreadable("refused (403): its project is archived, or the module is off, or the key may not see it")
    raise SourceUnavailable(f"it answered {refused.status}") from refused
