"""How much of the machine a process may take: the active generation goes first, others after it, bulk last.

The kernel schedules threads, so priorities are set by thread, and a thread inherits those of the thread that made it.
Raising takes a privilege that the product does not ask for and uses where it has it.

A bulk worker computes vectors in the idle class, where only what nobody else wants is given. That is done by the
encoder's native threads. Its Python threads must not go there: one of them may hold the interpreter's lock, which the
heartbeats need too, and on a machine with three busy threads the lock was then held up for three seconds and more.
They get a low share instead. Reading and writing disks follows: the kernel derives it from both.
"""

from __future__ import annotations

import contextlib
import os
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

LOW = 10  # about a tenth of the machine where one thread of normal priority wants all of it

T = TypeVar("T")


def lower(pid: int, nice: int) -> None:
    """Lower every thread of a process of ours to ``nice``; what it already has below stays. A dead one is skipped."""
    for tid in _threads(pid):
        with contextlib.suppress(ProcessLookupError, PermissionError):
            if os.getpriority(os.PRIO_PROCESS, tid) < nice:
                os.setpriority(os.PRIO_PROCESS, tid, nice)


def restore(pid: int) -> bool:
    """Bring every thread of a process of ours back to normal priority; False where that is not permitted."""
    for tid in _threads(pid):
        with contextlib.suppress(ProcessLookupError):
            try:
                os.setpriority(os.PRIO_PROCESS, tid, 0)
            except PermissionError:
                return False
    return True


def lowered(call: Callable[[], T]) -> T:
    """Call in a thread of low priority and give its result; the threads that it makes are as low."""
    found: list[T] = []
    failed: list[BaseException] = []

    def run() -> None:
        try:
            # elsewhere the kernel knows no priority of a thread, and the heartbeats must not be lowered
            if sys.platform == "linux":
                os.setpriority(os.PRIO_PROCESS, threading.get_native_id(), LOW)
            found.append(call())
        except BaseException as error:
            failed.append(error)

    thread = threading.Thread(target=run, name="lowered", daemon=True)
    thread.start()
    thread.join()
    if failed:
        raise failed[0]
    return found[0]


def native_idle(call: Callable[[], T]) -> T:
    """Call, then put the native threads that it made into the idle class; the threads that they make follow."""
    before = set(_threads(os.getpid()))
    result = call()
    if sys.platform == "linux":
        python = {thread.native_id for thread in threading.enumerate()}
        for tid in set(_threads(os.getpid())) - before - python:
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.sched_setscheduler(tid, os.SCHED_IDLE, os.sched_param(0))
    return result


def _threads(pid: int) -> list[int]:
    if sys.platform != "linux":
        return [pid]
    try:
        return [int(entry.name) for entry in Path(f"/proc/{pid}/task").iterdir()]
    except OSError:
        return []
