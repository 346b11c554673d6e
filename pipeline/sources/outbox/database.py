"""What is asked of PostgreSQL. Nothing here decides anything; every failure is SourceUnavailable."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, LiteralString, Protocol

import psycopg
from psycopg import sql
from psycopg.conninfo import conninfo_to_dict

from pipeline.sources.connector import SourceUnavailable
from pipeline.sources.outbox.pgoutput import Decoder, Transaction
from pipeline.sources.outbox.position import Place, lsn_text

AT_ONCE = 50
"""Rows that travel together."""


@dataclass(frozen=True)
class Slot:
    """A replication slot as it stands. ``fault`` says why it cannot be followed. LSNs are bytes of the log."""

    confirmed: int = 0
    fault: str | None = None


@dataclass(frozen=True)
class Moment:
    """One moment of the database. Transactions before ``xmin`` have ended, those from ``xmax`` on have not begun.

    ``inserted`` and ``flushed``: ends of the log, written and safe on disk; 0 where no slot is asked for.
    """

    xmin: int
    xmax: int
    pending: bool  # a row after the asked place is there
    withheld: bool  # a row is there whose turn comes only when an older transaction ends
    inserted: int = 0
    flushed: int = 0
    slot: Slot | None = None


@dataclass(frozen=True)
class Row:
    """A row of the table. ``payload`` is None where it is larger than asked for."""

    place: Place
    payload: str | None


@dataclass(frozen=True)
class Newest:
    """The newest row that speaks of a document's content, and how."""

    kind: str
    id: str
    type: str
    place: Place


class Tables(Protocol):
    """The database as the source uses it. Everything raises SourceUnavailable."""

    def moment(self, after: Place, *, slot: bool) -> Moment: ...
    def rows(self, after: Place, before: int, limit: int, most: int, size: int) -> tuple[list[Row], bool]:
        """Rows after a place of transactions before ``before``, in order: at most ``limit`` and about ``most`` bytes.

        Payloads of more than ``size`` bytes are left out. The second value: there are more.
        """
        ...

    def decoded(self, limit: int, most: int) -> tuple[list[Transaction], bool]:
        """Whole transactions from the slot, in the order of their ends; about ``limit`` rows and ``most`` bytes."""
        ...

    def advance(self, lsn: int) -> None:
        """The slot may forget everything up to there."""
        ...

    def newest(
        self, tenant: str, source: str, *, since: int = 0, until: int | None = None, only: tuple[str, str] | None = None
    ) -> list[Newest]:
        """Of each document, or the one of kind and id, the newest row; those created in a window (µs)."""
        ...

    def payloads(self, ids: Sequence[int], size: int) -> dict[int, str]:
        """Payloads of up to ``size`` bytes by id of their rows."""
        ...

    def version(self) -> str: ...
    def close(self) -> None: ...


