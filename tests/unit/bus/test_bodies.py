"""Claim checks in a folder."""

from __future__ import annotations

import hashlib
from pathlib import Path

import pytest

from pipeline.bus.bodies import FsspecBodyStore, path_of
from pipeline.errors import BodyGone, BusUnavailable, ConfigError, DocumentError
from pipeline.settings import BodySettings, Settings
from schemas.keys import DocumentRef

DOC = DocumentRef(tenant="acme", source="..", id="../../etc/passwd")


@pytest.mark.requirement("A1")
def test_bodies_lie_in_the_state_folder_unless_another_store_is_named(tmp_path: Path) -> None:
    state = tmp_path / "state"
    path, digest = FsspecBodyStore.of(Settings(state_dir=state)).put(DOC, 7, b"text")
    assert (state / "bodies" / path).read_bytes() == b"text"
    elsewhere = Settings(state_dir=state, bodies=BodySettings(store=f"file://{tmp_path}/elsewhere"))
    FsspecBodyStore.of(elsewhere).put(DOC, 8, b"more")
    assert len(list((state / "bodies").rglob("*7*"))) == 1 and list((tmp_path / "elsewhere").rglob("*8*"))
    assert digest == hashlib.sha256(b"text").hexdigest()


def store(tmp_path: Path, **options: int) -> FsspecBodyStore:
    return FsspecBodyStore(f"file://{tmp_path}/bodies", **options)


@pytest.mark.requirement("I2")
def test_a_body_comes_back_by_path_and_hash(tmp_path: Path) -> None:
    bodies = store(tmp_path)
    path, digest = bodies.put(DOC, 7, b"text")
    assert digest == hashlib.sha256(b"text").hexdigest() and bodies.get(path, digest) == b"text"
    assert path == path_of(DOC, 7) and ".." not in path.split("/")
    inside = (tmp_path / "bodies" / path).resolve()
    assert inside.is_relative_to(tmp_path / "bodies") and inside.read_bytes() == b"text"
    assert bodies.put(DOC, 7, b"text") == (path, digest), "again is harmless"


def test_a_missing_body_is_gone_and_another_one_is_not_served(tmp_path: Path) -> None:
    bodies = store(tmp_path)
    path, digest = bodies.put(DOC, 7, b"text")
    with pytest.raises(DocumentError) as changed:
        bodies.get(path, hashlib.sha256(b"other").hexdigest())
    assert (changed.value.stage, changed.value.kind) == ("body", "hash")
    bodies.delete(path)
    bodies.delete(path)
    with pytest.raises(BodyGone):
        bodies.get(path, digest)


def test_versions_are_listed_oldest_first_and_never_shared(tmp_path: Path) -> None:
    bodies = store(tmp_path)
    other = DOC.model_copy(update={"id": "2"})
    for version in (9, 10, 100):
        bodies.put(DOC, version, b"same")
    bodies.put(other, 9, b"same")
    assert [p.rsplit("/", 1)[1] for p in bodies.versions(DOC)] == ["9", "10", "100"]
    for path in bodies.versions(DOC):
        bodies.delete(path)
    assert bodies.versions(DOC) == [] and len(bodies.versions(other)) == 1


@pytest.mark.requirement("F22")
def test_an_oversized_body_is_refused_by_name(tmp_path: Path) -> None:
    with pytest.raises(DocumentError, match=r"bodies\.max_bytes") as refused:
        store(tmp_path, max_bytes=10).put(DOC, 1, b"x" * 11)
    assert refused.value.kind == "too_large"


@pytest.mark.parametrize("path", ["/etc/passwd", "../x", "a/../../x", "a//b", ""])
def test_paths_stay_inside_the_store(tmp_path: Path, path: str) -> None:
    bodies = store(tmp_path)
    for call in (lambda: bodies.get(path, "0" * 64), lambda: bodies.delete(path)):
        with pytest.raises(DocumentError):
            call()


def test_a_failed_write_leaves_nothing_behind(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    bodies = store(tmp_path)

    def full(source: str, target: str) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("os.replace", full)
    with pytest.raises(BusUnavailable, match="No space left"):
        bodies.put(DOC, 1, b"text")
    assert [p for p in (tmp_path / "bodies").rglob("*") if p.is_file()] == []


def test_an_unknown_kind_of_store_is_a_setting_to_correct() -> None:
    with pytest.raises(ConfigError, match=r"bodies\.store"):
        FsspecBodyStore("nosuch://place")
