"""One child process as its parent sees it: started, asked, measured, ended with everything that it began."""

from __future__ import annotations

import contextlib
import logging
import os
import select
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

import pipeline
from pipeline.extract.pool import frames, tree
from pipeline.extract.pool.task import Task
from pipeline.extract.pool.warden import kill_inside

log = logging.getLogger(__name__)

WALL_FACTOR = 10  # wall seconds to a CPU second: documents wait for a busy machine, not for ever
_TICK_S = 0.05
_START_S = 120.0
_END_S = 2.0
_PIECE = 1 << 18
_TAIL = 2000
# Where programs and their data are; nothing else of the parent's environment, above all no secret, reaches a child.
_PASSED = ("PATH", "LD_LIBRARY_PATH", "DYLD_LIBRARY_PATH", "TESSDATA_PREFIX", "PYPANDOC_PANDOC")


class ChildDied(Exception):
    """The process ended before it answered: ``how`` says by what, ``cpu_limit`` whether the kernel's CPU limit did."""

    def __init__(self, how: str, *, cpu_limit: bool = False) -> None:
        super().__init__(how)
        self.how = how
        self.cpu_limit = cpu_limit


class NotStarted(Exception):
    """The process ended before it was ready for a document."""


class OverLimit(Exception):
    """The process was killed: ``limit`` is 'cpu', 'wall', 'memory' or 'output'."""

    def __init__(self, limit: str) -> None:
        super().__init__(limit)
        self.limit = limit


class Warden:
    """The process that ends children's process groups, and removes their folders, when this process is killed."""

    def __init__(self) -> None:
        self.folder = Path(tempfile.mkdtemp(prefix="headwater-extract-"))
        self._lock = threading.Lock()
        self._groups: set[int] = set()
        self._process = self._begin()

    @property
    def pid(self) -> int:
        """Its process id."""
        return self._process.pid

    def add(self, group: int) -> None:
        """A process group began."""
        with self._lock:
            self._groups.add(group)
            self._tell(f"+{group}\n")

    def remove(self, group: int) -> None:
        """A process group has ended."""
        with self._lock:
            self._groups.discard(group)
            self._tell(f"-{group}\n")

    def close(self) -> None:
        """End it; it removes the folder."""
        with self._lock:
            _close(self._process.stdin)
            try:
                self._process.wait(_END_S)
            except subprocess.TimeoutExpired:
                self._process.kill()
                self._process.wait()
            shutil.rmtree(self.folder, ignore_errors=True)

    def _begin(self) -> subprocess.Popen[bytes]:
        script = Path(__file__).with_name("warden.py")
        return subprocess.Popen(
            [sys.executable, "-I", "-S", str(script), str(self.folder)],
            stdin=subprocess.PIPE, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
            env={}, cwd="/", start_new_session=True,
        )  # fmt: skip

    def _tell(self, line: str) -> None:
        assert self._process.stdin is not None
        try:
            self._process.stdin.write(line.encode("ascii"))
            self._process.stdin.flush()
        except (OSError, ValueError):
            # Killed by somebody: the next one takes over all groups.
            _close(self._process.stdin)
            self._process.wait()
            self._process = self._begin()
            assert self._process.stdin is not None
            with contextlib.suppress(OSError):
                self._process.stdin.write("".join(f"+{group}\n" for group in sorted(self._groups)).encode("ascii"))
                self._process.stdin.flush()


@dataclass(frozen=True)
class Caps:
    """What one document may take: CPU seconds of the tree, bytes of memory above the start, bytes of the reply."""

    cpu_s: float
    memory: int
    reply: int


