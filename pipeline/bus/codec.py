"""Records to models and back.

What cannot be read is a value, not an exception, because the lanes answer differently: a content lane writes a dead
letter (and still hides a document whose deletion it could recognise), the access lane closes the document.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, TypeVar

from pydantic import BaseModel, TypeAdapter, ValidationError

from pipeline.errors import Reject
from pipeline.ports import Outgoing, Record
from schemas.base import MAX_SAFE_INTEGER
from schemas.events import (
    ACCESS_EVENT,
    CONTENT_EVENT,
    AccessSet,
    AccessTombstone,
    ContentDeleted,
    ContentUpserted,
    HoldChanged,
    MembershipSet,
)
from schemas.keys import DocumentRef, canonical_json, membership_key
from schemas.topics import Topic

ContentEventModel = ContentUpserted | ContentDeleted
AccessEventModel = AccessSet | AccessTombstone | HoldChanged
M = TypeVar("M", bound=BaseModel)

_MEMBERSHIP: TypeAdapter[MembershipSet] = TypeAdapter(MembershipSet)


@dataclass(frozen=True)
class Undecodable:
    """A record that is not understood, with all that could still be read of it.

    ``kind`` is one of empty, not_json, invalid, key_mismatch, no_key. ``document`` comes from the key (by which the
    record is owned), else from the payload. ``deletion`` is true where the payload says that it removes or hides.
    """

    record: Record
    kind: str
    reason: str
    document: DocumentRef | None = None
    version: int | None = None
    deletion: bool = False
    hold: str | None = None  # name of the hold, where the key is a hold's
    principal: tuple[str, str] | None = None  # tenant, principal
    membership_source: str | None = None

    def reject(self) -> Reject:
        """The same as an exception for lanes that dead-letter it."""
        return Reject(self.reason, stage="decode", kind=self.kind)


def encode(model: BaseModel) -> bytes:
    """Compact JSON in UTF-8; fields at their default are written too, so that a payload explains itself."""
    return model.model_dump_json().encode("utf-8")


def decode_content(record: Record) -> ContentEventModel | Undecodable:
    """A content event. Unknown fields are ignored; the key must name the payload's document."""
    event: ContentEventModel | Undecodable = _decode_document(
        record, CONTENT_EVENT.validate_json, deletions=("deleted",)
    )
    return event


def decode_access(record: Record) -> AccessEventModel | Undecodable:
    """An access event. Unknown fields are an error (invariant 12)."""
    event: AccessEventModel | Undecodable = _decode_document(
        record, ACCESS_EVENT.validate_json, deletions=("tombstone",)
    )
    return event


def decode_membership(record: Record) -> MembershipSet | Undecodable:
    """A membership record. Unknown fields are an error; the key must name tenant and principal of the payload."""
    if record.value is None:
        return _undecodable_membership(record, "empty", "the record has no payload", None)
    try:
        event = _MEMBERSHIP.validate_json(record.value)
    except ValidationError as error:
        kind, payload = _classify(record.value)
        return _undecodable_membership(record, kind, _first(error), payload)
    if record.key != membership_key(event.tenant, event.principal, event.source):
        return _undecodable_membership(
            record, "key_mismatch", "the record's key names another principal than its payload", None
        )
    return event


def decode(record: Record, model: type[M]) -> M:
    """Any other model of the log. Raises Reject (stage decode, kind empty, not_json or invalid)."""
    if record.value is None:
        raise Reject("the record has no payload", stage="decode", kind="empty")
    try:
        return model.model_validate_json(record.value)
    except ValidationError as error:
        raise Reject(_first(error), stage="decode", kind=_classify(record.value)[0]) from error


def _decode_document(record: Record, validate: Callable[[bytes], Any], *, deletions: tuple[str, ...]) -> Any:
    if record.value is None:
        return _undecodable(record, "empty", "the record has no payload", None, deletions)
    try:
        event = validate(record.value)
    except ValidationError as error:
        kind, payload = _classify(record.value)
        return _undecodable(record, kind, _first(error), payload, deletions)
    expected = event.document.hold_key(event.hold) if isinstance(event, HoldChanged) else event.document.key
    if record.key != expected:
        kind = "no_key" if record.key is None else "key_mismatch"
        payload = json.loads(record.value)
        reason = "the record's key names another document than its payload"
        return _undecodable(record, kind, reason, payload, deletions)
    return event


