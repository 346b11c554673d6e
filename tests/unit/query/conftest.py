"""Fixtures of the query service's unit tests."""

from __future__ import annotations

from pathlib import Path

import pytest

from query_service import suggest
from tests.unit.query.world import World


@pytest.fixture
def anyio_backend() -> str:
    """Coroutine tests run on asyncio."""
    return "asyncio"


@pytest.fixture(autouse=True)
def _patient(monkeypatch: pytest.MonkeyPatch) -> None:
    """Suggestions are made also on a machine that is busy with other work; their deadline has a test of its own."""
    monkeypatch.setattr(suggest, "DEADLINE_S", 30.0)


@pytest.fixture
def world(tmp_path: Path) -> World:
    """An empty world with one active generation."""
    return World(tmp_path)
