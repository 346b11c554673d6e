"""A configured source on Dagster's page: its state, its checks, and the jobs that ask its owner."""

from __future__ import annotations

from typing import Any

import pytest

from tests.integration.dagster.conftest import Page
from tests.product import Product, until

SOURCE = """
query Source($key: AssetKeyInput!) {
  assetOrError(assetKey: $key) { ... on Asset { assetObservations(limit: 1) {
    metadataEntries { label ... on TextMetadataEntry { text } ... on IntMetadataEntry { intValue } } } } }
  assetNodeOrError(assetKey: $key) { ... on AssetNode { groupName dependedByKeys { path }
    assetChecksOrError { ... on AssetChecks { checks { name executionForLatestMaterialization {
      status evaluation { success severity description } } } } } } }
}
"""


def shown(page: Page) -> tuple[dict[str, Any], dict[str, Any], dict[str, Any]]:
    """The newest observation's metadata, the node, and the newest evaluation of each check."""
    found = page.ask(SOURCE, key={"path": ["source", "acme", "wiki"]})
    node, asset = found["assetNodeOrError"], found["assetOrError"]
    told: dict[str, Any] = {}
    for observation in asset.get("assetObservations", []):
        told = {entry["label"]: entry.get("text", entry.get("intValue")) for entry in observation["metadataEntries"]}
    checks = {
        check["name"]: (check["executionForLatestMaterialization"] or {}).get("evaluation")
        for check in node["assetChecksOrError"]["checks"]
    }
    return told, node, checks


@pytest.mark.timeout(900)  # processes of everything, on a busy machine
@pytest.mark.requirement("A11")
def test_a_source_is_paused_and_resumed_from_the_page_and_shows_it(product: Product, page: Page) -> None:
    until(lambda: shown(page)[0].get("state") == "waiting", 150, "the sensor has told of the source")
    told, node, checks = shown(page)
    assert node["groupName"] == "sources" and {"path": ["change_log"]} in node["dependedByKeys"]
    assert told["documents"] == 24 and "24 documents" in told["last complete listing"]
    assert checks["alive"]["success"] and checks["listed"]["success"], checks

    named = {"config": {"tenant": "acme", "source": "wiki"}}
    assert page.ended(page.launch("pause_source", {"ops": {"pause": named}})) == "SUCCESS"
    until(lambda: shown(page)[0].get("state") == "paused", 90, "the sensor has told of the pause")
    assert page.ended(page.launch("resume_source", {"ops": {"resume": named}})) == "SUCCESS"
    until(lambda: shown(page)[0].get("state") == "waiting", 90, "the sensor has told of the end of the pause")
    run = page.launch("reset_source", {"ops": {"reset": named}})
    assert page.ended(run) == "SUCCESS"
