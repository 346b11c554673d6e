"""How many threads the reranker takes: what encoders leave of the cores."""

from __future__ import annotations

import os
from pathlib import Path

from pipeline.settings import Settings

MOST = 8  # more threads of pairs than candidates of a search would idle
_QUOTA = Path("/sys/fs/cgroup/cpu.max")


def cores() -> int:
    """Cores that this process may use, by affinity and by the container's quota; at least 1."""
    found = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    try:
        quota, period = _QUOTA.read_text(encoding="ascii").split()
        if quota != "max":
            found = min(found, int(quota) // int(period))
    except (OSError, ValueError):  # no such quota here
        pass
    return max(1, found)


def rerank_threads(settings: Settings, available: int | None = None) -> int:
    """The settings' number; without one, what ``encoder.threads`` and ``encoder.query_threads`` leave, 1 to MOST."""
    if settings.rerank.threads is not None:
        return settings.rerank.threads
    left = (cores() if available is None else available) - settings.encoder.threads - settings.encoder.query_threads
    return min(MOST, max(1, left))
