"""A Git repository as a remote system: the head of one branch, by a mirror of its history."""

from __future__ import annotations

import contextlib
import hashlib
import re
import tempfile
from collections.abc import Callable
from pathlib import Path

from pipeline.clock import Clock
from pipeline.errors import ConfigError
from pipeline.ports import SourceDocument
from pipeline.settings_sources import GitSettings
from pipeline.sources.connector import Reach, SourceUnavailable
from pipeline.sources.folder.access import ACCESS_FILE, GROUPS_FILE
from pipeline.sources.folder.names import readable, url
from pipeline.sources.folder.pages import read_page
from pipeline.sources.folder.rights import FolderRights
from pipeline.sources.git.history import History, load, replay, save
from pipeline.sources.git.program import OLDEST, Git, GitError, is_commit, without_secrets
from pipeline.sources.git.view import AccessFiles, Document, Tree, View, make_view, read_tree
from pipeline.sources.remote.contract import (
    Absent,
    Answer,
    Capabilities,
    Changes,
    Fetched,
    Finding,
    Listed,
    Page,
    Readership,
    Touched,
    Unreadable,
)
from schemas.keys import DocumentRef

KIND = "page"
EMPTY = "empty"
"""The cursor of a repository to which nothing was committed yet."""
PAGE = 1000
_KEPT = 4  # commits of which all is kept in memory: the head, the cursor, a listing that goes on
_LFS = b"version https://git-lfs.github.com/spec/"
_SCP = re.compile(r"[^/:]+:(?!//)")
_BRANCH = re.compile(r"(?!-)[^\x00-\x20\x7f~^:?*\[\\]+")


