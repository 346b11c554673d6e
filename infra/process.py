"""Child processes that outlive their parent: pid files that cannot be mistaken, clean stop, logs in files."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import psutil

from infra.errors import StartError
from infra.files import write_atomic

STOP_SECONDS = 10.0
# Where the system does not count from its start, start times move a little when the clock is set.
START_TOLERANCE_S = 2.0
BOOT_ID = Path("/proc/sys/kernel/random/boot_id")

# Handles of our own children: polled so that a dead one is reaped, not left a zombie.
_children: dict[int, subprocess.Popen[bytes]] = {}


@dataclass(frozen=True)
class Recorded:
    """What a pid file says. ``started`` in seconds: since the start of the system that ``boot`` names, or since the
    epoch where it is empty."""

    pid: int
    started: float
    argv: tuple[str, ...]
    boot: str = ""


class Managed:
    """One named process under a state directory: ``run/<name>.pid`` and ``logs/<name>.log``."""

    def __init__(self, name: str, state_dir: Path) -> None:
        self.name = name
        self.pid_file = state_dir / "run" / f"{name}.pid"
        self.log_file = state_dir / "logs" / f"{name}.log"

    def recorded(self) -> Recorded | None:
        """What the pid file says, or None where there is none or it is unreadable."""
        try:
            data = json.loads(self.pid_file.read_text(encoding="utf-8"))
            argv = tuple(map(str, data["argv"]))
            return Recorded(int(data["pid"]), float(data["started"]), argv, str(data.get("boot", "")))
        except (OSError, ValueError, KeyError, TypeError):
            return None

    def process(self) -> psutil.Process | None:
        """The live process, or None. A pid that now belongs to somebody else is nobody of ours."""
        recorded = self.recorded()
        if recorded is None:
            return None
        child = _children.get(recorded.pid)
        if child is not None and child.poll() is not None:
            del _children[recorded.pid]
            return None
        try:
            found = psutil.Process(recorded.pid)
            ours = _began(found, recorded) and (
                child is not None or (found.status() != psutil.STATUS_ZOMBIE and _runs(found, recorded.argv))
            )
        except psutil.Error:
            return None
        return found if ours else None

    def alive(self) -> bool:
        """Whether the process that we started is running."""
        return self.process() is not None

    def start(self, argv: Sequence[str], env: Mapping[str, str], cwd: Path | None = None) -> int:
        """Start and record the process. Returns its pid. Raises StartError where it cannot be executed."""
        self.pid_file.parent.mkdir(parents=True, exist_ok=True)
        self.log_file.parent.mkdir(parents=True, exist_ok=True)
        raise_file_limit()
        with self.log_file.open("ab") as log:
            log.write(f"--- {time.strftime('%Y-%m-%d %H:%M:%S')} starting {self.name}\n".encode())
            log.flush()
            try:
                child = subprocess.Popen(
                    list(argv),
                    env=dict(env),
                    cwd=cwd,
                    stdin=subprocess.DEVNULL,
                    stdout=log,
                    stderr=subprocess.STDOUT,
                    start_new_session=True,
                )
            except OSError as error:
                raise StartError(
                    f"{self.name} cannot be executed: {error}.",
                    f"Check that {argv[0]} exists and is executable.",
                ) from error
        _children[child.pid] = child
        self._record(child.pid, argv)
        return child.pid

    def _record(self, pid: int, argv: Sequence[str]) -> None:
        boot = _boot()
        try:
            started = _since_boot(pid) if boot else psutil.Process(pid).create_time()
        except (psutil.NoSuchProcess, OSError):  # it ended at once; its log says why
            boot, started = "", time.time()
        record = {"pid": pid, "started": started, "argv": list(argv), "boot": boot}
        write_atomic(self.pid_file, json.dumps(record).encode())

    def send(self, number: signal.Signals) -> bool:
        """Send a signal to the process. False where it is not running."""
        found = self.process()
        if found is None:
            return False
        try:
            found.send_signal(number)
        except psutil.NoSuchProcess:
            return False
        return True

    def stop(self, seconds: float = STOP_SECONDS) -> bool:
        """SIGTERM, wait, SIGKILL after ``seconds``. True where it left by itself or was not running."""
        self.send(signal.SIGCONT)  # a stopped process cannot answer SIGTERM
        clean = True
        if self.send(signal.SIGTERM) and not self.wait_gone(seconds):
            clean = False
            self.send(signal.SIGKILL)
            self.wait_gone(seconds)
        self.pid_file.unlink(missing_ok=True)
        return clean

    def kill(self, seconds: float = STOP_SECONDS) -> None:
        """SIGKILL and wait until it is gone. The pid file stays, as after a crash."""
        self.send(signal.SIGKILL)
        self.wait_gone(seconds)

    def wait_gone(self, seconds: float) -> bool:
        """Wait for the end of the process. False where it still runs after ``seconds``."""
        end = time.monotonic() + seconds
        while self.alive():
            if time.monotonic() > end:
                return False
            time.sleep(0.05)
        return True

    def log_tail(self, lines: int = 15) -> str:
        """The last lines of the log."""
        return tail(self.log_file, lines)


def tail(path: Path, lines: int) -> str:
    """The last ``lines`` lines of a text file, empty where there is none."""
    try:
        with path.open("rb") as stream:
            stream.seek(0, os.SEEK_END)
            size = stream.tell()
            stream.seek(max(0, size - 400 * lines - 400))
            text = stream.read().decode("utf-8", "replace")
    except OSError:
        return ""
    return "\n".join(text.splitlines()[-lines:])


def raise_file_limit() -> int:
    """Raise the soft limit of open files to the hard one; children inherit it. Returns the limit."""
    import resource

    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft != hard:
        try:
            resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
        except (OSError, ValueError):  # macOS reports "unlimited" and refuses it
            return soft
    return hard


def _boot() -> str:
    """Names this start of the system, "" where it has no name."""
    try:
        return BOOT_ID.read_text(encoding="ascii").strip()
    except OSError:
        return ""


def _since_boot(pid: int) -> float:
    """Seconds from the system's start to the process's: unlike its time of day, that is the same after the clock was
    set, as it is when a virtual machine goes on after a pause. Raises OSError where there is no such process."""
    after_name = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8", errors="replace").rpartition(")")[2]
    return int(after_name.split()[19]) / os.sysconf("SC_CLK_TCK")


def _began(found: psutil.Process, recorded: Recorded) -> bool:
    """Whether a process began when the recorded one did."""
    if not recorded.boot:
        return abs(found.create_time() - recorded.started) <= START_TOLERANCE_S
    try:
        return recorded.boot == _boot() and _since_boot(found.pid) == recorded.started
    except OSError:
        return False


def _runs(found: psutil.Process, argv: tuple[str, ...]) -> bool:
    """Whether the process runs our command. Only the arguments count: a wrapper may replace the program's path.

    A process on its way out shows no command line but still holds its ports: it counts.
    """
    shown = found.cmdline()
    if not shown:
        return True
    return shown[-len(argv) + 1 :] == list(argv[1:]) if len(argv) > 1 else shown[-1:] == list(argv)
