"""Fixtures of the verification's unit tests."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.unit.verification.twins import Twins


@pytest.fixture
def twins(tmp_path: Path) -> Twins:
    """Two generations of one corpus that agree."""
    made = Twins(tmp_path)
    made.corpus()
    return made
