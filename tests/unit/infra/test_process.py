"""Pid files that cannot be mistaken, and a stop that ends."""

from __future__ import annotations

import json
import os
import signal
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest

from infra.errors import StartError
from infra.process import Managed, tail

SLEEP = [sys.executable, "-c", "import time; print('hello', flush=True); time.sleep(60)"]
STUBBORN = [
    sys.executable,
    "-c",
    "import signal, time; signal.signal(signal.SIGTERM, signal.SIG_IGN); print('deaf', flush=True); time.sleep(60)",
]


@pytest.fixture
def managed(tmp_path: Path) -> Iterator[Managed]:
    process = Managed("sleeper", tmp_path)
    yield process
    process.kill()


def _start(managed: Managed, argv: list[str], said: str) -> int:
    pid = managed.start(argv, os.environ)
    end = time.monotonic() + 10
    while said not in managed.log_tail():
        assert time.monotonic() < end, managed.log_tail()
        time.sleep(0.02)
    return pid


def _write(managed: Managed, **record: Any) -> None:
    managed.pid_file.parent.mkdir(parents=True, exist_ok=True)
    managed.pid_file.write_text(json.dumps(record))


def test_started_is_alive_logged_and_stopped_in_order(managed: Managed) -> None:
    pid = _start(managed, SLEEP, "hello")
    assert managed.alive()
    assert psutil.Process(pid).name()
    assert managed.stop(5) is True
    assert not managed.alive()
    assert not psutil.pid_exists(pid)
    assert not managed.pid_file.exists()


def test_another_object_and_another_reader_see_the_same_process(managed: Managed, tmp_path: Path) -> None:
    pid = _start(managed, SLEEP, "hello")
    found = Managed("sleeper", tmp_path).process()
    assert found is not None
    assert found.pid == pid


def test_a_process_that_ignores_the_request_is_killed(managed: Managed) -> None:
    _start(managed, STUBBORN, "deaf")
    begin = time.monotonic()
    assert managed.stop(0.5) is False
    assert time.monotonic() - begin < 5
    assert not managed.alive()


def test_a_suspended_process_is_stopped_in_order(managed: Managed) -> None:
    _start(managed, SLEEP, "hello")
    managed.send(signal.SIGSTOP)
    assert managed.stop(5) is True


def test_a_pid_file_of_a_dead_process_is_stale(managed: Managed) -> None:
    pid = _start(managed, SLEEP, "hello")
    managed.kill()
    assert managed.recorded() is not None
    assert managed.recorded().pid == pid  # type: ignore[union-attr]
    assert not managed.alive()
    _start(managed, SLEEP, "hello")
    assert managed.alive()


def test_a_pid_given_to_another_program_is_not_ours(managed: Managed) -> None:
    """The stale file names a live process: same pid, same start time, other command."""
    me = psutil.Process()
    _write(managed, pid=me.pid, started=me.create_time(), argv=["kafka", "server.properties"])
    assert not managed.alive()
    assert managed.send(signal.SIGTERM) is False  # or this test would end here
    assert managed.stop(0.1) is True


def test_a_pid_with_another_start_time_is_not_ours(managed: Managed) -> None:
    me = psutil.Process()
    _write(managed, pid=me.pid, started=me.create_time() - 3600, argv=me.cmdline())
    assert not managed.alive()
    _write(managed, pid=me.pid, started=me.create_time(), argv=me.cmdline())
    assert managed.alive()
    managed.pid_file.unlink()


@pytest.mark.parametrize("text", ["", "12345", "{", '{"pid": "x"}', '{"pid": 1}', "\x00\x01"])
def test_an_unreadable_pid_file_counts_as_none(managed: Managed, text: str) -> None:
    managed.pid_file.parent.mkdir(parents=True)
    managed.pid_file.write_text(text)
    assert managed.recorded() is None
    assert not managed.alive()


def test_a_missing_program_is_named(managed: Managed) -> None:
    with pytest.raises(StartError, match=r"no-such-program .*|sleeper cannot be executed"):
        managed.start(["/no-such-program"], os.environ)


def test_a_child_that_ends_at_once_is_not_alive(managed: Managed) -> None:
    managed.start([sys.executable, "-c", "raise SystemExit('bad setting')"], os.environ)
    assert managed.wait_gone(10)
    assert "bad setting" in managed.log_tail()


def test_tail_gives_the_last_lines_only(tmp_path: Path) -> None:
    log = tmp_path / "x.log"
    log.write_text("\n".join(f"line {n}" for n in range(10_000)))
    assert tail(log, 2).splitlines() == ["line 9998", "line 9999"]
    assert tail(tmp_path / "absent.log", 2) == ""


def test_a_clock_that_is_set_loses_no_process(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As where a virtual machine goes on after a pause: the time of day of everything that runs moves."""
    managed = Managed("sleeper", tmp_path)
    pid = managed.start([sys.executable, "-c", "import time; time.sleep(60)"], {})
    real = psutil.Process.create_time
    monkeypatch.setattr(psutil.Process, "create_time", lambda self: real(self) + 300)
    try:
        assert managed.alive() and managed.process() is not None
        record = json.loads(managed.pid_file.read_text())
        managed.pid_file.write_text(json.dumps(record | {"boot": "of another start of the system"}))
        assert not managed.alive()  # the same number of seconds after another start is somebody else
        managed.pid_file.write_text(json.dumps(record))
    finally:
        assert managed.stop()
    assert not psutil.pid_exists(pid)
