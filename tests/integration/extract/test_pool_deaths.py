"""Children die, are replaced, and die with their parent."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import psutil
import pytest

from pipeline.errors import DocumentError, Retry
from pipeline.extract.pool import ExtractorPool, process, slot
from tests.integration.extract.armed import notes
from tests.integration.extract.conftest import ARMED, MakePool, deed, gone, said, until

pytestmark = pytest.mark.requirement("A2", "I8")


def pid_of(text: str) -> int:
    return int(json.loads(text)["pid"])


def test_a_child_killed_in_the_middle_is_replaced_and_its_document_read(make_pool: MakePool, note: Path) -> None:
    pool = make_pool(armed=True, light=1)
    with ThreadPoolExecutor() as threads:
        reading = threads.submit(pool.extract, deed("signalled", str(note), 60), "text/plain")
        assert until(lambda: note.exists() and note.read_text() != "")
        first = int(note.read_text())
        os.kill(first, signal.SIGKILL)
        assert until(lambda: note.read_text() not in ("", str(first)))
        note.unlink()
        assert said(reading.result()) == "over"


def test_a_document_that_killed_its_reader_once_is_read_alone(make_pool: MakePool, note: Path) -> None:
    pool = make_pool(armed=True, light=1)
    before = pid_of(said(pool.extract(deed("around"), "text/plain")))
    assert said(pool.extract(deed("die_once", str(note), 0), "text/plain")) == "attempt 2"
    after = pid_of(said(pool.extract(deed("around"), "text/plain", path="again")))
    assert after != before


@pytest.mark.parametrize(("work", "how"), [("die", "SIGKILL"), ("segfault", "SIGSEGV"), ("leave", "exit status 7")])
def test_a_document_that_always_kills_its_reader_is_tried_twice(
    make_pool: MakePool, note: Path, work: str, how: str
) -> None:
    told: list[tuple[str, float, str]] = []
    pool = make_pool(armed=True, light=1, observe=lambda *what: told.append(what))
    arguments: dict[str, tuple[str | int, ...]] = {"die": (str(note),), "leave": (7,), "segfault": ()}
    with pytest.raises(DocumentError) as caught:
        pool.extract(deed(work, *arguments[work]), "text/plain")
    assert caught.value.kind == "extractor-died"
    assert caught.value.final
    assert caught.value.reason.count(how) == 2
    if work == "die":
        assert note.read_bytes() == b".."
    assert said(pool.extract(b"next", "text/plain")) == "next"
    assert [(media, outcome) for media, _, outcome in told] == [
        ("text/plain", "extractor-died"),
        ("text/plain", "ok"),
    ]


def test_a_subprocess_that_left_the_group_ends_with_a_child_that_died(make_pool: MakePool, note: Path) -> None:
    pool = make_pool(armed=True, light=1)
    with ThreadPoolExecutor() as threads:
        reading = threads.submit(pool.extract, deed("spin_below", str(note)), "text/plain")
        pids: list[int] = []
        for attempt in (1, 2):
            assert until(lambda: note.exists())
            pids += map(int, note.read_text().split())
            note.unlink()
            os.kill(pids[-2], signal.SIGKILL)
            assert len(pids) == 2 * attempt
        with pytest.raises(DocumentError, match="died twice"):
            reading.result(10)
    assert len(set(pids)) == 4
    assert until(lambda: gone(*pids), 5)


def test_an_idle_child_that_was_killed_costs_the_next_document_nothing(make_pool: MakePool, note: Path) -> None:
    pool = make_pool(armed=True, light=1)
    pid = pid_of(said(pool.extract(deed("around"), "text/plain")))
    os.kill(pid, signal.SIGKILL)
    assert until(lambda: gone(pid))
    # It would be tried twice and fail if the death before it counted.
    assert said(pool.extract(deed("die_once", str(note), 0), "text/plain")) == "attempt 2"


def successor(pool: ExtractorPool, before: int) -> list[tuple[int, float]]:
    """Process ids and seconds of documents until another child reads them."""
    found: list[tuple[int, float]] = []
    while len(found) < 5000 and (not found or found[-1][0] == before):
        began = time.monotonic()
        pid = pid_of(said(pool.extract(deed("around"), "text/plain", path=str(len(found)))))
        found.append((pid, time.monotonic() - began))
    return found


def test_a_child_is_replaced_after_many_documents_by_one_that_is_ready(
    make_pool: MakePool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(slot, "LIGHT_DOCUMENTS", 3)
    pool = make_pool(armed=True, light=1)
    began = time.monotonic()
    before = pid_of(said(pool.extract(deed("around"), "text/plain")))
    start = time.monotonic() - began
    found = successor(pool, before)
    assert 3 <= len(found) < 5000
    assert found[-1][1] < max(start / 2, 0.1), "the first document of the next child does not wait for its start"
    assert until(lambda: gone(before))


def test_a_child_that_has_grown_is_replaced(make_pool: MakePool) -> None:
    pool = make_pool(armed=True, light=1, memory_mb=200)
    before = pid_of(said(pool.extract(deed("around"), "text/plain")))
    assert said(pool.extract(deed("eat", 120, 0), "text/plain")) == "eaten"
    assert successor(pool, before)[-1][0] != before


@pytest.mark.usefixtures("heavy_text")
def test_a_heavy_child_is_replaced_after_fewer(make_pool: MakePool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(slot, "HEAVY_DOCUMENTS", 2)
    pool = make_pool(armed=True)
    pids = [pid_of(said(pool.extract(deed("around"), "text/plain", path=str(n)))) for n in range(3)]
    assert pids[0] == pids[1] != pids[2]


@pytest.mark.usefixtures("heavy_text")
def test_an_idle_heavy_child_ends_and_comes_again(make_pool: MakePool) -> None:
    pool = make_pool(armed=True, heavy_idle_s=0.3)
    pid = pid_of(said(pool.extract(deed("around"), "text/plain")))
    assert until(lambda: gone(pid))
    assert pid_of(said(pool.extract(deed("around"), "text/plain", path="again"))) != pid


def test_a_child_that_cannot_start_is_no_fault_of_the_document(make_pool: MakePool) -> None:
    with pytest.raises(Retry, match="No module named"):
        make_pool(module="pipeline.extract.pool.absent").extract(b"text", "text/plain")


def test_closing_gives_up_work_and_refuses_more(make_pool: MakePool, note: Path) -> None:
    pool = make_pool(armed=True, light=1)
    with ThreadPoolExecutor() as threads:
        reading = threads.submit(pool.extract, deed("signalled", str(note), 60), "text/plain")
        waiting = threads.submit(pool.extract, b"behind it", "text/plain")
        assert until(lambda: note.exists() and note.read_text() != "")
        began = time.monotonic()
        pool.close()
        assert time.monotonic() - began < 5
        for future in (reading, waiting):
            with pytest.raises(Retry, match="ending"):
                future.result(5)
    assert gone(int(note.read_text()))
    pool.close()
    with pytest.raises(Retry, match="ending"):
        pool.extract(b"late", "text/plain")


def test_two_hundred_documents_leave_no_process_and_no_descriptor(
    make_pool: MakePool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(slot, "LIGHT_DOCUMENTS", 60)
    pool = make_pool(armed=True, light=1)
    own = psutil.Process()

    def held() -> tuple[int, int, int]:
        assert until(lambda: len(own.children(recursive=True)) == children)
        return own.num_fds(), threading.active_count(), len(list(pool.folder.iterdir())) if pool.folder else 0

    pool.extract(b"first", "text/plain")
    children = len(own.children(recursive=True))
    before = held()
    for number in range(200):
        if number % 50 == 25:
            with pytest.raises(DocumentError):
                pool.extract(deed("leave", number), "text/plain")
        else:
            assert said(pool.extract(f"document {number}".encode(), "text/plain")) == f"document {number}"
    assert held() == before


PARENT = f"""
import os, sys, threading, time
from pipeline.extract.pool import ExtractorPool
from pipeline.settings import ExtractionSettings
from tests.integration.extract.armed import notes
from tests.integration.extract.conftest import deed
folder = notes(os.getpid())
folder.mkdir()
pool = ExtractorPool(ExtractionSettings(light=2), module={ARMED!r}, patience_s=0)
for body in (deed("spin_below", str(folder / "below")), deed("signalled", str(folder / "own"), 60)):
    try:
        pool.extract(body, "text/plain")
    except Exception:
        pass
