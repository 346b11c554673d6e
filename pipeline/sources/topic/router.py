"""Messages of Debezium's outbox router: one for each row of an application's outbox.

The topic ends with the aggregate's type, the key is the aggregate's id, the header ``id`` that of the row. The payload
is a change as ``POST /v1/changes`` takes it, or an array of them, as JSON or as a JSON string that holds JSON. Kind and
id of the document are taken from type and id of the aggregate where the change names none.

An empty payload says nothing, or that the document is gone where the settings say so: the router means both by it.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Iterator
from dataclasses import replace

from pipeline.ports import Record, SourceDeletion, SourceDocument
from pipeline.settings_sources import TopicSettings
from pipeline.sources.connector import Seen
from pipeline.sources.stated import Changes, Step, Told, newest, parsed
from pipeline.sources.states import Known
from pipeline.sources.topic.messages import key_of, ref, unwrapped, value_of, where
from schemas.access import AccessRule
from schemas.keys import DocumentRef

PREFIX = "outbox.event."
REMEMBERED = 10_000
"""Ids of messages that are known again when they come a second time."""


class Router:
    """Reads messages of one source."""

    def __init__(self, settings: TopicSettings, known: Callable[[DocumentRef], Known | None]) -> None:
        self._settings, self._known = settings, known
        self._changes = Changes(settings.tenant, settings.name)
        self._met: OrderedDict[bytes, None] = OrderedDict()

    def remember(self, record: Record) -> bool:
        """Whether a message is met for the first time."""
        id_ = next((value for name, value in record.headers if name == "id"), b"")
        if not id_:
            return True
        first = id_ not in self._met
        self._met[id_] = None
        self._met.move_to_end(id_)
        if len(self._met) > REMEMBERED:
            self._met.popitem(last=False)
        return first

    def steps(self, records: list[Record], told: Told) -> Iterator[Step]:
        """What messages come to. What is wrong with one is told, and stops nobody."""
        for one in newest(seen for record in records for seen in self._seen(record, told)):
            yield Step(isinstance(one, SourceDocument), lambda one=one: (self._readable(one),))  # type: ignore[misc]

    def _seen(self, record: Record, told: Told) -> Iterator[Seen]:
        if not self.remember(record):
            return
        kind = record.topic.partition(PREFIX)[2] or record.topic.rpartition(".")[2]
        key = _text(record)
        try:
            payload = _payload(record)
        except ValueError as error:
            told.alarm(f"{where(record)}, {error}")
            return
        if payload is not None:
            yield from told.reading(self._changes.read(payload, where(record), kind=kind, id_=key))
        elif self._settings.empty_is_deletion:
            try:
                document = ref(self._settings, kind, key or "")
            except ValueError as error:
                told.alarm(f"{where(record)}, key: {error}, so the deletion names no document")
                return
            yield SourceDeletion(document)

    def _readable(self, seen: Seen) -> Seen:
        """A new document that names no readers has those of the settings."""
        if not isinstance(seen, SourceDocument) or seen.rule is not None or not self._settings.allow:
            return seen
        known = self._known(seen.document)
        if known is not None and not known.deleted:
            return seen
        return replace(seen, rule=AccessRule.any_of(*self._settings.allow))


def _payload(record: Record) -> object:
    """The payload, None where it is empty. Raises ValueError."""
    value = value_of(record)
    if not isinstance(value, str):
        return value
    if not value.strip():
        return None
    try:
        return unwrapped(parsed(value))
    except ValueError as error:
        raise ValueError("value: is a string that holds no JSON") from error


def _text(record: Record) -> str | None:
    """The key as the aggregate's id: a number keeps the spelling that it has."""
    key = key_of(record)
    if isinstance(key, str):
        return key
    return str(key) if isinstance(key, int) and not isinstance(key, bool) else record.key
