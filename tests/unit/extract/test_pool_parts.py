"""Messages, the filter of system calls, the measure of a tree, the task of a child."""

from __future__ import annotations

import errno
import os
import socket
import struct
import subprocess
import sys
import time
from pathlib import Path

import psutil
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pipeline.extract.pool import ExtractorPool, frames, sandbox, tree, warden
from pipeline.extract.pool.pool import limits
from pipeline.extract.pool.task import Task
from pipeline.extract.reading import Limits
from pipeline.settings import ExtractionSettings

pytestmark = pytest.mark.requirement("A2")
ALLOWED = 0x7FFF0000


@given(st.dictionaries(st.text(), st.text()), st.binary(max_size=300), st.lists(st.integers(1, 40), max_size=30))
def test_a_message_arrives_whole_in_pieces_of_any_size(
    header: dict[str, str], payload: bytes, sizes: list[int]
) -> None:
    data = b"".join(frames.packed(header, payload))
    collector, found, at = frames.Collector(300), None, 0
    for size in [*sizes, len(data)]:
        if at < len(data):
            assert found is None
            found = collector.feed(data[at : at + size])
            at += size
    assert found == frames.Frame(header, payload)
    assert collector.missing() == 0


def test_messages_that_follow_at_once_are_read_one_by_one() -> None:
    source, sink = os.pipe()
    sent = [({"n": number}, b"x" * number * 1000) for number in range(5)]
    for header, payload in sent:
        frames.send(sink, header, payload)
    os.close(sink)
    got = []
    while (frame := frames.receive(source, 10_000)) is not None:
        got.append((frame.header, frame.payload))
    os.close(source)
    assert got == sent


@pytest.mark.parametrize(
    ("data", "error"),
    [
        (frames.PREFIX.pack(2, 11) + b"{}" + b"x" * 11, frames.TooLong),
        (frames.PREFIX.pack(frames.MAX_HEADER + 1, 0), frames.BrokenFrame),
        (frames.PREFIX.pack(2, 0) + b"{]", frames.BrokenFrame),
        (frames.PREFIX.pack(2, 0) + b"[]", frames.BrokenFrame),
        (frames.PREFIX.pack(2, 0) + b"\xff\xfe", frames.BrokenFrame),
        (frames.PREFIX.pack(2, 0) + b"{}beyond", frames.BrokenFrame),
    ],
)
def test_what_is_no_message_is_refused(data: bytes, error: type[Exception]) -> None:
    with pytest.raises(error):
        frames.Collector(10).feed(data)


def test_a_pipe_that_ends_within_a_message_is_an_error() -> None:
    source, sink = os.pipe()
    os.write(sink, frames.PREFIX.pack(20, 0) + b"{")
    os.close(sink)
    with pytest.raises(frames.BrokenFrame):
        frames.receive(source, 10)
    os.close(source)


def run(program: bytes, arch: int, number: int, first: int = 0) -> int:
    """What the kernel would answer: an interpreter of the few instructions that the filter uses."""
    data = struct.pack("<IIQQ", number, arch, 0, first) + bytes(40)
    steps = list(struct.iter_unpack("=HBBI", program))
    at, accumulator = 0, 0
    while True:
        code, when, otherwise, value = steps[at]
        at += 1
        if code == 0x20:
            (accumulator,) = struct.unpack_from("<I", data, value)
        elif code in (0x15, 0x35):
            true = accumulator == value if code == 0x15 else accumulator >= value
            at += when if true else otherwise
        else:
            assert code == 0x06
            return int(value)


X86, ARM = 0xC000003E, 0xC00000B7
# From the kernel's tables: socket, socketpair, connect, io_uring_setup, ptrace; then read, openat, execve, mmap.
CALLS = {
    "x86_64": (X86, 41, 53, (42, 425, 101, 438), (0, 257, 59, 9)),
    "aarch64": (ARM, 198, 199, (203, 425, 117, 438), (63, 56, 221, 222)),
}


@pytest.mark.parametrize("machine", CALLS)
def test_the_filter_refuses_the_network_alone(machine: str) -> None:
    arch, open_socket, pair, refused, others = CALLS[machine]
    program = sandbox.network_filter(sandbox._ABIS[machine])
    denied = 0x00050000 | errno.EACCES
    for call in (open_socket, pair):
        assert run(program, arch, call, socket.AF_UNIX) == ALLOWED
        for family in (0, 2, 10, 16, 17, 38, 40, 44):
            assert run(program, arch, call, family) == denied
    assert {run(program, arch, call) for call in refused} == {denied}
    assert {run(program, arch, call) for call in others} == {ALLOWED}


