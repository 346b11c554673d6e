"""Pools of real children, closed after the test and shown to have left nothing."""

from __future__ import annotations

import json
import os
import shutil
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import psutil
import pytest

from pipeline.extract import media
from pipeline.extract.pool import ExtractorPool
from pipeline.settings import ExtractionSettings
from schemas.documents import ExtractedDocument
from tests.integration.extract import armed

ARMED = "tests.integration.extract.armed"
MakePool = Callable[..., ExtractorPool]


def deed(name: str, *arguments: Any) -> bytes:
    """A text that the armed child carries out."""
    return json.dumps([name, *arguments]).encode()


def said(document: ExtractedDocument) -> str:
    """The text of a document of one block."""
    (block,) = document.blocks
    return block.text


def until(condition: Callable[[], bool], seconds: float = 30.0) -> bool:
    """Whether it came true in time."""
    ends = time.monotonic() + seconds
    while time.monotonic() < ends:
        if condition():
            return True
        time.sleep(0.01)
    return condition()


def gone(*pids: int) -> bool:
    """Whether none of the processes runs; one that nobody waited for yet has ended too."""
    for pid in pids:
        try:
            if psutil.Process(pid).status() != psutil.STATUS_ZOMBIE:
                return False
        except psutil.NoSuchProcess:
            continue
    return True


@pytest.fixture
def make_pool() -> Iterator[MakePool]:
    """Pools with limits of the test's own: ``armed`` takes the armed child, other words are settings or arguments."""
    pools: list[ExtractorPool] = []
    before = {child.pid for child in psutil.Process().children(recursive=True)}

    def make(*, armed: bool = False, **words: Any) -> ExtractorPool:
        known = {name: words.pop(name) for name in list(words) if name in ExtractionSettings.model_fields}
        if armed:
            words["module"] = ARMED
        pool = ExtractorPool(ExtractionSettings(**known), **words)
        pools.append(pool)
        return pool

    yield make
    for pool in pools:
        pool.close()
    assert {child.pid for child in psutil.Process().children(recursive=True)} <= before
    for pool in pools:
        assert pool.folder is None or not pool.folder.exists()


@pytest.fixture
def heavy_text(monkeypatch: pytest.MonkeyPatch) -> None:
    """Plain text goes to heavy children, so that the armed reader runs there."""
    monkeypatch.setitem(media.BY_MEDIA, media.TEXT, replace(media.BY_MEDIA[media.TEXT], heavy=True))


@pytest.fixture
def note() -> Iterator[Path]:
    """A file that a deed tells by, in the one folder beside its own that the armed child may write to."""
    folder = armed.notes(os.getpid())
    folder.mkdir(mode=0o700)
    yield folder / "note"
    shutil.rmtree(folder)
