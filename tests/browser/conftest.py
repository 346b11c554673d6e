"""A browser on the running product. Skipped, visibly, where no Chromium is installed."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path
from uuid import uuid4

import pytest
from playwright.sync_api import Browser, Page, sync_playwright

from infra.endpoints import Endpoints
from tests.product import Product, until

CHROMIUM = next(
    (found for name in ("chromium", "chromium-browser", "google-chrome") if (found := shutil.which(name))), None
)
ARGUMENTS = [
    "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-background-networking",
    "--disable-component-update", "--disable-sync",
]  # fmt: skip


@pytest.fixture(scope="session")
def browser() -> Iterator[Browser]:
    """Headless Chromium."""
    if CHROMIUM is None:
        pytest.skip("no Chromium on this machine: apt-get install chromium")
    with sync_playwright() as playwright:
        found = playwright.chromium.launch(executable_path=CHROMIUM, args=ARGUMENTS)
        yield found
        found.close()


@pytest.fixture
def page(browser: Browser) -> Iterator[Page]:
    """A fresh page; an error in its script or a refused request fails the test."""
    made = browser.new_page(viewport={"width": 1200, "height": 900})
    errors: list[str] = []
    made.on("pageerror", lambda error: errors.append(str(error)))
    yield made
    made.close()
    assert errors == []


@pytest.fixture(scope="session")
def product(services: Endpoints, cache_dir: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Product]:
    """A small wiki with two readers."""
    made = Product(services, f"b{uuid4().hex[:10]}", tmp_path_factory.mktemp("browser"), cache_dir)
    try:
        made.groups(["ann", "bob"], eng=["ann"])
        made.access("", "everyone")
        made.access("eng", "group:eng")
        made.write("index.md", "# Start\n\nThe lobby has a yellow heron statue.\n")
        made.write("eng/deploy.md", "# Deploying\n\n## Rollback\n\nUse the <b>pelican</b> script to roll back.\n")
        made.up()
        until(lambda: len(made.found("ann", "the")) == 2, 60, "both pages are found")
        yield made
    finally:
        made.down()
