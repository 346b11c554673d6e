"""Proof of a deletion: every place that could hold something of a document, or of a tenant, looked at when asked."""

from __future__ import annotations

from typing import Literal

from pydantic import ConfigDict, Field

from schemas import api_examples as examples
from schemas.base import ClosedModel, Micros, Version

Standing = Literal["clean", "bounded", "left"]


class DeletionPlace(ClosedModel):
    """One place and what was found there."""

    place: str = Field(description="For instance `minilm/hot`, `claim checks`, `log/content`.")
    method: str = Field(description="How it was looked at.")
    found: int = Field(ge=0, description="Things of the document that are still there.")
    clean: bool
    checked_at: Micros
    empties_itself: bool = Field(description="Emptied by a retention time rather than at once.")
    clean_by: Micros | None = Field(default=None, description="When it is empty at the latest, where it is not yet.")
    note: str | None = None


class DeletionResponse(ClosedModel):
    """What is left of a deleted document, at the moment of asking.

    ``standing`` is *clean* where nothing is left anywhere, *bounded* where only places that empty by themselves still
    hold something (until ``clean_by``), *left* where a place that should be empty is not.
    """

    model_config = ConfigDict(json_schema_extra={"examples": [examples.DELETION_RESPONSE]})

    document_uid: str
    document_id: str
    source: str
    kind: str
    tenant: str
    deleted_at: Micros = Field(description="When its owner saw that it was gone.")
    hidden_at: Micros = Field(description="When the revocation took effect in the store.")
    version: Version
    checked_at: Micros
    standing: Standing
    clean_by: Micros | None = Field(description="When all places are empty at the latest; null if now, or unbounded.")
    tombstone_until: Micros = Field(
        description="Its id is remembered at least until then, so that nothing late brings it back."
    )
    places: tuple[DeletionPlace, ...]


class TenantErasure(ClosedModel):
    """What is left of a tenant that was erased, at the moment of asking; read as ``DeletionResponse``."""

    tenant: str
    checked_at: Micros
    standing: Standing
    clean_by: Micros | None
    places: tuple[DeletionPlace, ...]


def standing(places: tuple[DeletionPlace, ...]) -> tuple[Standing, Micros | None]:
    """The whole of some places: how it stands, and by when all are empty (None where they are, or none can say)."""
    if any(not p.clean and not p.empties_itself for p in places):
        return "left", None
    waiting = [p for p in places if not p.clean]
    if not waiting:
        return "clean", None
    dates = [p.clean_by for p in waiting if p.clean_by is not None]
    return "bounded", max(dates) if len(dates) == len(waiting) else None
