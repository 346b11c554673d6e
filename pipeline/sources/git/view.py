"""The branch at one commit: its documents, its folders, and who may read them."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

from pipeline.sources.folder.access import ACCESS_FILE, GROUPS_FILE, MAX_BYTES, OPEN, FolderAccess
from pipeline.sources.folder.names import folders_of, readable
from pipeline.sources.folder.pages import is_document
from pipeline.sources.folder.rights import FolderRights, read_access, unreadable
from pipeline.sources.folder.tree import hidden, is_special
from pipeline.sources.git.history import History
from pipeline.sources.git.program import Git

_REGULAR = ("100644", "100755")
_SUBMODULE = "160000"
_SHOWN = 20


@dataclass(frozen=True, slots=True)
class File:
    """A file of the tree."""

    mode: str
    blob: str

    @property
    def regular(self) -> bool:
        """Whether it is a file of its own: a link might lead to other readers' files, or out."""
        return self.mode in _REGULAR


@dataclass
class Tree:
    """What stands below the root folder, by path from there."""

    files: dict[str, File] = field(default_factory=dict)
    special: dict[str, File] = field(default_factory=dict)  # access files, and the groups file
    folders: set[str] = field(default_factory=lambda: {""})
    submodules: list[str] = field(default_factory=list)

    def problems(self) -> list[str]:
        """What is there and cannot be taken."""
        shown = [
            f"{readable(path)}: a submodule, passed by: its files stand in a repository of their own, "
            "which can be a source of its own"
            for path in self.submodules[:_SHOWN]
        ]
        more = len(self.submodules) - _SHOWN
        return [*shown, f"{more} more submodules, passed by"] if more > 0 else shown


@dataclass(frozen=True, slots=True)
class Document:
    """A document's file: ``path`` is from the root folder, ``updated_at`` µs."""

    path: str
    file: File
    updated_at: int

    @property
    def revision(self) -> str:
        """Equal while text and path are."""
        path = hashlib.sha256(os.fsencode(self.path)).hexdigest()[:16]
        return f"{self.file.blob}:{self.file.mode}:{path}"

    def same(self, other: Document | None) -> bool:
        """Whether the revisions are equal."""
        return other is not None and self.file == other.file and self.path == other.path


@dataclass
class View:
    """All that can be told of one commit. ``documents`` by id, in the order of the tree."""

    history: History
    tree: Tree
    documents: dict[str, Document]
    order: list[str]

    def same_readers(self, other: View) -> bool:
        """Whether access files, groups and folders are the same."""
        return self.tree.special == other.tree.special and self.tree.folders == other.tree.folders


def parse_tree(tokens: Iterator[bytes], root: str) -> Tree:
    """Entries of ``ls-tree -r -z`` below a root folder ("" for the whole)."""
    tree = Tree()
    below = f"{root}/" if root else ""
    passed_by: dict[str, bool] = {}  # folders, each looked at once
    for token in tokens:
        head, _, raw = token.partition(b"\t")
        mode, _, blob = head.decode().split(" ")[:3]
        path = os.fsdecode(raw)
        if not path.startswith(below):
            continue
        path = path[len(below) :]
        folder, _, name = path.rpartition("/")
        if folder not in passed_by:
            passed_by[folder] = hidden(f"{folder}/-")
        if passed_by[folder] or (name.startswith(".") and name != ACCESS_FILE):
            continue
        if mode == _SUBMODULE:
            tree.submodules.append(path)
            continue
        if folder not in tree.folders:
            tree.folders.update(folders_of(path))
        if is_special(path):
            tree.special[path] = File(mode, blob)
        elif mode in _REGULAR and is_document(name):
            tree.files[path] = File(mode, blob)
    return tree


def read_tree(git: Git, commit: str, root: str) -> Tree:
    """The tree of a commit. Raises GitError."""
    only = ["--", root] if root else []
    return parse_tree(git.tokens("ls-tree", "-r", "-z", "--full-tree", commit, *only), root)


def make_view(history: History, tree: Tree, root: str) -> View:
    """Documents of a tree, by the origins of its files."""
    below = f"{root}/" if root else ""
    documents: dict[str, Document] = {}
    for path, file in tree.files.items():
        origin = history.files[f"{below}{path}"]
        documents.setdefault(origin.document(), Document(path, file, max(0, origin.changed) * 1_000_000))
    return View(history, tree, documents, list(documents))


class AccessFiles:
    """Access files, each read once while it stays the same."""

    def __init__(self, read: Callable[[str, int], bytes]) -> None:
        """``read`` gives a blob's bytes, so many at most."""
        self._read = read
        self._known: dict[tuple[str, File], FolderAccess] = {}

    def rights(self, tenant: str, source: str, tree: Tree) -> FolderRights:
        """Who may read which folder of a tree."""
        rights = FolderRights(tenant, source)
        known: dict[tuple[str, File], FolderAccess] = {}
        for folder in sorted(tree.folders):
            file = tree.special.get(f"{folder}/{ACCESS_FILE}" if folder else ACCESS_FILE)
            if file is None:
                rights.put(folder, OPEN)  # a commit is whole: what is not in it is not there
                continue
            key = (folder, file)
            known[key] = self._known.get(key) or self._access(folder, file)
            rights.put(folder, known[key])
        self._known = known
        groups = tree.special.get(GROUPS_FILE)
        if groups is not None and not groups.regular:
            rights.close_groups(f"{GROUPS_FILE} is not a regular file")
        else:
            rights.put_groups(self._read(groups.blob, MAX_BYTES + 1) if groups is not None else None)
        return rights

    def _access(self, folder: str, file: File) -> FolderAccess:
        if not file.regular:
            return unreadable(folder, "is not a regular file")
        return read_access(folder, self._read(file.blob, MAX_BYTES + 1))
