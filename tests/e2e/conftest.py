"""One running product for all e2e tests of the session."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from uuid import uuid4

import pytest

from infra.endpoints import Endpoints
from tests.product import Product


@pytest.fixture(scope="session")
def product(services: Endpoints, cache_dir: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Product]:
    """Everything runs: folder source, gateway, access, index, control and query service."""
    made = Product(services, f"e{uuid4().hex[:10]}", tmp_path_factory.mktemp("product"), cache_dir)
    made.groups(["ann", "bob", "cleo"], eng=["ann"], ops=["group:eng", "bob"])
    made.access("", "everyone")
    made.access("eng", "group:eng")
    made.write("index.md", "# Start\n\nThe lobby has a yellow heron statue.\n")
    made.write("eng/deploy.md", "# Deploying\n\n## Rollback\n\nUse the pelican script to roll back a release.\n")
    try:
        made.up()
        yield made
    finally:
        made.down()
