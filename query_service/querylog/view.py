"""The query log as it can be asked: a local SQLite file, a view of the topic ``queries``.

It can be deleted at any time and is then built again from the log. One thread writes; readers open their own
connections. What is kept of texts follows the settings of now, also for what was logged under looser ones.
"""

from __future__ import annotations

import hashlib
import json
import logging
import sqlite3
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

from pydantic import ValidationError

from pipeline.errors import BusUnavailable
from pipeline.ports import Record
from pipeline.settings_query import QueryLogSettings
from query_service import files
from query_service.querylog.redact import STRICTNESS, keep
from schemas.querylog import LOG_RECORD, FeedbackRecord, Kind, PurgeRecord, QueryOutcome, QueryRecord, TextMode, Verdict

log = logging.getLogger("headwater.query.log")

DAY_US = 86_400_000_000
_VERSION = "2"
_SEARCHES = ("search", "answer", "seen_as")
_SCHEMA = """
CREATE TABLE IF NOT EXISTS queries (query_id TEXT PRIMARY KEY, tenant TEXT NOT NULL, at INTEGER NOT NULL, kind TEXT,
  outcome TEXT, refusal TEXT, scope TEXT, operator TEXT, shown INTEGER, total_ms REAL, cost REAL, used INTEGER,
  text TEXT, text_mode TEXT, record TEXT NOT NULL) WITHOUT ROWID;
CREATE INDEX IF NOT EXISTS queries_time ON queries (tenant, at DESC, query_id DESC);
CREATE TABLE IF NOT EXISTS feedback (tenant TEXT NOT NULL, query_id TEXT NOT NULL, scope TEXT NOT NULL,
  target TEXT NOT NULL, at INTEGER NOT NULL, verdict TEXT, comment TEXT, text_mode TEXT, record TEXT NOT NULL,
  PRIMARY KEY (query_id, scope, target)) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS purges (tenant TEXT NOT NULL, scope TEXT NOT NULL, before INTEGER NOT NULL,
  at INTEGER NOT NULL, PRIMARY KEY (tenant, scope)) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS positions (topic TEXT, log_partition INTEGER, log_offset INTEGER,
  PRIMARY KEY (topic, log_partition)) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS meta (name TEXT PRIMARY KEY, value TEXT) WITHOUT ROWID;
"""


def opened(path: Path, identity: str, settings: QueryLogSettings) -> QueryView:
    """The view of the file; a damaged one is built again. Raises sqlite3.Error, OSError."""
    return files.opened(path, lambda: QueryView(path, identity, settings))


@dataclass(frozen=True)
class Wanted:
    """What is asked of the log. Times in µs, ``since`` inclusive, ``until`` exclusive; None means not narrowed."""

    since: int | None = None
    until: int | None = None
    kind: Kind | None = None
    outcome: QueryOutcome | None = None
    zero: bool | None = None
    slower_ms: float | None = None
    feedback: Verdict | None = None
    any_feedback: bool = False
    scope: str | None = None
    acts_too: bool = True  # whether ``scope`` finds operators' looks as or at the person
    before: tuple[int, str] | None = None  # the last of the page before


