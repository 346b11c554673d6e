"""Answers judged by their facts, the fresh questions, and the fit of what is refused."""

from __future__ import annotations

from pathlib import Path

import pytest

from infra.bench.made import Made, figures, fitted, load, padded, score
from pipeline.answer_quality import lacking
from pipeline.golden import GoldenError
from query_service.answer.answerable import NAMES

QUESTIONS = Path(__file__).parents[3] / "samples" / "questions"


def made(number: int, answerable: bool, level: float, *, complete: bool = True) -> Made:
    """An answer of which every signal has one value."""
    return Made(
        f"q{number}", "dev", answerable, dict.fromkeys(NAMES, level), False, "It is so.", 1,
        missing=() if complete else ("fact",),
    )  # fmt: skip


@pytest.mark.requirement("C2")
def test_right_is_complete_or_rightly_refused_and_padding_is_of_what_is_answered() -> None:
    told = [made(1, True, 0.9), made(2, True, 0.9, complete=False), made(3, True, 0.1), made(4, False, 0.1)]
    found = figures(told, [0.9, 0.9, 0.1, 0.1], 0.5)
    assert (found["right"], found["complete"], found["refused_wrongly"], found["noticed"]) == (0.5, 0.5, 1, 1)
    assert (found["precision"], found["recall"], found["f1"]) == (0.5, 1.0, 0.667)
    assert padded("Tea is free. Soup is served.", ("Tea is", "Lunch")) == 1


@pytest.mark.requirement("B8")
def test_a_fit_separates_what_can_be_told_apart_at_the_asked_place() -> None:
    told = [made(n, n % 3 > 0, 0.8 + 0.01 * (n % 7) if n % 3 else 0.2 + 0.01 * (n % 7)) for n in range(60)]
    weights = fitted(told, 0.45)
    assert all((score(one, weights) >= 0.45) == one.answerable for one in told)


@pytest.mark.requirement("B8")
def test_every_fact_and_every_padding_of_the_fresh_questions_stands_on_a_page() -> None:
    pages = " ".join(" ".join(page.read_text(encoding="utf-8").split()) for page in (QUESTIONS / "pages").rglob("*.md"))
    questions = load(QUESTIONS / "questions.jsonl")
    assert len(questions) >= 100 and sum(not q.facts for q in questions) >= 35
    assert len({q.id for q in questions}) == len(questions)
    for q in questions:
        assert not lacking(q.facts, pages), q.id
        assert padded(pages, q.padding) == len(q.padding), q.id


def test_a_line_that_cannot_be_read_is_named(tmp_path: Path) -> None:
    file = tmp_path / "q.jsonl"
    file.write_text('{"id": "a", "question": "b", "facts": [], "part": "other"}\n', encoding="utf-8")
    with pytest.raises(GoldenError, match="part"):
        load(file)
