"""The ``git`` program: list arguments, no shell, time limits, no prompts, no hooks, only known ways to a repository."""

from __future__ import annotations

import contextlib
import os
import re
import signal
import subprocess
import tempfile
import threading
import time
from collections.abc import Generator, Iterator
from pathlib import Path

from pipeline.errors import ConfigError
from pipeline.sources.connector import SourceUnavailable

HEAD_REF = "refs/headwater/head"
"""Where the mirror keeps the branch's head."""
LOCAL_S = 3600.0
"""Longest time for one command on the mirror: the first replay of a long history takes a while."""
OLDEST = (2, 31)
"""Oldest version that knows the options used here."""
FIRST_S = 1800.0
"""Longest time for the first fetch, which brings everything."""
STALE_LOCK_S = 900.0
"""Age at which a lock file in the mirror belongs to no running program any more."""
_CHUNK = 1 << 16
_OPTIONS = ("-c", "core.hooksPath=/dev/null", "-c", "gc.autoDetach=false", "-c", "log.showRoot=true")
_CUT = "a shallow clone: its history is cut, and documents have their ids from history"
_UNCUT = "Name the whole repository, or run 'git fetch --unshallow' in that one."
_KEPT = ("GIT_SSH", "GIT_ASKPASS", "GIT_SSL")
_SECRET = re.compile(r"(?<=://)[^/@\s]+@")
_COMMIT = re.compile(r"[0-9a-f]{40}|[0-9a-f]{64}")


class GitError(Exception):
    """A command failed; what it said, without credentials."""


def is_commit(text: str) -> bool:
    """Whether the text is spelt as a whole commit id."""
    return _COMMIT.fullmatch(text) is not None


def without_secrets(text: str) -> str:
    """The text with user and password taken out of addresses."""
    return _SECRET.sub("", text)


