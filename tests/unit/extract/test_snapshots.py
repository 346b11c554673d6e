"""The same bytes give the same blocks and the same chunk ids: in every process, and until the revision is raised."""

from __future__ import annotations

import io
import json
import os
import shutil
import subprocess
import sys
from functools import cache
from pathlib import Path

import pytest

import tests.snapshots as snapshots
from infra.bench.quality.scores import lcs, words
from schemas.generation import CHUNKING_REVISION
from tests.snapshots import __main__ as renewal

REMEDY = "raise CHUNKING_REVISION in schemas/generation.py and run `make snapshots`"
ROOT = Path(__file__).parents[3]
CORPUS = {truth.file: (truth, file) for truth, file in snapshots.corpus()}
PRINTED = [name for name, (truth, _) in CORPUS.items() if not truth.ocr]
SCANNED = [name for name, (truth, _) in CORPUS.items() if truth.ocr]
ALIKE = 0.9  # of the words, between versions of Tesseract


@cache
def now(name: str) -> snapshots.Snapshot:
    return snapshots.taken(*CORPUS[name])


@pytest.mark.requirement("I6", "A4")
@pytest.mark.parametrize("name", PRINTED)
def test_blocks_and_chunks_are_those_of_the_revision(name: str) -> None:
    kept = snapshots.stored(name)
    assert kept is not None, f"{name} has no snapshot: run `make snapshots`"
    assert kept["revision"] == CHUNKING_REVISION, f"{name} is of another revision: run `make snapshots`"
    made = now(name)
    for part in made:
        assert made[part] == kept.get(part), f"{part} of {name} changed: {REMEDY}"


@pytest.mark.requirement("A2")
@pytest.mark.skipif(shutil.which("tesseract") is None, reason="tesseract is not installed")
@pytest.mark.parametrize("name", SCANNED[:3])
def test_pages_read_by_ocr_say_nearly_the_same(name: str) -> None:
    kept = snapshots.stored(name)
    assert kept is not None, f"{name} has no snapshot: run `make snapshots`"
    assert kept["revision"] == CHUNKING_REVISION, f"{name} is of another revision: run `make snapshots`"
    before, made = words(kept["ocr"]), words(now(name)["ocr"])
    assert lcs(before, made) >= ALIKE * max(len(before), len(made)), f"{name} is read in another way: {REMEDY}"


@pytest.mark.requirement("I6")
def test_another_process_with_other_hashes_makes_the_same_ids() -> None:
    seed = "4242" if os.environ.get("PYTHONHASHSEED") != "4242" else "77"
    done = subprocess.run(
        [sys.executable, "-m", "tests.snapshots", "--print"],
        cwd=ROOT,
        env={**os.environ, "PYTHONHASHSEED": seed},
        capture_output=True,
        check=True,
        encoding="utf-8",
        timeout=120,
    )
    assert json.loads(done.stdout) == {name: now(name) for name in PRINTED}


def test_no_snapshot_is_left_of_a_file_that_is_gone() -> None:
    assert {file.name.removesuffix(".json") for file in snapshots.FOLDER.glob("*.json")} == set(CORPUS)


# -- renewing ----------------------------------------------------------------------------------------------------------


@pytest.fixture
def kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Snapshots of two small files in a folder of their own."""
    some = tuple(CORPUS[name] for name in ("fences.md", "berths.csv"))
    for module in (snapshots, renewal):
        monkeypatch.setattr(module, "FOLDER", tmp_path)
        monkeypatch.setattr(module, "corpus", lambda: some)
    assert renewal.renew([], io.StringIO()) == 0
    return tmp_path


def raised(monkeypatch: pytest.MonkeyPatch) -> None:
    for module in (snapshots, renewal):
        monkeypatch.setattr(module, "CHUNKING_REVISION", CHUNKING_REVISION + 1)


@pytest.mark.requirement("I6")
def test_a_change_is_not_kept_under_the_same_revision(kept: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = kept / "fences.md.json"
    other = {**json.loads(file.read_text(encoding="utf-8")), "blocks": []}
    file.write_text(json.dumps(other), encoding="utf-8")
    said = io.StringIO()
    assert renewal.renew([], said) == 1
    assert "fences.md" in said.getvalue() and "CHUNKING_REVISION" in said.getvalue()
    assert json.loads(file.read_text(encoding="utf-8")) == other
    raised(monkeypatch)
    assert renewal.renew([], said) == 0
    assert json.loads(file.read_text(encoding="utf-8"))["revision"] == CHUNKING_REVISION + 1
    assert json.loads((kept / "berths.csv.json").read_text(encoding="utf-8"))["revision"] == CHUNKING_REVISION + 1


def test_what_is_not_released_may_be_renewed_and_the_gone_is_removed(kept: Path) -> None:
    (kept / "fences.md.json").write_text(json.dumps({"revision": CHUNKING_REVISION}), encoding="utf-8")
    (kept / "gone.md.json").write_text("{}", encoding="utf-8")
    assert renewal.renew([renewal.SAME], io.StringIO()) == 0
    assert sorted(file.name for file in kept.iterdir()) == ["berths.csv.json", "fences.md.json"]
    assert json.loads((kept / "fences.md.json").read_text(encoding="utf-8"))["blocks"]
