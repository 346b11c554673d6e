"""A running product of its own, and the command line as people use it."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple
from uuid import uuid4

import pytest

from infra.endpoints import Endpoints
from infra.state import Store
from infra.supervisor import environment
from tests.product import Product

ROOT = Path(__file__).parents[3]


class Said(NamedTuple):
    """What a command answered."""

    status: int
    out: str
    err: str

    @property
    def json(self) -> Any:
        """Its last line."""
        return json.loads(self.out.strip().splitlines()[-1])


class Operator:
    """``headwater generation`` on a product."""

    def __init__(self, product: Product) -> None:
        self.product = product

    def ask(self, *arguments: str, plain: bool = False, seconds: float = 500) -> Said:
        """One command; with --json unless ``plain``."""
        product = self.product
        secrets = Store(product.settings.state_dir.absolute()).secrets()
        env = environment(product.settings, product.endpoints, secrets)
        line = [sys.executable, "-m", "infra.cli", "generation", *arguments, *(() if plain else ("--json",))]
        done = subprocess.run(line, cwd=ROOT, env=env, capture_output=True, text=True, timeout=seconds, check=False)
        return Said(done.returncode, done.stdout, done.stderr)

    def do(self, *arguments: str) -> Any:
        """One command that succeeds; its JSON."""
        said = self.ask(*arguments)
        assert said.status == 0, f"{arguments}: {said.out}{said.err}"
        return said.json

    def states(self) -> dict[str, str]:
        """State by generation."""
        return {g["name"]: g["state"] for g in self.do("list")["generations"]}


@pytest.fixture(scope="module")
def product(services: Endpoints, cache_dir: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Product]:
    """Everything runs; what is retired is dropped at once."""
    extra = {
        "generations": {"retention_days": 0.0},
        "kafka": {"index_session_s": 3.0, "heartbeat_s": 0.5},
        "encoder": {"backend": "torch-fp32"},  # the trial of all backends takes minutes on a busy machine
    }
    before = dict(os.environ)
    made = Product(services, f"g{uuid4().hex[:10]}", tmp_path_factory.mktemp("generations"), cache_dir, extra)
    made.groups(["ann", "bob"], eng=["ann"])
    made.access("", "everyone")
    made.access("eng", "group:eng")
    made.write("index.md", "# Start\n\nThe lobby has a yellow heron statue.\n")
    made.write("eng/deploy.md", "# Deploying\n\n## Rollback\n\nUse the pelican script to roll back a release.\n")
    try:
        made.up()
        yield made
    finally:
        made.down()
        os.environ.clear()
        os.environ.update(before)


@pytest.fixture
def operator(product: Product) -> Operator:
    """The command line."""
    return Operator(product)


@pytest.fixture
def declaration(tmp_path: Path) -> Path:
    """Another encoder without other weights: what is put before a text makes other vectors of it."""
    file = tmp_path / "generation.toml"
    file.write_text('[encoder]\ndocument_instruction = "passage: "\nquery_instruction = "query: "\n')
    return file
