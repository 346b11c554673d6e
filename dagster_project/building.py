"""What a build shows: progress and rate of each Kafka partition, as table and pictures."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import TYPE_CHECKING

from dagster import MetadataValue

from dagster_project.rendering import bars, lines, table

if TYPE_CHECKING:
    from pipeline.operate.build import BuildProgress, BuildResult, PartitionProgress

COLUMNS = {
    "topic": "string", "partition": "int", "applied": "int", "target": "int", "left": "int", "per second": "float",
    "behind now": "int",
}  # fmt: skip
MOST_POINTS = 300

Metadata = dict[str, int | float | str | MetadataValue]


class History:
    """The rate of each partition over the build's time. Thread-safe: the build writes, the run reads."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._began = clock()
        self._lock = threading.Lock()
        self._last: BuildProgress | None = None
        self._rates: dict[int, list[tuple[float, float]]] = {}

    def add(self, now: BuildProgress) -> None:
        """One look of the build."""
        at = self._clock() - self._began
        with self._lock:
            self._last = now
            for number, parts in _by_partition(now).items():
                points = self._rates.setdefault(number, [])
                points.append((at, sum(part.rate or 0.0 for part in parts)))
                if len(points) > MOST_POINTS:
                    del points[1::2]  # coarser, over the whole time

    @property
    def last(self) -> BuildProgress | None:
        """The newest look."""
        with self._lock:
            return self._last

    def metadata(self) -> Metadata:
        """Table and pictures of the newest look; empty before there is one."""
        with self._lock:
            now, rates = self._last, {number: list(points) for number, points in self._rates.items()}
        if now is None:
            return {}
        return {
            "applied": now.applied,
            "total": now.total,
            "records per second": round(now.rate or 0.0, 2),
            "seconds left": round(now.eta_s, 1) if now.eta_s is not None else "not known yet",
            "partitions": table(COLUMNS, [_row(part) for part in now.partitions if part.end > part.first]),
            "progress": bars(f"Applied of what was logged when {now.generation} began to be built", _shares(now)),
            "rate": lines(
                "Rate of each partition", {f"partition {number}": rates[number] for number in sorted(rates)},
                "records per second",
            ),
        }  # fmt: skip


def sentence(now: BuildProgress) -> str:
    """One line for the run's log."""
    rate = f", {now.rate:.1f} records/s" if now.rate is not None else ""
    rest = f", about {now.eta_s:.0f} s left" if now.eta_s else ""
    return f"{now.applied} of {now.total} records applied{rate}{rest}"


def outcome(result: BuildResult) -> Metadata:
    """What a build did, for the materialization: numbers are drawn over time by the page."""
    return {
        "state": result.state,
        "seconds": round(result.seconds, 1),
        "documents": result.documents,
        "documents per second": round(result.documents / result.seconds, 2) if result.seconds else 0.0,
        "chunks written": result.chunks_written,
        "chunks embedded": result.chunks_embedded,
        "tokens": result.tokens,
        "dead letters": result.dead_letters,
        "workers started again": result.restarts,
    }


def _by_partition(now: BuildProgress) -> dict[int, list[PartitionProgress]]:
    found: dict[int, list[PartitionProgress]] = {}
    for part in now.partitions:
        found.setdefault(part.partition, []).append(part)
    return found


def _row(part: PartitionProgress) -> list[str | int | float | bool | None]:
    applied = max(part.applied, part.first)
    return [part.topic, part.partition, applied, part.target, part.left, round(part.rate or 0.0, 2), part.behind]


def _shares(now: BuildProgress) -> list[tuple[str, float, float, str]]:
    rows: list[tuple[str, float, float, str]] = []
    for number, parts in sorted(_by_partition(now).items()):
        total = sum(part.target - part.first for part in parts)
        left = sum(part.left for part in parts)
        rate = sum(part.rate or 0.0 for part in parts)
        rows.append((f"partition {number}", total - left, total, f"{total - left} of {total}, {rate:.1f}/s"))
    return rows
