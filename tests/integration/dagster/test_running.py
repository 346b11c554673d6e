"""Dagster's processes beside the others: the page answers, definitions load, sensors work, runs run."""

from __future__ import annotations

import pytest

from tests.integration.dagster.conftest import LOCATIONS, Page
from tests.product import Product, until

PARTITIONS = """
{ assetNodes { assetKey { path } } }
"""


def test_every_process_is_up_and_the_definitions_are_loaded(product: Product, page: Page) -> None:
    states = {line.name: line.state for line in product.supervisor.status()}
    assert {name: state for name, state in states.items() if name.startswith("dagster")} == {
        "dagster-code": "up", "dagster-daemon": "up", "dagster-webserver": "up",
    }  # fmt: skip
    (location,) = page.ask(LOCATIONS)["workspaceOrError"]["locationEntries"]
    assert location["locationOrLoadError"]["__typename"] == "RepositoryLocation", location


@pytest.mark.requirement("A10")
def test_generations_and_sources_can_be_chosen(product: Product, page: Page) -> None:
    until(lambda: page.partitions("index_generation") == ["minilm"], 90, "the sensor has added the generation")
    until(lambda: page.partitions("source_reconciliation") == ["acme/wiki"], 90, "the sensor has added the source")


def test_a_run_sees_the_real_services(product: Product, page: Page) -> None:
    run = page.launch("dead_letters_job")
    assert page.ended(run) == "SUCCESS"
    (made,) = page.materializations("dead_letters")
    assert made["metadata"]["letters"]["intValue"] == 0
