"""Sources and short ways to check sentences against them."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Sequence

import pytest

from query_service.answer.interface import Draft, Source, Verdict
from query_service.support.checker import MeasuredChecker
from schemas.api_ranking import EvidencePassage

Check = Callable[..., list[Verdict]]
LONG = 60.0


def source(number: int, text: str, title: str = "Page", headings: tuple[str, ...] = ()) -> Source:
    """A passage of a document of its own."""
    name = f"d{number}"
    passage = EvidencePassage(
        section_id=name, document_uid=name, document_id=name, source="wiki", title=title, url=None, version=1,
        updated_at=None, heading_path=headings, text=text, tokens=len(text) // 4, rank=number, chunk_ids=(name,),
    )  # fmt: skip
    return Source(number, passage)


def verdicts(
    sentences: Sequence[tuple[str, tuple[int, ...]]], sources: list[Source], *, checker: MeasuredChecker | None = None,
    question: str = "", left_s: float = LONG,
) -> list[Verdict]:  # fmt: skip
    """Of sentences with their citations."""
    used = checker if checker is not None else MeasuredChecker(0.5)
    drafts = [Draft(text, cited) for text, cited in sentences]
    return asyncio.run(used.check(question, drafts, sources, deadline=time.monotonic() + left_s))


def verdict(text: str, *sources: str, cited: tuple[int, ...] = (1,), question: str = "") -> Verdict:
    """Of one sentence, by measures alone."""
    numbered = [source(number, one) for number, one in enumerate(sources, 1)]
    return verdicts([(text, cited)], numbered, question=question)[0]


@pytest.fixture
def e17() -> list[Source]:
    """The three passages of case E17."""
    return [
        source(1, "E17 means transfer status is pending. Do not resubmit until the status check completes."),
        source(2, "Transfer status checks normally finish within ten minutes."),
        source(3, "After a network timeout, retry the read-only status lookup."),
    ]
