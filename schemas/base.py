"""Base classes that fix how strictly a payload is read."""

from __future__ import annotations

import unicodedata
from typing import Annotated

from pydantic import BaseModel, ConfigDict, Field, StringConstraints

MAX_SAFE_INTEGER = 2**53 - 1

# Strict: "12", 12.0 and true are not read as numbers, so a payload means the same to every reader.
Micros = Annotated[int, Field(strict=True, ge=0, le=MAX_SAFE_INTEGER, description="Microseconds since the epoch, UTC.")]
Version = Annotated[
    int, Field(strict=True, ge=0, le=MAX_SAFE_INTEGER, description="The owner's observation clock, microseconds.")
]
# An event's own version: 0 means "nothing seen yet" in records, so no event may carry it.
EventVersion = Annotated[
    int, Field(strict=True, ge=1, le=MAX_SAFE_INTEGER, description="The owner's observation clock, microseconds.")
]
Name = Annotated[str, StringConstraints(min_length=1, max_length=1024)]


class ClosedModel(BaseModel):
    """A payload whose unknown fields are an error (access lane: unknown means closed, invariant 12)."""

    model_config = ConfigDict(extra="forbid", frozen=True, strict=False)


class OpenModel(BaseModel):
    """A payload whose unknown fields are ignored, so that older consumers read newer content events."""

    model_config = ConfigDict(extra="ignore", frozen=True, strict=False)


# Characters that show nothing and are not of a format category: fillers, selectors, the blank Braille cell.
_INVISIBLE = frozenset((0x034F, 0x115F, 0x1160, 0x17B4, 0x17B5, 0x2800, 0x3164, 0xFFA0)).union(
    range(0x180B, 0x1810), range(0xFE00, 0xFE10), range(0xE0100, 0xE01F0)
)


def name_fault(value: str) -> str | None:
    """Why a name can be mistaken for another one that looks alike, or None.

    Refused, never repaired: blanks at the ends, blanks other than the plain space, control, format (zero-width,
    bidirectional), unassigned and private characters, invisible fillers, and any spelling that is not NFC.
    """
    if value != value.strip():
        return "has no blanks at its ends"
    if value.isascii() and value.isprintable():
        return None  # nearly every name; hundreds are read by each search
    for char in value:
        category = unicodedata.category(char)
        if ord(char) in _INVISIBLE or category[0] == "C" or (category[0] == "Z" and char != " "):
            return f"must not hold the invisible or unusual character U+{ord(char):04X}"
    if not unicodedata.is_normalized("NFC", value):
        return "is written in Unicode normal form C (composed characters)"
    return None
