"""Reads the messages of PostgreSQL's ``pgoutput`` plugin, protocol version 1: only what rows were inserted by whom.

Updates, deletions and truncations of an outbox are its clearing up: they say nothing about documents.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass, field

PASSED_BY = b"UDTOYM"
"""Update, delete, truncate, origin, type and message."""


@dataclass
class Transaction:
    """Rows that one transaction inserted, by column, in order. ``end``: the byte of the log after its commit."""

    end: int = 0
    rows: list[dict[str, str | None]] = field(default_factory=list)


class Decoder:
    """Reads the answer of one decoding: it names each relation before its first row."""

    def __init__(self, table: str) -> None:
        """``table``: schema and name, joined by a dot; rows of other tables are passed by."""
        self._table = table
        self._columns: dict[int, list[str]] = {}
        self._open = Transaction()

    def feed(self, data: bytes) -> Transaction | None:
        """Take one message; the transaction where it ends with it. Raises ValueError for what is no such message."""
        kind = data[:1]
        try:
            if kind == b"B":
                self._open = Transaction()
            elif kind == b"R":
                self._relation(data)
            elif kind == b"I":
                self._insert(data)
            elif kind == b"C":
                (self._open.end,) = struct.unpack_from(">q", data, 10)  # after flags and the commit's own place
                return self._open
            elif not kind or kind not in PASSED_BY:
                raise ValueError(f"a message of an unknown type {kind!r}")
        except (struct.error, IndexError) as error:
            raise ValueError(f"a message of type {kind!r} ends too early") from error
        return None

    def _relation(self, data: bytes) -> None:
        (oid,) = struct.unpack_from(">I", data, 1)
        schema, at = _string(data, 5)
        name, at = _string(data, at)
        (count,) = struct.unpack_from(">h", data, at + 1)  # after the replica identity
        at += 3
        columns = []
        for _ in range(count):
            column, at = _string(data, at + 1)  # after flags
            columns.append(column)
            at += 8  # type and modifier
        if f"{schema}.{name}" == self._table:
            self._columns[oid] = columns
        else:
            self._columns.pop(oid, None)

    def _insert(self, data: bytes) -> None:
        (oid,) = struct.unpack_from(">I", data, 1)
        columns = self._columns.get(oid)
        if columns is None:
            return
        (count,) = struct.unpack_from(">h", data, 6)
        at = 8
        row: dict[str, str | None] = {}
        for column in columns[:count]:
            kind, at = data[at : at + 1], at + 1
            if kind == b"t":
                (size,) = struct.unpack_from(">I", data, at)
                at += 4 + size
                if at > len(data):
                    raise IndexError
                # A database without an encoding may send any bytes: the row is refused later, and no other.
                row[column] = data[at - size : at].decode("utf-8", "surrogateescape")
            elif kind == b"n":
                row[column] = None
            else:
                raise ValueError(f"a column in the form {kind!r}")
        self._open.rows.append(row)


def _string(data: bytes, at: int) -> tuple[str, int]:
    end = data.index(b"\x00", at)
    return data[at:end].decode("utf-8"), end + 1
