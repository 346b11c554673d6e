"""Cached binaries count only when they are whole and of the pinned version."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from infra import pins
from infra.errors import InfraError, ObtainError
from infra.obtain import download, kafka, weaviate

MODULE_LINE = f"mod\t{pins.WEAVIATE_MODULE}\tv{pins.WEAVIATE_VERSION}\t{pins.WEAVIATE_MODULE_SUM}\n"


def _server(cache: Path, content: bytes) -> Path:
    binary = weaviate.binary(cache)
    binary.parent.mkdir(parents=True, exist_ok=True)
    binary.write_bytes(content)
    return binary


def test_a_server_with_the_modules_checksum_is_pinned_and_remembered(tmp_path: Path) -> None:
    binary = _server(tmp_path, b"\x7fELF" + MODULE_LINE.encode() + b"rest")
    assert weaviate.present(tmp_path)
    note = binary.with_name("weaviate-server.json")
    assert json.loads(note.read_text())["version"] == pins.WEAVIATE_VERSION


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"\x7fELF half a download",
        MODULE_LINE.replace(pins.WEAVIATE_VERSION, "1.38.0").encode(),
        MODULE_LINE.replace(pins.WEAVIATE_MODULE_SUM, "h1:AAAA=").encode(),
    ],
)
def test_other_servers_are_refused(tmp_path: Path, content: bytes) -> None:
    _server(tmp_path, content)
    assert not weaviate.present(tmp_path)


def test_a_server_that_was_replaced_is_checked_again(tmp_path: Path) -> None:
    _server(tmp_path, MODULE_LINE.encode())
    assert weaviate.present(tmp_path)
    _server(tmp_path, b"something else")
    assert not weaviate.present(tmp_path)


def test_nothing_cached_is_not_present(tmp_path: Path) -> None:
    assert not weaviate.present(tmp_path)
    assert not kafka.present(tmp_path)


def test_one_missing_jar_is_not_present(tmp_path: Path) -> None:
    libs = kafka.folder(tmp_path)
    libs.mkdir(parents=True)
    names = sorted(pins.kafka_jars())
    for name in names[1:]:
        (libs / name).write_bytes(b"")
    assert not kafka.present(tmp_path)
    (libs / names[0]).write_bytes(b"")
    assert kafka.present(tmp_path)


def test_the_pinned_list_is_complete() -> None:
    jars = pins.kafka_jars()
    assert len(jars) == 46
    assert f"kafka_{pins.KAFKA_SCALA}-{pins.KAFKA_VERSION}.jar" in jars
    assert f"slf4j-simple-{pins.SLF4J_VERSION}.jar" in jars
    assert all(len(digest) == 64 for digest in jars.values())


def test_a_changed_jar_is_refused_by_name(tmp_path: Path, cache_dir: Path) -> None:
    for name in pins.kafka_jars():
        (tmp_path / name).write_bytes(b"not the jar")
    with pytest.raises(ObtainError, match="do not match their pinned sha256"):
        kafka._check(tmp_path)


def test_too_little_space_stops_before_anything_is_fetched(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("infra.files.free_mib", lambda path: 12)
    with pytest.raises(InfraError, match="12 MiB free"):
        kafka.obtain(tmp_path, _Silent())
    assert not kafka.folder(tmp_path).exists()


class _Silent:
    def step(self, name: str, detail: str = "", done: float | None = None) -> None: ...

    def finish(self, name: str, detail: str = "") -> None: ...


@pytest.mark.parametrize(
    "text",
    [
        "A" * 64,
        "a" * 64 + "  weaviate.tar.gz\n",
        "weaviate.tar.gz: " + " ".join(["AAAAAAAA"] * 4) + "\n   " + " ".join(["AAAAAAAA"] * 4),
    ],
)
def test_published_checksums_are_read_in_every_layout(text: str) -> None:
    assert download._hex(text, "sha256") == "a" * 64


def test_an_unreadable_checksum_is_refused() -> None:
    with pytest.raises(ObtainError, match="cannot be read"):
        download._hex("<html>not found</html>", "sha256")
