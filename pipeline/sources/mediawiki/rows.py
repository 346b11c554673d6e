"""What the rows of recent changes and of the log mean. Pure."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

from pipeline.sources.mediawiki.cursor import Spreading
from pipeline.sources.mediawiki.site import Scope
from pipeline.sources.remote.contract import Touched
from schemas.keys import DocumentRef

WHO = frozenset({"rights", "newusers", "renameuser", "usermerge", "gblrights", "globalauth"})
"""Logs of who belongs where."""
QUIET = frozenset(
    {"block", "gblblock", "protect", "patrol", "thanks", "tag", "managetags", "spamblacklist", "abusefilter"}
)
"""Logs of what changes neither a text nor who may read it."""
TEXT_HIDDEN = 1
"""Bit of a revision whose text is withdrawn."""


@dataclass(frozen=True)
class Row:
    """One thing that happened. ``page`` is 0 where the row does not say. ``key`` is the same in both lists."""

    key: str
    at: str
    namespace: int
    title: str
    page: int
    type: str  # "edit", or the log's type
    action: str = ""
    params: dict[str, Any] = field(default_factory=dict)

    @staticmethod
    def of_change(row: dict[str, Any]) -> Row:
        """A row of ``list=recentchanges``."""
        common = (row["timestamp"], row.get("ns", 0), row.get("title", ""), row.get("pageid", 0))
        if row["type"] != "log":
            return Row(f"r{row['rcid']}", *common, type="edit")
        key = f"l{row['logid']}" if row.get("logid") else f"r{row['rcid']}"
        return Row(key, *common, row.get("logtype", ""), row.get("logaction", ""), _mapping(row.get("logparams")))

    @staticmethod
    def of_log(row: dict[str, Any]) -> Row:
        """A row of ``list=logevents``: its ``pageid`` is the page that has the title now, ``logpage`` the one meant."""
        page = row.get("logpage") or row.get("pageid", 0)
        common = (row["timestamp"], row.get("ns", 0), row.get("title", ""), page)
        return Row(f"l{row['logid']}", *common, row.get("type", ""), row.get("action", ""), _mapping(row.get("params")))


def _mapping(value: object) -> dict[str, Any]:
    return value if isinstance(value, dict) else {}  # PHP writes an empty one as a list


@dataclass
class Story:
    """What rows amount to, the last word of each page counting. ``titles``: pages of which only the title is known."""

    scope: Scope
    namespaces: frozenset[int]
    access: bool = False
    titles: set[str] = field(default_factory=set)
    spread: dict[str, bool] = field(default_factory=dict)  # title: redacted
    _touched: dict[DocumentRef, bool] = field(default_factory=dict)  # redacted
    _gone: dict[DocumentRef, None] = field(default_factory=dict)
    _withdrawn: set[DocumentRef] = field(default_factory=set)  # though they were deleted and restored since

    def tell(self, rows: Iterable[Row]) -> None:
        """Rows in the order in which they happened."""
        for row in rows:
            self._tell(row)

    def touch(self, namespace: int, page: int, *, redacted: bool = False) -> None:
        """Something happened to a page."""
        if page and namespace in self.namespaces:
            document = self.scope.ref(namespace, page)
            self._gone.pop(document, None)
            if redacted:
                self._withdrawn.add(document)
            self._touched[document] = document in self._withdrawn

    def reach(self, namespace: int, page: int, *, redacted: bool) -> None:
        """A page transcludes what changed; one that was deleted stays so."""
        if self.scope.ref(namespace, page) not in self._gone:
            self.touch(namespace, page, redacted=redacted)

    @property
    def touched(self) -> tuple[Touched, ...]:
        """Pages to be read: a row does not tell the revision that a listing gives."""
        return tuple(Touched(document, None, redacted) for document, redacted in self._touched.items())

    @property
    def gone(self) -> tuple[DocumentRef, ...]:
        """Pages that were deleted last of all."""
        return tuple(self._gone)

    def spreading(self) -> list[Spreading]:
        """Titles whose change shows in other pages."""
        return [Spreading(title=title, redacted=redacted) for title, redacted in self.spread.items()]

    def _tell(self, row: Row) -> None:
        if row.type in WHO:
            self.access = True
        elif row.type in QUIET or (row.type, row.action) == ("delete", "event"):
            return
        elif row.type in ("delete", "suppress") and row.action in ("delete", "delete_redir", "delete_redir2"):
            self._deleted(row)
        elif row.type in ("delete", "suppress") and row.action in ("revision", "event"):
            self._hidden(row)
        else:
            self._changed(row)

    def _deleted(self, row: Row) -> None:
        self._spread(row.title)
        if row.page and row.namespace in self.namespaces:
            document = self.scope.ref(row.namespace, row.page)
            self._touched.pop(document, None)
            self._gone[document] = None

    def _hidden(self, row: Row) -> None:
        """Only a withdrawn text counts, not a withdrawn name or comment. Pages that transclude it showed it too."""
        before = int(_mapping(row.params.get("old")).get("bitmask", 0)) & TEXT_HIDDEN
        after = int(_mapping(row.params.get("new")).get("bitmask", 0)) & TEXT_HIDDEN
        if before == after:
            return
        self.touch(row.namespace, row.page, redacted=bool(after))
        self._spread(row.title, redacted=bool(after))

    def _changed(self, row: Row) -> None:
        """An edit, a restored, moved, merged, imported or uploaded page, or something new: it is looked at."""
        target = str(row.params.get("target_title") or row.params.get("dest_title") or "")
        self._spread(row.title)
        self._spread(target)
        if row.type == "move":
            # The page may have come from a namespace that is not indexed, or gone to one; either way it is read.
            namespace = int(row.params.get("target_ns", row.namespace))
            self.touch(namespace if namespace in self.namespaces else row.namespace, row.page)
        else:
            self.touch(row.namespace, row.page)
        if target or not row.page:
            self.titles.update({row.title, target} - {""})

    def _spread(self, title: str, *, redacted: bool = False) -> None:
        if title:
            self.spread[title] = redacted or self.spread.get(title, False)
