"""Fixtures of the MCP server's tests."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.unit.query.world import World


@pytest.fixture
def anyio_backend() -> str:
    """Coroutine tests run on asyncio."""
    return "asyncio"


@pytest.fixture
def world(tmp_path: Path) -> World:
    """An empty world with one active generation."""
    return World(tmp_path)