print(pool.folder, flush=True)
time.sleep(60)
"""


def test_children_and_their_subprocesses_die_with_a_killed_parent() -> None:
    with subprocess.Popen([sys.executable, "-c", PARENT], stdout=subprocess.PIPE, text=True, cwd=Path.cwd()) as parent:
        assert parent.stdout is not None
        told = notes(parent.pid)
        try:
            folder = Path(parent.stdout.readline().strip())
            files = [told / "below", told / "own"]
            assert until(lambda: all(file.exists() for file in files), 30)
            assert folder.is_dir()
            pids = [int(pid) for file in files for pid in file.read_text().split()]
            assert len(pids) == 3
            assert not any(gone(pid) for pid in pids)
        finally:
            parent.kill()
            shutil.rmtree(told, ignore_errors=True)
        assert until(lambda: gone(*pids), 2)
        assert until(lambda: not folder.exists(), 2)


def test_a_warden_that_was_killed_is_replaced(make_pool: MakePool) -> None:
    pool = make_pool(armed=True, light=1)
    pool.extract(b"first", "text/plain")
    warden = pool._warden
    assert isinstance(warden, process.Warden)
    pid = warden.pid
    os.kill(pid, signal.SIGKILL)
    assert until(lambda: gone(pid))
    with pytest.raises(DocumentError):
        pool.extract(deed("leave", 1), "text/plain")  # a new child is announced
    assert warden.pid != pid
    assert said(pool.extract(b"next", "text/plain")) == "next"
