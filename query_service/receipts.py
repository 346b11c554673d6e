"""Receipts and owners' states in a local SQLite file: trace, lag, and what is still pending.

The file is a view of the topics ``receipts`` and ``cursors`` and can be deleted at any time: it is then rebuilt from
the log. One thread writes; readers open their own connections.
"""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

from pydantic import ValidationError

from pipeline.ports import Record
from query_service import files
from schemas.events import REQUESTS_STREAM, DocumentState, SourceCursor
from schemas.keys import DocumentRef
from schemas.receipts import Receipt
from schemas.reconciliation import RequestsPosition
from schemas.topics import Topic

RETENTION_US = 30 * 24 * 3600 * 1_000_000
SETTLED = ("indexed", "unchanged", "superseded", "deleted", "refreshed", "moved", "applied", "closed", "done")
FAILED = ("dead_letter", "body_gone")
TIMES = (
    "source_updated_at", "observed_at", "appended_at", "received_at", "started_at", "extracted_at", "embedded_at",
    "visible_at",
)  # fmt: skip
_COUNTS = ("chunks_total", "chunks_embedded", "chunks_written", "chunks_removed", "tokens")
_COLUMNS = (
    "log_partition", "log_offset", "at", "tenant", "source", "uid", "principal", "lane", "generation", "event_type",
    "version", "outcome", "priority", *TIMES, *_COUNTS, "reason", "request_id",
)  # fmt: skip

_SCHEMA = f"""
CREATE TABLE IF NOT EXISTS receipts ({", ".join(f"{c}" for c in _COLUMNS)}, UNIQUE (log_partition, log_offset));
CREATE INDEX IF NOT EXISTS receipts_document ON receipts (uid, lane, observed_at);
CREATE INDEX IF NOT EXISTS receipts_time ON receipts (at);
CREATE TABLE IF NOT EXISTS latest (uid TEXT, lane TEXT, generation TEXT, version INTEGER,
  PRIMARY KEY (uid, lane, generation)) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS states (uid TEXT PRIMARY KEY, tenant TEXT, source TEXT, content_version INTEGER,
  access_version INTEGER, at INTEGER) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS cursors (tenant TEXT, source TEXT, stream TEXT, polled_at INTEGER,
  PRIMARY KEY (tenant, source, stream)) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS alarms (tenant TEXT, source TEXT, place INTEGER, alarm TEXT,
  PRIMARY KEY (tenant, source, place)) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS positions (topic TEXT, log_partition INTEGER, log_offset INTEGER,
  PRIMARY KEY (topic, log_partition)) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS meta (name TEXT PRIMARY KEY, value TEXT) WITHOUT ROWID;
"""
_VERSION = "2"
_MAX_MARKS = 500


@dataclass(frozen=True)
class Pending:
    """A document version that its owner wrote and a lane has not settled yet. ``version`` is the owner's clock."""

    tenant: str
    source: str
    version: int


class Applied(NamedTuple):
    """Receipts that were read, and the documents whose pending state may have changed."""

    receipts: list[Receipt]
    documents: set[str]


def opened(path: Path, identity: str) -> ReceiptStore:
    """The store of the file; a damaged one is built again. Raises sqlite3.Error, OSError."""
    return files.opened(path, lambda: ReceiptStore(path, identity))


