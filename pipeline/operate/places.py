"""Places that a proof of a deletion looks at, as its answer tells of them."""

from __future__ import annotations

import json
from datetime import datetime
from pathlib import Path

from schemas.deletion import DeletionPlace
from schemas.keys import DocumentRef

DAY_US = 86_400_000_000
IN_FLIGHT_US = 6_000_000  # a search that began before the revocation may be logged after it


def at_once(place: str, method: str, found: int, now: int, *, note: str | None = None) -> DeletionPlace:
    """A place that must be empty."""
    return DeletionPlace(
        place=place, method=method, found=found, clean=not found, checked_at=now, empties_itself=False, note=note
    )


def bounded(place: str, method: str, found: int, now: int, by: int | None, note: str) -> DeletionPlace:
    """A place that empties by itself."""
    return DeletionPlace(
        place=place, method=method, found=found, clean=not found, checked_at=now, empties_itself=True,
        clean_by=by if found else None, note=note if found else None,
    )  # fmt: skip


def backups(since: int, days: float, now: int) -> DeletionPlace:
    """Backups made before ``since`` (µs) hold it until the oldest one that may be restored is younger."""
    by = since + int(days * DAY_US)
    held = days > 0 and now < by
    note = "backups from before the deletion; a restored store applies the log again before it serves"
    method = f"retention.backup_days = {days:g}"
    return bounded("backups", method, int(held), now, by, note)


def query_log(path: Path, document: DocumentRef, hidden_at: int, now: int) -> DeletionPlace:
    """Lines that show the document after it was hidden. Lines hold ids and counts, no text, before it as well."""
    late = shown = 0
    method = "lines that name it as a hit after it was hidden"
    try:
        with path.open(encoding="utf-8", errors="replace") as lines:
            for line in lines:
                if document.uid in line:
                    at = _shown_at(line, document.uid)
                    shown += at is not None
                    late += at is not None and at > hidden_at + IN_FLIGHT_US
    except FileNotFoundError:
        return at_once("query log", method, 0, now, note="no such file on this machine; lines hold no text")
    return at_once("query log", method, late, now, note=f"{shown} lines name its id; none holds text")


def _shown_at(line: str, uid: str) -> int | None:
    """When a query's line was written (µs) that shows the document; None for other lines."""
    try:
        parsed = json.loads(line)
        hits = [hit[1] for hit in parsed["hits"]]
        at = datetime.fromisoformat(parsed["time"])
    except (ValueError, KeyError, TypeError, IndexError):
        return None
    return int(at.timestamp() * 1e6) if uid in hits else None


def micros_of(milliseconds: str | None) -> int | None:
    """A broker's setting in µs; None where it is absent or means "never"."""
    if milliseconds is None or not milliseconds.isdigit() or int(milliseconds) > 10 * 365 * 86_400_000:
        return None
    return int(milliseconds) * 1000