class Git:
    """One bare mirror, which keeps nothing but the history of one branch."""

    def __init__(self, mirror: Path, *, timeout_s: float) -> None:
        """``timeout_s`` is for one question to, or one fetch from, the repository."""
        self._mirror, self._timeout_s = mirror.absolute(), timeout_s
        self._opened = False

    def version(self) -> str:
        """What the program says of itself. Raises ConfigError where it cannot be run."""
        said = b"".join(self._chunks(["--version"], timeout=self._timeout_s, mirror=False))
        return said.decode().strip().removeprefix("git version ")

    def recent(self) -> bool:
        """Whether the program is new enough."""
        return tuple(int(n) for n in re.findall(r"\d+", self.version())[:2]) >= OLDEST

    def heads(self, url: str) -> dict[str, str]:
        """Commit of each branch of the repository. Raises SourceUnavailable."""
        try:
            args = ["ls-remote", "--end-of-options", url, "refs/heads/*"]
            said = b"".join(self._chunks(args, timeout=self._timeout_s, network=True, mirror=False))
        except GitError as error:
            raise SourceUnavailable(f"the repository does not answer: {error}") from error
        lines = (line.split("\t", 1) for line in said.decode("utf-8", "surrogateescape").splitlines())
        return {parts[1].removeprefix("refs/heads/"): parts[0] for parts in lines if len(parts) == 2}

    def head(self) -> str | None:
        """The branch's head as fetched last, None before that."""
        if not (self._mirror / "HEAD").exists():
            return None
        try:
            return self.run("rev-parse", "--verify", "--quiet", f"{HEAD_REF}^{{commit}}").decode().strip()
        except GitError:
            return None

    def fetch(self, url: str, branch: str, *, depth: int | None = None) -> str:
        """Bring the branch, of which is known that it moved, whatever happened to its history; its head.

        ``depth`` cuts the history. Raises SourceUnavailable; ConfigError where the repository lacks the history itself.
        """
        self._open()
        before = self.head()
        args = ["fetch", "--force", "--no-tags", "--no-recurse-submodules", "--no-write-fetch-head"]
        args += [f"--depth={depth}"] if depth else []
        args += ["--end-of-options", url, f"+refs/heads/{branch}:{HEAD_REF}"]
        try:
            limit = max(FIRST_S, self._timeout_s) if before is None else self._timeout_s
            for _ in self._chunks(args, timeout=limit, network=True):
                pass
        except GitError as error:
            self._clear_locks()
            raise SourceUnavailable(f"the branch cannot be fetched: {error}") from error
        head = self.head()
        if head is None:
            raise ConfigError("sources.url", f"the repository is {_CUT}", _UNCUT)
        if head == before:  # refused without an error
            raise SourceUnavailable(f"the branch moved and was not given: the repository is perhaps {_CUT}. {_UNCUT}")
        return head

    def has(self, commit: str) -> bool:
        """Whether the mirror holds the commit."""
        return is_commit(commit) and self._succeeds("cat-file", "-e", f"{commit}^{{commit}}")

    def is_ancestor(self, commit: str, head: str) -> bool:
        """Whether ``head`` was built on ``commit``."""
        return self._succeeds("merge-base", "--is-ancestor", commit, head)

    def run(self, *args: str) -> bytes:
        """All that a command on the mirror says. Raises GitError."""
        return b"".join(self._chunks(args, timeout=LOCAL_S))

    def blob(self, id_: str, most: int) -> bytes:
        """The bytes of a file, ``most`` of them at most. Raises GitError."""
        parts: list[bytes] = []
        size = 0
        with contextlib.closing(self._chunks(["cat-file", "blob", id_], timeout=LOCAL_S)) as chunks:
            for chunk in chunks:
                parts.append(chunk)
                size += len(chunk)
                if size >= most:
                    break
        return b"".join(parts)[:most]

    def tokens(self, *args: str) -> Iterator[bytes]:
        """What a command on the mirror says, cut at NUL bytes, as it says it. Raises GitError."""
        rest = b""
        for chunk in self._chunks(args, timeout=LOCAL_S):
            *whole, rest = (rest + chunk).split(b"\0")
            yield from whole
        if rest:
            yield rest

    def _open(self) -> None:
        if self._opened:
            return
        self._mirror.parent.mkdir(parents=True, exist_ok=True)
        args = ["init", "--quiet", "--bare", "--template=", str(self._mirror)]
        try:
            for _ in self._chunks(args, timeout=self._timeout_s, mirror=False):
                pass
        except GitError as error:
            raise SourceUnavailable(f"the mirror cannot be made: {error}") from error
        self._opened = True

    def _clear_locks(self) -> None:
        """Remove locks that a program which was killed left behind: nobody else would."""
        for lock in [*self._mirror.glob("*.lock"), *self._mirror.glob("refs/**/*.lock")]:
            with contextlib.suppress(OSError):
                if time.time() - lock.stat().st_mtime > STALE_LOCK_S:
                    lock.unlink()

    def _succeeds(self, *args: str) -> bool:
        try:
            self.run(*args)
        except GitError:
            return False
        return True

    def _chunks(
        self, args: list[str] | tuple[str, ...], *, timeout: float, network: bool = False, mirror: bool = True
    ) -> Generator[bytes, None, None]:
        """What a command says, piece by piece; whoever stops reading ends it."""
        where = [f"--git-dir={self._mirror}"] if mirror else []
        with tempfile.TemporaryFile() as said:
            try:
                process = subprocess.Popen(
                    ["git", *_OPTIONS, *where, *args],
                    stdin=subprocess.DEVNULL,
                    stdout=subprocess.PIPE,
                    stderr=said,
                    cwd=os.sep,  # no repository's settings but the mirror's
                    env=environment(dict(os.environ), network=network),
                    start_new_session=True,
                )
            except OSError as error:
                raise ConfigError(
                    "sources.type",
                    f"the program git cannot be run: {error.strerror}",
                    f"Install git {OLDEST[0]}.{OLDEST[1]} or newer.",
                ) from error
            assert process.stdout is not None
            late = threading.Event()
            timer = threading.Timer(timeout, _too_late, (process, late))
            timer.daemon = True
            timer.start()
            try:
                with process.stdout as out:
                    while chunk := os.read(out.fileno(), _CHUNK):
                        yield chunk
                code = process.wait()
            finally:
                timer.cancel()
                _end(process)
            if late.is_set():
                raise SourceUnavailable(f"git {args[0]} took longer than {timeout:g} s and was ended")
            if code:
                said.seek(0)
                lines = without_secrets(said.read(4000).decode("utf-8", "replace")).split("\n")
                raise GitError("; ".join(line.strip() for line in lines if line.strip())[:500] or f"exit status {code}")


def environment(given: dict[str, str], *, network: bool) -> dict[str, str]:
    """The environment of a command: nothing of ours that would lead it elsewhere.

    Only commands that talk to a repository see the account's own settings: credential helpers stand there.
    """
    kept = {k: v for k, v in given.items() if not k.startswith("GIT_") or k.startswith(_KEPT)}
    kept |= {
        "GIT_TERMINAL_PROMPT": "0",
        "GIT_ALLOW_PROTOCOL": "file:git:http:https:ssh",
        "GIT_NO_REPLACE_OBJECTS": "1",
        "GIT_OPTIONAL_LOCKS": "0",
        "LC_ALL": "C",
    }
    kept.setdefault("GIT_ASKPASS", "")  # empty: nothing is asked
    if "GIT_SSH" not in kept:
        kept.setdefault("GIT_SSH_COMMAND", "ssh -o BatchMode=yes")
    if not network:
        kept |= {"GIT_CONFIG_NOSYSTEM": "1", "GIT_CONFIG_GLOBAL": os.devnull}
    return kept


def _too_late(process: subprocess.Popen[bytes], late: threading.Event) -> None:
    late.set()
    _end(process)


def _end(process: subprocess.Popen[bytes]) -> None:
    """End a command and what it started: politely first, it removes its locks then."""
    if process.poll() is not None:
        return
    for number in (signal.SIGTERM, signal.SIGKILL):
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, number)
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(2.0)
            return
