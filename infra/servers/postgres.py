"""A private PostgreSQL for tests, from the system's own package: its data, its port, nothing outside its folder."""

from __future__ import annotations

import os
import pwd
import shutil
import subprocess
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from infra.errors import StartError
from infra.ports import LOOPBACK, free_port

SUPERUSER = "headwater"
PACKAGES = Path("/usr/lib/postgresql")
_SETTINGS = {
    "wal_level": "logical",
    "max_wal_senders": "4",
    "max_replication_slots": "4",
    "listen_addresses": LOOPBACK,
    "unix_socket_directories": "",
    "shared_buffers": "16MB",
    "max_connections": "40",
    "autovacuum": "off",
}


def programs() -> Path | None:
    """Folder of the newest installed server's programs, None where there is none."""
    found = [p for p in PACKAGES.glob("*/bin") if (p / "initdb").exists() and (p / "postgres").exists()]
    newest = max(found, key=lambda p: int(p.parent.name) if p.parent.name.isdigit() else 0, default=None)
    on_path = shutil.which("initdb")
    return newest if newest is not None else Path(on_path).resolve().parent if on_path else None


def available() -> bool:
    """Whether a server is installed (Debian: the package postgresql) and an account may run it."""
    return programs() is not None and (os.geteuid() != 0 or _account() is not None)


class PostgresServer:
    """One server; anybody on this machine may connect as ``SUPERUSER`` while it runs. ``settings`` go before ours."""

    def __init__(self, settings: Mapping[str, str] | None = None) -> None:
        self._settings = {**_SETTINGS, **(settings or {})}
        self._folder: Path | None = None
        self.port = 0

    def dsn(self, database: str = "postgres", user: str = SUPERUSER) -> str:
        """How to connect."""
        return f"postgresql://{user}@{LOOPBACK}:{self.port}/{database}"

    def start(self) -> None:
        """Make and start it; about two seconds. Raises StartError."""
        found = programs()
        if found is None:
            raise StartError("PostgreSQL is not installed.", "Install the package postgresql.")
        self._folder = Path(tempfile.mkdtemp(prefix="headwater-postgres-"))
        if os.geteuid() == 0 and (account := _account()) is not None:
            os.chown(self._folder, account.pw_uid, account.pw_gid)
        self.port = free_port()
        data = self._folder / "data"
        _run([found / "initdb", "-D", data, "-U", SUPERUSER, "-A", "trust", "-E", "UTF8", "--locale=C", "-N"])
        self.restart()

    def restart(self) -> None:
        """Start it where it does not run; a running one is stopped first. Raises StartError."""
        if self._folder is None:
            raise StartError("PostgreSQL was not started.", "Call start first.")
        self._stop()
        options = " ".join(f"-c {name}='{value}'" for name, value in {**self._settings, "port": str(self.port)}.items())
        log, data = self._folder / "log", self._folder / "data"
        _run([_needed() / "pg_ctl", "-D", data, "-l", log, "-o", options, "-w", "-t", "30", "start"])

    def stop(self) -> None:
        """End it and remove its folder."""
        if self._folder is not None:
            self._stop()
            shutil.rmtree(self._folder, ignore_errors=True)
            self._folder = None

    def _stop(self) -> None:
        if self._folder is not None and (self._folder / "data" / "postmaster.pid").exists():
            _run([_needed() / "pg_ctl", "-D", self._folder / "data", "-m", "immediate", "-w", "stop"])


def _needed() -> Path:
    found = programs()
    if found is None:
        raise StartError("PostgreSQL is no longer installed.", "Install the package postgresql.")
    return found


def _account() -> pwd.struct_passwd | None:
    """The account that runs the server where we are root, which it refuses."""
    for name in ("postgres", "nobody"):
        try:
            return pwd.getpwnam(name)
        except KeyError:
            continue
    return None


def _run(command: list[Any]) -> None:
    account = _account() if os.geteuid() == 0 else None
    who = {"user": account.pw_uid, "group": account.pw_gid, "extra_groups": []} if account is not None else {}
    # Its output goes to a file: a server that stays would keep a pipe open for ever.
    with tempfile.TemporaryFile() as output:
        done = subprocess.run(
            [str(part) for part in command],
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
            cwd="/",
            env={"PATH": os.environ.get("PATH", ""), "LC_ALL": "C", "TZ": "UTC"},
            timeout=60,
            check=False,
            **who,  # type: ignore[call-overload]
        )
        output.seek(0)
        said = output.read().decode("utf-8", "replace").strip()
    if done.returncode:
        raise StartError(f"PostgreSQL: {Path(command[0]).name} failed: {said[-400:]}", "See the message.")
