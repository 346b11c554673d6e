"""Fixtures of the query service on real services."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from pipeline.settings import Settings
from tests.integration.query.real import RealWorld


@pytest.fixture
def anyio_backend() -> str:
    """Coroutine tests run on asyncio."""
    return "asyncio"


@pytest.fixture
def world(settings: Settings) -> Iterator[RealWorld]:
    """A namespace of its own with one active generation."""
    made = RealWorld(settings)
    yield made
    made.close()
