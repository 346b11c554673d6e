"""What is to be found in the files of ``samples/formats``, as their writers noted it: never made by a reader."""

from __future__ import annotations

from pathlib import Path
from typing import Literal

from pydantic import Field, ValidationError

from infra.errors import InfraError
from schemas.base import ClosedModel

Kind = Literal["heading", "text", "item", "quote", "table", "code", "image", "math", "footnote"]


class Piece(ClosedModel):
    """One piece in reading order. ``path`` holds the headings above it, None where the format has no headings."""

    kind: Kind
    text: str = Field(description="Words; of a table its caption.")
    path: tuple[str, ...] | None
    level: int = 0
    depth: int = 0
    language: str | None = None
    rows: tuple[tuple[str | None, ...], ...] = Field(
        default=(), description="Cells of a table; None where a merged cell reaches: blank and repeated are both right."
    )
    header: int = 0


class Truth(ClosedModel):
    """One file: how a source would declare it, its pieces, and words that must not be read."""

    file: str
    format: str
    content_type: str
    language: str
    pieces: tuple[Piece, ...]
    links: tuple[str, ...]
    forbidden: tuple[str, ...]
    optional: tuple[str, ...] = Field(default=(), description="Phrases that may be read or not: fields of a mail.")
    ocr: bool = False


def load(folder: Path) -> tuple[tuple[Truth, Path], ...]:
    """Every truth under ``folder/truth`` with its file under ``folder/files``, by name. Raises InfraError."""
    found = []
    for note in sorted((folder / "truth").glob("*.json")):
        try:
            truth = Truth.model_validate_json(note.read_text(encoding="utf-8"))
        except (OSError, ValidationError) as error:
            raise InfraError(f"{note} is no truth of a file: {error}", "Run samples/formats/make again.") from error
        file = folder / "files" / truth.file
        if not file.is_file():
            raise InfraError(f"{file} is missing.", "Run samples/formats/make again.")
        found.append((truth, file))
    if not found:
        raise InfraError(f"{folder} holds no corpus of formats.", "Run this in a checkout.")
    return tuple(found)
