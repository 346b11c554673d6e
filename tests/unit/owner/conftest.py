"""A small wiki with an owner."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.unit.owner.support import Wiki

GROUPS = """
users: [ann, bob, cleo]
groups:
  eng: [ann, group:sre]
  sre: [bob]
"""


@pytest.fixture
def wiki(tmp_path: Path) -> Iterator[Wiki]:
    root = tmp_path / "wiki"
    root.mkdir()
    made = Wiki(root)
    made.put("groups.yaml", GROUPS)
    made.put("index.md", "# Home\n\nWelcome.")
    made.put("eng/.access.yaml", "allow: [group:eng]")
    made.put("eng/runbook.md", "# Runbook\n\nRestart it.")
    yield made
    if hasattr(made, "engine"):
        made.engine.close()
