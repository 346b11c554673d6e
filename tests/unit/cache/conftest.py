"""Fixtures of the tests of what is kept."""

from __future__ import annotations

from pathlib import Path

import pytest

from pipeline.settings_query import CacheSettings
from tests.unit.query.world import World


@pytest.fixture
def anyio_backend() -> str:
    """Coroutine tests run on asyncio."""
    return "asyncio"


@pytest.fixture
def world(tmp_path: Path) -> World:
    """An empty world with one active generation; the application itself keeps nothing."""
    made = World(tmp_path)
    made.settings = made.settings.model_copy(update={"cache": CacheSettings(answers=0, searches=0)})
    return made
