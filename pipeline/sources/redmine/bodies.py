"""Documents of Redmine's rows: what is searched and shown of an issue, a private note, a wiki page, an attachment."""

from __future__ import annotations

import html
import mimetypes
from collections.abc import Iterable
from datetime import UTC, datetime
from urllib.parse import quote

from pipeline.ports import SourceDocument
from pipeline.sources.redmine.markup import clean, render
from pipeline.sources.redmine.rows import Fields, Row, moment, public_notes
from schemas.access import AccessRule
from schemas.keys import DocumentRef

HTML = "text/html; charset=utf-8"
MAX_TITLE = 1000
_NAMED = (
    ("tracker", "Tracker"),
    ("status", "Status"),
    ("priority", "Priority"),
    ("category", "Category"),
    ("fixed_version", "Version"),
    ("author", "Author"),
    ("assigned_to", "Assignee"),
)
_VAGUE = frozenset({"", "application/octet-stream", "binary/octet-stream", "application/x-download", "text/plain"})
# Names that say more than a server which knows no such type.
_BY_NAME = {".md": "text/markdown", ".markdown": "text/markdown", ".log": "text/plain", ".txt": "text/plain"}


class Bodies:
    """Of one Redmine at ``base``. ``text`` is its text formatting."""

    def __init__(self, base: str, text: str) -> None:
        self._base, self._text = base, text

    def issue(self, ref: DocumentRef, row: Row, fields: Fields, rule: AccessRule, revision: str) -> SourceDocument:
        """Facts, description and public notes. What others may not see with it, subtasks and relations, is left out."""
        facts = [("Issue", f"#{row['id']}")]
        facts += [(label, str(row[key]["name"])) for key, label in _NAMED if (row.get(key) or {}).get("name")]
        facts += [("Due date", str(row["due_date"]))] if row.get("due_date") else []
        parts = [_table([*facts, *fields.shown(row)]), render(row.get("description"), self._text, 2)]
        for journal in public_notes(row):
            parts.append(f"<h2>{html.escape(_written(journal))}</h2>")
            parts.append(render(journal.get("notes"), self._text, 2))
        return SourceDocument(
            document=ref,
            title=_title(row.get("subject")) or f"#{row['id']}",
            body=_page(parts),
            content_type=HTML,
            rule=rule,
            url=f"{self._base}/issues/{row['id']}",
            path=_title((row.get("project") or {}).get("name")) or None,
            revision=revision,
            updated_at=moment(row.get("updated_on")),
        )

    def note(self, ref: DocumentRef, row: Row, journal: Row, rule: AccessRule, revision: str) -> SourceDocument:
        """A private note."""
        facts = [("Issue", f"#{row['id']}"), ("Author", str((journal.get("user") or {}).get("name", "")))]
        return SourceDocument(
            document=ref,
            title=f"{_title(row.get('subject'))} (private note)",
            body=_page([_table(facts), render(journal.get("notes"), self._text, 2)]),
            content_type=HTML,
            rule=rule,
            url=f"{self._base}/issues/{row['id']}#change-{journal['id']}",
            path=_title((row.get("project") or {}).get("name")) or None,
            revision=revision,
            updated_at=moment(journal.get("created_on")),
        )

    def wiki(self, ref: DocumentRef, project: int, row: Row, rule: AccessRule, revision: str) -> SourceDocument:
        """A wiki page."""
        return SourceDocument(
            document=ref,
            title=_title(str(row["title"]).replace("_", " ")),
            body=_page([render(row.get("text"), self._text)]),
            content_type=HTML,
            rule=rule,
            url=f"{self._base}/projects/{project}/wiki/{quote(str(row['title']), safe='')}",
            revision=revision,
            updated_at=moment(row.get("updated_on")),
        )

    def attachment(
        self, ref: DocumentRef, row: Row, body: bytes, served: str, rule: AccessRule, revision: str
    ) -> SourceDocument:
        """A file; ``served`` is the media type with which the server gave it."""
        return SourceDocument(
            document=ref,
            title=_title(row.get("filename")) or f"Attachment {row['id']}",
            body=body,
            content_type=media_type(str(row.get("filename") or ""), str(row.get("content_type") or ""), served),
            rule=rule,
            url=f"{self._base}/attachments/{row['id']}",
            revision=revision,
            updated_at=moment(row.get("created_on")),
        )


def media_type(name: str, *said: str) -> str:
    """The first type that says something, else what the name says, else what was said."""
    dot = name.rfind(".")
    named = _BY_NAME.get(name[dot:].lower()) if dot >= 0 else None
    named = named or mimetypes.guess_type(name)[0]
    for one in said:
        if one.partition(";")[0].strip().lower() not in _VAGUE:
            return one
    return named or next((one for one in said if one), "application/octet-stream")


def file_path(row: Row) -> str:
    """Where a file is read: at the same address as everything else, whatever host the server names in its links."""
    return f"/attachments/download/{row['id']}/{quote(str(row.get('filename') or 'file'), safe='')}"


def _written(journal: Row) -> str:
    name = (journal.get("user") or {}).get("name") or "somebody"
    at = moment(journal.get("created_on"))
    day = f", {datetime.fromtimestamp(at / 1_000_000, UTC):%Y-%m-%d}" if at else ""
    return f"Note by {name}{day}"


def _title(text: object) -> str:
    return " ".join(clean(text).split())[:MAX_TITLE] if isinstance(text, str) else ""


def _table(facts: Iterable[tuple[str, str]]) -> str:
    rows = (f"<tr><th>{html.escape(_line(k))}</th><td>{html.escape(_line(v))}</td></tr>" for k, v in facts if v)
    return f"<table>{''.join(rows)}</table>"


def _line(text: str) -> str:
    return clean(text).replace("\n", " ")


def _page(parts: Iterable[str]) -> bytes:
    return "\n".join(p for p in parts if p).encode("utf-8", "replace")
