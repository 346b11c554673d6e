"""Whole files, keys that only their owner reads, and a full disk that says so."""

from __future__ import annotations

import json
import stat
from pathlib import Path

import pytest

from infra import files
from infra.errors import DiskFullError, InfraError
from infra.state import State, Store


def test_a_file_is_whole_or_absent(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    target = tmp_path / "state.json"
    files.write_atomic(target, b"old")

    def fail(handle: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("os.fsync", fail)
    with pytest.raises(DiskFullError, match=r"state\.json could not be written"):
        files.write_atomic(target, b"new")
    assert target.read_bytes() == b"old"


def test_a_full_device_is_a_clear_error() -> None:
    device = Path("/dev/full")
    with pytest.raises(DiskFullError) as caught, files.disk_errors(device), device.open("wb", buffering=0) as stream:
        stream.write(b"x")
    assert "The disk is full: /dev/full" in caught.value.problem
    assert "Free some space" in caught.value.remedy


def test_other_errors_of_the_disk_stay_what_they_are(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError), files.disk_errors(tmp_path):
        (tmp_path / "absent").read_bytes()


def test_too_little_space_names_place_amount_and_remedy(tmp_path: Path) -> None:
    huge = files.free_mib(tmp_path) + 1000
    with pytest.raises(DiskFullError) as caught:
        files.require_space(tmp_path / "not" / "yet", huge, "building Weaviate", "HEADWATER_CACHE_DIR")
    said = str(caught.value)
    assert "building Weaviate" in said
    assert f"{huge} MiB needed" in said
    assert str(tmp_path) in said
    assert "HEADWATER_CACHE_DIR" in said
    files.require_space(tmp_path, 1, "a little", "HEADWATER_CACHE_DIR")


def test_keys_are_made_once_and_readable_by_their_owner_only(tmp_path: Path) -> None:
    store = Store(tmp_path)
    first = store.secrets()
    assert store.secrets() == first
    assert stat.S_IMODE(store.secrets_file.stat().st_mode) == 0o600
    assert len(set(first.model_dump().values())) == len(first.model_dump()) >= 5
    assert min(len(key) for key in first.model_dump().values()) >= 40


def test_the_state_is_remembered(tmp_path: Path) -> None:
    store = Store(tmp_path)
    state = store.state()
    state.ports["kafka"] = 20_001
    store.save(state)
    assert Store(tmp_path).state() == state


@pytest.mark.parametrize("text", ["", "{", '{"ports": 3}', '{"unknown": 1}'])
def test_a_damaged_state_file_names_the_remedy(tmp_path: Path, text: str) -> None:
    store = Store(tmp_path)
    store.state_file.write_text(text)
    with pytest.raises(InfraError) as caught:
        store.state()
    assert str(store.state_file) in caught.value.problem
    assert "headwater down" in caught.value.remedy


def test_cluster_ids_never_look_like_an_option() -> None:
    ids = [State().cluster_id for _ in range(300)]
    assert len(set(ids)) == 300
    assert all(len(i) == 22 and not i.startswith("-") for i in ids)


def test_a_key_that_a_later_version_added_is_made_once(tmp_path: Path) -> None:
    store = Store(tmp_path)
    old = store.secrets().model_dump()
    del old["weaviate_cluster"]
    store.secrets_file.write_text(json.dumps(old))
    first = store.secrets()
    assert store.secrets() == first
    assert first.weaviate_admin == old["weaviate_admin"]
