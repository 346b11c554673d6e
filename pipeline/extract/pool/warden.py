"""A process that outlives its parent by a moment, to end what the parent would have ended.

The kernel ends a child of a killed parent, but not that child's own subprocesses, and no folder. This one reads process
groups from its standard input, ``+123`` when one begins and ``-123`` when it has ended; at the end of input it kills
those that are left and everything that works in the folder that it was given, and removes the folder. Standard library
only, started by path: it is small.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import sys

_ROUNDS = 20  # one that forks while it is looked for is found in the next round


def main(folder: str) -> None:
    """Runs until the end of input."""
    for ignored in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(ignored, signal.SIG_IGN)
    groups: set[int] = set()
    for line in sys.stdin:
        with contextlib.suppress(ValueError):
            group = int(line[1:])
            if group > 1:
                (groups.add if line[0] == "+" else groups.discard)(group)
    for group in sorted(groups):
        with contextlib.suppress(OSError):
            os.killpg(group, signal.SIGKILL)
    kill_inside(folder)
    shutil.rmtree(folder, ignore_errors=True)


def kill_inside(folder: str) -> None:
    """Kill every process whose working directory is the folder or one in it: also those that left their group.

    Does nothing where the system has no /proc.
    """
    folder = os.path.realpath(folder)
    own = os.getpid()
    for _ in range(_ROUNDS):
        found = [pid for pid in _numbers() if pid != own and _inside(pid, folder)]
        if not found:
            return
        for pid in found:
            with contextlib.suppress(OSError):
                os.kill(pid, signal.SIGKILL)


def _numbers() -> list[int]:
    with contextlib.suppress(OSError):
        return [int(name) for name in os.listdir("/proc") if name.isdecimal()]
    return []


def _inside(pid: int, folder: str) -> bool:
    try:
        place = os.readlink(f"/proc/{pid}/cwd")
    except OSError:  # gone, ended, or another user's
        return False
    return place == folder or place.startswith(folder + os.sep)


if __name__ == "__main__":
    main(sys.argv[1])
