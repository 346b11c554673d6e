"""Heartbeats of query services: what the control consumer must know before it lets a generation serve or go."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from schemas.base import Micros, OpenModel

HEARTBEAT_S = 1.0
GONE_AFTER_S = 10.0


class InstanceHeartbeat(OpenModel):
    """One process, as it is at ``at``. One that was silent for GONE_AFTER_S, or says ``stopping``, is gone."""

    schema_version: Literal[1] = 1
    role: Literal["query"] = "query"
    instance: str = Field(min_length=1, max_length=255)
    warm: tuple[str, ...] = Field(default=(), description="Generations whose encoder is loaded and has embedded.")
    active: str | None = Field(default=None, description="Generation that new requests begin on.")
    in_flight: dict[str, int] = Field(default_factory=dict, description="Requests running now, by generation.")
    stopping: bool = False
    started_at: Micros
    at: Micros
