"""A child whose plain text reader does what the text says: what a broken or captured reader could do.

Run by tests as ``python -m tests.integration.extract.armed TASK`` in place of the product's child.
"""

from __future__ import annotations

import contextlib
import ctypes
import json
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from pipeline.extract import extractor
from pipeline.extract.media import TEXT
from pipeline.extract.pool import child, landlock
from pipeline.extract.reading import Body, Reader, Reading
from schemas.documents import Block

_SPIN = [sys.executable, "-S", "-c", "while True: pass"]
_kept: list[bytearray] = []


def notes(parent: int) -> Path:
    """Where a test with this process id and its children tell one another: beside what a child may write to."""
    return Path("/tmp", f"headwater-armed-{parent}")


def segfault() -> None:
    ctypes.string_at(0)


def leave(status: int) -> None:
    os._exit(status)


def die_once(counter: str, seconds: float) -> str:
    """Dies of SIGKILL in the first attempt, answers in the second; an attempt leaves a byte in the file."""
    attempts = attempt(counter)
    if attempts == 1:
        time.sleep(seconds)
        os.kill(os.getpid(), signal.SIGKILL)
    return f"attempt {attempts}"


def die(counter: str) -> None:
    attempt(counter)
    os.kill(os.getpid(), signal.SIGKILL)


def attempt(counter: str) -> int:
    with open(counter, "ab") as file:
        file.write(b".")
        return file.tell()


def replace(path: str, text: str) -> None:
    """Write at once, so that no reader sees half of it."""
    Path(path + ".new").write_text(text)
    os.replace(path + ".new", path)


def spin() -> None:
    while True:
        pass


def sleep(seconds: float) -> str:
    time.sleep(seconds)
    return "slept"


def signalled(path: str, seconds: float) -> str:
    """Says by a file that it has begun, then sleeps until the file is gone or the time is over."""
    replace(path, str(os.getpid()))
    until = time.monotonic() + seconds
    while time.monotonic() < until and Path(path).exists():
        time.sleep(0.01)
    return "over"


def spin_below(note: str) -> None:
    """A subprocess spins, this one waits for it."""
    with subprocess.Popen(_SPIN, start_new_session=True) as process:  # it leaves the group too
        replace(note, f"{os.getpid()} {process.pid}")
        process.wait()


def forget_subprocess() -> int:
    return subprocess.Popen(["sleep", "300"]).pid


def eat(megabytes: int, pause: float) -> str:
    for _ in range(megabytes):
        _kept.append(bytearray(b"x" * (1 << 20)))
        time.sleep(pause)
    return "eaten"


def eat_below(megabytes: int) -> str:
    code = f"import time\nkept = [bytearray(b'x' * (1 << 20)) for _ in range({megabytes})]\ntime.sleep(60)"
    subprocess.run([sys.executable, "-S", "-c", code], check=True)
    return "eaten"


def write(megabytes: int) -> str:
    with open("large", "wb") as file:
        for _ in range(megabytes):
            file.write(b"x" * (1 << 20))
    return "written"


def connect(port: int) -> str:
    """What this process and a subprocess of it get when they try to reach the listener, and what is allowed."""
    return json.dumps({"own": _tried(port), "below": _tried_below(port), "pair": _pair()})


def _tried(port: int) -> dict[str, str]:
    tried: dict[str, Callable[[], Any]] = {
        "inet": lambda: socket.create_connection(("127.0.0.1", port), 2),
        "inet6": lambda: socket.socket(socket.AF_INET6, socket.SOCK_STREAM),
        "udp": lambda: socket.socket(socket.AF_INET, socket.SOCK_DGRAM),
        "netlink": lambda: socket.socket(socket.AF_NETLINK, socket.SOCK_RAW),
        "unix": lambda: socket.socket(socket.AF_UNIX).connect("\0nobody"),
    }
    return {name: _outcome(call) for name, call in tried.items()}


