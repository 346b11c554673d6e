"""The gates on retrieval and answers: the golden set on the product as it is, against the stored baselines."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from infra.answer_run import AnswerRun, run_answers
from infra.asking import QueryApi
from infra.endpoints import Endpoints
from infra.golden_run import Run, checkout, questions_of, run
from infra.golden_world import golden_world
from infra.progress import Quiet

EVERY = 3


@pytest.fixture(scope="module")
def served(services: Endpoints, cache_dir: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[QueryApi]:
    """The wiki in a world of its own, on the session's services."""
    paths = checkout()
    _, tenant = questions_of(paths)
    folder = tmp_path_factory.mktemp("golden")
    settings = folder / "empty.toml"
    settings.touch()
    with pytest.MonkeyPatch.context() as patch:
        for name in [name for name in os.environ if name.startswith("HEADWATER_")]:
            patch.delenv(name)
        patch.setenv("HEADWATER_CONFIG", str(settings))
        patch.setenv("HEADWATER_CACHE_DIR", str(cache_dir))
        world = golden_world(services, folder / "world", paths.wiki, tenant=tenant, report=Quiet())
        with world as made, QueryApi(made) as api:
            yield api


@pytest.fixture(scope="module")
def golden(served: QueryApi) -> Run:
    """One run over all questions."""
    return run(served, checkout(), "hybrid", lambda done, total: None)


@pytest.fixture(scope="module")
def answers(served: QueryApi) -> AnswerRun:
    """Every third of these questions at /v1/answer, taken from the sources; `make quality` asks them all."""
    return run_answers(served, checkout(), "extractive", lambda done, total: None, every=EVERY)


@pytest.mark.requirement("C3")
def test_the_gate_passes(golden: Run) -> None:
    assert golden.ok, golden.reasons


@pytest.mark.requirement("C3", "B1")
def test_nobody_sees_what_they_may_not_read(golden: Run) -> None:
    assert golden.report.exposures == ()


@pytest.mark.requirement("C3", "B1")
def test_no_edition_that_was_not_in_effect_is_returned(golden: Run) -> None:
    assert golden.report.wrong_editions == ()


@pytest.mark.requirement("C3")
def test_there_is_a_baseline_to_compare_with(golden: Run) -> None:
    assert golden.comparison is not None
    assert golden.comparison.missing == ()


@pytest.mark.requirement("B2", "C3")
def test_exact_identifiers_come_before_their_twins(golden: Run) -> None:
    assert golden.report.identifier_first == 1.0


@pytest.mark.requirement("C2", "B8")
def test_the_gate_on_answers_passes(answers: AnswerRun) -> None:
    assert answers.ok, answers.reasons
    assert answers.comparison is not None
    assert answers.comparison.compared == len(answers.answers) >= 50


@pytest.mark.requirement("C2", "B1")
def test_no_answer_rests_on_what_its_reader_may_not_read(answers: AnswerRun) -> None:
    assert answers.report.exposures == ()
    assert answers.report.wrong_editions == ()


@pytest.mark.requirement("C2", "B8")
def test_every_released_sentence_is_said_by_a_page_that_it_cites(answers: AnswerRun) -> None:
    assert answers.report.claims > 60
    assert answers.report.unsupported_by_words == ()


@pytest.mark.requirement("C4")
def test_every_question_that_failed_is_followed_to_a_stage(answers: AnswerRun) -> None:
    failed = {one.question.id for one in answers.answers if not one.right}
    assert {diagnosis.question for diagnosis in answers.diagnoses} == failed
