"""``headwater run --once`` on the sample wiki: what ``make run ONCE=1`` does, from its own folder and state."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from infra import ports

ROOT = Path(__file__).parent.parent.parent


@pytest.mark.requirement("A1", "A11", "D4", "D5")
def test_run_once_ingests_checks_and_says_so_in_its_last_line(tmp_path: Path, cache_dir: Path) -> None:
    project = tmp_path / "project"
    project.mkdir()
    shutil.copytree(ROOT / "samples", project / "samples")
    chosen = ports.choose({"query": 1, "gateway": 1}, {}, [])
    env = {name: value for name, value in os.environ.items() if not name.startswith("HEADWATER_")}
    env |= {
        "HEADWATER_STATE_DIR": str(tmp_path / "state"),
        "HEADWATER_CACHE_DIR": str(cache_dir),
        "HEADWATER_QUERY__PORT": str(chosen["query"]),
        "HEADWATER_GATEWAY__PORT": str(chosen["gateway"]),
        "HEADWATER_QUERY__RECEIPTS_PATH": str(tmp_path / "receipts.sqlite"),
        "HEADWATER_BODIES__STORE": f"file://{tmp_path / 'bodies'}",
        "HEADWATER_CANARY__ENABLED": "false",
        "HEADWATER_DAGSTER__ENABLED": "false",
    }
    done = subprocess.run(
        [sys.executable, "-m", "infra.cli", "run", "--once"], cwd=project, env=env, capture_output=True, text=True,
        timeout=900, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-3000:]
    line = json.loads(done.stdout.strip().splitlines()[-1])
    assert line["ok"] is True and line["forbidden"] == 0
    assert line["documents"] >= 60 and line["chunks"] >= line["documents"]
    assert line["searches"] >= 40 and line["right"] >= 0.95 * line["searches"]
    for name in ("lag_ms", "revocation_ms"):
        assert set(line[name]) == {"p50", "p95", "p99"}
        assert 0 < line[name]["p50"] <= line[name]["p99"]
    status = subprocess.run(
        [sys.executable, "-m", "infra.cli", "status", "--json"], cwd=project, env=env, capture_output=True, text=True,
        timeout=60, check=False,
    )  # fmt: skip
    assert {row["state"] for row in json.loads(status.stdout)["processes"]} == {"down"}, "nothing is left running"
