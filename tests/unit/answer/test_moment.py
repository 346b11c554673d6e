"""A question that names a year is answered by the edition of that year."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest

from query_service.answer.contradiction import contradictions
from query_service.answer.interface import Source
from query_service.answer.moment import of_its_time, years
from tests.unit.answer.extractive_parts import ask, written
from tests.unit.answer.test_release import passage

pytestmark = pytest.mark.requirement("B8", "B1")


def at(year: int, month: int = 1) -> int:
    return int(datetime(year, month, 1, tzinfo=UTC).timestamp()) * 1_000_000


def editions() -> tuple[Source, ...]:
    old = passage(
        1,
        text="The daily meal allowance is 36 euros.",
        effective_from=at(2023),
        effective_until=at(2026),
        in_effect=False,
    )
    new = passage(2, text="The daily meal allowance is 48 euros.", effective_from=at(2026))
    always = passage(3, text="Receipts for the daily meal allowance are not needed.")
    return Source(1, old), Source(2, new), Source(3, always)


@pytest.mark.parametrize(
    ("question", "expected"),
    [
        ("How much was the meal allowance in 2024?", (2024,)),
        ("What was it before 2026?", (2025,)),
        ("Was galt bis 2025?", (2024,)),
        ("Compare 2023 and 2026.", (2023, 2026)),
        ("What does port 2024/tcp do, and v1.2024, and 20245?", ()),
        ("How do I reset the X-500?", ()),
    ],
)
def test_years_of_a_question(question: str, expected: tuple[int, ...]) -> None:
    assert years(question) == expected


@pytest.mark.parametrize(
    ("question", "holds"),
    [
        ("What is the meal allowance?", [False, True, True]),
        ("What was the meal allowance in 2024?", [True, False, True]),
        ("What was the meal allowance before 2026?", [True, False, True]),
        ("Compare the meal allowance of 2023 and 2026.", [True, True, True]),
        ("What was the meal allowance in 1999?", [False, True, True]),
    ],
)
def test_passages_apply_to_the_year_that_is_asked_about(question: str, holds: list[bool]) -> None:
    assert [s.holds for s in of_its_time(question, editions())] == holds


def test_the_answer_is_of_that_year_and_no_contradiction() -> None:
    question = "How much was the daily meal allowance in 2024?"
    sources = of_its_time(question, editions())
    text = written(ask(question, *sources))
    assert "36 euros" in text and "48 euros" not in text
    assert contradictions(question, sources) == []
