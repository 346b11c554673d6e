"""The canary as a process beside the real ones, and what the commands show of it."""

from __future__ import annotations

from typing import Any

import httpx
import pytest

from infra.asking import QueryApi
from infra.commands.lag import figures, known_users, look
from infra.state import Store
from pipeline.bus.groups import log_ends
from schemas.api import SourceFreshness
from schemas.topics import Topic
from tests.product import Product, until


def _page(product: Product, path: str = "healthz") -> httpx.Response:
    port = Store(product.settings.state_dir).state().ports["health_canary"]
    return httpx.get(f"http://127.0.0.1:{port}/{path}", timeout=5)


def _health(product: Product) -> dict[str, Any]:
    found = _page(product).json()
    assert isinstance(found, dict)
    return found


def _rounds(product: Product, count: int) -> dict[str, Any]:
    """The page after ``count`` more rounds."""
    before = _health(product)["rounds"]
    until(lambda: _health(product)["rounds"] >= before + count, 90, f"{count} rounds")
    return _health(product)


@pytest.mark.requirement("A11", "A8", "I10")
def test_documents_are_found_hidden_and_gone_in_every_partition(watched: Product) -> None:
    page = _rounds(watched, 4)
    assert page["state"] == "running", page
    assert page["last"]["outcome"] == "ok"
    assert set(page["last"]["seconds"]) == {"found", "hidden", "gone"}
    assert all(0 < seconds < 10 for seconds in page["last"]["seconds"].values())
    for topic in (Topic.CONTENT, Topic.ACCESS, Topic.MEMBERSHIP):
        begin, end = log_ends(watched.settings, [topic])
        assert all(end[slot] > begin[slot] for slot in end), f"{topic}: {begin} {end}"
    shown = _page(watched, "metrics").text
    for step in ("found", "hidden", "gone"):
        assert f'headwater_canary_seconds_count{{step="{step}"}}' in shown
    assert "headwater_canary_last_success" in shown
    assert look(watched.settings).state == "running"


@pytest.mark.requirement("A11")
def test_freshness_of_the_canarys_tenant_has_stages_and_revocations(watched: Product) -> None:
    _rounds(watched, 1)
    with QueryApi(watched.settings) as api:

        def counted() -> SourceFreshness | None:
            # Whoever reads for the canary leaves again a moment later.
            return figures(api, known_users(watched.settings, "birds"), "birds", 600).sources.get("gateway")

        source = until(counted, 20)
    assert source.lag_ms["total"].count > 0
    assert source.lag_ms["embed"].count > 0
    assert source.revocation_ms.count > 0


@pytest.mark.requirement("I8")
def test_it_outlives_the_query_service_and_goes_on_with_it(watched: Product) -> None:
    watched.kill("query")
    until(lambda: _health(watched)["state"] == "waiting", 30, "it waits")
    failures = _page(watched, "metrics").text
    assert 'headwater_canary_failures_total{step="unexpected"}' not in failures
    watched.start("query")
    watched.ready()
    page = _rounds(watched, 2)
    assert page["state"] == "running", page
