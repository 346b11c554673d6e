"""Percentiles of lag from receipts: per source and stage, visible being the later of both lanes (invariant 10)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from query_service.receipts import FAILED
from schemas.api import Percentiles

STAGES = ("source", "observe", "append", "receive", "wait", "extract", "embed", "write", "total")
_STEPS = (
    ("observe", "source_updated_at", "observed_at"),
    ("append", "observed_at", "appended_at"),
    ("receive", "appended_at", "received_at"),
    ("wait", "received_at", "started_at"),
    ("extract", "started_at", "extracted_at"),
    ("embed", "extracted_at", "embedded_at"),
    ("write", "embedded_at", "visible_at"),
)
_SEEN = ("indexed", "unchanged", "deleted")

Row = Mapping[str, object]


def percentiles(values: Sequence[float]) -> Percentiles:
    """p50, p95 and p99 by the nearest rank: values that were measured, not between two of them."""
    if not values:
        return Percentiles(count=0, p50=None, p95=None, p99=None)
    ordered = sorted(values)

    def at(share: float) -> float:
        rank = max(1, -(-len(ordered) * share // 100))
        return round(ordered[int(rank) - 1], 3)

    return Percentiles(count=len(ordered), p50=at(50), p95=at(95), p99=at(99))


def visible_at(row: Row) -> int | None:
    """When the row's version could be found by those who may: the later of index and access lane."""
    index, access = row.get("visible_at"), row.get("access_visible_at")
    if not isinstance(index, int):
        return None
    return max(index, access) if isinstance(access, int) else index


def stages(row: Row) -> dict[str, float]:
    """Milliseconds of each stage that the event passed; clocks that disagree count as 0."""
    found: dict[str, float] = {}
    for name, start, end in _STEPS:
        _put(found, name, row.get(start), row.get(end))
    visible = visible_at(row)
    _put(found, "total", row.get("observed_at"), visible)
    _put(found, "source", row.get("source_updated_at"), visible)
    return found


def _put(found: dict[str, float], name: str, start: object, end: object) -> None:
    if isinstance(start, int) and isinstance(end, int):
        found[name] = max(0, end - start) / 1000


def is_content(row: Row, generation: str | None) -> bool:
    """Whether the row tells what became of content in the generation."""
    return (
        row["lane"] == "index"
        and row["generation"] == (generation or "")
        and str(row["event_type"]).startswith("content.")
    )


def by_source(rows: Sequence[Row], generation: str | None) -> dict[str, dict[str, Percentiles]]:
    """Lag of live content per source and stage. Bulk work waits on purpose and is left out."""
    values: dict[str, dict[str, list[float]]] = {}
    for row in rows:
        if row["source"] is None or row["priority"] != "live" or row["outcome"] not in _SEEN:
            continue
        if is_content(row, generation):
            for stage, ms in stages(row).items():
                values.setdefault(str(row["source"]), {}).setdefault(stage, []).append(ms)
    return {
        source: {stage: percentiles(found[stage]) for stage in STAGES if stage in found}
        for source, found in values.items()
    }


def revocations(rows: Sequence[Row]) -> dict[str, Percentiles]:
    """Per source: access and membership events from the log's acknowledgement to their application."""
    values: dict[str, list[float]] = {}
    for row in rows:
        if row["lane"] not in ("access", "membership") or row["source"] is None or row["priority"] != "live":
            continue
        if row["outcome"] == "superseded":
            continue
        found: dict[str, float] = {}
        _put(found, "ms", row["appended_at"], row["visible_at"])
        if "ms" in found:
            values.setdefault(str(row["source"]), []).append(found["ms"])
    return {source: percentiles(found) for source, found in values.items()}


def failures(rows: Sequence[Row], generation: str | None) -> dict[str, int]:
    """Per source: distinct documents whose content ended as a dead letter or without a body."""
    failed: dict[str, set[object]] = {}
    for row in rows:
        if row["outcome"] in FAILED and row["source"] is not None and is_content(row, generation):
            failed.setdefault(str(row["source"]), set()).add(row["uid"])
    return {source: len(uids) for source, uids in failed.items()}
