"""A private Redmine on this machine, from the system's packages: ``redmine``, ``redmine-sqlite`` and ``puma``.

All that it writes lies in its own folder, but for one link among the package's instances, which ``stop`` removes. It
runs in a zone that is not UTC, as real ones do.
"""

from __future__ import annotations

import os
import secrets
import shutil
import sqlite3
import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

import httpx

from infra.errors import StartError
from infra.ports import LOOPBACK, free_port
from infra.process import Managed

HOME = Path("/usr/share/redmine")
INSTANCES = HOME / "instances"
PACKAGES = "redmine, redmine-sqlite and puma"
STEP_SECONDS = 240.0
READY_SECONDS = 120.0
BUSY_PAUSES_S = (0.05, 0.1, 0.2, 0.5, 1.0)
ZONE = "Asia/Kolkata"

# Default data must load in another process than the migration: the columns that it added are not known there.
_SETUP = """
Redmine::DefaultData::Loader.load('en')
Setting.rest_api_enabled = '1'
Setting.login_required = ENV['HEADWATER_LOGIN_REQUIRED']
Setting.default_projects_public = '0'
Setting.text_formatting = ENV['HEADWATER_TEXT']
Setting.emails_footer = ''
Setting.host_name = ENV['HEADWATER_HOST']
Setting.issue_group_assignment = '1'
admin = User.find_by_login('admin')
admin.update_columns(must_change_passwd: false)
token = Token.where(user_id: admin.id, action: 'api').first || Token.create!(user: admin, action: 'api')
token.update_column(:value, ENV['HEADWATER_KEY'])
"""


def available() -> str | None:
    """Why there can be no Redmine on this machine, None where there can."""
    if not (HOME / "config.ru").is_file():
        return f"Redmine is not installed: install the packages {PACKAGES}"
    missing = [name for name in ("puma", "ruby", "rake") if shutil.which(name) is None]
    if missing:
        return f"{', '.join(missing)} not found: install the packages {PACKAGES}"
    if not os.access(INSTANCES, os.W_OK):
        return f"{INSTANCES} cannot be written by this user: a private instance is linked there"
    return None


