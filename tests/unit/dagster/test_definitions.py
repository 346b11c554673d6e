"""What Dagster shows: the graph as a snapshot, and that loading it does no work."""

from __future__ import annotations

import json
import os
import subprocess
import sys

import pytest
from dagster import Definitions

from tests.unit.dagster.graph import SNAPSHOT, graph

IMPORTED = """
import sys, time
def watch(event, arguments):
    if event in ("socket.connect", "socket.bind", "subprocess.Popen", "os.fork"):
        raise AssertionError(f"importing the definitions does {event} {arguments}")
    if event == "open" and isinstance(arguments[1], str) and set(arguments[1]) & set("wax+"):
        if "__pycache__" not in str(arguments[0]):
            raise AssertionError(f"importing the definitions writes {arguments[0]}")
import dagster
sys.addaudithook(watch)
before = time.process_time()
import dagster_project.definitions
took = time.process_time() - before
dagster_project.definitions.defs()  # with settings that cannot be read
heavy = {"kafka", "weaviate", "torch", "transformers", "openvino", "httpx", "uvicorn"} & set(sys.modules)
assert not heavy, f"importing the definitions loads {heavy}"
print(took)
"""


def test_everything_loads() -> None:
    from dagster_project.definitions import build

    Definitions.validate_loadable(build(()))


@pytest.mark.requirement("A10", "A9")
def test_the_graph_is_as_the_snapshot_says() -> None:
    """After a wanted change: python -m tests.unit.dagster.graph, and read the difference."""
    assert json.loads(json.dumps(graph())) == json.loads(SNAPSHOT.read_text(encoding="utf-8"))


def test_everything_is_described_and_owned() -> None:
    found = graph()
    assert [name for name, node in found["assets"].items() if not (node["described"] and node["owners"])] == []
    assert [name for name, check in found["checks"].items() if not check["described"]] == []


def test_importing_and_loading_do_no_work() -> None:
    env = {name: value for name, value in os.environ.items() if not name.startswith("HEADWATER_")}
    env["HEADWATER_CONFIG"] = "/nonexistent/headwater.toml"
    done = subprocess.run([sys.executable, "-c", IMPORTED], env=env, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    assert float(done.stdout.split()[-1]) < 5.0, "seconds of CPU beyond importing Dagster itself"
