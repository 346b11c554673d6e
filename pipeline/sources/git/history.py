"""Which file is which document: the branch's history, replayed once and then from where it ended.

A document is its file from the commit that made it: its id is the path of that moment and the commit. Renames keep it,
as Git finds them; a file that was deleted and made again is another document. The branch is followed along its first
parents. What a merge brings was made on the other side, and keeps the commit that made it there: then a merge the
wrong way round (by pulling before pushing) makes no other documents of those that are known. The answer depends on the
commit alone, never on when it was asked for.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from pipeline.sources.folder.names import document_id
from pipeline.sources.git.program import Git

FORMAT = 1
SHORT = 12
_HEADER = b"\x02"
_LOG = (
    "log", "--first-parent", "--diff-merges=first-parent", "--name-status", "-M", "-l4000", "--reverse", "-z",
    "--format=tformat:%x02%H%x00%P%x00%ct", "--end-of-options",
)  # fmt: skip
_SIDE = (
    "log", "--no-merges", "--topo-order", "--name-status", "-M", "-l4000", "--reverse", "-z",
    "--format=tformat:%x02%H%x00%P%x00%ct", "--end-of-options",
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class Origin:
    """Where a file first appeared, in which commit (short), and when it changed last (s since the epoch)."""

    path: str
    commit: str
    changed: int

    def document(self) -> str:
        """The document's id."""
        return f"{document_id(self.path)}@{self.commit}"


@dataclass(frozen=True, slots=True)
class Step:
    """What a commit did to a file. ``status``: A, M, T, D or R; ``old`` of a rename."""

    status: str
    path: str
    old: str | None = None


@dataclass
class Commit:
    """A commit, and what it did."""

    id: str
    parents: tuple[str, ...]
    time: int
    steps: list[Step] = field(default_factory=list)


@dataclass(frozen=True)
class History:
    """The origin of each file that stands at a commit."""

    commit: str
    files: dict[str, Origin]


def parse_log(tokens: Iterable[bytes]) -> Iterator[Commit]:
    """Commits of a log with NUL as the only mark: paths may hold everything else."""
    rest = iter(tokens)
    commit: Commit | None = None
    for token in rest:
        if token.startswith(_HEADER):
            if commit is not None:
                yield commit
            parents = tuple(next(rest).decode().split())
            commit = Commit(token[1:].decode(), parents, int(next(rest)))
            continue
        status = token.strip(b"\n").decode()[:1]
        if not status or commit is None:
            continue
        path = os.fsdecode(next(rest))
        commit.steps.append(Step(status, os.fsdecode(next(rest)), path) if status in "RC" else Step(status, path))
    if commit is not None:
        yield commit


def apply(files: dict[str, Origin], commit: Commit, made: Mapping[str, tuple[str, str]]) -> None:
    """Bring origins on by one commit. ``made``: files that a merged side made: path → (first path, commit)."""
    taken = {s.old or s.path: files.pop(s.old or s.path, None) for s in commit.steps if s.status in "DR"}
    for step in commit.steps:
        if step.status == "D":
            continue
        before = taken.get(step.old or "") if step.status == "R" else files.get(step.path)
        if before is not None:
            first, by = before.path, before.commit
        else:
            first, by = made.get(step.path, (step.path, commit.id[:SHORT]))
        files[step.path] = Origin(first, by, commit.time)


def made_on_the_side(commits: Iterable[Commit]) -> dict[str, tuple[str, str]]:
    """Files that these commits made: where they are at the end → (first path, commit)."""
    made: dict[str, tuple[str, str]] = {}
    for commit in commits:
        taken = {s.old or s.path: made.pop(s.old or s.path, None) for s in commit.steps if s.status in "DR"}
        for step in commit.steps:
            if step.status == "A":
                made[step.path] = (step.path, commit.id[:SHORT])
            elif step.status == "R" and (before := taken.get(step.old or "")) is not None:
                made[step.path] = before
    return made


def replay(git: Git, head: str, bases: Iterable[History]) -> History:
    """Origins at ``head``: from the first of ``bases`` that it was built on, else from the beginning.

    Raises GitError.
    """
    for base in bases:
        if base.commit == head:
            return base
        files = _forward(git, base, head)
        if files is not None:
            return History(head, files)
    files = {}
    for commit in parse_log(git.tokens(*_LOG, head)):
        _advance(git, files, commit)
    return History(head, files)


def _forward(git: Git, base: History, head: str) -> dict[str, Origin] | None:
    """From a base along first parents; None where the base is not on that way."""
    if not git.has(base.commit):
        return None
    commits = parse_log(git.tokens(*_LOG, f"{base.commit}..{head}"))
    first = next(commits, None)
    if first is None or first.parents[:1] != (base.commit,):
        return None
    files = dict(base.files)
    _advance(git, files, first)
    for commit in commits:
        _advance(git, files, commit)
    return files


def _advance(git: Git, files: dict[str, Origin], commit: Commit) -> None:
    made: dict[str, tuple[str, str]] = {}
    if len(commit.parents) > 1 and any(s.status == "A" for s in commit.steps):
        made = made_on_the_side(parse_log(git.tokens(*_SIDE, f"{commit.parents[0]}..{commit.id}")))
    apply(files, commit, made)


def save(history: History, path: Path) -> None:
    """Keep for the next start; whole or not at all."""
    files = {p: [None if o.path == p else o.path, o.commit, o.changed] for p, o in history.files.items()}
    partial = path.with_name(f".{path.name}.{os.getpid()}.partial")
    partial.write_text(json.dumps({"format": FORMAT, "commit": history.commit, "files": files}), encoding="ascii")
    os.replace(partial, path)


def load(path: Path) -> History | None:
    """What was kept; None where there is nothing that can be used: the history is replayed then."""
    try:
        kept = json.loads(path.read_text(encoding="ascii"))
        if kept["format"] != FORMAT:
            return None
        files = {p: Origin(p if first is None else first, by, at) for p, (first, by, at) in kept["files"].items()}
        return History(kept["commit"], files)
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        return None