class QueryView:
    """The file. Methods that write are for one thread."""

    def __init__(self, path: Path, identity: str, settings: QueryLogSettings) -> None:
        """``identity`` names the log (namespace and cluster): a file of another log is emptied."""
        path.parent.mkdir(parents=True, exist_ok=True)
        self._path = path
        self._settings = settings
        self._db = sqlite3.connect(path, check_same_thread=False, isolation_level=None)
        try:
            self._prepare(identity)
        except BaseException:
            self._db.close()
            raise

    def _prepare(self, identity: str) -> None:
        self._path.chmod(0o600)
        self._db.execute("PRAGMA journal_mode=WAL")
        self._db.execute("PRAGMA synchronous=NORMAL")
        self._db.execute("PRAGMA busy_timeout=5000")
        self._db.execute("PRAGMA secure_delete=ON")  # what is forgotten leaves the file, not only its index
        self._drop_other_version()
        self._db.executescript(_SCHEMA)
        known = dict(self._db.execute("SELECT name, value FROM meta").fetchall())
        if known.get("identity") != identity or known.get("version") != _VERSION:
            self.reset()
        elif known.get("kept") != self._kept():
            self._redact_again()
        said = {"identity": identity, "version": _VERSION, "kept": self._kept()}
        self._db.executemany("INSERT OR REPLACE INTO meta VALUES (?, ?)", sorted(said.items()))

    def _drop_other_version(self) -> None:
        """Tables of a release that made them differently go; the log fills new ones."""
        if self._db.execute("SELECT 1 FROM sqlite_master WHERE name = 'meta'").fetchone() is None:
            return
        row = self._db.execute("SELECT value FROM meta WHERE name = 'version'").fetchone()
        if row is not None and row[0] != _VERSION:
            for table in ("queries", "feedback", "purges", "positions", "meta"):
                self._db.execute(f"DROP TABLE IF EXISTS {table}")

    def _kept(self) -> str:
        words = json.dumps(sorted(self._settings.redact_words))
        return f"{self._settings.text} {hashlib.sha256(words.encode()).hexdigest()}"

    def reset(self) -> None:
        """Forget everything; the log fills it again."""
        with self._transaction():
            for table in ("queries", "feedback", "purges", "positions"):
                self._db.execute(f"DELETE FROM {table}")

    def _redact_again(self) -> None:
        """Hold what stands to the settings of now: only ever less of a text."""
        with self._transaction():
            for table, column, keys in (
                ("queries", "text", "query_id"), ("feedback", "comment", "query_id, scope, target"),
            ):  # fmt: skip
                rows = self._db.execute(
                    f"SELECT {keys}, {column}, text_mode FROM {table} WHERE {column} IS NOT NULL"
                ).fetchall()
                where = " AND ".join(f"{name} = ?" for name in keys.split(", "))
                for *ids, text, was in rows:
                    shown, mode = self._keep(text, was)
                    self._db.execute(
                        f"UPDATE {table} SET {column} = ?, text_mode = ? WHERE {where}", (shown, mode, *ids)
                    )
        self._db.execute("PRAGMA wal_checkpoint(TRUNCATE)")

    def _keep(self, text: str | None, was: str) -> tuple[str | None, TextMode]:
        known: TextMode = was if was in STRICTNESS else "full"
        return keep(text, known, self._settings.text, self._settings.redact_words)

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

    # ------------------------------------------------------------ writing

    def apply(self, records: Sequence[Record], positions: Mapping[tuple[str, int], int]) -> int:
        """Take records of the topic in one transaction; how many could not be read."""
        unreadable = 0
        purged = False
        with self._transaction():
            for record in records:
                found = _read(record)
                if isinstance(found, QueryRecord):
                    self._insert_query(found)
                elif isinstance(found, FeedbackRecord):
                    self._insert_feedback(found)
                elif isinstance(found, PurgeRecord):
                    self._purge(found)
                    purged = True
                else:
                    unreadable += 1
            self._db.executemany(
                "INSERT OR REPLACE INTO positions VALUES (?, ?, ?)", [(t, p, o) for (t, p), o in positions.items()]
            )
        if purged:
            self._db.execute("PRAGMA wal_checkpoint(TRUNCATE)")
        return unreadable

    def _insert_query(self, record: QueryRecord) -> None:
        if self._forgotten(record.tenant, record.scope, record.at):
            return
        text, mode = self._keep(record.text, record.text_mode)
        # The text has a column of its own, so that it can be taken back without touching the rest.
        bare = record.model_copy(update={"text": None, "text_mode": "none"})
        self._db.execute(
            "INSERT OR IGNORE INTO queries VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)",
            (
                record.query_id, record.tenant, record.at, record.kind, record.outcome, record.refusal, record.scope,
                record.operator, record.counts.shown, record.total_ms, record.cost,
                record.tokens.get("read", 0) + record.tokens.get("written", 0), text, mode, bare.model_dump_json(),
            ),
        )  # fmt: skip

    def _insert_feedback(self, record: FeedbackRecord) -> None:
        if self._forgotten(record.tenant, record.scope, record.at):
            return
        comment, mode = self._keep(record.comment, record.text_mode)
        bare = record.model_copy(update={"comment": None, "text_mode": "none"})
        self._db.execute(
            "INSERT OR REPLACE INTO feedback VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)",
            (
                record.tenant, record.query_id, record.scope, record.target, record.at, record.verdict, comment, mode,
                bare.model_dump_json(),
            ),
        )  # fmt: skip

    def _forgotten(self, tenant: str, scope: str, at: int) -> bool:
        """Whether a purge concerns it: a record may arrive after the purge that it was made before."""
        row = self._db.execute(
            "SELECT max(before) FROM purges WHERE tenant = ? AND scope IN ('', ?)", (tenant, scope)
        ).fetchone()
        return row[0] is not None and at < row[0]

    def _purge(self, record: PurgeRecord) -> None:
        self._db.execute(
            "INSERT INTO purges VALUES (?, ?, ?, ?) ON CONFLICT (tenant, scope)"
            " DO UPDATE SET before = max(before, excluded.before), at = max(at, excluded.at)",
            (record.tenant, record.scope or "", record.before, record.at),
        )
        self._delete(record)

    def _delete(self, record: PurgeRecord) -> None:
        for table in ("queries", "feedback"):
            where, values = _of_purge(record)
            self._db.execute(f"DELETE FROM {table} WHERE {where}", values)

    def prune(self, now: int) -> None:
        """Drop what is older than the retention."""
        oldest = now - self._settings.retention_days * DAY_US
        with self._transaction():
            for table in ("queries", "feedback", "purges"):
                self._db.execute(f"DELETE FROM {table} WHERE at < ?", (oldest,))

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
        """Raises BusUnavailable where the file cannot be read: it is filled again from the log."""
        try:
            with closing(sqlite3.connect(f"{self._path.absolute().as_uri()}?mode=ro", uri=True, timeout=5)) as db:
                db.row_factory = sqlite3.Row
                yield db
        except sqlite3.Error as error:
            log.warning("the view of queries cannot be read", extra={"fields": {"error": str(error)}})
            raise BusUnavailable("the view of the query log cannot be read") from None

    def count(self, purge: PurgeRecord) -> int:
        """Queries and feedback that a purge concerns."""
        where, values = _of_purge(purge)
        with self._reader() as db:
            return sum(
                int(db.execute(f"SELECT count(*) FROM {table} WHERE {where}", values).fetchone()[0])
                for table in ("queries", "feedback")
            )

    def query(self, tenant: str, query_id: str, now: int, asker: str | None = None) -> QueryRecord | None:
        """One query of the tenant, within the retention; of ``asker`` only, where one is named."""
        with self._reader() as db:
            row = db.execute(
                "SELECT record, text, text_mode FROM queries WHERE query_id = ? AND tenant = ? AND at >= ?"
                " AND coalesce(operator, scope) = coalesce(?, operator, scope)",
                (query_id, tenant, self._oldest(now), asker),
            ).fetchone()
        return None if row is None else _with_text(row)

    def queries(self, tenant: str, wanted: Wanted, limit: int, now: int) -> list[QueryRecord]:
        """At most ``limit`` queries of the tenant, newest first."""
        where, values = ["q.tenant = ?", "q.at >= ?"], [tenant, max(self._oldest(now), wanted.since or 0)]
        more: list[tuple[bool, str, list[object]]] = [
            (wanted.until is not None, "q.at < ?", [wanted.until]),
            (wanted.kind is not None, "q.kind = ?", [wanted.kind]),
            (wanted.outcome is not None, "q.outcome = ?", [wanted.outcome]),
            (wanted.slower_ms is not None, "q.total_ms >= ?", [wanted.slower_ms]),
            (wanted.scope is not None, "q.scope = ?", [wanted.scope]),
            (wanted.scope is not None and not wanted.acts_too, "q.operator IS NULL", []),
            (wanted.before is not None, "(q.at, q.query_id) < (?, ?)", list(wanted.before or ())),
            (
                wanted.feedback is not None or wanted.any_feedback,
                "EXISTS (SELECT 1 FROM feedback f WHERE f.query_id = q.query_id AND f.tenant = q.tenant"
                + (" AND f.verdict = ?)" if wanted.feedback is not None else ")"),
                [wanted.feedback] if wanted.feedback is not None else [],
            ),
            (
                wanted.zero is not None,
                f"(q.kind IN ({', '.join('?' * len(_SEARCHES))}) AND q.outcome = 'answered' AND q.shown = 0) = ?",
                [*_SEARCHES, int(bool(wanted.zero))],
            ),
        ]
        bound: list[object] = list(values)
        for asked, clause, marks in more:
            if asked:
                where.append(clause)
                bound += marks
        query = f"""SELECT record, text, text_mode FROM queries q WHERE {" AND ".join(where)}
                    ORDER BY q.at DESC, q.query_id DESC LIMIT ?"""
        with self._reader() as db:
            rows = db.execute(query, (*bound, limit)).fetchall()
        return [_with_text(row) for row in rows]

    def spent(self, tenant: str, since: int) -> tuple[float, int]:
        """What generators cost the tenant since a moment (µs), and the tokens that they read and wrote."""
        with self._reader() as db:
            row = db.execute(
                "SELECT coalesce(sum(cost), 0), coalesce(sum(used), 0) FROM queries WHERE tenant = ? AND at >= ?",
                (tenant, since),
            ).fetchone()
        return float(row[0]), int(row[1])

    def feedback(self, tenant: str, query_ids: Sequence[str]) -> dict[str, list[FeedbackRecord]]:
        """Feedback by query, oldest first."""
        marks = ", ".join("?" * len(query_ids))
        with self._reader() as db:
            rows = db.execute(
                f"SELECT record, comment, text_mode FROM feedback WHERE tenant = ? AND query_id IN ({marks})"
                " ORDER BY at, target",
                (tenant, *query_ids),
            ).fetchall()
        found: dict[str, list[FeedbackRecord]] = {}
        for row in rows:
            record = FeedbackRecord.model_validate_json(row["record"])
            record = record.model_copy(update={"comment": row["comment"], "text_mode": row["text_mode"]})
            found.setdefault(record.query_id, []).append(record)
        return found

    def _oldest(self, now: int) -> int:
        return max(0, now - self._settings.retention_days * DAY_US)


def _of_purge(record: PurgeRecord) -> tuple[str, tuple[object, ...]]:
    if record.scope is None:
        return "tenant = ? AND at < ?", (record.tenant, record.before)
    return "tenant = ? AND at < ? AND scope = ?", (record.tenant, record.before, record.scope)


def _with_text(row: sqlite3.Row) -> QueryRecord:
    record = QueryRecord.model_validate_json(row["record"])
    return record.model_copy(update={"text": row["text"], "text_mode": row["text_mode"]})


def _read(record: Record) -> QueryRecord | FeedbackRecord | PurgeRecord | None:
    """A record of the topic; None where it is not understood or its key names another tenant."""
    if record.value is None:
        return None
    try:
        found = LOG_RECORD.validate_json(record.value)
    except ValidationError:
        return None
    return found if record.key == found.tenant else None