def _tried_below(port: int) -> str:
    code = f"import socket; socket.create_connection(('127.0.0.1', {port}), 2)"
    done = subprocess.run([sys.executable, "-S", "-c", code], capture_output=True, text=True)
    return done.stderr.strip().splitlines()[-1] if done.returncode else "reached"


def _pair() -> str:
    left, right = socket.socketpair()
    with left, right:
        left.send(b"ok")
        return right.recv(2).decode()


def around() -> str:
    """What a document could see around it."""
    status = dict(line.split(":\t", 1) for line in Path("/proc/self/status").read_text().splitlines() if ":\t" in line)
    found = {
        "pid": os.getpid(),
        "environment": dict(os.environ),
        "folder": os.getcwd(),
        "files": sorted(os.listdir()),
        "descriptors": sorted(_descriptors()),
        "nice": os.nice(0),
        "new_privileges": status.get("NoNewPrivs"),
        "capabilities": int(status.get("CapEff", "0"), 16),
    }
    Path("left").write_text("of the document")
    Path("below").mkdir()
    Path("below/left").write_text("of the document")
    return json.dumps(found)


def _descriptors() -> list[str]:
    found = []
    for name in os.listdir("/proc/self/fd"):
        with contextlib.suppress(OSError):
            found.append(os.readlink(f"/proc/self/fd/{name}").partition("[")[0].partition(":")[0])
    return found


def reach_out(beside: str, pid: int) -> str:
    """What it gets when it touches files and processes that are not its own."""
    tried: dict[str, Callable[[], Any]] = {
        "create": lambda: os.open(os.path.join(beside, "new"), os.O_WRONLY | os.O_CREAT),
        "change": lambda: os.open(os.path.join(beside, "old"), os.O_WRONLY),
        "remove": lambda: os.unlink(os.path.join(beside, "old")),
        "link": lambda: os.symlink("/", os.path.join(beside, "link")),
        "folder": lambda: os.mkdir(os.path.join(beside, "below")),
        "signal": lambda: os.kill(pid, 0),
        "environment": lambda: Path(f"/proc/{pid}/environ").read_bytes(),
        "null": lambda: os.open(os.devnull, os.O_WRONLY),
        "own": lambda: os.open("own", os.O_WRONLY | os.O_CREAT),
    }
    return json.dumps({name: _outcome(call) for name, call in tried.items()})


def _outcome(call: Callable[[], Any]) -> str:
    try:
        call()
    except OSError as error:
        return type(error).__name__
    return "done"


def talk(kilobytes: int) -> str:
    print("to stdout " * 100 * kilobytes)
    subprocess.run(["echo", "from below"], check=True)
    return "talked"


def swell(megabytes: int) -> Reading:
    return Reading([Block(type="table", text="| a |", header="h" * (megabytes << 20))])


def fail() -> None:
    raise ZeroDivisionError("of the reader")


def nest() -> None:
    nest()


_DEEDS: dict[str, Callable[..., Any]] = {
    one.__name__: one
    for one in (
        segfault, leave, die_once, die, spin, sleep, signalled, spin_below, forget_subprocess, eat, eat_below, write,
        connect, around, reach_out, talk, swell, fail, nest,
    )
}  # fmt: skip


def _do(body: Body) -> Reading:
    try:
        deed = json.loads(body.text or "")
        name, arguments = deed[0], deed[1:]
    except (ValueError, IndexError, TypeError):
        return Reading([Block(type="code", text=body.text or "")])
    made = _DEEDS[name](*arguments)
    return made if isinstance(made, Reading) else Reading([Block(type="code", text=str(made))])


if __name__ == "__main__":
    plain = extractor._reader

    def armed(media: str) -> Reader:
        return _do if media == TEXT else plain(media)

    fence = landlock.write_only_below
    folder = str(notes(os.getppid()))
    landlock.write_only_below = lambda *own: fence(*own, *([folder] if os.path.isdir(folder) else []))
    extractor._reader = armed  # type: ignore[assignment]
    child._PAGES = ()  # a start in a third of the time: answers are code, which has no natural language
    child.main(sys.argv[1])
    os._exit(0)
