"""Which year a question asks about, and which passages were in effect then.

"The allowance in 2024" asks for the edition of that year, whichever is in effect today. Only where passages carry
effective dates and some of them were in effect in that year does it matter; ``filters.as_of`` says it exactly.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import replace
from datetime import UTC, datetime

from query_service.answer.interface import Source
from schemas.api_ranking import EvidencePassage

_YEAR = re.compile(
    r"(?P<before>\b(?:before|until|prior to|up to|vor|bis(?: vor)?|avant|antes de)\s+)?"
    r"(?<![\w.,/-])(?P<year>(?:19|20)\d\d)(?![\w%/]|[.,-]\d)",
    re.IGNORECASE,
)


def years(question: str) -> tuple[int, ...]:
    """The years that it names, each once; of "before 2026" the one before."""
    found = (int(m["year"]) - (1 if m["before"] else 0) for m in _YEAR.finditer(question))
    return tuple(dict.fromkeys(found))


def of_its_time(question: str, sources: Sequence[Source]) -> tuple[Source, ...]:
    """The sources, saying for the years of the question whether they apply, where that can be told."""
    asked = years(question)
    dated = [s for s in sources if s.passage.effective_from is not None or s.passage.effective_until is not None]
    then = {s.number for s in dated if any(_in(s.passage, year) for year in asked)}
    if not then:
        return tuple(sources)
    others = {s.number for s in dated} - then
    return tuple(replace(s, applies=s.number not in others) for s in sources)


def _in(passage: EvidencePassage, year: int) -> bool:
    begin, end = (_micros(datetime(y, 1, 1, tzinfo=UTC)) for y in (year, year + 1))
    begins, ends = passage.effective_from, passage.effective_until
    return (begins is None or begins < end) and (ends is None or ends > begin)


def _micros(moment: datetime) -> int:
    return int(moment.timestamp()) * 1_000_000
