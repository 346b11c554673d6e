"""What the access files and the groups file of a tree say once they are read, and what follows. Pure.

One home for all sources that keep their readers in such files, wherever the files come from.
"""

from __future__ import annotations

from collections.abc import Iterable

from pipeline.ports import SourceMembership
from pipeline.sources.folder.access import (
    ACCESS_FILE,
    GROUPS_FILE,
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
from schemas.access import AccessRule

_WAITING = "wait:"


def access_name(folder: str) -> str:
    """The access file of a folder as people are told of it."""
    return f"{readable(folder)}/{ACCESS_FILE}" if folder else ACCESS_FILE


def read_access(folder: str, data: bytes) -> FolderAccess:
    """What a folder's access file says; closed where it cannot be used."""
    try:
        return parse_access(data, access_name(folder))
    except AccessFileError as error:
        return FolderAccess(closed=f"nobody may read: {error}")


def unreadable(folder: str, why: str) -> FolderAccess:
    """A folder whose access file is there and cannot be read."""
    return FolderAccess(closed=f"nobody may read: {access_name(folder)}: {why}")


def waiting(why: str) -> FolderAccess:
    """A folder of which it cannot be said yet whether it has an access file: closed, and undecided."""
    return FolderAccess(closed=f"{_WAITING} {why}")


class FolderRights:
    """Who may read which folder of a tree."""

    def __init__(self, tenant: str, source: str) -> None:
        self._tenant, self._source = tenant, source
        self._folders: dict[str, FolderAccess] = {}
        self._groups = Groups()
        self._problems: list[str] = []
        self._alarms: list[str] = []
        self._sizes: dict[str, int] | None = None

    def __contains__(self, folder: str) -> bool:
        return folder in self._folders

    def folders(self) -> list[str]:
        """All known folders."""
        return list(self._folders)

    def of(self, folder: str) -> FolderAccess | None:
        """A folder's own lists, None where it is not known."""
        return self._folders.get(folder)

    def put(self, folder: str, access: FolderAccess) -> bool:
        """These are the folder's lists now. True where that changed anything."""
        if self._folders.get(folder) == access:
            return False
        self._folders[folder] = access
        self._sizes = None
        return True

    def put_groups(self, data: bytes | None) -> bool:
        """This is the groups file now, None where there is none. True where that changed anything."""
        if data is None:
            return self._set(
                Groups(), [], [f"{GROUPS_FILE} is missing at the root: nobody is listed, so nobody may read"]
            )
        try:
            groups, problems = parse_groups(data)
        except AccessFileError as error:
            return self.close_groups(str(error))
        return self._set(groups, problems, [])

    def close_groups(self, why: str) -> bool:
        """The groups file is there and cannot be read. True where that changed anything."""
        return self._set(Groups(), [], [f"nobody may read: {why}"])

    def drop(self, folders: Iterable[str]) -> list[str]:
        """These folders are gone; those of them that were known."""
        known = [f for f in folders if self._folders.pop(f, None) is not None]
        if known:
            self._sizes = None
        return known

    def memberships(self) -> tuple[list[SourceMembership], list[str], list[str]]:
        """The whole membership state, problems and alarms."""
        whole, problems = memberships(self._tenant, self._source, self._groups, self._folders)
        closed = [a.closed for a in self._folders.values() if a.closed and not a.closed.startswith(_WAITING)]
        closed += closed_denials(self._groups, self._folders).values()
        return whole, [*self._problems, *problems], [*self._alarms, *closed]

    def undecided(self) -> frozenset[str]:
        """Audiences of folders of which it is not certain yet whether they have an access file."""
        open_ = [f for f, a in self._folders.items() if a.closed and a.closed.startswith(_WAITING)]
        return frozenset(name(self._source, f) for f in open_ for name in (audience, denied))

    def rule(self, path: str) -> AccessRule:
        """The rule of the document at a path below the root."""
        if self._sizes is None:
            self._sizes = reach(self._groups, self._folders)
        return rule_of(self._source, folders_of(path), self._sizes)

    def _set(self, groups: Groups, problems: list[str], alarms: list[str]) -> bool:
        changed = (groups, alarms) != (self._groups, self._alarms)
        self._groups, self._problems, self._alarms = groups, problems, alarms
        if changed:
            self._sizes = None
        return changed
