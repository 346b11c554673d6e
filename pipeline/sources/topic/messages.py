"""What Debezium's two formats have in common: JSON with or without a schema around it."""

from __future__ import annotations

from pydantic import ValidationError

from pipeline.ports import Record
from pipeline.settings_sources import TopicSettings
from pipeline.sources.stated import parsed
from schemas.keys import DocumentRef


def where(record: Record) -> str:
    """Coordinates of a record, for what is told."""
    return f"{record.topic}[{record.partition}] at {record.offset}"


def ref(settings: TopicSettings, kind: str, id_: str) -> DocumentRef:
    """The document of a kind and id at the source. Raises ValueError where they cannot be a key; it tells no value."""
    try:
        return DocumentRef(tenant=settings.tenant, source=settings.name, kind=kind, id=id_)
    except ValidationError as error:
        raise ValueError(error.errors(include_url=False, include_input=False)[0]["msg"]) from error


def unwrapped(value: object) -> object:
    """What a JSON converter with schemas has around it is taken off."""
    if isinstance(value, dict) and value.keys() == {"schema", "payload"}:
        payload: object = value["payload"]
        return payload
    return value


def value_of(record: Record) -> object:
    """A record's value; None where it is empty. Raises ValueError."""
    if not record.value:
        return None
    try:
        return unwrapped(parsed(record.value))
    except ValueError as error:
        raise ValueError(
            f"value: is no JSON ({type(error).__name__}); have it written by the JSON converter"
        ) from error


def key_of(record: Record) -> object:
    """A record's key as JSON, or as its text where it is none."""
    if record.key is None:
        return None
    try:
        return unwrapped(parsed(record.key))
    except ValueError:
        return record.key
