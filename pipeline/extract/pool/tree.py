"""CPU time and memory of a process and its descendants."""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import dataclass

_TICKS = os.sysconf("SC_CLK_TCK")
_PAGE = os.sysconf("SC_PAGE_SIZE")
_MAX_PROCESSES = 1000


@dataclass(frozen=True)
class Usage:
    """``cpu_s``: user and system seconds, with those of descendants that ended and were waited for. ``rss``: bytes."""

    cpu_s: float = 0.0
    rss: int = 0


def usage(pid: int) -> Usage:
    """Of the process and all its living descendants together; zero where it is gone."""
    if not os.path.exists("/proc/self/stat"):
        return _usage_without_proc(pid)
    cpu, rss = 0, 0
    for one in (pid, *descendants(pid)):
        try:
            with open(f"/proc/{one}/stat", "rb") as file:
                fields = file.read().rpartition(b")")[2].split()
        except OSError:
            continue
        cpu += sum(int(field) for field in fields[11:15])
        rss += int(fields[21])
    return Usage(cpu / _TICKS, rss * _PAGE)


def descendants(pid: int) -> list[int]:
    """Process ids, children before their own children; at most a thousand."""
    try:
        found: list[int] = []
        queue = [pid]
        while queue and len(found) < _MAX_PROCESSES:
            children = list(_children(queue.pop()))
            found += children
            queue += children
        return found
    except FileNotFoundError:
        return _descendants_without_proc(pid)


def _children(pid: int) -> Iterator[int]:
    """Raises FileNotFoundError only where the kernel does not list children at all."""
    try:
        tasks = os.listdir(f"/proc/{pid}/task")
    except OSError:
        if not os.path.exists("/proc/self/task"):
            raise FileNotFoundError("/proc") from None
        return
    for task in tasks:
        try:
            with open(f"/proc/{pid}/task/{task}/children", "rb") as file:
                yield from (int(number) for number in file.read().split())
        except FileNotFoundError:
            if os.path.exists(f"/proc/{pid}/task/{task}/stat"):
                raise
        except OSError:
            continue


def _descendants_without_proc(pid: int) -> list[int]:
    import psutil

    try:
        return [child.pid for child in psutil.Process(pid).children(recursive=True)][:_MAX_PROCESSES]
    except psutil.Error:
        return []


def _usage_without_proc(pid: int) -> Usage:
    import psutil

    cpu, rss = 0.0, 0
    for one in (pid, *_descendants_without_proc(pid)):
        try:
            process = psutil.Process(one)
            times = process.cpu_times()
            cpu += times.user + times.system + times.children_user + times.children_system
            rss += process.memory_info().rss
        except psutil.Error:
            continue
    return Usage(cpu, rss)
