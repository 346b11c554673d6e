"""The commands that look, against the running product."""

from __future__ import annotations

import json
from typing import Any

import pytest
from typer.testing import CliRunner

from infra.cli import build
from tests.product import Product, until


def _command(product: Product, *arguments: str) -> str:
    answer = CliRunner().invoke(build(), list(arguments), env=product.endpoints.environment() | {"COLUMNS": "140"})
    assert answer.exit_code == 0, answer.output
    return answer.stdout


def _json(product: Product, *arguments: str) -> dict[str, Any]:
    found = json.loads(_command(product, *arguments, "--json"))
    assert isinstance(found, dict)
    return found


def _counted(said: dict[str, Any]) -> dict[str, Any] | None:
    """What was said, once it counts a change of the gateway and a whole round of the canary."""
    gateway = said["freshness"]["sources"].get("gateway")
    counted = gateway is not None and gateway["lag_ms"]["total"]["count"] > 0
    return said if counted and set(said["canary"]["seconds"]) == {"found", "hidden", "gone"} else None


@pytest.mark.requirement("A3", "B1")
def test_search_finds_as_the_person_who_is_named(watched: Product) -> None:
    until(lambda: watched.found("ann", "pelican script"), 30, "the page is found")
    shown = _command(watched, "search", "pelican script", "--user", "ann", "-k", "3")
    for part in ("Deploying", "wiki:eng/deploy.md", "Rollback", "Use the pelican script", "wiki: complete until"):
        assert part in shown
    assert _json(watched, "search", "pelican script", "--user", "bob")["hits"] == []
    assert "Nothing that bob may read" in _command(watched, "search", "pelican script", "--user", "bob")


@pytest.mark.requirement("A11")
def test_lag_shows_the_canarys_tenant_and_the_canary(watched: Product) -> None:
    # The canary writes through the gateway; the query service hears of it from the receipts, a moment later.
    until(lambda: _counted(_json(watched, "lag", "--tenant", "birds", "--window", "10")), 60, "lag is counted")
    shown = _command(watched, "lag", "--tenant", "birds")
    for part in ("observed → appended", "embedded → visible", "revocation", "canary", "█", "found"):
        assert part in shown


@pytest.mark.requirement("A1")
def test_topics_show_every_lanes_backlog(watched: Product) -> None:
    rows = {row["topic"]: row for row in _json(watched, "topics")["topics"]}
    assert {b["group"] for b in rows["content"]["groups"]} == {"index.minilm"}
    assert {"access", "index.minilm"} <= {b["group"] for b in rows["access"]["groups"]}
    assert rows["content"]["records"] > 0
    assert "last of each key" in _command(watched, "topics")


@pytest.mark.requirement("D8")
def test_size_of_the_running_index_counts_its_chunks(watched: Product) -> None:
    (estimate,) = until(
        lambda: [e for e in _json(watched, "size")["estimates"] if e["chunks"]], 90, "chunks are counted"
    )
    assert (estimate["name"], estimate["dimension"]) == ("minilm", 384)
    assert estimate["vectors"] == estimate["chunks"] * 384 * 4
    assert "of raw vectors" in _command(watched, "size")
