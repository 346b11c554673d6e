"""Refs, revisions and rules of Redmine's rows."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Mapping
from typing import Any

from pipeline.clock import micros_of
from pipeline.sources.remote.contract import Child, child
from pipeline.sources.remote.people import account_of, group_of
from schemas.access import AccessRule, Clause, Grant, audience
from schemas.keys import DocumentRef

FORM = "1"
"""Part of every revision: another value has every document read and written again."""
ISSUE, WIKI, NOTE, ATTACHMENT = "issue", "wiki", "note", "attachment"

Row = Mapping[str, Any]
_ISSUE_FIELDS = (
    *("project", "tracker", "status", "priority", "author", "assigned_to", "category", "fixed_version"),
    *("subject", "description", "due_date", "is_private", "created_on", "updated_on"),
)
_FILE_FIELDS = ("id", "filename", "filesize", "content_type", "description", "created_on")
_PLAIN = frozenset({"string", "text", "link", "int", "float", "date", "bool", "list", "enumeration"})


def moment(text: Any) -> int | None:
    """µs of a time as Redmine writes it; None where it is none."""
    try:
        return micros_of(text) if isinstance(text, str) and text else None
    except ValueError:
        return None


def born(row: Row) -> int:
    """Unix seconds of a row's creation: with the id it names the row, as ids are given again after a deletion."""
    return (moment(row.get("created_on")) or 0) // 1_000_000


def digest(*parts: Any) -> str:
    """Equal exactly for equal parts."""
    text = json.dumps([FORM, *parts], ensure_ascii=False, sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()[:32]


class Fields:
    """Custom fields that everybody who may read an issue may see. Others are left out: the key sees them all."""

    def __init__(self, rows: Iterable[Row]) -> None:
        self._labels: dict[int, dict[str, str]] = {}
        for row in rows:
            if (
                row.get("visible") is True
                and row.get("customized_type") == "issue"
                and row.get("field_format") in _PLAIN
            ):
                values = row.get("possible_values") or []
                self._labels[row["id"]] = {str(v.get("value")): str(v.get("label", v.get("value"))) for v in values}

    @property
    def shape(self) -> list[Any]:
        """What an issue's text depends on."""
        return sorted((id_, sorted(labels.items())) for id_, labels in self._labels.items())

    def shown(self, row: Row) -> list[tuple[str, str]]:
        """Name and value of each field of an issue that is shown."""
        found = []
        for one in row.get("custom_fields") or ():
            labels = self._labels.get(one.get("id"))
            value = one.get("value")
            values = [str(v) for v in (value if isinstance(value, list) else [value]) if v not in (None, "")]
            if labels is not None and values:
                found.append((str(one.get("name")), ", ".join(labels.get(v, v) for v in values)))
        return found


class Naming:
    """Refs and rules of one source's documents. ``open_to_all``: what anonymous visitors may read, all may."""

    def __init__(self, tenant: str, source: str, *, text: str, open_to_all: bool) -> None:
        self.tenant, self.source = tenant, source
        self._open_to_all = open_to_all
        self._form = (text, open_to_all)

    def issue(self, row: Row) -> DocumentRef:
        return self._ref(ISSUE, f"{row['id']}@{born(row)}")

    def wiki(self, project: int, row: Row) -> DocumentRef:
        return self._ref(WIKI, f"{project}/{row['title']}@{born(row)}")

    def issue_revision(self, row: Row, fields: Fields) -> str:
        """Of a row of the list, and the same of the issue itself."""
        kept = [row.get(name) for name in _ISSUE_FIELDS]
        return digest(ISSUE, self._form, kept, fields.shown(row), [_file(a) for a in row.get("attachments") or ()])

    def wiki_revision(self, project: int, row: Row) -> str:
        """Of a row of the index, and the same of the page itself."""
        parent = (row.get("parent") or {}).get("title")
        return digest(WIKI, self._form, project, [row.get(n) for n in ("title", "version", "updated_on")], parent)

    def issue_rule(self, row: Row) -> AccessRule:
        """Whoever may see issues of this tracker there, and this one: by their right, as author or as assignee."""
        project, tracker = row["project"]["id"], (row.get("tracker") or {}).get("id")
        private = row.get("is_private") is not False
        seen = self._tracked(project, "view", tracker)
        reached = self._tracked(project, "private" if private else "issues", tracker)
        if self._open_to_all and not private:
            anonymous = self._tracked(project, "anonymous", tracker)
            seen, reached = seen + anonymous, reached + anonymous
        author, assignee = (row.get("author") or {}).get("id"), (row.get("assigned_to") or {}).get("id")
        if author is not None:
            reached.append(account_of(self.source, str(author)))
        if assignee is not None:  # accounts and groups have their ids from one sequence: only one of the two exists
            reached += [account_of(self.source, str(assignee)), group_of(self.source, str(assignee))]
        return AccessRule(clauses=(_clause(seen), _clause(reached)))

    def wiki_rule(self, project: int) -> AccessRule:
        return AccessRule.any_of(self.audience(project, "wiki"))

    def note_rule(self, row: Row, journal: Row) -> AccessRule:
        """Readers of the issue who may see private notes, or wrote this one."""
        readers = [self.audience(row["project"]["id"], "notes")]
        author = (journal.get("user") or {}).get("id")
        if author is not None:
            readers.append(account_of(self.source, str(author)))
        return AccessRule(clauses=(*self.issue_rule(row).clauses, _clause(readers)))

    def audience(self, project: int, name: str) -> str:
        return audience(self.source, f"project:{project}/{name}")

    def _tracked(self, project: int, name: str, tracker: Any) -> list[str]:
        """Those who have a right for every tracker, and those who have it for this one."""
        return [self.audience(project, name), self.audience(project, f"{name}/tracker:{tracker}")]

    def notes(self, row: Row) -> tuple[Child, ...]:
        parent = self.issue(row)
        return tuple(
            Child(child(parent, NOTE, f"{j['id']}@{born(j)}"), note_revision(row, j), self.note_rule(row, j))
            for j in private_notes(row)
        )

    def attachments(self, parent: DocumentRef, row: Row, rule: AccessRule) -> tuple[Child, ...]:
        return tuple(
            Child(child(parent, ATTACHMENT, f"{a['id']}@{born(a)}"), digest(ATTACHMENT, _file(a)), rule)
            for a in row.get("attachments") or ()
        )

    def _ref(self, kind: str, id_: str) -> DocumentRef:
        return DocumentRef(tenant=self.tenant, source=self.source, kind=kind, id=id_)


def public_notes(row: Row) -> list[Row]:
    """Journals with text that all readers of the issue see, in their order."""
    return [j for j in row.get("journals") or () if (j.get("notes") or "").strip() and j.get("private_notes") is False]


def private_notes(row: Row) -> list[Row]:
    """The others with text. What is not surely public is private."""
    return [
        j for j in row.get("journals") or () if (j.get("notes") or "").strip() and j.get("private_notes") is not False
    ]


def note_revision(row: Row, journal: Row) -> str:
    return digest(
        NOTE, row.get("subject"), [journal.get(n) for n in ("id", "user", "notes", "created_on", "private_notes")]
    )


def _file(row: Row) -> list[Any]:
    return [row.get(name) for name in _FILE_FIELDS]


def _clause(principals: Iterable[str]) -> Clause:
    return Clause(any_of=tuple(Grant(principal=p) for p in dict.fromkeys(principals)))
