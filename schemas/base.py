"""Base classes that fix how strictly a payload is read."""

from __future__ import annotations

from typing import Annotated

from pydantic import BaseModel, ConfigDict, Field, StringConstraints

MAX_SAFE_INTEGER = 2**53 - 1

Micros = Annotated[int, Field(ge=0, le=MAX_SAFE_INTEGER, description="Microseconds since the epoch, UTC.")]
Version = Annotated[
    int, Field(ge=0, le=MAX_SAFE_INTEGER, description="The owner's observation clock, microseconds.")
]
Name = Annotated[str, StringConstraints(min_length=1, max_length=1024)]


class ClosedModel(BaseModel):
    """A payload whose unknown fields are an error (access lane: unknown means closed, invariant 12)."""

    model_config = ConfigDict(extra="forbid", frozen=True, strict=False)


class OpenModel(BaseModel):
    """A payload whose unknown fields are ignored, so that older consumers read newer content events."""

    model_config = ConfigDict(extra="ignore", frozen=True, strict=False)