@pytest.mark.parametrize("machine", CALLS)
def test_the_filter_refuses_other_abis_whole(machine: str) -> None:
    program = sandbox.network_filter(sandbox._ABIS[machine])
    own = CALLS[machine][0]
    for arch in (0x40000003, 0x40000028, X86 if own == ARM else ARM):  # i386, arm, the other one
        assert run(program, arch, 0) == 0x00050000 | errno.EPERM
    if machine == "x86_64":
        assert run(program, own, 0x40000000 | 41, socket.AF_UNIX) == 0x00050000 | errno.EPERM  # x32


def test_a_tree_is_measured_with_its_subprocesses() -> None:
    code = (
        "import time\nends = time.process_time() + 0.3\nwhile time.process_time() < ends: pass\n"
        "x = bytearray(b'x' * (40 << 20))\n"
    )
    outer = f"import subprocess, sys\nsubprocess.run([sys.executable, '-S', '-c', {code + 'time.sleep(60)'!r}])"
    with subprocess.Popen([sys.executable, "-S", "-c", outer], start_new_session=True) as process:
        try:
            ends = time.monotonic() + 20
            while tree.usage(process.pid).rss < 45 << 20 and time.monotonic() < ends:
                time.sleep(0.02)
            used = tree.usage(process.pid)
            assert used.rss > 45 << 20
            assert used.cpu_s >= 0.25
            assert len(tree.descendants(process.pid)) == 1
            other = tree._usage_without_proc(process.pid)
            assert other.rss == pytest.approx(used.rss, rel=0.2)
            assert other.cpu_s == pytest.approx(used.cpu_s, abs=0.2)
            assert tree._descendants_without_proc(process.pid) == tree.descendants(process.pid)
        finally:
            for child in psutil.Process(process.pid).children(recursive=True):
                child.kill()
            process.kill()
    assert tree.usage(process.pid) == tree.Usage()
    assert tree.descendants(process.pid) == []


def test_cpu_of_subprocesses_that_ended_counts() -> None:
    code = (
        "import subprocess, sys\n"
        "subprocess.run([sys.executable, '-S', '-c', 'import time\\nwhile time.process_time() < 0.3: pass'])\n"
        "print('done', flush=True)\nsys.stdin.read()"
    )
    with subprocess.Popen([sys.executable, "-S", "-c", code], stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == b"done\n"
        assert tree.descendants(process.pid) == []
        assert tree.usage(process.pid).cpu_s >= 0.28


def test_only_what_works_in_the_folder_is_killed(tmp_path: Path) -> None:
    inside, beside = tmp_path / "a", tmp_path / "ab"
    (inside / "below").mkdir(parents=True)
    beside.mkdir()
    sleepers = [subprocess.Popen(["sleep", "60"], cwd=place) for place in (inside, inside / "below", beside)]
    try:
        warden.kill_inside(str(inside))
        assert [sleeper.wait(5) for sleeper in sleepers[:2]] == [-9, -9]
        assert sleepers[2].poll() is None
    finally:
        for sleeper in sleepers:
            sleeper.kill()
            sleeper.wait()


def test_a_task_survives_the_command_line() -> None:
    task = Task(
        parent=7, heavy=True, memory=1 << 30, file_bytes=5, reply_bytes=6, cpu_s=0.5,
        limits=Limits(ocr=False, ocr_languages="deu+eng"),
    )  # fmt: skip
    assert Task.unpacked(task.packed()) == task


def test_every_setting_of_extraction_reaches_the_reader() -> None:
    settings = ExtractionSettings(
        output_mb=3, nesting=2, unpacked_mb=5, pages=7, ocr=False, ocr_languages="deu", ocr_pages=11
    )
    assert limits(settings) == Limits(
        output_bytes=3 << 20, nesting=2, unpacked_bytes=5 << 20, pages=7, ocr=False, ocr_languages="deu", ocr_pages=11
    )


def test_what_a_platform_lacks_is_told_and_told_once(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr("platform.machine", lambda: "riscv64")
    fault = sandbox._refuse_network()  # nothing is applied to this process: there are no numbers for it
    assert fault is not None
    assert "riscv64" in fault
    pool = ExtractorPool(ExtractionSettings())
    for _ in range(3):
        pool._tell_missing(fault)
    assert [record.message for record in caplog.records] == [fault]
    pool.close()
