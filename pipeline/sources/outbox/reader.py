"""How an outbox is followed: by its replication slot, or by asking the table in an order that loses no row.

A table read by id alone loses rows: a transaction that began early may end late, with lower ids than those read
already. So rows are read by (transaction, id) and only up to the oldest transaction that still runs: nothing can appear
before that. The slot gives transactions in the order of their ends, without waiting for older ones.

Where the slot does not hold all that is due (a new one, one that was lost or moved), the table is read until every
transaction of that moment has ended: what begins later is in the slot.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace

from pipeline.clock import Clock
from pipeline.sources.outbox.database import Moment, Row, Slot, Tables
from pipeline.sources.outbox.pgoutput import Transaction
from pipeline.sources.outbox.position import Place, Position

ROWS = 500
"""Rows read at once; a transaction in the slot is read whole, however large."""
BYTES = 32 * 1024 * 1024
"""About how much is read at once."""
IDLE_S = 10.0
"""How often the slot moves on where nothing concerns us, so that the server may forget its log."""
UNSEEN_S = 1.0
"""How often the slot is read although the table shows nothing new: an application may delete rows as it writes them."""
_LOG_PAGE, _PAGE_HEADER = 8192, 40


@dataclass
class Batch:
    """What was read. ``whole``: nothing that was committed before ``began`` (µs) is missing."""

    began: int
    position: Position
    rows: list[Row] = field(default_factory=list)
    more: bool = False
    whole: bool = False
    problems: list[str] = field(default_factory=list)
    alarms: list[str] = field(default_factory=list)


@dataclass(frozen=True)
class _Candidate:
    """All transactions before ``xmin`` are read once the slot was read up to ``inserted``."""

    began: int
    xmin: int
    inserted: int


class Reader:
    """Reads batches; each begins where the one before it ended. Raises SourceUnavailable; nothing is lost by that."""

    def __init__(self, tables: Tables, clock: Clock, *, follow_slot: bool, size: int) -> None:
        """``size``: bytes of the largest payload that is read."""
        self._tables, self._clock, self._size = tables, clock, size
        self._follow_slot = follow_slot
        self.position = Position()
        self.lost: str | None = None  # why the slot is not followed
        self.withheld_since: float | None = None  # rows wait for an older transaction since then (``Clock.elapsed``)
        self._until: int | None = None  # the table is read until all transactions before this one have ended
        self._candidate: _Candidate | None = None
        self._unseen = self._idle = self._clock.elapsed()
        self._unread = True  # the slot was not read to its end yet

    def read(self) -> Batch | None:
        """The next batch, which may be empty; None where it was not worth asking."""
        began = self._clock.now()
        moment = self._tables.moment(self.position.after, slot=self._follow_slot)
        if alarms := self._restarted(moment):
            moment = self._tables.moment(self.position.after, slot=self._follow_slot)
        batch = self._followed(began, moment, alarms) if self._follow_slot else self._polled(began, moment)
        if batch is not None:
            batch.alarms[:0] = alarms
            self.position = batch.position
        return batch

    def _restarted(self, moment: Moment) -> list[str]:
        """A cursor ahead of the database: it was restored from a backup, or is another one."""
        position = self.position
        ahead = self._follow_slot and position.lsn is not None and position.lsn > moment.inserted
        if position.after.xact <= moment.xmax and not ahead:
            return []
        self.position = Position()
        return ["the database is older than what was read of it: it was restored or replaced; its table is read anew"]

    # ------------------------------------------------------------ the table

    def _polled(self, began: int, moment: Moment) -> Batch:
        position = replace(self.position, lsn=None)
        rows: list[Row] = []
        more = False
        if moment.pending:
            rows, more = self._tables.rows(position.after, moment.xmin, ROWS, BYTES, self._size)
        after = rows[-1].place if more else max(position.after, Place(moment.xmin, 0))
        if not moment.withheld:
            self.withheld_since = None
        elif self.withheld_since is None:
            self.withheld_since = self._clock.elapsed()
        return Batch(began, replace(position, after=after), rows, more, whole=not more and not moment.withheld)

    # ------------------------------------------------------------ the slot

    def _followed(self, began: int, moment: Moment, alarms: list[str]) -> Batch | None:
        slot = moment.slot or Slot(fault="there is no replication slot")
        if slot.fault is not None:
            if self.lost is None:
                alarms.append(self._remedy(slot.fault))
            self.lost, self._until = slot.fault, None
            return self._polled(began, moment)
        lsn = self.position.lsn
        if self.lost is not None or lsn is None or slot.confirmed > lsn:
            self.lost = None
            return self._caught_up(began, moment, slot)
        return self._decoded(began, moment, lsn)

    def _remedy(self, fault: str) -> str:
        return (
            f"{fault}: the table is read instead, and changes wait for older transactions; make the slot anew with "
            "pg_create_logical_replication_slot, after pg_drop_replication_slot where it was invalidated"
        )

    def _caught_up(self, began: int, moment: Moment, slot: Slot) -> Batch:
        """Read the table until the slot holds everything after what was read."""
        if self._until is None:
            self._until = moment.xmax
        batch = self._polled(began, moment)
        if not batch.more and moment.xmin >= self._until:
            self._until, self._unread, self.withheld_since = None, True, None
            batch.position = Position(batch.position.after, slot.confirmed, floor=batch.position.after)
        return batch

    def _decoded(self, began: int, moment: Moment, lsn: int) -> Batch | None:
        now = self._clock.elapsed()
        settled = self._candidate is not None and _on_disk(self._candidate.inserted, moment.flushed)
        if not (self._unread or settled or moment.pending or now >= self._unseen):
            return None
        if self._candidate is None:
            self._candidate = _Candidate(began, moment.xmin, moment.inserted)
            settled = _on_disk(moment.inserted, moment.flushed)
        transactions, more = self._tables.decoded(ROWS, BYTES)
        self._unread, self._unseen = more, now + UNSEEN_S
        rows, problems = self._rows([t for t in transactions if t.end > lsn])
        # Before version 15, transactions that do not concern us come as well, empty.
        end = max([lsn, *(t.end for t in transactions if t.rows or more)])
        batch = Batch(began, replace(self.position, lsn=end), rows, more, problems=problems)
        if settled and not more:
            read, self._candidate = self._candidate, None
            batch.began, batch.whole = read.began, True
            after = max(self.position.after, Place(read.xmin, 0))
            if now >= self._idle:
                end = max(end, moment.flushed)
                self._idle = now + IDLE_S
            batch.position = replace(self.position, after=after, lsn=end)
        return batch

    def _rows(self, transactions: list[Transaction]) -> tuple[list[Row], list[str]]:
        """Rows that the table did not give already."""
        rows: list[Row] = []
        problems: list[str] = []
        for columns in (row for transaction in transactions for row in transaction.rows):
            xact, id_ = columns.get("xact"), columns.get("id")
            if xact is None or id_ is None or not (xact + id_).isdigit():
                problems.append("a row of the table has no xact or no id: make the table as the command prints it")
                continue
            place, payload = Place(int(xact), int(id_)), columns.get("payload")
            if place > self.position.floor:
                small = payload is not None and len(payload) <= self._size
                rows.append(Row(place, payload if small else None))
        return rows, problems


def _on_disk(inserted: int, flushed: int) -> bool:
    """Whether the log is on disk up to ``inserted``, which may stand after the header of a page that holds nothing."""
    return flushed >= inserted or (flushed % _LOG_PAGE == 0 and inserted - flushed <= _PAGE_HEADER)
