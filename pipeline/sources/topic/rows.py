"""Rows as Debezium tells them: one document each, its kind the table and its id a column."""

from __future__ import annotations

import base64
import hashlib
from collections import OrderedDict
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

from pydantic import TypeAdapter, ValidationError

from pipeline.clock import micros_of
from pipeline.errors import ConfigError
from pipeline.ports import Record, SourceAccess, SourceDeletion, SourceDocument
from pipeline.settings_sources import TopicSettings
from pipeline.sources.compare import attributes_hash
from pipeline.sources.connector import Seen
from pipeline.sources.stated import Step, Told, parsed
from pipeline.sources.states import Known
from pipeline.sources.topic.messages import key_of, ref, value_of, where
from schemas.access import AccessRule, Principal
from schemas.keys import DocumentRef

PLACEHOLDER = "__debezium_unavailable_value"
"""Stands for a large value that did not change and was not sent. It is never indexed."""
REMEMBERED = 10_000
"""Deleted documents whose place in the log is known, so that older rows of theirs are passed by."""
KEPT = 32 * 1024 * 1024
"""Bytes of texts kept, for rows that come without their unchanged text."""
_PRINCIPALS: TypeAdapter[list[Principal]] = TypeAdapter(list[Principal])
_LACKING = object()
_PLACEHOLDER_BYTES = base64.b64encode(PLACEHOLDER.encode()).decode()


@dataclass(frozen=True)
class Event:
    """A row's change. ``lsn``: its place in PostgreSQL's log, None for other databases."""

    op: str  # r c u d t m as Debezium writes them; "" for the empty record after a deletion
    table: str
    key: Mapping[str, Any]
    before: Mapping[str, Any]
    after: Mapping[str, Any] | None
    lsn: int | None
    committed_at: int | None  # µs