class GitRepository:
    """Documents of one branch. ``cache`` holds the mirror and what was found out about its history.

    Every question is answered from the mirror as it was last brought up to date: by ``start``, the first page of a
    listing, and ``changes``.
    """

    capabilities = Capabilities(deletions="events", push="webhook", access="events", kinds=(KIND,))

    def __init__(self, settings: GitSettings, clock: Clock, *, max_bytes: int, cache: Path) -> None:
        """Raises ConfigError where the settings cannot work."""
        self._settings, self._clock, self._max_bytes = settings, clock, max_bytes
        self._url = _address(settings.url)
        self._root = _root(settings.path)
        if _BRANCH.fullmatch(settings.branch) is None:
            raise ConfigError("sources.branch", f"{settings.branch!r} is no branch's name", "Write it as 'main'.")
        name = _file_name(f"{settings.tenant}.{settings.name}")
        self._git = Git(cache / f"{name}.git", timeout_s=settings.timeout_s)
        self._kept = cache / f"{name}.json"
        self._views: dict[str, View] = {}  # by commit, the one used last at the end
        self._head: str | None = None
        self._saved: str | None = None
        self._access = AccessFiles(self._git.blob)
        self._rights: tuple[str, FolderRights] | None = None
        self._pointers: set[str] = set()  # documents whose text is not in the repository
        self.reach = Reach()

    def start(self) -> str:
        """The head's commit, or EMPTY."""
        head = self._update()
        self._view(head)
        return head

    def listing(self, at: str | None) -> Page:
        """Files of the head at the first page; later pages are of the same commit."""
        if at is None:
            commit, begin = self._update(), 0
        else:
            commit, _, place = at.partition(":")
            begin = int(place)
            if commit != EMPTY and not self._git.has(commit):
                return Page((), problems=("the history was rewritten while it was listed: it is listed again",))
        view = self._view(commit)
        ids = view.order[begin : begin + PAGE]
        end = begin + PAGE
        documents = tuple(self._listed(id_, view.documents[id_]) for id_ in ids)
        return Page(documents, f"{commit}:{end}" if end < len(view.order) else None, len(view.order))

    def changes(self, cursor: str) -> Changes:
        """What is different at the head from the commit that the cursor names."""
        head = self._update()
        if head == cursor:
            return Changes(cursor)
        if not self._git.has(cursor) or head == EMPTY or not self._git.is_ancestor(cursor, head):
            return Changes(head, access=True, relist=True)
        old, new = self._view(cursor), self._view(head)
        touched = [
            Touched(self._ref(id_), document.revision)
            for id_, document in new.documents.items()
            if not document.same(old.documents.get(id_))
        ]
        gone = [self._ref(id_) for id_ in old.order if id_ not in new.documents]
        return Changes(head, tuple(touched), tuple(gone), access=not old.same_readers(new))

    def fetch(self, document: DocumentRef) -> Answer:
        """The file as it is at the head."""
        found = self._now().documents.get(document.id)
        if document.kind != KIND or found is None:
            return Absent(f"no file of branch {self._settings.branch} is this document")
        body = self._blob(found.file.blob)
        if body.startswith(_LFS):
            self._pointers.add(found.path)
            return Unreadable(
                "the file is a pointer of Git LFS: its text is not in the repository; keep pages out of LFS"
            )
        self._pointers.discard(found.path)
        page = read_page(found.path, body)
        base = self._settings.url_base
        return Fetched(
            SourceDocument(
                document=document,
                title=page.title,
                body=body,
                content_type=page.content_type,
                rule=self._rights_now().rule(found.path),
                url=url(base, "", found.path)[:8192] if base else None,
                path=readable(found.path),
                language=page.language,
                product=page.product,
                effective_from=page.effective_from,
                effective_until=page.effective_until,
                revision=found.revision,
                updated_at=min(found.updated_at, self._clock.now()),  # clocks of committers may be wrong
            ),
            problems=tuple(f"{readable(found.path)}: {problem}" for problem in page.problems),
        )

    def readers(self) -> Readership:
        """As the access files and ``groups.yaml`` at the head say."""
        whole, problems, alarms = self._rights_now().memberships()
        problems += self._now().tree.problems()
        problems += [f"{readable(p)}: a pointer of Git LFS, passed by" for p in sorted(self._pointers)]
        return Readership(tuple(whole), problems=tuple(problems), alarms=tuple(alarms))

    def check(self) -> list[Finding]:
        """The program, the repository, the branch, and its access files, by a fetch without history of its own."""
        recent = self._git.recent()
        newer = None if recent else f"Install git {OLDEST[0]}.{OLDEST[1]} or newer."
        found = [Finding(f"git {self._git.version()}", recent, newer)]
        try:
            with tempfile.TemporaryDirectory(prefix="headwater-git-") as folder:
                git = Git(Path(folder) / "check.git", timeout_s=self._settings.timeout_s)
                found += self._check(git)
        except (SourceUnavailable, GitError) as error:
            found.append(Finding(str(error), False, "Check sources.url, the network and the account's rights."))
        except ConfigError as error:
            found.append(Finding(f"{error.field}: {error.problem}", False, error.remedy))
        return found

    def listen(self, notify: Callable[[DocumentRef | None], None]) -> None:
        """A repository says nothing by itself; its server's webhook arrives at the gateway."""

    def committed(self, cursor: str) -> None:
        """Keep what is known of the history up to here for the next start."""
        view = self._views.get(cursor)
        if view is not None and is_commit(cursor) and self._saved != cursor:
            self._keep(view.history)
            self._saved = cursor

    def close(self) -> None:
        """Nothing is open."""

    def _update(self) -> str:
        """Bring the mirror up to date; the branch's head, EMPTY where there is no branch at all yet."""
        self.reach.requests += 1
        try:
            head = self._head_at(self._git.heads(self._url), self._git.head() is not None)
            if head != EMPTY and head != self._git.head():
                head = self._git.fetch(self._url, self._settings.branch)
        except SourceUnavailable:
            self.reach.failures += 1
            raise
        self._head = head
        self.reach.notes["head"] = head
        return head

    def _head_at(self, heads: dict[str, str], known: bool) -> str:
        branch = self._settings.branch
        if branch in heads:
            return heads[branch]
        if known:
            raise SourceUnavailable(
                f"branch {branch} is gone from the repository: nothing is taken for deleted; see sources.branch"
            )
        if heads:
            others = ", ".join(sorted(heads)[:5])
            raise ConfigError("sources.branch", f"the repository has no branch {branch!r}", f"It has: {others}.")
        return EMPTY

    def _now(self) -> View:
        return self._view(self._head if self._head is not None else self._update())

    def _view(self, commit: str) -> View:
        """All of one commit. Raises SourceUnavailable where the mirror does not hold it."""
        view = self._views.pop(commit, None)
        if view is None:
            view = self._make(commit)
        self._views[commit] = view
        while len(self._views) > _KEPT:
            del self._views[next(c for c in self._views if c != self._head)]
        return view

    def _make(self, commit: str) -> View:
        if commit == EMPTY:
            return make_view(History(EMPTY, {}), Tree(), self._root)
        kept = load(self._kept)
        bases = [v.history for v in reversed(self._views.values())] + ([kept] if kept is not None else [])
        try:
            history = replay(self._git, commit, bases)
            if kept is None:
                self._keep(history)
            return make_view(history, read_tree(self._git, commit, self._root), self._root)
        except GitError as error:
            raise SourceUnavailable(f"the mirror cannot be read: {error}") from error

    def _keep(self, history: History) -> None:
        with contextlib.suppress(OSError):  # without it the next start only takes longer
            save(history, self._kept)

    def _rights_now(self) -> FolderRights:
        view = self._now()
        if self._rights is None or self._rights[0] != view.history.commit:
            try:
                rights = self._access.rights(self._settings.tenant, self._settings.name, view.tree)
            except GitError as error:
                raise SourceUnavailable(f"the mirror cannot be read: {error}") from error
            self._rights = (view.history.commit, rights)
        return self._rights[1]

    def _blob(self, id_: str) -> bytes:
        try:
            return self._git.blob(id_, self._max_bytes + 1)
        except GitError as error:
            raise SourceUnavailable(f"the mirror cannot be read: {error}") from error

    def _check(self, git: Git) -> list[Finding]:
        head = self._head_at(git.heads(self._url), known=False)
        where = without_secrets(self._settings.url)
        if head == EMPTY:
            return [Finding(f"{where} answers, and is empty", True)]
        tree = read_tree(git, git.fetch(self._url, self._settings.branch, depth=1), self._root)
        rights = AccessFiles(git.blob).rights(self._settings.tenant, self._settings.name, tree)
        _, problems, alarms = rights.memberships()
        counted = f"branch {self._settings.branch} of {where} has {len(tree.files)} pages"
        remedy = None if tree.files else "Check sources.path: pages end in .md, .html, .docx, .pdf …"
        found = [Finding(counted, bool(tree.files), remedy)]
        found += [Finding(text, False, f"Correct {GROUPS_FILE} or the {ACCESS_FILE}.") for text in [*alarms, *problems]]
        found += [Finding(text, False, "Make it a source of its own if it holds pages.") for text in tree.problems()]
        if self._settings.url_base is None:
            found.append(Finding("pages have no address in hits: sources.url_base is not set", True))
        return found

    def _listed(self, id_: str, document: Document) -> Listed:
        return Listed(self._ref(id_), document.revision, min(document.updated_at, self._clock.now()))

    def _ref(self, id_: str) -> DocumentRef:
        return DocumentRef(tenant=self._settings.tenant, source=self._settings.name, kind=KIND, id=id_)


def _address(given: str) -> str:
    """What git is told: a path is made absolute, an address stays as it is."""
    if not given or given.startswith("-"):
        raise ConfigError("sources.url", f"{given!r} is no address", "Write an address or a path.")
    if "::" in given.split("/", 1)[0]:
        raise ConfigError("sources.url", "names a transport helper", "Use https, ssh, file or a path.")
    if "://" in given or _SCP.match(given):
        return given
    return str(Path(given).expanduser().absolute())


def _file_name(name: str) -> str:
    """As a file may be called on any system."""
    plain = re.sub(r"[^A-Za-z0-9._-]", "_", name)
    return (
        name if plain == name and len(name) <= 150 else f"{plain[:80]}~{hashlib.sha256(name.encode()).hexdigest()[:16]}"
    )


def _root(given: str) -> str:
    parts = [p for p in given.split("/") if p]
    if any(p in (".", "..") for p in parts):
        raise ConfigError("sources.path", f"{given!r} leads out of the repository", "Write it as 'docs/wiki'.")
    return "/".join(parts)
