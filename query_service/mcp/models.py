"""Arguments and results of the tools: what a model sends, and what it gets, each within a bound."""

from __future__ import annotations

from typing import Annotated

from pydantic import BaseModel, ConfigDict, Field, StringConstraints

from query_service.client.passages import LEAST, MAX_LINE, MAX_URL, NOTE, effect_of, iso, shortened
from schemas.api import DocumentResponse, FreshnessResponse
from schemas.base import ClosedModel

MAX_CHARS = 20_000
"""Of the JSON of one result."""


class FetchArguments(BaseModel):
    """Which document, and from where on."""

    model_config = ConfigDict(extra="forbid")

    document_uid: Annotated[str, StringConstraints(min_length=1, max_length=64)] = Field(
        description="The 'document_uid' of a passage."
    )
    section: int = Field(default=0, ge=0, le=100_000, description="First section; 'next_section' of the page before.")
    start: int = Field(
        default=0, ge=0, le=100_000_000, description="Character of that section to begin at; 'next_start' of before."
    )


class NoArguments(BaseModel):
    """Nothing to say."""

    model_config = ConfigDict(extra="forbid")


class SectionText(ClosedModel):
    """One section, or the part of it that fitted."""

    section: int = Field(ge=0, description="Its place in the document.")
    heading: str
    page: int | None
    text: str


class DocumentText(ClosedModel):
    """A document's text from a place on, within a number of characters."""

    note: str = NOTE
    document_uid: str
    title: str
    source: str
    kind: str
    url: str | None
    updated_at: str | None
    effective_from: str | None = None
    effective_until: str | None = None
    in_effect: bool = True
    effect: str | None = Field(default=None, description="Says so where the document is not in effect now.")
    version: int
    sections_total: int
    sections: tuple[SectionText, ...]
    next_section: int | None = Field(default=None, description="Where the text goes on; null at its end.")
    next_start: int = 0


class SourceState(ClosedModel):
    """How fresh one source is."""

    complete_until: str | None = Field(description="Every change before this moment can be found; null where unknown.")
    pending: int = Field(ge=0, description="Documents that changed and cannot be found in their new version yet.")
    failed: int = Field(ge=0, description="Documents that could not be read in the last hour.")


class Freshness(ClosedModel):
    """How fresh each source is."""

    now: str | None
    sources: dict[str, SourceState]


def document_text(found: DocumentResponse, start: int, max_chars: int = MAX_CHARS) -> DocumentText:
    """The sections whose JSON fits; the first one begins at its character ``start``."""
    empty = DocumentText(
        document_uid=found.document_uid,
        title=found.title[:MAX_LINE],
        source=found.source,
        kind=found.kind,
        url=found.url if found.url is not None and len(found.url) <= MAX_URL else None,
        updated_at=iso(found.updated_at),
        effective_from=iso(found.effective_from),
        effective_until=iso(found.effective_until),
        in_effect=found.in_effect,
        effect=effect_of(found),
        version=found.version,
        sections_total=found.sections_total,
        sections=(),
    )
    left = max_chars - len(empty.model_dump_json()) - 40  # where it goes on
    taken: list[SectionText] = []
    following: tuple[int | None, int] = (found.next_offset, 0)
    for place, section in enumerate(found.sections):
        begin = start if place == 0 else 0
        heading = " › ".join(section.heading_path)[:MAX_LINE]
        made = SectionText(section=section.ordinal, heading=heading, page=section.page, text=section.text[begin:])
        size = len(made.model_dump_json()) + 1
        if size > left:
            beginning = shortened(made.text, size - left)
            if len(beginning) >= LEAST or not taken:
                taken.append(made.model_copy(update={"text": beginning}))
                begin += len(beginning)
            following = (section.ordinal, begin)
            break
        taken.append(made)
        left -= size
    return empty.model_copy(update={"sections": tuple(taken), "next_section": following[0], "next_start": following[1]})


def freshness_of(report: FreshnessResponse) -> Freshness:
    """The report without its percentiles, of at most 200 sources."""
    return Freshness(
        now=iso(report.now),
        sources={
            name: SourceState(complete_until=iso(s.complete_until), pending=s.pending, failed=s.failed)
            for name, s in sorted(report.sources.items())[:200]
        },
    )
