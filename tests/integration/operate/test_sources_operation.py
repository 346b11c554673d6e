"""A folder's owner on real Kafka that is paused, resumed and reset by the commands, and how it is told meanwhile."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from typer.testing import CliRunner

from consumers.owner_log import RequestFeed
from infra.cli import build
from infra.commands import sources, sources_look
from schemas.events import ContentUpserted
from schemas.topics import Topic
from tests.integration.owner.conftest import Seen, Tree, seen, tree

__all__ = ["seen", "tree"]  # fixtures


@pytest.fixture
def run(tree: Tree, monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[..., Any]]:
    """Runs ``sources … --json`` against the tree's namespace; what it printed."""
    tree.settings = tree.settings.model_copy(update={"sources": (tree.source,)})
    for module in (sources, sources_look):
        monkeypatch.setattr(module, "located", lambda: tree.settings)

    monkeypatch.setattr("pipeline.settings.load", lambda: tree.settings)

    def run(*arguments: str) -> Any:
        done = CliRunner().invoke(build(), ["sources", *arguments, "--json"], catch_exceptions=False)
        assert done.exit_code == 0, done.output
        return json.loads(done.stdout)

    yield run


def owned(tree: Tree) -> None:
    """An owner that hears requests."""

    def wake(tenant: str, source: str) -> None:
        for owner, _ in tree.running:
            owner.wake()

    if tree.feed is None:
        tree.feed = RequestFeed(tree.settings, wake)
    tree.own()


def told(run: Callable[..., Any]) -> dict[str, Any]:
    (status,) = run("list")
    return dict(status)


def until(condition: Callable[[], bool], seconds: float = 20) -> None:
    started = time.monotonic()
    while not condition():
        assert time.monotonic() - started < seconds, f"nothing within {seconds:.0f} s"
        time.sleep(0.2)


def texts(seen: Seen) -> list[str]:
    """Bodies on the log, in order."""
    events = [event for event in seen.of(Topic.CONTENT) if isinstance(event, ContentUpserted)]
    return [getattr(event.body, "text", "") for event in events]


@pytest.mark.requirement("A1", "A6", "A11", "I1")
def test_a_source_is_paused_resumed_and_reset(tree: Tree, seen: Seen, run: Callable[..., Any]) -> None:
    assert told(run)["state"] == "dead"  # no owner ever lived
    owned(tree)
    seen.await_(lambda: len(texts(seen)) == 2)
    until(lambda: told(run)["state"] == "waiting")

    assert run("pause", "wiki")["type"] == "pause"
    tree.put("index.md", "# Home\n\nEdited while nobody reads.")
    (tree.root / "eng" / "runbook.md").unlink()
    until(lambda: told(run)["owner"]["state"] == "paused")
    time.sleep(2.0)
    assert len(seen.of(Topic.CONTENT)) == 2 and told(run)["state"] == "paused"

    tree.leave()  # a pause outlives its owner's process
    owned(tree)
    time.sleep(1.0)
    assert len(seen.of(Topic.CONTENT)) == 2 and told(run)["state"] == "paused"

    assert run("resume", "wiki")["type"] == "resume"
    seen.await_(lambda: texts(seen)[-1].endswith("Edited while nobody reads."))
    until(lambda: told(run)["state"] == "waiting" and told(run)["documents"] == 1)  # the deletion too

    until(lambda: told(run)["owner"]["listed_at"] is not None)
    count = len(seen.of(Topic.CONTENT))
    report = run("reset", "wiki", "--yes")
    assert (report["type"], report["complete"], report["listed"]) == ("reset", True, 1)
    assert (report["new"], report["stale"], report["repaired"]) == (0, 0, 0)
    time.sleep(1.0)
    assert len(seen.of(Topic.CONTENT)) == count  # nothing is appended, so nothing is embedded

    tree.put("new.md", "# New")
    seen.await_(lambda: texts(seen)[-1] == "# New")
    assert run("sync", "wiki")["listed"] == 2
    assert run("sync", "wiki", "--document", "new.md")["repaired"] == 1
    found = run("describe", "wiki")
    assert found["state"]["documents"] == 2 and found["where"] == str(tree.root)
    assert all(one["good"] for one in run("test", "wiki")[0]["findings"])

    tree.leave()
    until(lambda: told(run)["state"] == "dead", 30)
