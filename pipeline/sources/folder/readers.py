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
from pipeline.sources.folder.access import ACCESS_FILE, GROUPS_FILE, OPEN, FolderAccess
from pipeline.sources.folder.rights import FolderRights, access_name, read_access, unreadable, waiting
from pipeline.sources.folder.tree import Tree, Unsettled
from schemas.access import AccessRule

SETTLE_S = 0.2
"""How long an access file must be absent before that counts."""


class Readers:
    """Who may read which folder, as the tree says now."""

    def __init__(self, tenant: str, source: str, tree: Tree, clock: Clock) -> None:
        self._tree, self._clock = tree, clock
        self._rights = FolderRights(tenant, source)
        self._absent: dict[str, float] = {}
        self.ready = False  # whether the groups file was read, or surely is not there
        self.again: dict[str, float] = {}  # folders to look at again, and when (``Clock.elapsed``)

    def __contains__(self, folder: str) -> bool:
        return folder in self._rights

    def folders(self) -> list[str]:
        """All known folders."""
        return self._rights.folders()

    def refresh(self, folders: Iterable[str], unlisted: Iterable[str] = ()) -> bool:
        """Read the access files of these folders. True where that changed anything."""
        closed = {f: FolderAccess(closed="the folder cannot be listed") for f in unlisted}
        changed = False
        for folder in folders:
            changed |= self._rights.put(folder, closed.get(folder) or self._read(folder))
        return changed

    def refresh_groups(self) -> bool:
        """Read the groups file. True where that changed anything."""
        try:
            changed = self._rights.put_groups(self._tree.read_special("", GROUPS_FILE))
        except Unsettled:
            self.again[""] = self._clock.elapsed() + 0.05
            return False
        except OSError as error:
            changed = self._rights.close_groups(str(error))
        changed |= not self.ready
        self.ready = True
        return changed

    def drop(self, folders: Iterable[str]) -> bool:
        """These folders are gone. True where one of them was known."""
        known = self._rights.drop(folders)
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
        return self._rights.memberships()

    def undecided(self) -> frozenset[str]:
        """Audiences of folders of which it is not certain yet whether they have an access file."""
        return self._rights.undecided()

    def rule(self, path: str) -> AccessRule:
        """The rule of the document at a path."""
        return self._rights.rule(path)

    def _read(self, folder: str) -> FolderAccess:
        try:
            data = self._tree.read_special(folder, ACCESS_FILE)
            if data is None:
                return self._without(folder)
            access = read_access(folder, data)
        except Unsettled:
            self.again[folder] = self._clock.elapsed() + 0.05
            return self._rights.of(folder) or waiting(f"{access_name(folder)} is being written")
        except OSError as error:
            access = unreadable(folder, error.strerror or str(error))
        self._absent.pop(folder, None)
        return access

    def _without(self, folder: str) -> FolderAccess:
        """A folder without an access file: open once that has been so for a while."""
        known = self._rights.of(folder)
        if known == OPEN:
            return OPEN
        now = self._clock.elapsed()
        since = self._absent.setdefault(folder, now)
        if now - since >= SETTLE_S or (known is None and self._long_unchanged(folder)):
            self._absent.pop(folder, None)
            return OPEN
        self.again[folder] = since + SETTLE_S
        return known or waiting("the folder is new")

    def _long_unchanged(self, folder: str) -> bool:
        """Whether no name came or went in the folder lately: then a file that is not there was not there before."""
        try:
            changed = os.stat(self._tree.absolute(folder), follow_symlinks=False).st_mtime_ns
        except OSError:
            return False
        return time.time_ns() - changed > SETTLE_S * 1e9
