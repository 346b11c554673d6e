"""The ``headwater`` command as people type it, on a state directory of its own."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from infra.process import Managed

HEADWATER = str(Path(sys.executable).with_name("headwater"))


class Shell:
    """Runs the command with a clean environment in an empty folder."""

    def __init__(self, folder: Path, cache_dir: Path) -> None:
        self.folder = folder
        self.env = {name: value for name, value in os.environ.items() if not name.startswith("HEADWATER_")}
        self.env |= {"HEADWATER_STATE_DIR": str(folder / "state"), "HEADWATER_CACHE_DIR": str(cache_dir)}

    def run(self, *words: str, expect: int = 0) -> subprocess.CompletedProcess[str]:
        done = subprocess.run(
            [HEADWATER, *words],
            cwd=self.folder,
            env=self.env,
            capture_output=True,
            text=True,
            stdin=subprocess.DEVNULL,
            timeout=240,
            check=False,
        )
        assert done.returncode == expect, done.stdout + done.stderr
        return done

    def json(self, *words: str, expect: int = 0) -> Any:
        return json.loads(self.run(*words, "--json", expect=expect).stdout)


@pytest.fixture(scope="module")
def shell(tmp_path_factory: pytest.TempPathFactory, cache_dir: Path) -> Iterator[Shell]:
    made = Shell(tmp_path_factory.mktemp("cli"), cache_dir)
    yield made
    made.run("down")


def test_up_status_doctor_logs_down(shell: Shell) -> None:
    assert {line["state"] for line in shell.json("status", "--services-only", expect=1)["processes"]} == {"down"}

    started = shell.json("up", "--services-only")["processes"]
    assert {line["name"]: line["state"] for line in started} == {"kafka": "up", "weaviate": "up"}
    assert shell.json("status", "--services-only")["processes"][0]["pid"] == started[0]["pid"]
    shown = shell.run("status", "--services-only").stdout
    assert started[0]["address"] in shown

    checks = {check["name"]: check for check in shell.json("doctor")["checks"]}
    assert checks["kafka"]["verdict"] == checks["weaviate"]["verdict"] == checks["clock"]["verdict"] == "ok"
    too_many = shell.json("doctor", "--tenants", "100000000", expect=1)
    limit = next(check for check in too_many["checks"] if check["name"] == "file limit")
    assert limit["verdict"] == "failed"
    assert "4000000000" in limit["remedy"]

    assert "starting kafka" in shell.run("logs", "kafka").stdout
    assert shell.json("logs", "weaviate", "-n", "1")["name"] == "weaviate"

    stopped = shell.json("down")["processes"]
    assert {line["state"] for line in stopped} == {"down"}
    assert not Managed("kafka", shell.folder / "state").alive()


def test_fetch_says_where_things_are(shell: Shell, cache_dir: Path) -> None:
    assert shell.json("fetch") == {"ok": True, "cache_dir": str(cache_dir)}


def test_a_service_that_cannot_be_reached_is_one_json_error(shell: Shell) -> None:
    shell.env["HEADWATER_WEAVIATE__URL"] = "http://127.0.0.1:9"
    try:
        said = shell.json("up", "--services-only", expect=1)
    finally:
        del shell.env["HEADWATER_WEAVIATE__URL"]
    assert said["ok"] is False
    assert "http://127.0.0.1:9 did not answer" in said["error"]
    assert "HEADWATER_WEAVIATE__URL" in said["remedy"]


def test_nothing_is_printed_to_results_but_results(shell: Shell) -> None:
    done = shell.run("fetch", "--json")
    assert len(done.stdout.splitlines()) == 1
