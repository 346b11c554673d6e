"""The cursor of an outbox: how far its table was read, and its replication slot."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import NamedTuple


class Place(NamedTuple):
    """A row's place: its transaction, then its id. A transaction's number is given at its beginning, not its end."""

    xact: int
    id: int


FIRST = Place(0, 0)
"""Before every row."""


@dataclass(frozen=True)
class Position:
    """Everything up to it was handed over.

    ``after``: every row up to this place. ``lsn``: every transaction that ended up to this byte of the write-ahead
    log, None where the slot was not followed. ``floor``: rows up to this place came from the table; the slot repeats
    them.
    """

    after: Place = FIRST
    lsn: int | None = None
    floor: Place = FIRST

    def text(self) -> str:
        """As it is kept on the log."""
        parts: dict[str, object] = {"after": list(self.after)}
        if self.lsn is not None:
            parts |= {"lsn": lsn_text(self.lsn), "floor": list(self.floor)}
        return json.dumps(parts, separators=(",", ":"))

    @staticmethod
    def read(text: str) -> Position:
        """The beginning where ``text`` is empty. Raises ValueError where it is no cursor of an outbox."""
        if not text:
            return Position()
        try:
            parts = json.loads(text)
            lsn = lsn_of(parts["lsn"]) if "lsn" in parts else None
            return Position(_place(parts["after"]), lsn, _place(parts.get("floor", [0, 0])))
        except (KeyError, TypeError, AttributeError) as error:
            raise ValueError("it is no cursor of an outbox") from error


def _place(parts: list[int]) -> Place:
    xact, id_ = parts
    return Place(int(xact), int(id_))


def lsn_of(text: str) -> int:
    """A byte of the write-ahead log as a number. Raises ValueError."""
    high, _, low = text.partition("/")
    return (int(high, 16) << 32) | int(low, 16)


def lsn_text(lsn: int) -> str:
    """The same as PostgreSQL writes it."""
    return f"{lsn >> 32:X}/{lsn & 0xFFFFFFFF:X}"
