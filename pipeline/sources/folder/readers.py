"""Access state of a tree: the access file of each folder and the groups file, read again only where they changed.

An access file that is not there opens its folder as far as the folders above are open. That is the one case in which
absence gives something, so it must be seen twice: a new folder may get its file in a moment, and editors remove a file
before they write it again.
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterable

from pipeline.clock import Clock
from pipeline.ports import SourceMembership
from pipeline.sources.folder.access import (
    ACCESS_FILE,
    GROUPS_FILE,
    OPEN,
    AccessFileError,
    FolderAccess,
    Groups,
    closed_denials,
    memberships,
    parse_access,
    parse_groups,
    reach,
    rule_of,
)
from pipeline.sources.folder.names import audience, denied, folders_of, readable
from pipeline.sources.folder.tree import Tree, Unsettled
from schemas.access import AccessRule

SETTLE_S = 0.2
"""How long an access file must be absent before that counts."""


class Readers:
    """Who may read which folder, as the tree says now."""

    def __init__(self, tenant: str, source: str, tree: Tree, clock: Clock) -> None:
        self._tenant, self._source, self._tree, self._clock = tenant, source, tree, clock
        self._folders: dict[str, FolderAccess] = {}
        self._groups = Groups()
        self._group_problems: list[str] = []
        self._group_alarms: list[str] = []
        self._absent: dict[str, float] = {}
        self._sizes: dict[str, int] = {}
        self.ready = False  # whether the groups file was read, or surely is not there
        self.again: dict[str, float] = {}  # folders to look at again, and when (``Clock.elapsed``)

    def __contains__(self, folder: str) -> bool:
        return folder in self._folders

    def folders(self) -> list[str]:
        """All known folders."""
        return list(self._folders)

    def refresh(self, folders: Iterable[str], unreadable: Iterable[str] = ()) -> bool:
        """Read the access files of these folders. True where that changed anything."""
        closed = {f: FolderAccess(closed="the folder cannot be listed") for f in unreadable}
        changed = False
        for folder in folders:
            access = closed.get(folder) or self._read(folder)
            if access != self._folders.get(folder):
                self._folders[folder] = access
                changed = True
        if changed:
            self._sizes = reach(self._groups, self._folders)
        return changed

    def refresh_groups(self) -> bool:
        """Read the groups file. True where that changed anything."""
        groups = Groups()
        problems: list[str] = []
        alarms: list[str] = []
        try:
            data = self._tree.read_special("", GROUPS_FILE)
            if data is None:
                alarms.append(f"{GROUPS_FILE} is missing at the root: nobody is listed, so nobody may read")
            else:
                groups, problems = parse_groups(data)
        except Unsettled:
            self.again[""] = self._clock.elapsed() + 0.05
            return False
        except (AccessFileError, OSError) as error:
            alarms.append(f"nobody may read: {error}")
        same = groups == self._groups and alarms == self._group_alarms and self.ready
        self._group_problems, self._group_alarms = problems, alarms
        if same:
            return False
        self.ready = True
        self._groups = groups
        self._sizes = reach(groups, self._folders)
        return True

    def drop(self, folders: Iterable[str]) -> bool:
        """These folders are gone. True where one of them was known."""
        known = [f for f in folders if self._folders.pop(f, None) is not None]
        for folder in known:
            self._absent.pop(folder, None)
            self.again.pop(folder, None)
        return bool(known)

    def due(self) -> list[str]:
        """Folders whose second look is due; they leave the list."""
        now = self._clock.elapsed()
        due = [f for f, at in self.again.items() if at <= now]
        for folder in due:
            del self.again[folder]
        return due

    def memberships(self) -> tuple[list[SourceMembership], list[str], list[str]]:
        """The whole membership state, problems and alarms."""
        whole, problems = memberships(self._tenant, self._source, self._groups, self._folders)
        closed = [a.closed for a in self._folders.values() if a.closed and not a.closed.startswith(_WAITING)]
        closed += closed_denials(self._groups, self._folders).values()
        return whole, [*self._group_problems, *problems], [*self._group_alarms, *closed]

    def undecided(self) -> frozenset[str]:
        """Audiences of folders of which it is not certain yet whether they have an access file."""
        waiting = [f for f, a in self._folders.items() if a.closed and a.closed.startswith(_WAITING)]
        return frozenset(name(self._source, f) for f in waiting for name in (audience, denied))

    def rule(self, path: str) -> AccessRule:
        """The rule of the document at a path."""
        return rule_of(self._source, folders_of(path), self._sizes)

    def _read(self, folder: str) -> FolderAccess:
        name = f"{readable(folder)}/{ACCESS_FILE}" if folder else ACCESS_FILE
        try:
            data = self._tree.read_special(folder, ACCESS_FILE)
            if data is None:
                return self._without(folder)
            access = parse_access(data, name)
        except Unsettled:
            self.again[folder] = self._clock.elapsed() + 0.05
            return self._folders.get(folder, FolderAccess(closed=f"{_WAITING} {name} is being written"))
        except AccessFileError as error:
            access = FolderAccess(closed=f"nobody may read: {error}")
        except OSError as error:
            access = FolderAccess(closed=f"nobody may read: {name}: {error.strerror or error}")
        self._absent.pop(folder, None)
        return access

    def _without(self, folder: str) -> FolderAccess:
        """A folder without an access file: open once that has been so for a while."""
        known = self._folders.get(folder)
        if known == OPEN:
            return OPEN
        now = self._clock.elapsed()
        since = self._absent.setdefault(folder, now)
        if now - since >= SETTLE_S or (known is None and self._long_unchanged(folder)):
            self._absent.pop(folder, None)
            return OPEN
        self.again[folder] = since + SETTLE_S
        return known or FolderAccess(closed=f"{_WAITING} the folder is new")

    def _long_unchanged(self, folder: str) -> bool:
        """Whether no name came or went in the folder lately: then a file that is not there was not there before."""
        try:
            changed = os.stat(self._tree.absolute(folder), follow_symlinks=False).st_mtime_ns
        except OSError:
            return False
        return time.time_ns() - changed > SETTLE_S * 1e9


_WAITING = "wait:"
