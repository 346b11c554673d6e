"""Who may read: access files among the keys of a bucket, read again where a listing shows another state of them.

Keys come one by one, in any order: a folder's pages may be there before its access file. So absence of that file counts
only where the folder was quiet for a while, or where it was so twice, some seconds apart.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from pipeline.clock import Clock
from pipeline.sources.folder.access import ACCESS_FILE, GROUPS_FILE, MAX_BYTES, OPEN, FolderAccess
from pipeline.sources.folder.names import folders_of
from pipeline.sources.folder.pages import is_document
from pipeline.sources.folder.rights import FolderRights, read_access, unreadable, waiting
from pipeline.sources.folder.tree import hidden, is_special
from pipeline.sources.remote.contract import Readership
from pipeline.sources.s3.store import Item, Missing, Refused, Store
from schemas.access import AccessRule

SETTLE_S = 5.0
"""How long an access file must be absent before that counts."""
_SHOWN = 10


def fault(path: str) -> str | None:
    """Why a key cannot be taken, None where it can."""
    if path.startswith("/") or "//" in path:
        return "a folder on its way has no name, and would be taken for the one above it"
    return "the store does not tell its whole name" if "\ufffd" in path else None


@dataclass
class Scan:
    """What one listing met, by path below the root; to be filled page by page."""

    special: dict[str, Item] = field(default_factory=dict)
    folders: dict[str, int] = field(default_factory=lambda: {"": 0})  # → newest change below it, s since the epoch
    passed_by: list[str] = field(default_factory=list)  # keys, and why
    at: int | None = None  # the store's clock at the beginning

    def add(self, path: str, item: Item) -> bool:
        """Take one key in; whether it is a document's."""
        if (why := fault(path)) is not None:
            self.passed_by.append(f"{path}: passed by: {why}")
            return False
        if hidden(path.rstrip("/")):
            return False
        for folder in folders_of(path):
            self.folders[folder] = max(item.modified, self.folders.get(folder, 0))
        if is_special(path):
            self.special[path] = item
            return False
        return is_document(path.rpartition("/")[2])

    def quiet(self, folder: str) -> bool:
        """Whether nothing changed lately in a folder, by the store's own clock."""
        return self.at is not None and self.at - self.folders[folder] > SETTLE_S


class BucketAccess:
    """Access state of a bucket."""

    def __init__(self, tenant: str, source: str, root: str, store: Store, clock: Clock) -> None:
        self._rights = FolderRights(tenant, source)
        self._root, self._store, self._clock = root, store, clock
        self._scan: Scan | None = None
        self._read: dict[str, str] = {}  # path of an access file → its revision as read
        self._absent: dict[str, float] = {}
        self._fresh = True  # whether the last scan is in ``_rights``
        self._doubted: set[str] = set()

    @property
    def scanned(self) -> bool:
        """Whether a whole listing was seen."""
        return self._scan is not None

    def take(self, scan: Scan) -> None:
        """A listing came to its end."""
        last, self._scan = self._scan, scan
        if last is None or scan.special != last.special or scan.folders.keys() != last.folders.keys():
            self._fresh = False

    def doubt(self, path: str) -> None:
        """Something happened to this access file."""
        self._doubted.add(path)

    def due(self) -> bool:
        """Whether readers may be other than they were when they were asked for last."""
        now = self._clock.elapsed()
        return not self._fresh or bool(self._doubted) or any(now - at >= SETTLE_S for at in self._absent.values())

    def readership(self) -> Readership:
        """Everybody's direct parents by the last scan. Raises as the store does."""
        scan = self._scan or Scan()
        doubted, self._fresh = set(self._doubted), True
        try:
            for folder in scan.folders:
                self._rights.put(folder, self._folder(folder, scan, doubted))
            self._groups(scan, doubted)
        except BaseException:
            self._fresh = False
            raise
        self._doubted -= doubted
        for folder in self._rights.drop([f for f in self._rights.folders() if f not in scan.folders]):
            self._absent.pop(folder, None)
        self._read = {path: revision for path, revision in self._read.items() if path in scan.special}
        whole, problems, alarms = self._rights.memberships()
        problems += scan.passed_by[:_SHOWN]
        return Readership(tuple(whole), self._rights.undecided(), tuple(problems), tuple(alarms))

    def rule(self, path: str) -> AccessRule:
        """The rule of the document at a path."""
        return self._rights.rule(path)

    def _folder(self, folder: str, scan: Scan, doubted: set[str]) -> FolderAccess:
        path = f"{folder}/{ACCESS_FILE}" if folder else ACCESS_FILE
        known, item = self._rights.of(folder), scan.special.get(path)
        if known is not None and path not in doubted:
            if item is not None and self._read.get(path) == item.revision:
                return known
            if item is None and known == OPEN:
                return OPEN
        if item is None and known is None and scan.quiet(folder) and path not in doubted:
            return OPEN
        try:
            found, data = self._store.get(self._root + path, MAX_BYTES + 1)
        except Missing:
            self._read.pop(path, None)
            return self._without(folder, known)
        except Refused as error:
            self._read.pop(path, None)
            return unreadable(folder, f"the store refuses it ({error})")
        self._read[path] = found.revision
        self._absent.pop(folder, None)
        return read_access(folder, data)

    def _without(self, folder: str, known: FolderAccess | None) -> FolderAccess:
        """The file is surely not there now: that counts once it has been so for a while."""
        now = self._clock.elapsed()
        if known == OPEN or now - self._absent.setdefault(folder, now) >= SETTLE_S:
            self._absent.pop(folder, None)
            return OPEN
        return known or waiting("the folder is new")

    def _groups(self, scan: Scan, doubted: set[str]) -> None:
        item = scan.special.get(GROUPS_FILE)
        if item is None and GROUPS_FILE not in doubted:
            self._rights.put_groups(None)
            return
        if item is not None and self._read.get(GROUPS_FILE) == item.revision and GROUPS_FILE not in doubted:
            return
        try:
            found, data = self._store.get(self._root + GROUPS_FILE, MAX_BYTES + 1)
        except Missing:
            self._read.pop(GROUPS_FILE, None)
            self._rights.put_groups(None)
        except Refused as error:
            self._read.pop(GROUPS_FILE, None)
            self._rights.close_groups(f"{GROUPS_FILE}: the store refuses it ({error})")
        else:
            self._read[GROUPS_FILE] = found.revision
            self._rights.put_groups(data)
