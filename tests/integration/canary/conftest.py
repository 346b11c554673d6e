"""The whole product with its canary, for these tests alone."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from uuid import uuid4

import pytest

from infra.endpoints import Endpoints
from tests.product import Product


@pytest.fixture(scope="module")
def watched(services: Endpoints, cache_dir: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Product]:
    """A running product whose canary begins a round each second."""
    before = dict(os.environ)
    canary = {"enabled": True, "every_s": 1.0, "tenant": "birds"}
    made = Product(services, f"c{uuid4().hex[:10]}", tmp_path_factory.mktemp("canary"), cache_dir, {"canary": canary})
    made.groups(["ann", "bob"], eng=["ann"])
    made.access("", "everyone")
    made.access("eng", "group:eng")
    made.write("eng/deploy.md", "# Deploying\n\n## Rollback\n\nUse the pelican script to roll back.\n")
    try:
        made.up()
        yield made
    finally:
        made.down()
        os.environ.clear()
        os.environ.update(before)
