"""What a try of a folder finds out."""

from __future__ import annotations

import os
import time
from pathlib import Path

import pytest

from pipeline.clock import SystemClock
from pipeline.settings_sources import FolderSettings
from pipeline.sources.folder.check import findings


def found(root: Path, limit: str = "1000") -> dict[str, bool]:
    watches = root.parent / "max_user_watches"
    watches.write_text(limit)
    return {f.what: f.good for f in findings(FolderSettings(name="wiki", path=root), SystemClock(), watches=watches)}


@pytest.fixture
def root(tmp_path: Path) -> Path:
    made = tmp_path / "wiki"
    (made / "eng").mkdir(parents=True)
    (made / "groups.yaml").write_text("users: [ann, bob]\ngroups:\n  eng: [ann]\n")
    (made / "index.md").write_text("# Home")
    (made / "eng" / ".access.yaml").write_text("allow: [group:eng]")
    (made / "eng" / "a.md").write_text("# A")
    for folder in (made, made / "eng"):
        os.utime(folder, (time.time() - 60,) * 2)
    return made


def test_a_good_folder(root: Path) -> None:
    told = found(root)
    assert all(told.values()) and "2 documents in 2 folders" in told and "groups.yaml lists 2 people" in told


@pytest.mark.requirement("D5")
def test_what_is_in_the_way_is_told(root: Path) -> None:
    (root / "eng" / ".access.yaml").write_text("alow: [group:eng]")
    (root / "groups.yaml").unlink()
    told = found(root, limit="1")
    bad = " ".join(what for what, good in told.items() if not good)
    for said in ("2 folders, of which 1 can be watched", "groups.yaml is missing", "eng/.access.yaml"):
        assert said in bad, told


def test_a_folder_that_is_not_there(tmp_path: Path) -> None:
    (tmp_path / "x").mkdir()
    assert list(found(tmp_path / "x" / "nowhere").values()) == [False]


@pytest.mark.skipif(os.geteuid() == 0, reason="nothing is closed to root")
def test_documents_that_cannot_be_read_are_counted(root: Path) -> None:
    (root / "eng" / "a.md").chmod(0)
    told = found(root)
    assert told["1 documents cannot be read, for instance eng/a.md"] is False