class Child:
    """Owned by one thread, which must live as long as the child: its end would end the child (PR_SET_PDEATHSIG)."""

    def __init__(self, module: str, task: Task, warden: Warden) -> None:
        """Starts the process; ``await_ready`` before the first document. Raises NotStarted."""
        self._caps = Caps(task.cpu_s, task.memory, task.reply_bytes)
        self._warden = warden
        self._ended = False
        self._end_lock = threading.Lock()
        try:
            self._folder = tempfile.mkdtemp(dir=warden.folder)
            self._stderr = tempfile.TemporaryFile(buffering=0)  # noqa: SIM115 - lives as long as the child
        except OSError as error:
            raise NotStarted(f"{type(error).__name__}: {error}") from error
        try:
            self._process = subprocess.Popen(
                # -P: neither the folder nor anything a document leaves in it is imported
                [sys.executable, "-P", "-s", "-m", module, task.packed()],
                stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=self._stderr, bufsize=0,
                env=_environment(self._folder), cwd=self._folder, start_new_session=True,
            )  # fmt: skip
        except OSError as error:
            self._stderr.close()
            shutil.rmtree(self._folder, ignore_errors=True)
            raise NotStarted(f"{type(error).__name__}: {error}") from error
        warden.add(self._process.pid)
        self.documents = 0
        self.missing: Sequence[str] = ()
        self._base = tree.Usage()

    def await_ready(self) -> None:
        """Wait until it can read a document. Raises NotStarted; the process is gone then."""
        try:
            ready = self._converse([], Caps(_START_S, 1 << 40, 1 << 16))
        except (ChildDied, OverLimit) as error:
            said = self.said()
            self.close()
            raise NotStarted(f"{error}; {said or 'it said nothing'}") from error
        self.missing = tuple(str(one) for one in ready.header.get("missing", ()))
        self._base = tree.usage(self._process.pid)

    def has_spoken(self) -> bool:
        """Whether ``await_ready`` would return, or raise, at once."""
        assert self._process.stdout is not None
        poll = select.poll()
        poll.register(self._process.stdout, select.POLLIN)
        return bool(poll.poll(0))

    @property
    def pid(self) -> int:
        """Process id, which is its process group's too."""
        return self._process.pid

    def alive(self) -> bool:
        """Whether it still runs."""
        return not self._ended and not self._exited()

    def grown(self) -> int:
        """Bytes of resident memory above those it had when it was ready."""
        return tree.usage(self._process.pid).rss - self._base.rss

    def ask(self, header: Mapping[str, Any], body: bytes) -> frames.Frame:
        """One document's reply. Raises ChildDied or OverLimit; the process is gone then."""
        self.documents += 1
        return self._converse(frames.packed(header, body), self._caps)

    def said(self) -> str:
        """The end of what it wrote to stderr since the last ``forget_said``, for the log."""
        try:
            size = os.fstat(self._stderr.fileno()).st_size
            tail = os.pread(self._stderr.fileno(), _TAIL, max(0, size - _TAIL))
        except (OSError, ValueError):
            return ""
        return tail.decode("utf-8", "replace").strip()

    def forget_said(self) -> None:
        """Drop what it wrote to stderr: so the file never grows beyond one document's words."""
        with contextlib.suppress(OSError, ValueError):
            os.ftruncate(self._stderr.fileno(), 0)
            os.lseek(self._stderr.fileno(), 0, os.SEEK_SET)

    def end(self) -> None:
        """End it in order: the end of its input; a kill after two seconds."""
        if self.alive():
            _close(self._process.stdin)
            ends = time.monotonic() + _END_S
            while not self._exited() and time.monotonic() < ends:
                time.sleep(0.002)
        self.kill()

    def kill(self) -> int | None:
        """Kill it with its descendants, and remove its folder. Returns the exit status: negative is a signal."""
        with self._end_lock:
            if not self._ended:
                self._ended = True
                self._kill_tree()
                self._process.wait()
                self._warden.remove(self._process.pid)
                _close(self._process.stdin)
                _close(self._process.stdout)
                shutil.rmtree(self._folder, ignore_errors=True)
            return self._process.returncode

    def close(self) -> None:
        """Let go of what it printed; after ``end`` or ``kill``."""
        self._stderr.close()

    def interrupt(self) -> None:
        """From another thread: kill it, so that its owner's ``ask`` raises ChildDied."""
        with self._end_lock:
            if not self._ended:
                self._kill_tree()

    def _kill_tree(self) -> None:
        """Before the process is waited for: until then its number cannot be another's."""
        strays = tree.descendants(self._process.pid)
        with contextlib.suppress(OSError):
            os.killpg(self._process.pid, signal.SIGKILL)
        for stray in strays:  # those that left the group
            with contextlib.suppress(OSError):
                os.kill(stray, signal.SIGKILL)
        kill_inside(self._folder)  # and those whose parents are gone

    def _exited(self) -> bool:
        """Whether it has ended; not waited for, so that its number stays taken until its group is dead."""
        if not hasattr(os, "waitid"):  # macOS
            return self._process.poll() is not None
        try:
            return os.waitid(os.P_PID, self._process.pid, os.WEXITED | os.WNOWAIT | os.WNOHANG) is not None
        except ChildProcessError:
            return True

    def _converse(self, pieces: list[bytes], caps: Caps) -> frames.Frame:
        try:
            return self._exchange([memoryview(piece) for piece in pieces], caps)
        except (OSError, EOFError) as error:
            status = self.kill()
            raise ChildDied(_how(status), cpu_limit=status == -signal.SIGXCPU) from error
        except frames.TooLong as error:
            self.kill()
            raise OverLimit("output") from error
        except frames.BrokenFrame as error:
            self.kill()
            raise ChildDied(f"an answer that cannot be read ({error})") from error
        except OverLimit:
            self.kill()
            raise

    def _exchange(self, unsent: list[memoryview], caps: Caps) -> frames.Frame:
        """Writes and reads as the pipes allow, and measures the tree every tick.

        Raises EOFError where the process ended, OverLimit, BrokenFrame.
        """
        assert self._process.stdin is not None and self._process.stdout is not None
        sink, source = self._process.stdin.fileno(), self._process.stdout.fileno()
        os.set_blocking(sink, False)
        collector = frames.Collector(caps.reply)
        poll = select.poll()
        poll.register(source, select.POLLIN)
        if unsent:
            poll.register(sink, select.POLLOUT)
        began = time.monotonic()
        used_before = tree.usage(self._process.pid).cpu_s
        measured = began
        while True:
            for fd, _ in poll.poll(_TICK_S * 1000):
                if fd == sink and unsent:
                    with contextlib.suppress(BlockingIOError):
                        unsent[0] = unsent[0][os.write(sink, unsent[0][:_PIECE]) :]
                    if not unsent[0]:
                        del unsent[0]
                    if not unsent:
                        poll.unregister(sink)
                elif fd == source:
                    piece = os.read(source, _PIECE)
                    if not piece:
                        raise EOFError("the process ended")
                    frame = collector.feed(piece)
                    if frame is not None:
                        return frame
            now = time.monotonic()
            if now - measured >= _TICK_S:
                measured = now
                self._check(tree.usage(self._process.pid), used_before, now - began, caps)

    def _check(self, usage: tree.Usage, used_before: float, wall_s: float, caps: Caps) -> None:
        if usage.cpu_s - used_before > caps.cpu_s:
            raise OverLimit("cpu")
        if usage.rss - self._base.rss > caps.memory:
            raise OverLimit("memory")
        if wall_s > caps.cpu_s * WALL_FACTOR:
            raise OverLimit("wall")


def _environment(folder: str) -> dict[str, str]:
    passed = {name: os.environ[name] for name in _PASSED if name in os.environ}
    return {
        **passed,
        "HOME": folder,
        "TMPDIR": folder,
        "LANG": "C.UTF-8",
        "TZ": "UTC",
        "PYTHONPATH": str(Path(next(iter(pipeline.__path__))).parent),
        "PYTHONHASHSEED": "0",  # the order of a library's sets is the same in every process
        "PYTHONUTF8": "1",
        # One thread in libraries: those that exist before the fences stand would be outside of them, and Tesseract's
        # cost more CPU than they save time.
        "OMP_THREAD_LIMIT": "1",
        "OMP_NUM_THREADS": "1",
        "OPENBLAS_NUM_THREADS": "1",
        "NO_COLOR": "1",
    }


def _how(status: int | None) -> str:
    if status is not None and status < 0:
        with contextlib.suppress(ValueError):
            return signal.Signals(-status).name
        return f"signal {-status}"
    return f"exit status {status}"


def _close(pipe: IO[bytes] | None) -> None:
    if pipe is not None:
        with contextlib.suppress(OSError):
            pipe.close()