def _undecodable(
    record: Record, kind: str, reason: str, payload: dict[str, Any] | None, deletions: tuple[str, ...]
) -> Undecodable:
    payload = payload if payload is not None else {}
    return Undecodable(
        record=record,
        kind=kind,
        reason=reason,
        document=_document_of(record.key, payload),
        version=_version_of(payload),
        deletion=payload.get("type") in deletions,
        hold=_hold_of(record.key),
    )


def _undecodable_membership(record: Record, kind: str, reason: str, payload: dict[str, Any] | None) -> Undecodable:
    parts = membership_parts(record.key)
    return Undecodable(
        record=record,
        kind=kind,
        reason=reason,
        version=_version_of(payload or {}),
        principal=parts[:2] if parts is not None else None,
        membership_source=parts[2] if parts is not None else None,
    )


def membership_parts(key: str | None) -> tuple[str, str, str | None] | None:
    """Tenant, principal and source of a membership key; None where it is none."""
    try:
        parts = json.loads(key) if key is not None else None
    except (ValueError, RecursionError):
        return None
    if not isinstance(parts, list) or len(parts) not in (2, 3) or not all(isinstance(p, str) and p for p in parts):
        return None
    if canonical_json(parts) != key:
        return None
    return parts[0], parts[1], parts[2] if len(parts) == 3 else None


def _document_of(key: str | None, payload: dict[str, Any]) -> DocumentRef | None:
    if key is not None:
        try:
            return DocumentRef.from_key(key)
        except ValueError:
            return None
    try:
        return DocumentRef.model_validate(payload.get("document"))
    except ValidationError:
        return None


def _hold_of(key: str | None) -> str | None:
    try:
        parts = json.loads(key) if key is not None else None
    except (ValueError, RecursionError):
        return None
    return str(parts[5]) if isinstance(parts, list) and len(parts) == 6 and parts[4] == "hold" else None


def _version_of(payload: dict[str, Any]) -> int | None:
    version = payload.get("version")
    if isinstance(version, int) and not isinstance(version, bool) and 1 <= version <= MAX_SAFE_INTEGER:
        return version
    return None


def _classify(value: bytes) -> tuple[str, dict[str, Any] | None]:
    """not_json or invalid, with the payload as far as it is a JSON object."""
    try:
        payload = json.loads(value)
    except (ValueError, RecursionError):
        return "not_json", None
    return "invalid", payload if isinstance(payload, dict) else None


def _first(error: ValidationError) -> str:
    """The first complaint with its field; never the input itself, which may be a body."""
    first = error.errors(include_input=False, include_url=False)[0]
    where = ".".join(str(p) for p in first["loc"]) or "payload"
    return f"{where}: {first['msg']}"[:500]


# ---------------------------------------------------------------- outgoing records


def document_record(topic: Topic, document: DocumentRef, model: BaseModel) -> Outgoing:
    """A record under the document's key."""
    return Outgoing(topic=str(topic), key=document.key, value=encode(model))


def content_record(event: ContentEventModel) -> Outgoing:
    """A content event under its document's key."""
    return document_record(Topic.CONTENT, event.document, event)


def access_record(event: AccessEventModel) -> Outgoing:
    """An access event under its document's key; holds under their own key on the document's partition."""
    if isinstance(event, HoldChanged):
        return Outgoing(
            topic=str(Topic.ACCESS),
            key=event.document.hold_key(event.hold),
            value=encode(event),
            partition_key=event.document.key,
        )
    return document_record(Topic.ACCESS, event.document, event)


def membership_record(event: MembershipSet) -> Outgoing:
    """A membership event under the key of its principal and source, on the principal's partition."""
    return Outgoing(
        topic=str(Topic.MEMBERSHIP),
        key=membership_key(event.tenant, event.principal, event.source),
        value=encode(event),
        partition_key=membership_key(event.tenant, event.principal),
    )
