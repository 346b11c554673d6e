"""The loop of asynchronous tests, and a world to ask in."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.unit.query.world import World


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


@pytest.fixture
def world(tmp_path: Path) -> World:
    return World(tmp_path)
