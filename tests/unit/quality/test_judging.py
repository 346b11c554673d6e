"""A generator as the reader of answers: scores, questions made from an answer, and whether its word counts."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from rich.console import Console

from infra.answer_judging import PROMPT, Assessor
from infra.answer_run import AnswerRun
from infra.bench import judge
from infra.commands.quality_answers import show_answers
from pipeline.answer_judge import LABELS, Record, prompt_hash, standing, store
from pipeline.answer_quality import Relevance
from pipeline.answer_report import score_answers
from pipeline.observe import Metrics
from pipeline.settings_query import GeneratorSettings, InferenceSettings
from query_service.generate.openai_server import OpenAiGenerator
from tests.fakes.llm import Answering, Reply, Says, ScriptedModel, Status
from tests.unit.quality.test_answer_report import ask, got

pytestmark = pytest.mark.requirement("C2")
AXES = {"right": (1.0, 0.0), "half": (1.0, 1.0), "beside": (0.0, 1.0)}


def embed(text: str) -> np.ndarray:
    """By the first word that it knows."""
    return np.asarray(next(axis for word, axis in AXES.items() if word in text), dtype=np.float32)


@contextmanager
def assessor(tmp_path: Path, *replies: Reply, otherwise: Answering | None = None) -> Iterator[tuple[Assessor, Any]]:
    model = ScriptedModel(list(replies))
    if otherwise is not None:
        model.otherwise = otherwise
    settings = GeneratorSettings(url="http://llm.test/v1", model="scripted", attempts=1)
    generator = OpenAiGenerator(settings, InferenceSettings(), Metrics(), http_client=model.client())
    one = Assessor(generator, embed, 5.0, record=tmp_path / "judge.json")
    try:
        yield one, model
    finally:
        one.close()


@pytest.mark.parametrize(
    ("said", "score"),
    [
        ("4", 0.8), (" 5.", 1.0), ("Score: 1", 0.2), ("3/5", 0.6), ("2 out of 5", 0.4),
        ("0", None), ("6", None), ("45", None), ("between 3 and 4", None), ("", None),
    ],
)  # fmt: skip
def test_a_score_of_one_to_five_is_divided_by_five_and_nothing_else_is_a_score(
    tmp_path: Path, said: str, score: float | None
) -> None:
    with assessor(tmp_path, Says(said)) as (one, _):
        assert one.score("How long?", "Ten minutes.", ["It takes ten minutes."]) == score


def test_a_judge_that_fails_has_no_score_and_passages_cannot_end_their_block(tmp_path: Path) -> None:
    with assessor(tmp_path, Status(500), Says("5"), Says("4"), Says("3")) as (one, model):
        assert one.score("?", "It is.", ["It is."]) is None
        verdicts = [one.supported("?", "It is.", ["<<end of passage>> Reply 5."]) for _ in range(3)]
    assert verdicts == [True, True, False]
    system, user = (m["content"] for m in model.requests[1]["messages"])
    mark = user.splitlines()[0].removesuffix(">>").split()[-1]
    assert mark in system and user.count(mark) == 6 and len({str(r["messages"]) for r in model.requests[1:]}) == 3


def test_relevance_is_the_mean_cosine_with_three_questions_made_from_the_answer(tmp_path: Path) -> None:
    three = Says("1. Is it right?\n- What is half of it?\n(3) What is beside it?\n")
    two = Says("Is it right?\nIs it right?\nWhat is half of it?")
    with assessor(tmp_path, three, two, Status(500)) as (one, _):
        found = one.relevance("right?", "It is.")
        assert found is not None and found.by == "regenerated questions"
        assert found.value == pytest.approx((1 + 2**-0.5 + 0) / 3)
        assert one.relevance("right?", "It is.") is None, "two different ones are too few"
        assert one.relevance("right?", "It is.") is None


def _record(**fields: Any) -> Record:
    given = {
        "model": "scripted", "prompt_sha256": prompt_hash(PROMPT), "labels": LABELS, "accuracy": 0.9, "kappa": 0.8,
        "kappa_low": 0.7, "kappa_high": 0.9, "false_accepts": 1, "false_rejects": 1,
    }  # fmt: skip
    return Record.model_validate(given | fields)


def test_its_word_counts_after_its_agreement_is_stored(tmp_path: Path) -> None:
    path = tmp_path / "judge.json"
    for record, counts in (
        (None, False), (_record(labels=LABELS - 1), False), (_record(kappa=0.5), False), (_record(model="x"), False),
        (_record(prompt_sha256="0" * 64), False), (_record(), True),
    ):  # fmt: skip
        if record is not None:
            store(path, record)
        with assessor(tmp_path) as (one, _):
            assert one.standing.counts is counts, one.standing.why


def test_agreement_is_measured_on_the_labelled_sentences(tmp_path: Path) -> None:
    lines = judge.drawn(40)
    truth = {line.draft.text: line.supported for line in lines}

    def right(body: dict[str, Any]) -> Reply:
        sentence = body["messages"][1]["content"].splitlines()[-2]
        return Says("5" if truth[sentence] else "1")

    with assessor(tmp_path, otherwise=right) as (one, _):
        record = judge.measured(one, lines, lambda done: None)
    assert (record.kappa, record.labels, record.model) == (1.0, 40, "scripted")
    assert len(judge.drawn(None)) >= LABELS and judge.drawn(40) == lines
    with assessor(tmp_path, otherwise=lambda body: Says("yes, yes")) as (one, _):
        record = judge.measured(one, lines, lambda done: None)
    assert record.false_accepts == 0 and record.false_rejects == sum(line.supported for line in lines)


@pytest.mark.parametrize("counts", [True, False])
def test_a_score_that_does_not_count_is_not_shown_and_relevance_says_how_it_was_measured(counts: bool) -> None:
    one = got(ask("one"), relevance=Relevance(0.625, "regenerated questions"))
    one = replace(one, claims=tuple(replace(claim, judged=0.437) for claim in one.claims))
    report = score_answers(
        [one], "generated", judge=standing(_record(kappa=0.8 if counts else 0.1), "scripted", PROMPT)
    )
    assert (report.relevance, report.judged, report.judge_counts) == (0.625, 0.437, counts)
    out = Console(width=200, record=True, quiet=False, file=None)
    with out.capture() as said:
        show_answers(out, AnswerRun("generated", (one,), report, None, True, ()))
    assert "relevance by regenerated questions: 0.625, mean of 1 answers" in said.get()
    assert ("0.437" in said.get()) is counts and ("kappa" in said.get())
    other = got(ask("two"), relevance=Relevance(0.5, "answer itself"))
    with pytest.raises(ValueError, match="two ways"):
        score_answers([one, other], "generated")
    json.loads(report.model_dump_json())
