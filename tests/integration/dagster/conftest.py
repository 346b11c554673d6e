"""A running product with Dagster's processes, and the API that Dagster's page uses."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any
from uuid import uuid4

import httpx
import pytest

from infra import ports
from infra.endpoints import Endpoints
from tests.product import Product, until

REPOSITORY = {"repositoryName": "__repository__", "repositoryLocationName": "headwater"}
PAGES = 24

LAUNCH = """
mutation Launch($params: LaunchBackfillParams!) {
  launchPartitionBackfill(backfillParams: $params) {
    __typename
    ... on LaunchBackfillSuccess { backfillId }
    ... on PythonError { message }
    ... on PartitionSetNotFoundError { message }
  }
}
"""
LAUNCH_RUN = """
mutation LaunchRun($params: ExecutionParams!) {
  launchRun(executionParams: $params) {
    __typename
    ... on LaunchRunSuccess { run { runId } }
    ... on PythonError { message }
    ... on RunConfigValidationInvalid { errors { message } }
  }
}
"""
RUNS = """
query Runs($filter: RunsFilter) {
  runsOrError(filter: $filter) {
    ... on Runs { results { runId status pipelineName tags { key value } } }
  }
}
"""
CANCEL = """
mutation Cancel($runId: String!) {
  terminateRun(runId: $runId, terminatePolicy: SAFE_TERMINATE) {
    __typename
    ... on TerminateRunFailure { message }
    ... on PythonError { message }
  }
}
"""
CANCEL_BACKFILL = """
mutation CancelBackfill($id: String!) {
  cancelPartitionBackfill(backfillId: $id) {
    __typename
    ... on PythonError { message }
  }
}
"""
BACKFILL = """
query Backfill($id: String!) {
  partitionBackfillOrError(backfillId: $id) { ... on PartitionBackfill { id status numPartitions } }
}
"""
LOCATIONS = """
{ workspaceOrError { ... on Workspace { locationEntries { name loadStatus locationOrLoadError {
  __typename ... on PythonError { message } } } } } }
"""
PARTITIONS = """
query Partitions($key: AssetKeyInput!) {
  assetNodeOrError(assetKey: $key) { ... on AssetNode { partitionKeys } }
}
"""
MATERIALIZATIONS = """
query Materializations($key: AssetKeyInput!) {
  assetOrError(assetKey: $key) { ... on Asset { assetMaterializations(limit: 5) {
    runId partition metadataEntries { label __typename
      ... on MarkdownMetadataEntry { mdStr }
      ... on IntMetadataEntry { intValue }
      ... on FloatMetadataEntry { floatValue }
      ... on TextMetadataEntry { text }
      ... on TableMetadataEntry { table { records schema { columns { name } } } }
    } } } }
}
"""


class Page:
    """What Dagster's page does, by the same API."""

    def __init__(self, base: str) -> None:
        self.base = base
        self._client = httpx.Client(timeout=60)

    def ask(self, query: str, **variables: Any) -> Any:
        """One request; fails on an error of the API."""
        answer = self._client.post(f"{self.base}/graphql", json={"query": query, "variables": variables})
        assert answer.status_code == 200, answer.text
        body = answer.json()
        assert "errors" not in body, body["errors"]
        return body["data"]

    def backfill(self, asset: str, *partitions: str) -> str:
        """Launch a backfill as the asset's dialog does; its id."""
        params = {"assetSelection": [{"path": [asset]}], "partitionNames": list(partitions), "title": "by a test"}
        made = self.ask(LAUNCH, params=params)["launchPartitionBackfill"]
        assert made["__typename"] == "LaunchBackfillSuccess", made
        return str(made["backfillId"])

    def launch(self, job: str, config: dict[str, Any] | None = None, assets: list[str] | None = None) -> str:
        """Launch a run; its id."""
        selector: dict[str, Any] = {**REPOSITORY, "pipelineName": job}
        if assets is not None:
            selector["assetSelection"] = [{"path": [asset]} for asset in assets]
        made = self.ask(LAUNCH_RUN, params={"selector": selector, "runConfigData": config or {}})["launchRun"]
        assert made["__typename"] == "LaunchRunSuccess", made
        return str(made["run"]["runId"])

    def runs(self, **where: Any) -> list[dict[str, Any]]:
        """Runs, newest first."""
        return list(self.ask(RUNS, filter=where)["runsOrError"]["results"])

    def status(self, run: str) -> str:
        """State of one run."""
        (found,) = self.runs(runIds=[run])
        return str(found["status"])

    def ended(self, run: str, seconds: float = 90) -> str:
        """Wait until a run has ended; how."""
        return str(
            until(lambda: self._end(run), seconds, f"run {run} ends: {self.base}/runs/{run}, {self.status(run)}")
        )

    def _end(self, run: str) -> str | None:
        status = self.status(run)
        return status if status in ("SUCCESS", "FAILURE", "CANCELED") else None

    def materializations(self, asset: str) -> list[dict[str, Any]]:
        """The last ones, newest first; metadata by label."""
        found = self.ask(MATERIALIZATIONS, key={"path": [asset]})["assetOrError"]["assetMaterializations"]
        return [{**made, "metadata": {entry["label"]: entry for entry in made["metadataEntries"]}} for made in found]

    def partitions(self, asset: str) -> list[str]:
        """Partitions that can be chosen."""
        return list(self.ask(PARTITIONS, key={"path": [asset]})["assetNodeOrError"]["partitionKeys"])


@pytest.fixture(scope="module")
def product(services: Endpoints, cache_dir: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Product]:
    """A small wiki, the stub encoder's speed limited by nothing, and Dagster."""
    extra = {"dagster": {"enabled": True, "port": ports.choose({"dagster": 1}, {}, [])["dagster"]}}
    made = Product(services, f"d{uuid4().hex[:10]}", tmp_path_factory.mktemp("dagster"), cache_dir, extra)
    try:
        made.groups(["ann", "bob"], eng=["ann"])
        made.access("", "everyone")
        for number in range(PAGES):
            made.write(f"page-{number}.md", f"# Page {number}\n\n" + f"Heron number {number} stands at the pond. " * 40)
        made.up()
        yield made
    finally:
        made.down()


@pytest.fixture(scope="module")
def page(product: Product) -> Page:
    """Dagster's API."""
    return Page(f"http://127.0.0.1:{product.settings.dagster.port}")
