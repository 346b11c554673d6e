"""A Git repository: one source is notified of pushes at the gateway, one only polls."""

from __future__ import annotations

import hashlib
import hmac
import os
import shutil
import subprocess
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import httpx

from infra.errors import StartError
from infra.sources_check.play import TENANT, Allowed, Play, Sees, Step, all_see
from infra.sources_check.stage import Stage

PUSHED, POLLED = "handbook", "handbook-polled"
SECRET = "headwater-webhook-secret"
LONG = "\n".join(f"Line {n} of a page that is long enough to be known again." for n in range(20))
PEOPLE = ("ann", "bob")
_all = partial(all_see, PEOPLE)


class GitSystem:
    """See the module."""

    name = "git"

    def __init__(self) -> None:
        self._work = Path()
        self._hook = ""

    def available(self) -> str | None:
        """Whether the program is there."""
        return None if shutil.which("git") else "git is not installed"

    def start(self, folder: Path) -> Play:
        """A bare repository and a clone in which people work."""
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir(parents=True)
        bare, self._work = folder / "handbook.git", folder / "work"
        self._git(folder, "init", "-q", "--bare", "-b", "main", str(bare))
        self._git(folder, "clone", "-q", str(bare), str(self._work))
        self._write("groups.yaml", "users: [ann, bob]\ngroups: {eng: [ann]}\n")
        self._write(".access.yaml", "allow: [everyone]\n")
        self._write("eng/.access.yaml", "allow: ['group:eng']\n")
        self._write("start.md", "# Start\n\nThe axolotl handbook begins here.\n")
        self._write("eng/deploy.md", f"# Deploying\n\nThe caiman release goes out at noon.\n\n{LONG}\n")
        self._push()
        return Play(
            self.name,
            {PUSHED: "push", POLLED: "poll"},
            self._steps,
            self._allowed,
            begins=(
                Sees("bob", "axolotl handbook"),
                Sees("ann", "caiman release"),
                Sees("bob", "caiman release", False),
            ),
            settings=[
                self._source(PUSHED, bare, poll_s=60.0, webhook_secret=SECRET),
                self._source(POLLED, bare, poll_s=1.0),
            ],
        )

    def ready(self, stage: Stage) -> None:
        """Pushes are told to the gateway from now on."""
        settings = stage.world.settings.gateway
        self._hook = f"http://{settings.host}:{settings.port}/v1/hooks/{TENANT}/{PUSHED}"

    def stop(self) -> None:
        """Nothing runs."""

    def _source(self, name: str, bare: Path, **more: object) -> dict[str, object]:
        return {"name": name, "tenant": TENANT, "type": "git", "url": str(bare), **more}

    def _steps(self, stage: Stage) -> Iterator[Step]:
        yield Step(
            "a page is pushed",
            lambda: self._change("rota.md", f"# Rota\n\nThe gharial rota begins on Monday.\n\n{LONG}\n"),
            _all("gharial rota"),
        )
        yield Step(
            "it is edited",
            lambda: self._change("rota.md", f"# Rota\n\nThe tuatara rota begins on Friday.\n\n{LONG}\n"),
            (*_all("tuatara rota"), *_all("gharial rota", False)),
        )
        yield Step(
            "it moves into a restricted folder",
            lambda: self._move("rota.md", "eng/rota.md"),
            (Sees("ann", "tuatara rota"), Sees("bob", "tuatara rota", False)),
        )
        yield Step("and back", lambda: self._move("eng/rota.md", "plan.md"), _all("tuatara rota"))
        yield Step(
            "somebody joins a group",
            lambda: self._change("groups.yaml", "users: [ann, bob]\ngroups: {eng: [ann, bob]}\n"),
            _all("caiman release"),
        )
        yield Step(
            "somebody leaves it",
            lambda: self._change("groups.yaml", "users: [ann, bob]\ngroups: {eng: [ann]}\n"),
            (Sees("ann", "caiman release"), Sees("bob", "caiman release", False)),
        )
        yield Step(
            "a folder is opened, and a page of it changes with it",
            self._opened,
            (*_all("skink release"), *_all("caiman release", False)),
        )
        yield Step("a page is deleted", lambda: self._delete("plan.md"), _all("tuatara rota", False))
        yield Step("and restored", lambda: self._revert(), _all("tuatara rota"))
        yield Step(
            "history is rewritten",
            lambda: self._rewritten("start.md", "# Start\n\nThe iguana handbook begins anew.\n"),
            (*_all("iguana handbook"), *_all("axolotl handbook", False)),
        )

    def _allowed(self, stage: Stage) -> Iterator[Allowed]:
        """Git knows no readers of its own: the access files are the only word on it."""
        return iter(())

    # ------------------------------------------------------------ doing it

    def _git(self, folder: Path, *args: str) -> str:
        who = {"GIT_AUTHOR_NAME": "A", "GIT_COMMITTER_NAME": "A", "GIT_CONFIG_GLOBAL": os.devnull}
        who |= {"GIT_AUTHOR_EMAIL": "a@acme.example", "GIT_COMMITTER_EMAIL": "a@acme.example"}
        done = subprocess.run(["git", *args], cwd=folder, env=os.environ | who, capture_output=True, check=False)
        if done.returncode != 0:
            raise StartError(f"git {args[0]} failed: {done.stderr.decode()[:500]}", "Check the program git.")
        return done.stdout.decode()

    def _write(self, path: str, text: str) -> None:
        file = self._work / path
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text, encoding="utf-8")

    def _push(self, *options: str) -> None:
        self._git(self._work, "add", "-A")
        self._git(self._work, "commit", "-q", "-m", "change", *options)
        self._publish()

    def _publish(self) -> None:
        self._git(self._work, "push", "-q", "--force", "origin", "HEAD:main")
        if self._hook:
            body = b'{"ref": "refs/heads/main"}'
            signature = "sha256=" + hmac.new(SECRET.encode(), body, hashlib.sha256).hexdigest()
            answer = httpx.post(self._hook, content=body, headers={"X-Hub-Signature-256": signature}, timeout=10)
            if answer.status_code != 202:
                raise StartError(f"The gateway answered {answer.status_code} to a webhook.", "See its log.")

    def _change(self, path: str, text: str) -> None:
        self._write(path, text)
        self._push()

    def _move(self, old: str, new: str) -> None:
        self._git(self._work, "mv", old, new)
        self._push()

    def _opened(self) -> None:
        self._write("eng/deploy.md", f"# Deploying\n\nThe skink release goes out at seven.\n\n{LONG}\n")
        self._change("eng/.access.yaml", "allow: [everyone]\n")

    def _delete(self, path: str) -> None:
        self._git(self._work, "rm", "-q", path)
        self._push()

    def _revert(self) -> None:
        self._git(self._work, "revert", "--no-edit", "HEAD")
        self._publish()

    def _rewritten(self, path: str, text: str) -> None:
        self._git(self._work, "reset", "-q", "--soft", "HEAD~3")
        self._change(path, text)
