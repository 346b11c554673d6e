"""Contract of ``POST /v1/events``: changes as CloudEvents 1.0, structured, binary or in a batch.

``data`` is a change of ``POST /v1/changes`` without its ``type``, which the event's own type tells. ``source`` and
``id`` name an event; ``time`` is no order. Extension attributes are ignored.
"""

from __future__ import annotations

from pydantic import ConfigDict, Field, JsonValue, model_validator

from schemas.api import FieldProblem
from schemas.api_changes import ChangeResult
from schemas.base import ClosedModel, OpenModel

TYPES: dict[str, str] = {
    "headwater.document.upserted": "upsert",
    "headwater.document.deleted": "delete",
    "headwater.document.access": "access",
    "headwater.membership.set": "membership",
}
"""Type of an event = type of its change."""
MAX_EVENTS = 500
"""Events of one batch."""
EXAMPLE: dict[str, JsonValue] = {
    "specversion": "1.0",
    "id": "7e1c",
    "source": "/handbook/editor",
    "type": "headwater.document.access",
    "subject": "kb-17",
    "datacontenttype": "application/json",
    "data": {"tenant": "acme", "access": {"allow": ["user:ann"]}},
}


class CloudEvent(OpenModel):
    """One event in the JSON format."""

    model_config = ConfigDict(extra="ignore", frozen=True, json_schema_extra={"examples": [EXAMPLE]})

    specversion: str = Field(description="1.0 and no other.")
    id: str = Field(min_length=1, max_length=1024, description="Distinct for each event of a 'source'.")
    source: str = Field(min_length=1, max_length=2048, description="Who sends: not the name of a Headwater source.")
    type: str
    subject: str | None = Field(default=None, max_length=1024, description="The document's id, where 'data' has none.")
    time: str | None = Field(default=None, max_length=64, description="Ignored: it is no order.")
    datacontenttype: str | None = Field(default=None, max_length=255, description="JSON, which is also the default.")
    data: JsonValue = None
    data_base64: str | None = Field(default=None, description="The JSON text of 'data' in base64, in its place.")

    @model_validator(mode="after")
    def _one(self) -> CloudEvent:
        if self.data is not None and self.data_base64 is not None:
            raise ValueError("carries either 'data' or 'data_base64'")
        return self


class EventResult(ClosedModel):
    """What became of one event. A repeat is answered as the first was, and changes nothing."""

    id: str | None = Field(default=None, description="The event's own; absent where it could not be read.")
    source: str | None = None
    status: int = Field(description="As the status of an answer to this event alone.")
    token: str | None = Field(default=None, description="Freshness token: pass it as 'after' to a search.")
    result: ChangeResult | None = None
    detail: str | None = Field(default=None, description="Why it was refused.")
    errors: tuple[FieldProblem, ...] = ()


class EventsReply(ClosedModel):
    """Answer to a batch, in its order. Its status is 2xx only where every event is on the log."""

    results: tuple[EventResult, ...]
