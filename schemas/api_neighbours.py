"""Contract of ``GET /v1/documents/{document_uid}/chunks/{chunk_id}/neighbours``: the passages around a hit."""

from __future__ import annotations

from pydantic import ConfigDict, Field

from schemas import api_examples as examples
from schemas.api import DocumentFacts
from schemas.base import ClosedModel, Micros


class Neighbour(ClosedModel):
    """One passage of a document, at its place."""

    chunk_id: str
    chunk_index: int = Field(ge=0, description="Zero-based place among the document's chunks.")
    section_id: str
    heading_path: tuple[str, ...]
    text: str
    page: int | None = Field(default=None, description="Page or slide on which it begins.")
    start: int | None = Field(default=None, description="Offset in the source, as a hit has it.")
    end: int | None = None


class NeighboursResponse(DocumentFacts):
    """A passage with those before and after it, all of one version of the document, in its order."""

    model_config = ConfigDict(json_schema_extra={"examples": [examples.NEIGHBOURS_RESPONSE]})

    generation: str
    chunk_total: int
    chunk_id: str = Field(description="The one that was asked for.")
    passages: tuple[Neighbour, ...] = Field(description="Neighbouring passages and the one asked for.")
    judged_at: Micros = Field(description="The last check of permissions began then.")
