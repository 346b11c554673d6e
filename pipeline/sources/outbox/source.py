"""The connector: hands over what an application wrote, in the order of its transactions."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace

from pipeline.clock import Clock
from pipeline.ports import SourceDeletion, SourceDocument
from pipeline.settings_sources import OutboxSettings
from pipeline.sources.connector import Look, Mark, Reach, Seen, SourceHidden, SourceUnavailable
from pipeline.sources.outbox.check import findings
from pipeline.sources.outbox.database import Database, Newest, Row, Tables
from pipeline.sources.outbox.position import Place, Position
from pipeline.sources.outbox.reader import Batch, Reader
from pipeline.sources.remote.contract import Finding
from pipeline.sources.stated import Changes, InOrder, Told, in_order, newest, parsed, steps_of
from pipeline.sources.states import Known
from schemas.keys import DocumentRef

PATIENCE_S = (0.5, 30.0)
"""How long to wait after a failure: at first, doubled each time, and at most."""
WITHHELD_S = 5.0
"""A transaction that holds rows back for longer is told."""
AT_ONCE = 50
"""Rows that a backfill reads at once."""


class Outbox(InOrder):
    """One table of one database. A row is a change or an array of them (``schemas.api_changes``).

    What a row says is handed over once it is committed and never before; of rows read at once only the last state of
    each document and principal. With the slot, transactions come in the order
    of their ends. Read from the table they come in the order of their beginnings: which of two transactions that wrote
    one document at the same time ended last does not count then. Where a slot was lost, rows may come a second time.
    """

    def __init__(
        self,
        settings: OutboxSettings,
        clock: Clock,
        *,
        max_bytes: int,
        known: Callable[[DocumentRef], Known | None],
        tables: Tables | None = None,
    ) -> None:
        """``max_bytes``: of a body. ``known``: what the log says of a document. Nothing is connected yet."""
        super().__init__(clock, Reach(notes={"mode": settings.mode}))
        self._settings, self._known = settings, known
        self._database = Database(settings.dsn.get_secret_value(), settings.table, settings.slot, settings.publication)
        self._tables: Tables = tables if tables is not None else self._database
        self._size = 2 * max_bytes + 65_536  # a body in base64, and what is around it
        self._reader = Reader(self._tables, clock, follow_slot=settings.mode == "logical", size=self._size)
        self._changes = Changes(settings.tenant, settings.name)
        self._patience = PATIENCE_S[0]
        self._failure: str | None = None
        self._advance: int | None = None  # the slot may move on to here
        self._touched: set[DocumentRef] | None = None  # handed over since a backfill began
        self._unread = ""  # a cursor that could not be read

    # ------------------------------------------------------------ the connector's port

    @property
    def degraded(self) -> str | None:
        """Why changes come later than usual."""
        since = self._reader.withheld_since
        if self._failure is None and self._reader.lost is None and since is not None:
            waited = self._clock.elapsed() - since
            if waited >= WITHHELD_S:
                return f"an older transaction of the database holds rows back for {waited:.0f} s"
        return self._failure or self._reader.lost

    def restore(self, states: Iterable[tuple[DocumentRef, Known]], position: str) -> None:
        """Go on after ``position``; the slot may forget what comes before it."""
        try:
            self._reader.position = Position.read(position)
        except ValueError as error:
            self._unread = f"the cursor on the log cannot be read ({error}): the table is read anew"
        self._advance = self._reader.position.lsn

    def listing(self) -> Look:
        """There is no list of what stands: nothing is met, and nothing is concluded from that."""
        problems = [self._failure] if self._failure is not None else []
        alarms = [self._reader.lost] if self._reader.lost is not None else []
        complete = self._failure is None
        return Look(0, iter(()), complete=complete, listing=True, problems=problems, alarms=alarms)

    def updated(self, since: int, until: int) -> Look:
        """Documents whose newest row was created in the window, as far as rows are kept; their readers stay."""
        look = Look(self._clock.now(), iter(()))
        look.seen = self._again(since, until, look)
        return look

    def changes(self, timeout: float) -> Look | None:
        """What was committed since, once all that was read before is handed over."""
        if not self._may_look(timeout):
            return None
        self._due = self._clock.elapsed() + self._settings.poll_s
        try:
            return self._look()
        except SourceUnavailable as error:
            return self._failed(error)

    def read(self, document: DocumentRef) -> SourceDocument | SourceHidden | SourceDeletion | None:
        """One document as its newest row says, its readers as they are; None where that row is gone or not read yet."""
        known = self._known(document)
        if self._handing or known is None:
            return None
        try:
            only = (document.kind, document.id)
            found = self._tables.newest(self._settings.tenant, self._settings.name, only=only)
            if not found or not self._handed(found[0].place):
                return None
            if found[0].type == "delete":
                return SourceDeletion(document)
            rows = self._tables.payloads([found[0].place.id], self._size)
        except SourceUnavailable:
            return None
        return None if known.deleted else self._content(found[0], rows)

    def committed(self, position: str) -> None:
        """Let the slot forget what is on the log now. Where that fails it is tried again with the next look."""
        self._advance = Position.read(position).lsn
        try:
            self._move_slot()
        except SourceUnavailable:
            self._reach.failures += 1

    def close(self) -> None:
        """Disconnect."""
        self._tables.close()

    def check(self) -> list[Finding]:
        """What is as it should be, and what is not."""
        return findings(self._database, self._settings)

    # ------------------------------------------------------------ handing over

    def _look(self) -> Look | None:
        self._reach.requests += 1
        if "version" not in self._reach.notes:
            self._reach.notes["version"] = self._tables.version()
        self._move_slot()
        before = self._reader.position
        batch = self._reader.read()
        self._failure, self._patience = None, PATIENCE_S[0]
        if batch is None:
            return None
        if batch.more:
            self._due = 0.0
        return self._handed_over(batch, before)

    def _handed_over(self, batch: Batch, before: Position) -> Look:
        moved = bool(batch.rows) or batch.position.lsn != before.lsn
        look = Look(
            batch.began,
            iter(()),
            bulk=batch.more,
            whole=batch.whole,
            position=batch.position.text() if moved else None,
            problems=batch.problems,
            alarms=batch.alarms,
        )
        if self._unread:
            look.alarms.append(self._unread)
            self._unread = ""
        if seen := newest(self._seen(batch.rows, Told(look))):
            self._handing = True
            look.expected = len(seen)
            look.seen = self._until_handed(in_order(look, steps_of(seen)))
        return look

    def _until_handed(self, seen: Iterator[Seen | Mark]) -> Iterator[Seen | Mark]:
        for one in seen:
            if self._touched is not None and isinstance(one, SourceDocument | SourceDeletion):
                self._touched.add(one.document)
            yield one
        self._handing = False

    def _seen(self, rows: list[Row], told: Told) -> Iterator[Seen]:
        for row in rows:
            where = f"row {row.place.id} of {self._settings.table}"
            if row.payload is None:
                told.alarm(
                    f"{where}, field payload: is null or has more than {self._size} bytes; write it anew, shorter"
                )
                continue
            try:
                payload = parsed(row.payload)
            except ValueError as error:
                told.alarm(f"{where}, field payload: {error}")
                continue
            yield from told.reading(self._changes.read(payload, where))

    def _failed(self, error: SourceUnavailable) -> Look:
        self._reach.failures += 1
        self._failure = str(error)
        self._due = self._clock.elapsed() + self._patience
        self._patience = min(self._patience * 2, PATIENCE_S[1])
        return Look(self._clock.now(), iter(()), complete=False, problems=[self._failure])

    def _move_slot(self) -> None:
        if self._advance is not None:
            self._tables.advance(self._advance)
            self._advance = None

    # ------------------------------------------------------------ reading again

    def _handed(self, place: Place) -> bool:
        """Whether a row was handed over for sure, and with it all that came before it."""
        return place <= self._reader.position.after

    def _again(self, since: int, until: int, look: Look) -> Iterator[Seen | Mark]:
        touched = self._touched = set()
        try:
            while self._handing:
                yield Mark.WAIT
            tenant, source = self._settings.tenant, self._settings.name
            found = self._tables.newest(tenant, source, since=since, until=until)
            wanted = [n for n in found if n.type == "upsert" and self._handed(n.place)]
            look.expected = look.listed = len(wanted)
            for first in range(0, len(wanted), AT_ONCE):
                some = wanted[first : first + AT_ONCE]
                rows = self._tables.payloads([n.place.id for n in some], self._size)
                for one in some:
                    while self._handing:
                        yield Mark.WAIT
                    known = self._known(self._ref(one))
                    if self._ref(one) not in touched and known is not None and not known.deleted:
                        seen = self._content(one, rows)
                        if seen is not None:
                            yield seen
        finally:
            self._touched = None

    def _content(self, row: Newest, rows: dict[int, str]) -> SourceDocument | None:
        """What a row says of a document's content. Its readers are left out: a later row may have changed them."""
        payload = rows.get(row.place.id)
        if payload is None:
            return None
        try:
            reading = self._changes.read(parsed(payload), "row")
        except ValueError:
            return None
        document = self._ref(row)
        found = [s for s in reading.seen if isinstance(s, SourceDocument) and s.document == document]
        if not found:
            return None
        return replace(found[-1], rule=None)

    def _ref(self, row: Newest) -> DocumentRef:
        settings = self._settings
        return DocumentRef(tenant=settings.tenant, source=settings.name, kind=row.kind, id=row.id)
