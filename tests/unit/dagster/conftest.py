"""A fresh world and an instance of Dagster in memory for each test."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from dagster import DagsterInstance

from tests.unit.dagster.fakes import FakeHeadwater, World


@pytest.fixture
def world(monkeypatch: pytest.MonkeyPatch) -> World:
    """What the fake installation answers."""
    made = World()
    monkeypatch.setattr(FakeHeadwater, "world", made)
    return made


@pytest.fixture
def headwater(world: World) -> FakeHeadwater:
    """The fake installation."""
    return FakeHeadwater()


@pytest.fixture
def instance() -> Iterator[DagsterInstance]:
    """Dagster's storage in memory."""
    with DagsterInstance.ephemeral() as made:
        yield made
