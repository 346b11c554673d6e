"""What a document takes is bounded, and its neighbours do not notice."""

from __future__ import annotations

import json
import os
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from pipeline.errors import DocumentError
from pipeline.extract import BlockExtractor
from pipeline.extract.pool import ExtractorPool
from tests.integration.extract.conftest import MakePool, deed, gone, said, until

pytestmark = pytest.mark.requirement("A2", "I8")
PAGES = [
    (b"# Heading\n\nText with `code`.\n\n- one\n  - two\n\n| a | b |\n|---|---|\n| 1 | 2 |\n", "text/markdown", "a.md"),
    ("<h1>Ünïcode</h1><p>naïve</p><pre>x\n  y</pre>".encode("cp1252"), "text/html; charset=cp1252", None),
    (b'{"a": 1}', "application/json", None),
    (b"", "text/plain", None),
]


def refusal(pool: ExtractorPool, body: bytes) -> DocumentError:
    with pytest.raises(DocumentError) as caught:
        pool.extract(body, "text/plain")
    error = caught.value
    assert error.stage == "extract"
    assert error.final
    assert error.reason.startswith("body: ")
    assert "; " in error.reason, "a reason names the remedy"
    return error


def test_a_child_reads_as_the_extractor_itself(make_pool: MakePool) -> None:
    pool, own = make_pool(), BlockExtractor()
    for body, content_type, path in PAGES:
        assert pool.extract(body, content_type, path=path) == own.extract(body, content_type, path=path)


def test_a_reader_s_refusal_comes_through(make_pool: MakePool) -> None:
    with pytest.raises(DocumentError) as alone:
        BlockExtractor().extract(b"text\x00with NUL", "text/markdown")
    with pytest.raises(DocumentError) as pooled:
        make_pool().extract(b"text\x00with NUL", "text/markdown")
    assert (pooled.value.reason, pooled.value.kind, pooled.value.stage) == (
        alone.value.reason, alone.value.kind, alone.value.stage,
    )  # fmt: skip


def test_what_no_reader_takes_is_refused_before_a_child_starts(make_pool: MakePool) -> None:
    pool = make_pool()
    with pytest.raises(DocumentError):
        pool.extract(b"\x7fELF and so on", "application/x-elf")
    assert pool.folder is None


@pytest.mark.parametrize("work", [("spin",), ("spin_below",)], ids=lambda work: str(work[0]))
def test_cpu_time_is_bounded_and_the_neighbour_is_read(make_pool: MakePool, note: Path, work: tuple[str]) -> None:
    pool = make_pool(armed=True, light=2, cpu_s=0.6)
    body = deed("spin") if work == ("spin",) else deed("spin_below", str(note))
    with ThreadPoolExecutor() as threads:
        neighbour = threads.submit(pool.extract, deed("sleep", 0.3), "text/plain")
        error = refusal(pool, body)
        assert said(neighbour.result()) == "slept"
    assert error.kind == "time-limit"
    assert "of CPU time" in error.reason
    assert "extraction.cpu_s" in error.reason
    if note.exists():
        assert until(lambda: gone(*map(int, note.read_text().split())), 5)


def test_waiting_is_bounded_too(make_pool: MakePool) -> None:
    began = time.monotonic()
    error = refusal(make_pool(armed=True, cpu_s=0.1), deed("sleep", 60))
    assert error.kind == "time-limit"
    assert 1.0 <= time.monotonic() - began < 20


def test_memory_of_a_light_child_is_bounded(make_pool: MakePool) -> None:
    pool = make_pool(armed=True, memory_mb=128)
    error = refusal(pool, deed("eat", 400, 0))
    assert error.kind == "memory-limit"
    assert "extraction.memory_mb" in error.reason
    assert said(pool.extract(deed("eat", 20, 0), "text/plain")) == "eaten"


@pytest.mark.usefixtures("heavy_text")
@pytest.mark.parametrize("work", [("eat", 400, 0.002), ("eat_below", 400)], ids=lambda work: str(work[0]))
def test_memory_of_a_heavy_child_is_bounded_with_its_subprocesses(make_pool: MakePool, work: tuple[str, int]) -> None:
    error = refusal(make_pool(armed=True, memory_mb=128), deed(*work))
    assert error.kind == "memory-limit"


def test_a_written_file_is_bounded(make_pool: MakePool) -> None:
    pool = make_pool(armed=True, unpacked_mb=2)
    error = refusal(pool, deed("write", 4))
    assert error.kind == "output"
    assert "extraction.unpacked_mb" in error.reason
    assert said(pool.extract(deed("write", 1), "text/plain")) == "written"


def test_a_reply_is_bounded(make_pool: MakePool) -> None:
    error = refusal(make_pool(armed=True, output_mb=1), deed("swell", 24))
    assert error.kind == "output"
    assert "extraction.output_mb" in error.reason


@pytest.mark.parametrize(("work", "kind"), [("fail", "reader-failed"), ("nest", "nesting")])
def test_a_reader_s_mistake_is_the_document_s_reason(make_pool: MakePool, work: str, kind: str) -> None:
    pool = make_pool(armed=True, light=1)
    assert refusal(pool, deed(work)).kind == kind
    assert said(pool.extract(b"next", "text/plain")) == "next"


def test_subprocesses_end_with_their_document(make_pool: MakePool) -> None:
    pool = make_pool(armed=True, light=1)
    left = int(said(pool.extract(deed("forget_subprocess"), "text/plain")))
    assert said(pool.extract(b"next", "text/plain")) == "next"
    assert until(lambda: gone(left), 5)


def test_what_a_reader_prints_harms_nothing(make_pool: MakePool) -> None:
    pool = make_pool(armed=True, light=1, unpacked_mb=1)
    for count in range(3):
        assert said(pool.extract(deed("talk", 400 + count), "text/plain")) == "talked"


def test_a_document_sees_little_and_leaves_nothing(make_pool: MakePool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HEADWATER_AUTH__JWT_SECRET", "not for documents")
    pool = make_pool(armed=True, light=1)
    first = json.loads(said(pool.extract(deed("around"), "text/plain")))
    second = json.loads(said(pool.extract(deed("around", *()), "text/plain", path="b")))
    assert first["pid"] == second["pid"], "one child read both"
    assert first["files"] == second["files"] == []
    assert "not for documents" not in json.dumps(first["environment"])
    assert first["environment"]["HOME"] == first["environment"]["TMPDIR"] == first["folder"]
    assert first["folder"].startswith(str(pool.folder))
    assert first["new_privileges"] == "1"
    assert first["capabilities"] & ~0b110 == 0
    # stdin, stdout and stderr, the two pipes, the folder that is being listed: nothing of the parent's
    assert len(first["descriptors"]) <= 6
    assert not [one for one in first["descriptors"] if one == "socket"]


@pytest.mark.usefixtures("heavy_text")
def test_heavy_work_gives_way(make_pool: MakePool) -> None:
    seen = json.loads(said(make_pool(armed=True).extract(deed("around"), "text/plain")))
    assert seen["nice"] >= min(19, os.nice(0) + 10)  # the system's limit
