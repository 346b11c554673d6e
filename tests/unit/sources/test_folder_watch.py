"""A watch that does not reach everywhere: what it misses is said, and the walk finds it."""

from __future__ import annotations

import ctypes
import errno
from pathlib import Path
from typing import Any

import pytest

from pipeline.clock import SystemClock
from pipeline.ports import SourceDocument
from pipeline.sources.connector import Look
from pipeline.sources.folder.source import FolderSource


class FewWatches:
    """The system's library, where watches run out at folders of one name."""

    def __init__(self, libc: Any, last: bytes) -> None:
        self._libc, self._last = libc, last

    def __getattr__(self, name: str) -> Any:
        return getattr(self._libc, name)

    def inotify_add_watch(self, handle: int, target: bytes, mask: int) -> int:
        if target.endswith(self._last):
            ctypes.set_errno(errno.ENOSPC)
            return -1
        return int(self._libc.inotify_add_watch(handle, target, mask))


@pytest.fixture
def root(tmp_path: Path) -> Path:
    made = tmp_path / "wiki"
    for folder in ("near", "far"):
        (made / folder).mkdir(parents=True)
        (made / folder / "a.md").write_text("# A\n")
    (made / "groups.yaml").write_text("users: [ann]\n")
    return made


def source_of(root: Path) -> FolderSource:
    made = FolderSource("acme", "wiki", str(root), clock=SystemClock(), version=lambda: 1)
    made.restore([], "")
    made.watch()
    return made


def bodies(look: Look | None) -> dict[str | None, bytes]:
    seen = list(look.seen) if look is not None else []
    return {d.path: d.body for d in seen if isinstance(d, SourceDocument)}


@pytest.mark.requirement("A11", "F03")
def test_where_watches_run_out_it_is_said_and_the_walk_finds_the_change(
    root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = ctypes.CDLL(None, use_errno=True)
    monkeypatch.setattr(ctypes, "CDLL", lambda name, **options: FewWatches(real, b"/far"))
    source = source_of(root)
    try:
        assert set(bodies(source.listing())) == {"far/a.md", "near/a.md"}
        assert "fs.inotify.max_user_watches" in (source.degraded or "") and not source.watched
        (root / "far" / "a.md").write_text("# A, edited\n")
        (root / "near" / "a.md").write_text("# A, edited\n")
        assert set(bodies(source.changes(1.0))) == {"near/a.md"}
        assert bodies(source.listing()) == {"far/a.md": b"# A, edited\n"}
    finally:
        source.close()


@pytest.mark.requirement("A11", "F03")
def test_without_any_watch_only_the_walk_sees(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def none(*given: object, **named: object) -> None:
        raise OSError(errno.ENOSYS, "this system has no inotify")

    monkeypatch.setattr("pipeline.sources.folder.source.Inotify", none)
    source = source_of(root)
    source.listing()
    assert source.degraded is not None and not source.watched
    (root / "near" / "b.md").write_text("# B\n")
    source.wake()
    assert "near/b.md" not in bodies(source.changes(0.0))
    assert "near/b.md" in bodies(source.listing())