class RedmineServer:
    """One Redmine. ``url`` and ``key`` (an administrator's) are known at once; ``start`` takes about 25 s at first."""

    def __init__(self, folder: Path, *, text: str = "textile", login_required: bool = True, zone: str = ZONE) -> None:
        self.folder = folder.resolve()
        self.port = free_port()
        self.url = f"http://{LOOPBACK}:{self.port}"
        self.key = secrets.token_hex(20)
        self._text, self._login_required, self._zone = text, login_required, zone
        self._name = f"headwater-{secrets.token_hex(6)}"
        self._process = Managed("redmine", self.folder)
        self._client = httpx.Client(base_url=self.url, timeout=60.0, headers={"X-Redmine-API-Key": self.key})

    def start(self) -> None:
        """Make it where it is new, run it and wait until it answers. Raises StartError."""
        self._lay_out()
        database = self.folder / "redmine.sqlite3"
        if not database.exists():
            self._step(["rake", "db:migrate"])
            self.ruby(_SETUP)
            self.sql("pragma journal_mode = wal")  # else whoever reads is turned away while somebody writes
        argv = ["puma", "-q", "-t", "4:4", "-e", "production", "-b", f"tcp://{LOOPBACK}:{self.port}", "config.ru"]
        self._process.start(argv, self._environment(), cwd=HOME)
        end = time.monotonic() + READY_SECONDS
        while not self._answers():
            if not self._process.alive() or time.monotonic() > end:
                raise StartError("Redmine did not start.", f"Its log is {self._process.log_file}.")
            time.sleep(0.2)

    def stop(self) -> None:
        """End it; its folder stays, the link does not."""
        self._process.stop()
        self._client.close()
        (INSTANCES / self._name).unlink(missing_ok=True)

    def ask(
        self, method: str, path: str, body: Any = None, *, user: str | None = None, **options: Any
    ) -> httpx.Response:
        """One request with the administrator's key, as ``user`` (a login) if named."""
        headers = {"X-Redmine-Switch-User": user} if user else {}
        return self._client.request(method, path, json=body, headers=headers, **options)

    def made(self, path: str, body: Any, *, user: str | None = None) -> dict[str, Any]:
        """Create something; what stands under the answer's only key. Raises AssertionError where it is refused."""
        response = self._written(lambda: self.ask("POST", path, body, user=user))
        assert response.status_code in (200, 201), (path, response.status_code, response.text[:500])
        return dict(next(iter(response.json().values())))

    def done(self, method: str, path: str, body: Any = None, *, user: str | None = None) -> None:
        """Change something. Raises AssertionError where it is refused."""
        response = self._written(lambda: self.ask(method, path, body, user=user))
        assert response.status_code in (200, 201, 204), (path, response.status_code, response.text[:500])

    def upload(self, name: str, content: bytes, content_type: str) -> dict[str, str]:
        """Lay a file ready; the answer goes into ``uploads`` of an issue or page."""
        headers = {"Content-Type": "application/octet-stream"}
        response = self._written(
            lambda: self._client.post("/uploads.json", params={"filename": name}, content=content, headers=headers)
        )
        assert response.status_code == 201, response.text[:500]
        return {"token": response.json()["upload"]["token"], "filename": name, "content_type": content_type}

    @staticmethod
    def _written(send: Callable[[], httpx.Response]) -> httpx.Response:
        """SQLite turns a writer away at once, with 500 and nothing kept, where another one (a reader's token, say)
        wrote since it began to read; so it is sent again."""
        for pause in BUSY_PAUSES_S:
            response = send()
            if response.status_code != 500:
                return response
            time.sleep(pause)
        return send()

    def sql(self, statement: str, *values: Any) -> list[tuple[Any, ...]]:
        """What the API cannot do, in the database; seen by the next request."""
        with closing(sqlite3.connect(self.folder / "redmine.sqlite3", timeout=30.0)) as base:
            rows = base.execute(statement, values).fetchall()
            base.commit()
        return rows

    @contextmanager
    def role(self, name: str, *, give: tuple[str, ...] = (), take: tuple[str, ...] = ()) -> Iterator[None]:
        """A role with other permissions for a while."""
        (before,) = self.sql("select permissions from roles where name = ?", name)[0]
        lines = [line for line in str(before).splitlines() if line.removeprefix("- :") not in take]
        lines += [f"- :{permission}" for permission in give if f"- :{permission}" not in lines]
        self.sql("update roles set permissions = ? where name = ?", "\n".join(lines) + "\n", name)
        try:
            yield
        finally:
            self.sql("update roles set permissions = ? where name = ?", before, name)

    def ruby(self, script: str) -> None:
        """Run a script inside another process of this instance (about 8 s). Raises StartError."""
        path = self.folder / "script.rb"
        path.write_text(script, encoding="utf-8")
        self._step(["ruby", "bin/rails", "runner", str(path)])

    def _lay_out(self) -> None:
        for name in ("config", "files", "log", "public/plugin_assets", "tmp"):
            (self.folder / name).mkdir(parents=True, exist_ok=True)
        database = self.folder / "redmine.sqlite3"
        config = f"production:\n  adapter: sqlite3\n  database: {database}\n  timeout: 20000\n  encoding: utf8\n"
        (self.folder / "config/database.yml").write_text(config, encoding="utf-8")
        secret = self.folder / "config/secret_key.txt"
        if not secret.exists():
            secret.write_text(secrets.token_hex(32), encoding="utf-8")
        link = INSTANCES / self._name
        if not link.is_symlink():
            link.symlink_to(self.folder, target_is_directory=True)

    def _environment(self) -> dict[str, str]:
        inherited = {name: os.environ[name] for name in ("PATH", "HOME", "LANG") if name in os.environ}
        return inherited | {
            "REDMINE_INSTANCE": self._name,
            "RAILS_ENV": "production",
            "RAILS_LOG_TO_STDOUT": "",
            "SCHEMA": str(self.folder / "schema.rb"),
            "TZ": self._zone,
            "LC_ALL": "C.UTF-8",
            "HEADWATER_KEY": self.key,
            "HEADWATER_TEXT": self._text,
            "HEADWATER_HOST": f"{LOOPBACK}:{self.port}",
            "HEADWATER_LOGIN_REQUIRED": "1" if self._login_required else "0",
        }

    def _step(self, argv: list[str]) -> None:
        try:
            done = subprocess.run(
                argv,
                cwd=HOME,
                env=self._environment(),
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                timeout=STEP_SECONDS,
                check=False,
            )
        except (OSError, subprocess.TimeoutExpired) as error:
            raise StartError(f"{' '.join(argv[:3])} failed: {error}.", f"Check the packages {PACKAGES}.") from error
        if done.returncode != 0:
            tail = done.stdout.decode("utf-8", "replace")[-1500:]
            raise StartError(f"{' '.join(argv[:3])} ended with {done.returncode}.", f"It said: {tail}")

    def _answers(self) -> bool:
        try:
            return self._client.get("/users/current.json").status_code == 200
        except httpx.HTTPError:
            return False
