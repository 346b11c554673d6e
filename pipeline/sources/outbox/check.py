"""Whether a database is made as an outbox needs it; for ``headwater sources test``."""

from __future__ import annotations

from collections.abc import Iterator

from pipeline.settings_sources import OutboxSettings
from pipeline.sources.connector import SourceUnavailable
from pipeline.sources.outbox.database import Database
from pipeline.sources.remote.contract import Finding

COLUMNS = {"id": "bigint", "xact": "xid8", "created_at": "timestamp with time zone", "payload": "jsonb"}


def findings(database: Database, settings: OutboxSettings) -> list[Finding]:
    """What was found out; it ends early where the database does not answer."""
    found: list[Finding] = []
    try:
        found.append(Finding(f"PostgreSQL {database.version()} answers", True))
        found.extend(_table(database, settings))
        if settings.mode == "logical":
            found.extend(_decoding(database, settings))
    except SourceUnavailable as error:
        found.append(Finding(str(error), False, "Check dsn, and that the database accepts connections from here."))
    return found


def _table(database: Database, settings: OutboxSettings) -> Iterator[Finding]:
    schema, name = settings.table.split(".")
    rows = database.ask(
        "SELECT attname, format_type(atttypid, NULL) FROM pg_attribute a JOIN pg_class c ON c.oid = attrelid"
        " JOIN pg_namespace n ON n.oid = relnamespace WHERE nspname = %(schema)s AND relname = %(name)s"
        " AND attnum > 0 AND NOT attisdropped",
        {"schema": schema, "name": name},
    )
    columns = {str(column): str(type_) for column, type_ in rows}
    wrong = sorted(c for c, t in COLUMNS.items() if columns.get(c) != t)
    if wrong:
        remedy = "Make the table with the statements that `headwater sources outbox-ddl` prints."
        what = f"table {settings.table}: column {', '.join(wrong)} is lacking or of another type"
        yield Finding(what if columns else f"there is no table {settings.table}", False, remedy)
        return
    yield Finding(f"table {settings.table} has its columns", True)
    (allowed,) = database.ask(
        "SELECT has_table_privilege(%(table)s::text, 'SELECT'), current_user", {"table": settings.table}
    )
    remedy = f"GRANT SELECT ON {settings.table} TO {allowed[1]};"
    yield Finding(f"{allowed[1]} may read {settings.table}", bool(allowed[0]), None if allowed[0] else remedy)
    (index,) = database.ask(
        "SELECT EXISTS (SELECT FROM pg_index WHERE indrelid = %(table)s::text::regclass AND indkey::text LIKE"
        " (SELECT attnum FROM pg_attribute WHERE attrelid = %(table)s::text::regclass AND attname = 'xact') || ' %%')",
        {"table": settings.table},
    )
    remedy = f"CREATE INDEX ON {settings.table} (xact, id);"
    yield Finding("an index begins with xact", bool(index[0]), None if index[0] else remedy)


def _decoding(database: Database, settings: OutboxSettings) -> Iterator[Finding]:
    ((level, kept),) = database.ask("SELECT current_setting('wal_level'), current_setting('max_slot_wal_keep_size')")
    good = level == "logical"
    yield Finding(
        f"wal_level is {level}", good, None if good else "Set wal_level = logical and restart, or use mode poll."
    )
    ((may,),) = database.ask("SELECT rolreplication OR rolsuper FROM pg_roles WHERE rolname = current_user")
    yield Finding("the account may read replication slots", bool(may), None if may else "ALTER ROLE … REPLICATION;")
    schema, name = settings.table.split(".")
    rows = database.ask(
        "SELECT bool_or(t.tablename IS NOT NULL), bool_or(p.pubinsert) FROM pg_publication p"
        " LEFT JOIN pg_publication_tables t ON t.pubname = p.pubname AND t.schemaname = %(schema)s"
        " AND t.tablename = %(name)s WHERE p.pubname = %(publication)s",
        {"schema": schema, "name": name, "publication": settings.publication},
    )
    good = bool(rows and rows[0][0] and rows[0][1])
    remedy = f"CREATE PUBLICATION {settings.publication} FOR TABLE {settings.table} WITH (publish = 'insert');"
    yield Finding(f"publication {settings.publication} tells what is inserted", good, None if good else remedy)
    fault = database.slot().fault
    remedy = f"SELECT pg_create_logical_replication_slot('{settings.slot}', 'pgoutput');"
    yield Finding(
        fault or f"replication slot {settings.slot} can be followed", fault is None, remedy if fault else None
    )
    unbounded = kept == "-1"
    what = (
        "the log kept for a stopped reader has no bound" if unbounded else f"at most {kept} of the log is kept for it"
    )
    yield Finding(what, not unbounded, "Set max_slot_wal_keep_size, else the disk can fill." if unbounded else None)