class Database:
    """``Tables`` over one connection, made when it is needed and again after it was lost."""

    def __init__(self, dsn: str, table: str, slot: str, publication: str, *, timeout_s: float = 10.0) -> None:
        self._dsn, self._slot, self._publication = dsn, slot, publication
        self._name, self._table = table, sql.Identifier(*table.split("."))
        self._timeout_s = timeout_s
        self._connection: psycopg.Connection[tuple[Any, ...]] | None = None

    def moment(self, after: Place, *, slot: bool) -> Moment:
        """See ``Tables``. One statement, so that all of it is one moment."""
        ends: LiteralString = (
            ", pg_current_wal_insert_lsn() - '0/0'::pg_lsn, pg_current_wal_flush_lsn() - '0/0'::pg_lsn" if slot else ""
        )
        query = sql.SQL(
            "SELECT pg_snapshot_xmin(s)::text, pg_snapshot_xmax(s)::text,"
            " EXISTS (SELECT FROM {table} WHERE (xact, id) > (%(xact)s::text::xid8, %(id)s)),"
            " EXISTS (SELECT FROM {table} WHERE xact >= pg_snapshot_xmin(s))" + ends + " FROM pg_current_snapshot() s"
        ).format(table=self._table)
        row = self._all(query, {"xact": str(after.xact), "id": after.id})[0]
        found = self.slot() if slot else None
        wal = (int(row[4]), int(row[5])) if slot else (0, 0)
        return Moment(int(row[0]), int(row[1]), bool(row[2]), bool(row[3]), *wal, found)

    def slot(self) -> Slot:
        """The replication slot now."""
        rows = self._all(
            "SELECT plugin, database = current_database(), wal_status, confirmed_flush_lsn - '0/0'::pg_lsn"
            " FROM pg_replication_slots WHERE slot_name = %(slot)s",
            {"slot": self._slot},
        )
        if not rows:
            return Slot(fault=f"there is no replication slot {self._slot}")
        plugin, here, status, confirmed = rows[0]
        if plugin != "pgoutput" or not here:
            return Slot(fault=f"the replication slot {self._slot} is not one of pgoutput in this database")
        if status == "lost" or confirmed is None:
            return Slot(fault=f"the replication slot {self._slot} was invalidated: the log that it needs is gone")
        return Slot(int(confirmed))

    def rows(self, after: Place, before: int, limit: int, most: int, size: int) -> tuple[list[Row], bool]:
        """See ``Tables``."""
        query = sql.SQL(
            "SELECT xact::text, id, CASE WHEN octet_length(payload::text) <= %(size)s THEN payload::text END"
            " FROM {table} WHERE (xact, id) > (%(xact)s::text::xid8, %(id)s) AND xact < %(before)s::text::xid8"
            " ORDER BY xact, id LIMIT %(limit)s"
        ).format(table=self._table)
        values = {"xact": str(after.xact), "id": after.id, "before": str(before), "limit": limit + 1, "size": size}
        found: list[Row] = []
        read = 0
        for xact, id_, payload in self._stream(query, values):
            if len(found) == limit or read > most:
                return found, True
            found.append(Row(Place(int(xact), int(id_)), payload))
            read += len(payload or "")
        return found, False

    def decoded(self, limit: int, most: int) -> tuple[list[Transaction], bool]:
        """See ``Tables``. The slot itself does not move."""
        query = (
            "SELECT data FROM pg_logical_slot_peek_binary_changes(%(slot)s, NULL, %(limit)s,"
            " 'proto_version', '1', 'publication_names', %(publication)s)"
        )
        values = {"slot": self._slot, "limit": limit, "publication": self._publication}
        decoder = Decoder(self._name)
        found: list[Transaction] = []
        read = messages = 0
        for (data,) in self._stream(query, values):
            messages += 1
            read += len(data)
            try:
                transaction = decoder.feed(bytes(data))
            except ValueError as error:
                raise SourceUnavailable(
                    f"the replication slot {self._slot} says what cannot be read: {error}"
                ) from error
            if transaction is not None:
                found.append(transaction)
                if read > most:
                    return found, True
        # The server counts messages, and looks at its bound at the end of each transaction.
        return found, messages >= limit

    def advance(self, lsn: int) -> None:
        """See ``Tables``. A slot that is further, or not there, is left alone."""
        self._all(
            "SELECT pg_replication_slot_advance(slot_name, %(lsn)s::text::pg_lsn) FROM pg_replication_slots"
            " WHERE slot_name = %(slot)s AND confirmed_flush_lsn < %(lsn)s::text::pg_lsn"
            " AND %(lsn)s::text::pg_lsn <= pg_current_wal_flush_lsn()",
            {"slot": self._slot, "lsn": lsn_text(lsn)},
        )

    def newest(
        self, tenant: str, source: str, *, since: int = 0, until: int | None = None, only: tuple[str, str] | None = None
    ) -> list[Newest]:
        """See ``Tables``. What came after the window is looked at as well: it may be newer."""
        query = sql.SQL(
            "SELECT kind, doc, type, xact, id FROM ("
            " SELECT DISTINCT ON (kind, doc) kind, doc, type, xact, id, created_at FROM ("
            "  SELECT t.xact, t.id, t.created_at, n, c->>'type' AS type, coalesce(c->>'kind', 'page') AS kind,"
            "   c->>'id' AS doc, coalesce(c->>'tenant', %(tenant)s) AS tenant,"
            "   coalesce(c->>'source', %(source)s) AS source"
            "  FROM {table} t, jsonb_array_elements("
            "   CASE jsonb_typeof(t.payload) WHEN 'array' THEN t.payload ELSE jsonb_build_array(t.payload) END"
            "  ) WITH ORDINALITY AS e(c, n)"
            "  WHERE t.created_at >= 'epoch'::timestamptz + %(since)s::bigint * interval '1 microsecond'"
            " ) changes"
            " WHERE type IN ('upsert', 'delete') AND tenant = %(tenant)s AND source = %(source)s AND doc IS NOT NULL"
            "  AND (%(doc)s::text IS NULL OR (doc = %(doc)s AND kind = %(kind)s))"
            " ORDER BY kind, doc, xact DESC, id DESC, n DESC"
            ") newest WHERE %(until)s::bigint IS NULL"
            " OR created_at < 'epoch'::timestamptz + %(until)s::bigint * interval '1 microsecond' ORDER BY xact, id"
        ).format(table=self._table)
        kind, id_ = only if only is not None else (None, None)
        values = {"tenant": tenant, "source": source, "since": since, "until": until, "doc": id_, "kind": kind}
        return [Newest(k, d, t, Place(int(x), int(i))) for k, d, t, x, i in self._all(query, values)]

    def payloads(self, ids: Sequence[int], size: int) -> dict[int, str]:
        """See ``Tables``."""
        query = sql.SQL(
            "SELECT id, payload::text FROM {table} WHERE id = ANY(%(ids)s) AND octet_length(payload::text) <= %(size)s"
        ).format(table=self._table)
        return {int(i): str(p) for i, p in self._all(query, {"ids": list(ids), "size": size})}

    def version(self) -> str:
        """Of the server."""
        return str(self._all("SHOW server_version")[0][0])

    def ask(self, query: LiteralString, values: Mapping[str, Any] | None = None) -> list[tuple[Any, ...]]:
        """Any question. Raises SourceUnavailable."""
        return self._all(query, values)

    def close(self) -> None:
        """Disconnect."""
        connection, self._connection = self._connection, None
        if connection is not None:
            with contextlib.suppress(psycopg.Error):
                connection.close()

    # ------------------------------------------------------------ the connection

    def _connected(self) -> psycopg.Connection[tuple[Any, ...]]:
        if self._connection is None or self._connection.closed:
            wait = max(1, int(self._timeout_s))
            given = conninfo_to_dict(self._dsn)
            ours: dict[str, Any] = {
                "connect_timeout": wait,
                "keepalives_idle": wait,
                "tcp_user_timeout": wait * 1000,
                "application_name": "headwater",
            }
            self._connection = psycopg.connect(
                self._dsn,
                autocommit=True,
                client_encoding="UTF8",
                prepare_threshold=None,  # a pooler between us and the server may not keep prepared statements
                **{name: value for name, value in ours.items() if name not in given},
            )
            # Decoding reads all of the log since it last ended, whatever tables that is about.
            self._connection.execute("SET statement_timeout = '600s'; SET lock_timeout = '10s'")
        return self._connection

    def _all(
        self, query: LiteralString | sql.Composed, values: Mapping[str, Any] | None = None
    ) -> list[tuple[Any, ...]]:
        with self._asking():
            return self._connected().execute(query, values).fetchall()

    def _stream(self, query: LiteralString | sql.Composed, values: Mapping[str, Any]) -> Iterator[tuple[Any, ...]]:
        """Rows of an answer, few at a time, so that leaving early costs no memory."""
        with self._asking():
            connection = self._connected()
            with connection.transaction(), connection.cursor(name="headwater") as cursor:
                cursor.execute(query, values)
                while some := cursor.fetchmany(AT_ONCE):
                    yield from some

    @contextlib.contextmanager
    def _asking(self) -> Iterator[None]:
        try:
            yield
        except psycopg.Error as error:
            primary = error.diag.message_primary
            text = primary if primary is not None else next(iter(str(error).splitlines()), type(error).__name__)
            if self._connection is None or self._connection.closed or self._connection.broken:
                self.close()
            raise SourceUnavailable(f"PostgreSQL: {text}"[:500]) from error