class ReceiptStore:
    """The file. Methods that write are for one thread."""

    def __init__(self, path: Path, identity: str) -> None:
        """``identity`` names the log (namespace and cluster): a file of another log is emptied."""
        path.parent.mkdir(parents=True, exist_ok=True)
        self._path = path
        self._db = sqlite3.connect(path, check_same_thread=False, isolation_level=None)
        path.chmod(0o600)
        self._db.execute("PRAGMA journal_mode=WAL")
        self._db.execute("PRAGMA synchronous=NORMAL")
        self._db.execute("PRAGMA busy_timeout=5000")
        self._db.executescript(_SCHEMA)
        known = dict(self._db.execute("SELECT name, value FROM meta").fetchall())
        if known != {"identity": identity, "version": _VERSION}:
            self.reset()
            self._db.execute("DELETE FROM meta")
            self._db.executemany("INSERT INTO meta VALUES (?, ?)", [("identity", identity), ("version", _VERSION)])

    def reset(self) -> None:
        """Forget everything; the log fills it again."""
        with self._transaction():
            for table in ("receipts", "latest", "states", "cursors", "alarms", "positions"):
                self._db.execute(f"DELETE FROM {table}")

    @contextmanager
    def _transaction(self) -> Iterator[None]:
        self._db.execute("BEGIN IMMEDIATE")
        try:
            yield
        except BaseException:
            self._db.execute("ROLLBACK")
            raise
        self._db.execute("COMMIT")

    def positions(self) -> dict[tuple[str, int], int]:
        """Next offset to read per (topic, partition)."""
        rows = self._db.execute("SELECT topic, log_partition, log_offset FROM positions")
        return {(topic, partition): offset for topic, partition, offset in rows}

    def apply(self, records: Sequence[Record], positions: Mapping[tuple[str, int], int]) -> Applied:
        """Take records of ``receipts`` and ``cursors`` in one transaction. What cannot be read is skipped."""
        receipts: list[Receipt] = []
        touched: set[str] = set()
        with self._transaction():
            for record in records:
                if record.topic == Topic.RECEIPTS.value:
                    receipt = _read_receipt(record)
                    if receipt is not None:
                        self._insert_receipt(receipt, record)
                        receipts.append(receipt)
                        touched.add(_uid(receipt) or "")
                elif record.value is not None:
                    touched.add(self._insert_state(record.value, record.timestamp) or "")
                else:
                    self._end_key(record.key)
            self._db.executemany(
                "INSERT OR REPLACE INTO positions VALUES (?, ?, ?)", [(t, p, o) for (t, p), o in positions.items()]
            )
        return Applied(receipts, touched - {""})

    def _insert_receipt(self, receipt: Receipt, record: Record) -> None:
        uid = _uid(receipt)
        source = receipt.source or (receipt.document.source if receipt.document else None)
        row = (
            record.partition, record.offset, record.timestamp, receipt.tenant, source, uid, receipt.principal,
            receipt.lane, receipt.generation or "", receipt.event_type, receipt.version, receipt.outcome,
            receipt.priority, *(getattr(receipt.times, name) for name in TIMES),
            *(getattr(receipt, name) for name in _COUNTS), receipt.reason, receipt.request_id,
        )  # fmt: skip
        marks = ", ".join("?" * len(_COLUMNS))
        self._db.execute(f"INSERT OR IGNORE INTO receipts VALUES ({marks})", row)
        if uid is not None and _settles(receipt):
            self._db.execute(
                "INSERT INTO latest VALUES (?, ?, ?, ?) ON CONFLICT (uid, lane, generation)"
                " DO UPDATE SET version = max(version, excluded.version)",
                (uid, receipt.lane, receipt.generation or "", receipt.version),
            )

    def _insert_state(self, value: bytes, at: int) -> str | None:
        """The document's uid, or None where the record is of none."""
        state = _read_state(value)
        if isinstance(state, DocumentState):
            self._db.execute(
                "INSERT OR REPLACE INTO states VALUES (?, ?, ?, ?, ?, ?)",
                (
                    state.document.uid, state.document.tenant, state.document.source, state.content_version,
                    state.access_version, at,
                ),
            )  # fmt: skip
            return state.document.uid
        if isinstance(state, SourceCursor):
            polled_at = None if state.pending else state.polled_at
            self._db.execute(
                "INSERT INTO cursors VALUES (?, ?, ?, ?) ON CONFLICT (tenant, source, stream)"
                " DO UPDATE SET polled_at = coalesce(excluded.polled_at, polled_at)",
                (state.tenant, state.source, state.stream, polled_at),
            )
            if state.stream == REQUESTS_STREAM:
                self._set_alarms(state.tenant, state.source, _alarms(state.position))
        return None

    def _set_alarms(self, tenant: str, source: str, alarms: Sequence[str]) -> None:
        self._db.execute("DELETE FROM alarms WHERE tenant = ? AND source = ?", (tenant, source))
        self._db.executemany(
            "INSERT INTO alarms VALUES (?, ?, ?, ?)", [(tenant, source, i, alarm) for i, alarm in enumerate(alarms)]
        )

    def _end_key(self, key: str | None) -> None:
        """A source that was removed is complete up to no time, a forgotten document waits for nothing."""
        try:
            parts = json.loads(key or "")
        except ValueError:
            return
        if isinstance(parts, list) and len(parts) == 4 and parts[2] == "cursor":
            self._db.execute(
                "DELETE FROM cursors WHERE tenant = ? AND source = ? AND stream = ?", (parts[0], parts[1], parts[3])
            )
            if parts[3] == REQUESTS_STREAM:
                self._set_alarms(parts[0], parts[1], ())
        elif isinstance(parts, list) and len(parts) == 5 and parts[2] == "document":
            document = DocumentRef(tenant=parts[0], source=parts[1], kind=parts[3], id=parts[4])
            self._db.execute("DELETE FROM states WHERE uid = ?", (document.uid,))

    def prune(self, now: int) -> int:
        """Drop receipts older than 30 days; how many went."""
        return self._db.execute("DELETE FROM receipts WHERE at < ?", (now - RETENTION_US,)).rowcount

    def close(self) -> None:
        """Close the writer's connection."""
        self._db.close()

    def discard(self) -> None:
        """Close and remove the file, which is damaged."""
        with suppress(sqlite3.Error):
            self._db.close()
        files.remove(self._path)

    # ------------------------------------------------------------ reading (any thread)

    @contextmanager
    def _reader(self) -> Iterator[sqlite3.Connection]:
        db = sqlite3.connect(f"{self._path.absolute().as_uri()}?mode=ro", uri=True, timeout=5)
        db.row_factory = sqlite3.Row
        try:
            yield db
        finally:
            db.close()

    def pending(self, generation: str, now: int, uids: Sequence[str] | None = None) -> dict[str, Pending]:
        """By document: versions written by owners that a lane has not settled, of ``uids`` or of all documents.

        Content settles in ``generation``, access in its lane. States older than the receipts' retention count as
        settled: their receipts are gone.
        """
        if uids is not None and len(uids) > _MAX_MARKS:
            head, rest = uids[:_MAX_MARKS], uids[_MAX_MARKS:]
            return {**self.pending(generation, now, head), **self.pending(generation, now, rest)}
        only = "" if uids is None else f" AND s.uid IN ({', '.join('?' * len(uids))})"
        query = f"""
            SELECT s.uid, s.tenant, s.source,
                   CASE WHEN coalesce(i.version, -1) < s.content_version THEN s.content_version END AS content,
                   CASE WHEN coalesce(a.version, -1) < s.access_version THEN s.access_version END AS access
            FROM states s
            LEFT JOIN latest i ON i.uid = s.uid AND i.lane = 'index' AND i.generation = ?
            LEFT JOIN latest a ON a.uid = s.uid AND a.lane = 'access' AND a.generation = ''
            WHERE s.at >= ? AND (coalesce(i.version, -1) < s.content_version
                                 OR coalesce(a.version, -1) < s.access_version){only}"""
        with self._reader() as db:
            rows = db.execute(query, (generation, now - RETENTION_US, *(uids or ()))).fetchall()
        return {
            r["uid"]: Pending(r["tenant"], r["source"], min(v for v in (r["content"], r["access"]) if v is not None))
            for r in rows
        }

    def polled(self) -> dict[tuple[str, str], int | None]:
        """Per (tenant, source) the earliest of its streams' last complete looks; None where one had none yet."""
        with self._reader() as db:
            rows = db.execute(  # an answered request is no look at the source
                "SELECT tenant, source, polled_at FROM cursors WHERE stream != ?", (REQUESTS_STREAM,)
            ).fetchall()
        found: dict[tuple[str, str], int | None] = {}
        for r in rows:
            key = (r["tenant"], r["source"])
            known = found.get(key, r["polled_at"])
            found[key] = None if known is None or r["polled_at"] is None else min(known, r["polled_at"])
        return found

    def trace(self, tenant: str, uid: str) -> list[dict[str, object]]:
        """Receipts of a document in the order of its versions."""
        with self._reader() as db:
            rows = db.execute(
                "SELECT * FROM receipts WHERE uid = ? AND tenant = ? ORDER BY version, at, log_offset", (uid, tenant)
            ).fetchall()
        return [dict(r) for r in rows]

    def standing(self, tenant: str, uid: str, generation: str) -> list[tuple[str, int, int | None]]:
        """Per lane (access, index) what the owner of a document last wrote and which version of it is settled."""
        query = """
            SELECT l.lane, l.written, v.version FROM (
                SELECT uid, 'access' AS lane, access_version AS written, '' AS generation FROM states
                WHERE uid = :uid AND tenant = :tenant
                UNION ALL
                SELECT uid, 'index', content_version, :generation FROM states WHERE uid = :uid AND tenant = :tenant
            ) l LEFT JOIN latest v ON v.uid = l.uid AND v.lane = l.lane AND v.generation = l.generation
            WHERE l.written > 0 ORDER BY l.lane"""
        with self._reader() as db:
            rows = db.execute(query, {"uid": uid, "tenant": tenant, "generation": generation}).fetchall()
        return [(r["lane"], r["written"], r["version"]) for r in rows]

    def alarms(self, tenant: str, source: str) -> list[str]:
        """What the owner of a source last said that keeps people out or documents hidden (at most 20)."""
        with self._reader() as db:
            rows = db.execute(
                "SELECT alarm FROM alarms WHERE tenant = ? AND source = ? ORDER BY place", (tenant, source)
            ).fetchall()
        return [r["alarm"] for r in rows]

    def window(self, tenant: str, since: int, limit: int = 50_000) -> list[dict[str, object]]:
        """Receipts of a tenant logged since ``since`` (µs), newest first; each with ``access_visible_at``.

        That is when the access lane had applied what was observed up to then: visible is the later of both lanes.
        """
        query = """
            SELECT r.*, (SELECT max(a.visible_at) FROM receipts a WHERE a.uid = r.uid AND a.lane = 'access'
                         AND a.observed_at <= r.observed_at) AS access_visible_at
            FROM receipts r WHERE r.tenant = ? AND r.at >= ? ORDER BY r.at DESC LIMIT ?"""
        with self._reader() as db:
            rows = db.execute(query, (tenant, since, limit)).fetchall()
        return [dict(r) for r in rows]


def _uid(receipt: Receipt) -> str | None:
    return receipt.document_uid or (receipt.document.uid if receipt.document else None)


def _settles(receipt: Receipt) -> bool:
    """Whether the receipt ends the wait for its version: in the index lane only what became of content does."""
    if receipt.outcome not in SETTLED + FAILED:
        return False
    return receipt.lane == "access" or (receipt.lane == "index" and receipt.event_type.startswith("content."))


def _read_receipt(record: Record) -> Receipt | None:
    if record.value is None:
        return None
    try:
        return Receipt.model_validate_json(record.value)
    except ValidationError:
        return None


def _alarms(position: str) -> tuple[str, ...]:
    """Of the cursor by which an owner says how it is; nothing where it cannot be read."""
    try:
        status = RequestsPosition.read(position).status
    except ValueError:
        return ()
    return status.alarms if status is not None else ()


def _read_state(value: bytes) -> DocumentState | SourceCursor | None:
    """A record of ``cursors``; None for kinds that say nothing about documents or looks."""
    for model in (DocumentState, SourceCursor):
        try:
            return model.model_validate_json(value)
        except ValidationError:
            continue
    return None