class Rows:
    """Reads rows of one source."""

    def __init__(self, settings: TopicSettings, known: Callable[[DocumentRef], Known | None]) -> None:
        """Raises ConfigError where two topics are of tables of one name."""
        tables = [topic.rpartition(".")[2] for topic in settings.topics]
        if len(set(tables)) < len(tables):
            raise ConfigError(
                "sources.topics",
                "two tables have one name, and it is their documents' kind",
                "Make two sources of them.",
            )
        self._settings, self._known = settings, known
        allow = settings.allow
        self._allow = AccessRule.any_of(*allow) if allow else AccessRule.nobody("no readers are named for the source")
        self._texts = _Texts()
        self._gone: OrderedDict[DocumentRef, int] = OrderedDict()
        self._deleted: dict[tuple[str, int], str | None] = {}  # key of each partition's last row if it was a deletion

    def remember(self, record: Record) -> bool:
        """Every record is read: what is old is known by its place in the database's log. A deletion before the cursor
        tells that the empty record after it repeats it."""
        try:
            event = _event(record)
        except ValueError:
            return True
        self._deleted.pop((record.topic, record.partition), None)
        if event.op == "d":
            self._deleted[(record.topic, record.partition)] = record.key
        return True

    def steps(self, records: list[Record], told: Told) -> Iterator[Step]:
        """What records say. What is wrong with one is told, and stops nobody."""
        for record in records:
            yield from self._of_record(record, told)

    def _of_record(self, record: Record, told: Told) -> Iterator[Step]:
        try:
            event = _event(record)
            partition = (record.topic, record.partition)
            repeated = event.op == "" and self._deleted.get(partition, ...) == record.key
            self._deleted.pop(partition, None)
            if event.op == "d":
                self._deleted[partition] = record.key
            if event.op == "t":
                told.alarm(
                    f"{where(record)}: table {event.table} was truncated; its documents stay until they are deleted "
                    "one by one, or the source is reset"
                )
            elif not repeated:
                yield from self._of_row(event, told, where(record))
        except ValueError as error:
            told.problem(f"{where(record)}, {error}")

    def _of_row(self, event: Event, told: Told, place: str) -> Iterator[Step]:
        if event.op in ("d", ""):
            id_ = _id(event.before, self._settings.id) or _id(event.key, self._settings.id)
            if id_ is not None:
                yield self._deletion(event, id_, told)
            elif event.op == "d":
                told.alarm(
                    f"{place}, field {self._settings.id}: a deleted row comes without it; make it part of the key, or "
                    "set REPLICA IDENTITY FULL on the table"
                )
        elif event.op in ("r", "c", "u"):
            if event.after is None:
                raise ValueError("field after: is lacking")
            id_ = _id(event.after, self._settings.id)
            if id_ is None:
                raise ValueError(f"field {self._settings.id}: is lacking or is no number or text")
            earlier = _id(event.before, self._settings.id)
            if earlier is not None and earlier != id_:
                yield self._deletion(event, earlier, told)
            document = self._ref(event, id_)
            yield Step(True, lambda: self._row(event, document, told, place))
        elif event.op != "m":
            raise ValueError("field op: is none of r, c, u, d, t, m")

    def _ref(self, event: Event, id_: str) -> DocumentRef:
        try:
            return ref(self._settings, event.table, id_)
        except ValueError as error:
            raise ValueError(f"field {self._settings.id}: {error}") from error

    # ------------------------------------------------------------ old or new

    def _stale(self, event: Event, document: DocumentRef, told: Told) -> bool:
        """Whether something newer is known: rows come twice after a crash, and a new snapshot tells old ones again."""
        stale = event.lsn is not None and self._older(event.lsn, document)
        if stale:
            told.problem(
                "rows that are older than those held (source.lsn) are passed by: well after a crash or a new snapshot; "
                "where the database was restored or replaced, reset the source"
            )
        return stale

    def _older(self, lsn: int, document: DocumentRef) -> bool:
        known = self._known(document)
        held = int(known.revision) if known is not None and (known.revision or "").isdigit() else 0  # type: ignore[arg-type]
        if known is not None and known.deleted and held and lsn <= held:
            return True
        return lsn < max(held, self._gone.get(document, 0))

    def _made_with(self, event: Event, document: DocumentRef) -> bool:
        """Whether the row that stands was written with this deletion: another column of its key changed."""
        known = self._known(document)
        return known is not None and not known.deleted and event.lsn is not None and known.revision == str(event.lsn)

    def _deletion(self, event: Event, id_: str, told: Told) -> Step:
        document = self._ref(event, id_)

        def tell() -> Iterator[Seen]:
            if self._stale(event, document, told) or self._made_with(event, document):
                return
            if event.lsn is not None:
                self._gone[document] = event.lsn
                self._gone.move_to_end(document)
                if len(self._gone) > REMEMBERED:
                    self._gone.popitem(last=False)
            self._texts.drop(document)
            yield SourceDeletion(document, updated_at=event.committed_at)

        return Step(False, tell)

    # ------------------------------------------------------------ a row that stands

    def _row(self, event: Event, document: DocumentRef, told: Told, place: str) -> Iterator[Seen]:
        if self._stale(event, document, told):
            return
        row = event.after or {}
        rule = self._rule(row, told, place)
        try:
            seen = self._document(event, document, row, rule)
        except ValueError as error:
            told.problem(f"{place}, {error}")
            seen = None
        unsent = [c for c in self._columns() if _unsent(row.get(c))]
        if seen is not None and not unsent:
            self._texts.keep(document, seen.body)
            yield seen
            return
        if seen is not None and (whole := self._completed(seen, unsent)) is not None:
            yield whole
            return
        if seen is not None and not self._unchanged(seen, unsent):
            told.problem(
                f"{place}, field {unsent[0]}: was not sent, being large and unchanged, and is not held: the document "
                "stays as it was; set REPLICA IDENTITY FULL on the table and write the row again"
            )
        if rule is not None and self._known(document) is not None:
            yield SourceAccess(document, rule=rule, updated_at=seen.updated_at if seen is not None else None)

    def _columns(self) -> list[str]:
        settings = self._settings
        return [settings.text, settings.title, *([settings.url] if settings.url is not None else [])]

    def _document(
        self, event: Event, document: DocumentRef, row: Mapping[str, Any], rule: AccessRule | None
    ) -> SourceDocument:
        """The row as a document; what was not sent is in it as it came. Raises ValueError."""
        settings = self._settings
        for setting, column in (("text", settings.text), ("title", settings.title)):
            if column not in row:
                raise ValueError(
                    f"field {column}: the row has no such column; name the right one as the source's {setting}"
                )
        return SourceDocument(
            document=document,
            title=_text(row, settings.title) or f"{document.kind} {document.id}",
            body=(_text(row, settings.text) or "").encode("utf-8"),
            content_type=settings.content_type,
            rule=rule,
            url=_text(row, settings.url) if settings.url is not None else None,
            revision=str(event.lsn) if event.lsn is not None else None,
            updated_at=_time(row.get(settings.updated_at)) if settings.updated_at is not None else event.committed_at,
        )

    def _completed(self, seen: SourceDocument, unsent: list[str]) -> SourceDocument | None:
        """The document with the text that it had, where only that was not sent and the text is still here."""
        known, body = self._known(seen.document), self._texts.get(seen.document)
        if unsent != [self._settings.text] or known is None or known.deleted or body is None:
            return None
        return replace(seen, body=body) if hashlib.sha256(body).digest() == known.content_hash else None

    def _unchanged(self, seen: SourceDocument, unsent: list[str]) -> bool:
        """Whether nothing that is indexed changed: the text was not sent because it is the same."""
        known = self._known(seen.document)
        if unsent != [self._settings.text] or known is None or known.deleted:
            return False
        return attributes_hash(seen) == known.attributes_hash

    def _rule(self, row: Mapping[str, Any], told: Told, place: str) -> AccessRule | None:
        """Who may read; None where that was not sent, being unchanged. Nobody where it cannot be read."""
        column = self._settings.readers
        if column is None:
            return self._allow
        value = row.get(column, _LACKING)
        if _unsent(value):
            return None
        if value is None:
            return self._allow
        try:
            named = _PRINCIPALS.validate_python(parsed(value) if isinstance(value, str) else value)
        except ValidationError as error:
            why = error.errors(include_url=False, include_input=False)[0]["msg"]
        except ValueError:
            why = "is no JSON"
        else:
            return AccessRule.any_of(*named) if named else AccessRule.nobody("the row names no readers")
        told.alarm(
            f"{place}, field {column}: {why if value is not _LACKING else 'is lacking'}; nobody may read the row"
        )
        return AccessRule.nobody(f"the readers in column {column} cannot be read")


