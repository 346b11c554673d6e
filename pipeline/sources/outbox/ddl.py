"""The table that an application writes, as SQL for its database."""

from __future__ import annotations


def ddl(table: str, publication: str, slot: str) -> str:
    """Statements that make the table, its publication and its replication slot, each in a transaction of its own.

    Mode "poll" needs neither publication nor slot: leave the last two out.
    """
    name = table.rpartition(".")[2]
    return f"""\
-- One row is a change, or an array of changes, as POST /v1/changes takes them; tenant and source may be left out.
-- Write id, xact and created_at never yourself: xact tells which transactions have ended.
CREATE TABLE {table} (
    id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    xact xid8 NOT NULL DEFAULT pg_current_xact_id(),
    created_at timestamptz NOT NULL DEFAULT now(),
    payload jsonb NOT NULL
);

CREATE INDEX {name}_order ON {table} (xact, id);

CREATE INDEX {name}_created_at ON {table} (created_at);

-- The account that reads needs SELECT on the table and, for the slot, the attribute REPLICATION.
-- Rows may be deleted once they are older than you ever want to read again; a week is plenty.
CREATE PUBLICATION {publication} FOR TABLE {table} WITH (publish = 'insert', publish_via_partition_root = true);

-- Nothing else may read this slot. It keeps the write-ahead log while nobody reads: bound it by max_slot_wal_keep_size.
SELECT pg_create_logical_replication_slot('{slot}', 'pgoutput');
"""
