"""A backfill as a person makes it on Dagster's page: launched, cancelled in the middle, launched again, ready."""

from __future__ import annotations

import psutil
import pytest

from tests.integration.dagster.conftest import BACKFILL, CANCEL, Page
from tests.product import Product, until

CREATE = {"ops": {"create": {"config": {"generation": "second"}}}}


def _workers(generation: str) -> list[int]:
    """Bulk workers of a generation that run on this machine."""
    found = []
    for process in psutil.process_iter(["cmdline"]):
        line = process.info["cmdline"] or []
        if "--bulk" in line and generation in line:
            found.append(process.pid)
    return found


def _run_of(page: Page, backfill: str) -> str:
    def run() -> str | None:
        made = [r for r in page.runs() if {"key": "dagster/backfill", "value": backfill} in r["tags"]]
        return str(made[0]["runId"]) if made else None

    return str(until(run, 120, "the daemon has made the backfill's run"))


@pytest.mark.timeout(900)
@pytest.mark.requirement("A10")
def test_a_backfill_is_launched_cancelled_and_resumed(product: Product, page: Page) -> None:
    assert page.ended(page.launch("create_generation", CREATE), 300) == "SUCCESS"
    first = _run_of(page, page.backfill("index_generation", "second"))
    until(lambda: _workers("second"), 180, "a bulk worker runs")
    assert page.ask(CANCEL, runId=first)["terminateRun"]["__typename"] == "TerminateRunSuccess"
    assert page.ended(first, 120) == "CANCELED"
    assert _workers("second") == [], "they left before the run ended"

    backfill = page.backfill("index_generation", "second")
    assert page.ended(_run_of(page, backfill), 400) == "SUCCESS"
    until(
        lambda: page.ask(BACKFILL, id=backfill)["partitionBackfillOrError"]["status"] == "COMPLETED_SUCCESS",
        120,
        "the backfill is complete",
    )
    (made,) = [m for m in page.materializations("index_generation") if m["partition"] == "second"]
    assert made["metadata"]["state"]["text"] == "ready"
    assert made["metadata"]["applied"]["intValue"] == made["metadata"]["total"]["intValue"] > 0
    assert "data:image/svg+xml" in made["metadata"]["progress"]["mdStr"]
    until(lambda: _workers("second") == [], 30, "workers are gone")