class _Texts:
    """The texts that came last, up to a bound."""

    def __init__(self) -> None:
        self._texts: OrderedDict[DocumentRef, bytes] = OrderedDict()
        self._size = 0

    def keep(self, document: DocumentRef, text: bytes) -> None:
        self.drop(document)
        self._texts[document] = text
        self._size += len(text)
        while self._size > KEPT:
            _, oldest = self._texts.popitem(last=False)
            self._size -= len(oldest)

    def get(self, document: DocumentRef) -> bytes | None:
        return self._texts.get(document)

    def drop(self, document: DocumentRef) -> None:
        self._size -= len(self._texts.pop(document, b""))


def _event(record: Record) -> Event:
    """Raises ValueError, which names the field."""
    key = key_of(record)
    value = value_of(record)
    table = record.topic.rpartition(".")[2]
    keys = key if isinstance(key, dict) else {}
    if value is None:
        return Event("", table, keys, {}, None, None, None)
    if not isinstance(value, dict):
        raise ValueError("value: is no JSON object")
    op = value.get("op")
    if not isinstance(op, str):
        raise ValueError("field op: is lacking; let Debezium send whole events, not unwrapped rows")
    source = value["source"] if isinstance(value.get("source"), dict) else {}
    before, after = value.get("before"), value.get("after")
    lsn, at = source.get("lsn"), source.get("ts_ms")
    return Event(
        op=op or "?",
        table=str(source.get("table") or table),
        key=keys,
        before=before if isinstance(before, dict) else {},
        after=after if isinstance(after, dict) else None,
        lsn=lsn if isinstance(lsn, int) else None,
        committed_at=at * 1000 if isinstance(at, int) and at > 0 and op != "r" else None,  # a snapshot's is its own
    )


def _id(row: Mapping[str, Any], column: str) -> str | None:
    value = row.get(column)
    if isinstance(value, bool) or not isinstance(value, int | str) or value == "":
        return None
    return str(value)


def _unsent(value: object) -> bool:
    """Whether the placeholder stands for the value: as text, as bytes, or as the only element of an array."""
    return value in (PLACEHOLDER, [PLACEHOLDER], _PLACEHOLDER_BYTES)


def _text(row: Mapping[str, Any], column: str) -> str | None:
    """A column as text. Raises ValueError for what is none."""
    value = row.get(column)
    if isinstance(value, str):
        try:
            value.encode("utf-8")
        except UnicodeEncodeError as error:
            raise ValueError(f"field {column}: is no valid Unicode") from error
        return value
    if value is None:
        return None
    if isinstance(value, int | float) and not isinstance(value, bool):
        return str(value)
    if _unsent(value):
        return PLACEHOLDER
    raise ValueError(f"field {column}: is no text")


def _time(value: object) -> int | None:
    """Microseconds since the epoch of a time as Debezium writes it: text, or a number whose unit its size tells."""
    try:
        if isinstance(value, str):
            return micros_of(value)
    except ValueError:
        return None
    if not isinstance(value, int) or isinstance(value, bool) or value <= 10**11:
        return None
    return value * 1000 if value < 10**14 else value if value < 10**17 else value // 1000
