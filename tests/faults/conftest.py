"""A running product per module of fault tests; one more index or access consumer can be made to die at a point."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from uuid import uuid4

import pytest

from infra.endpoints import Endpoints
from infra.state import Store
from infra.supervisor import environment
from tests.product import Product, until

Dying = Callable[[str, str, str], "DyingProcess"]


@pytest.fixture(scope="module")
def product(services: Endpoints, cache_dir: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Product]:
    """Short sessions, so that a dead or stopped owner is replaced within seconds."""
    extra = {
        "kafka": {"index_session_s": 3.0, "access_session_s": 3.0, "heartbeat_s": 0.5},
        "index": {"query_deadline_s": 1.0},
        "weaviate": {"timeout_s": 2.0},
    }
    made = Product(services, f"f{uuid4().hex[:10]}", tmp_path_factory.mktemp("faults"), cache_dir, extra)
    made.groups(["ann", "bob"], eng=["ann"])
    made.access("", "everyone")
    made.write("index.md", "# Start\n\nThe lobby has a yellow heron statue.\n")
    try:
        made.up()
        yield made
    finally:
        made.down()


class DyingProcess:
    """A consumer with a trap in it; ``arm`` lets it act the next time it gets there."""

    def __init__(self, product: Product, lane: str, how: str, point: str, number: int) -> None:
        self._armed = product.base / f"armed-{number}"
        self.log = product.base / f"dying-{number}.log"
        env = environment(product.settings, product.endpoints, Store(product.settings.state_dir.absolute()).secrets())
        env["HEADWATER_DYING_ARMED"] = str(self._armed)
        env["HEADWATER_HEALTH_PORT"] = "0"
        with self.log.open("wb") as out:
            self.process = subprocess.Popen(
                [sys.executable, "-m", "tests.faults.dying", lane, how, point], env=env, stdout=out, stderr=out
            )

    def opened(self) -> None:
        """Wait until it owns every partition."""
        until(lambda: self.log.read_text().count(" opened") >= 3, 40, f"partitions are opened, see {self.log}")

    def arm(self) -> None:
        """From now on the trap acts."""
        self._armed.touch()

    def acted(self) -> bool:
        """Whether it has acted."""
        return not self._armed.exists()

    def end(self) -> None:
        """kill -9 whatever is left."""
        if self.process.poll() is None:
            self.process.kill()
        self.process.wait(10)
        self._armed.unlink(missing_ok=True)


@pytest.fixture
def dying(product: Product) -> Iterator[Dying]:
    """Starts consumers with a trap; ends them after the test."""
    started: list[DyingProcess] = []

    def start(lane: str, how: str, point: str) -> DyingProcess:
        made = DyingProcess(product, lane, how, point, os.getpid() * 1000 + len(started))
        started.append(made)
        return made

    yield start
    for one in started:
        one.end()
