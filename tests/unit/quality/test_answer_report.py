"""Answers over a set of questions: who is right, what is gated, where a failed question was lost."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from pipeline.answer_diagnosis import Looked, diagnose, essential, held, in_corpus
from pipeline.answer_report import (
    PREFIX,
    Answered,
    Claim,
    compare_answers,
    load,
    load_facts,
    passes,
    points_at,
    score_answers,
    store,
)
from pipeline.golden import GoldenError, Hit, Label, Question, load_questions
from pipeline.quality import load_baseline, store_named

pytestmark = pytest.mark.requirement("C2")
GOLDEN = Path(__file__).parents[3] / "samples" / "golden"


def ask(name: str, *, answerable: bool = True, **fields: Any) -> Question:
    labels = (Label(document="a.md", heading="Part", grade=3),) if answerable else ()
    given = {"id": name, "question": "?", "user": "ann", "tenant": "acme", "kind": "plain", "relevant": labels}
    return Question(**given | fields)


def got(question: Question, text: str = "It takes ten minutes.", **fields: Any) -> Answered:
    """An answer that cites the labelled passage."""
    made = Answered(
        question, (("10 minutes",),), answered=True, text=text, claims=(Claim(text, 0.9, by_words=True),),
        citations=(Hit("a.md", text, ("a", "Part")),), words=4, ms=10.0,
    )  # fmt: skip
    return replace(made, **fields)


def refused(question: Question) -> Answered:
    return Answered(question, (("10 minutes",),), answered=False, refused="weak_evidence", ms=5.0)


NONE = ask("none", answerable=False, kind="unanswerable")


def test_a_complete_answer_and_a_right_refusal_are_right() -> None:
    report = score_answers([got(ask("one")), refused(NONE)], "extractive")
    assert report.interval.mean == 1.0
    assert (report.overall.complete, report.overall.faithful_words) == (1.0, 1.0)
    assert (report.abstention.precision, report.abstention.recall, report.abstention.f1) == (1.0, 1.0, 1.0)
    assert report.overall.p50_ms == 7.5
    assert passes(report, None) == (True, ())


def test_an_answer_without_the_asked_fact_is_not_right_however_faithful() -> None:
    claims = tuple(Claim(text, 0.9, by_words=True) for text in ("One.", "Two.", "Three.", "Four."))
    lost = got(ask("one"), claims=claims)
    report = score_answers([lost], "extractive")
    assert lost.missing == ("10 minutes",)
    assert (report.overall.faithful_words, report.overall.complete) == (1.0, 0.0)


def test_a_refused_question_that_has_an_answer_is_neither_right_nor_complete() -> None:
    report = score_answers([refused(ask("one")), got(ask("two")), refused(NONE)], "extractive")
    assert report.overall.complete == 0.5
    assert report.overall.complete_answered == 1.0
    assert (report.abstention.precision, report.abstention.recall) == (0.5, 1.0)
    assert report.abstention.f1 == pytest.approx(2 / 3)


def test_an_answer_to_what_nothing_answers_is_not_right() -> None:
    report = score_answers([got(NONE), got(ask("one"))], "extractive")
    assert report.per_question == {"none": 0.0, "one": 1.0}
    assert report.abstention.recall == 0.0


def test_citations_are_held_against_the_labels() -> None:
    other = Hit("b.md", "x", ("Part",))
    report = score_answers([got(ask("one"), citations=(Hit("a.md", "x", ("Part",)), other))], "extractive")
    assert (report.overall.citations_right, report.overall.labels_cited) == (0.5, 1.0)
    report = score_answers([got(ask("one"), citations=(other,))], "extractive")
    assert (report.overall.citations_right, report.overall.labels_cited) == (0.0, 0.0)


def test_a_quote_within_a_labelled_span_points_at_it() -> None:
    label = Label(document="a.md", span="Checks normally finish within ten minutes, says the page.", grade=3)
    assert points_at(Hit("a.md", "finish within ten minutes"), label)
    assert not points_at(Hit("b.md", "finish within ten minutes"), label)
    assert not points_at(Hit("a.md", ""), label)


def test_a_quote_below_the_labelled_heading_points_at_it_where_sections_share_a_passage() -> None:
    page = "# A\n\n## Part\n\nIt takes ten minutes.\n\n## Other\n\nIt rains.\n"
    label = Label(document="a.md", heading="Part", grade=3)
    assert points_at(Hit("a.md", "It takes ten minutes.", ("A",)), label, page)
    assert not points_at(Hit("a.md", "It rains.", ("A",)), label, page)
    assert not points_at(Hit("a.md", "It takes ten minutes.", ("A",)), label), "without the page nothing is known"


def test_a_citation_of_what_the_person_may_not_read_fails_always() -> None:
    report = score_answers([got(ask("one"))], "extractive", may_read=lambda user, document: document != "a.md")
    ok, reasons = passes(report, None)
    assert not ok
    assert reasons == ("1 answers rest on what their reader may not read, first one: a.md",)


def test_the_secret_itself_in_an_answer_is_an_exposure_too() -> None:
    secret = ask("pe", answerable=False, kind="permission", fact="75 to 91")
    report = score_answers([got(secret, "They earn 75 to 91 thousand.", citations=())], "extractive")
    assert report.exposures == ("pe: the fact itself",)


def test_an_edition_that_was_not_in_effect_fails() -> None:
    report = score_answers([got(ask("ao", excluded=("a.md",)))], "extractive")
    assert not passes(report, None)[0]


def test_faithfulness_below_the_floor_fails() -> None:
    claims = (Claim("It takes ten minutes.", 0.9, by_words=True), Claim("Made up.", 0.9, by_words=False))
    report = score_answers([got(ask("one"), claims=claims)], "generated")
    assert report.unsupported_by_words == ("one: Made up.",)
    assert passes(report, None)[1] == ("faithfulness by words 0.500 is below 0.8",)


def test_a_drop_outside_the_interval_fails_and_noise_does_not(tmp_path: Path) -> None:
    questions = [ask(f"q{n}") for n in range(100)]
    path = tmp_path / "baseline.json"
    store_named(path, "hybrid", 0.5, {"q0": 0.5})
    store(path, score_answers([got(q) for q in questions], "extractive"))
    assert load_baseline(path, "hybrid") is not None, "the others stay"
    assert load_baseline(path, f"{PREFIX}extractive") == load(path, "extractive")
    baseline = load(path, "extractive")
    assert baseline is not None
    assert load(path, "generated") is None
    worse = score_answers([got(q) if n >= 20 else refused(q) for n, q in enumerate(questions)], "extractive")
    comparison = compare_answers(worse, baseline)
    assert comparison.dropped
    assert "fell from 1.000 to 0.800" in passes(worse, comparison)[1][0]
    one = score_answers([got(q) if n else refused(q) for n, q in enumerate(questions)], "extractive")
    assert not compare_answers(one, baseline).dropped


def test_nothing_asked_is_an_error() -> None:
    with pytest.raises(GoldenError, match="nothing to score"):
        score_answers([], "extractive")


# -- facts -------------------------------------------------------------------------------------------------------------


def test_every_answerable_question_has_facts_and_their_pages_say_them() -> None:
    from pipeline.answer_quality import lacking, plain_text

    questions = load_questions(GOLDEN / "questions.jsonl")
    facts = load_facts(GOLDEN / "facts.jsonl", questions)
    wiki = GOLDEN.parent / "wiki"
    for question in questions:
        if question.answerable:
            documents = dict.fromkeys(label.document for label in question.relevant)
            text = plain_text(" \n ".join((wiki / name).read_text(encoding="utf-8") for name in documents))
            assert lacking(facts[question.id], text) == (), question.id
    assert set(facts) == {question.id for question in questions if question.answerable}


@pytest.mark.parametrize(
    ("line", "said"),
    [("[]", "needs 'id'"), ('{"id": "one"}', "needs 'id'"), ('{"id": "one", "facts": [[]]}', "one spelling")],
)
def test_a_bad_line_of_facts_is_named(tmp_path: Path, line: str, said: str) -> None:
    path = tmp_path / "facts.jsonl"
    path.write_text(line + "\n")
    with pytest.raises(GoldenError, match=rf"facts.jsonl line 1.*{said}"):
        load_facts(path, [ask("one")])


def test_a_question_without_facts_is_named(tmp_path: Path) -> None:
    path = tmp_path / "facts.jsonl"
    path.write_text('{"id": "two", "facts": [["x"]]}\n')
    with pytest.raises(GoldenError, match="no facts for one"):
        load_facts(path, [ask("one"), NONE])


# -- diagnosis ---------------------------------------------------------------------------------------------------------

HELD = Looked(corpus=True, pool=True, context=True, oracle=True, cited=True, complete=False)


@pytest.mark.requirement("C4")
@pytest.mark.parametrize(
    ("looked", "stage"),
    [
        (replace(HELD, corpus=False, pool=False, context=False, oracle=None), "corpus"),
        (replace(HELD, pool=False, context=False), "pool"),
        (replace(HELD, context=False), "context"),
        (replace(HELD, oracle=False), "answerer"),
        (HELD, "nothing"),
        (replace(HELD, oracle=None), "nothing"),
        (replace(HELD, complete=True, cited=False), "citation"),
    ],
)
def test_the_first_stage_that_lost_it_is_named(looked: Looked, stage: str) -> None:
    found = diagnose(ask("one"), looked)
    assert found is not None
    assert (found.question, found.stage) == ("one", stage)
    assert "{" not in found.said


@pytest.mark.requirement("C4")
def test_what_is_right_needs_no_diagnosis_and_a_wrong_answer_is_a_refusal_missed() -> None:
    assert diagnose(ask("one"), replace(HELD, complete=True)) is None
    found = diagnose(NONE, None)
    assert found is not None
    assert found.stage == "refusal"
    with pytest.raises(ValueError, match="one: say what was found"):
        diagnose(ask("one"), None)


@pytest.mark.requirement("C4")
def test_evidence_is_held_where_every_essential_passage_is_shown() -> None:
    labels = tuple(Label(document="a.md", heading=h, grade=g) for h, g in (("One", 3), ("Two", 3), ("Three", 1)))
    question = ask("one", relevant=labels)
    assert [label.heading for label in essential(question)] == ["One", "Two"]
    assert held(question, [Hit("a.md", "", ("One",)), Hit("a.md", "", ("Two",))])
    assert not held(question, [Hit("a.md", "", ("One",)), Hit("a.md", "", ("Three",))])
    pages = {"a.md": "# A\n\n## One\n\nx\n\n## Two\n\ny\n"}
    assert in_corpus(question, pages, lambda user, document: True)
    assert not in_corpus(question, pages, lambda user, document: False)
    assert not in_corpus(question, {}, lambda user, document: True)
