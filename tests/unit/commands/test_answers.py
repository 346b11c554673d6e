"""The golden questions at /v1/answer over an API in memory: who asks, what is held against what, when it fails."""

from __future__ import annotations

import json
from collections.abc import Callable
from io import StringIO
from pathlib import Path
from typing import Any

import httpx
import pytest
from rich.console import Console

from infra.answer_judging import Assessor
from infra.answer_run import AnswerRun, Corpus, request_of, run_answers
from infra.asking import QueryApi
from infra.commands.quality import WIDTH
from infra.commands.quality_answers import plain_answers, show_answers
from infra.errors import InfraError
from infra.golden_run import Paths
from pipeline.golden import Question
from pipeline.observe import Metrics
from pipeline.settings import Settings
from pipeline.settings_query import GeneratorSettings, InferenceSettings
from query_service.generate.openai_server import OpenAiGenerator
from query_service.scope import TokenVerifier
from schemas.api_answer import AnswerRequest
from tests.fakes.llm import Says, ScriptedModel

pytestmark = pytest.mark.requirement("C2")
JWT = {"auth": {"jwt_secret": "s" * 48}}
Reply = Callable[[dict[str, Any]], dict[str, Any]]
TEXTS = {
    "a.md": "# A\n\n## Part\n\nThe lift stops at nine.\n",
    "b.md": "# B\n\n## Part\n\nTrains run up to 700 km.\n",
    "closed/c.md": "# C\n\n## Part\n\nThe code is 4711.\n",
}


@pytest.fixture
def paths(tmp_path: Path) -> Paths:
    samples = tmp_path / "samples"
    (samples / "wiki" / "closed").mkdir(parents=True)
    (samples / "golden").mkdir()
    for name, text in TEXTS.items():
        (samples / "wiki" / name).write_text(text)
    (samples / "wiki" / "groups.yaml").write_text("users: [ann, bob]\ngroups: {}\n")
    (samples / "wiki" / "closed" / ".access.yaml").write_text("allow: [user:bob]\ndeny: []\n")
    common = {"user": "ann", "tenant": "acme"}
    questions = [
        {"id": "one", "question": "about one", "kind": "plain", **common,
         "relevant": [{"document": "a.md", "heading": "Part", "grade": 3}]},
        {"id": "dated", "question": "about dated", "kind": "as_of", "as_of": "2026-01-01", **common,
         "relevant": [{"document": "b.md", "span": "Trains run up to 700 km.", "grade": 3}]},
        {"id": "none", "question": "about none", "kind": "permission", "fact": "4711", **common},
    ]  # fmt: skip
    (samples / "golden" / "questions.jsonl").write_text("".join(json.dumps(q) + "\n" for q in questions))
    facts = [{"id": "one", "facts": [["9", "nine"]]}, {"id": "dated", "facts": [["700 km"]]}]
    (samples / "golden" / "facts.jsonl").write_text("".join(json.dumps(f) + "\n" for f in facts))
    return Paths(samples)


def _answer(document: str, text: str, quote: str | None = None) -> dict[str, Any]:
    citation = {
        "number": 1, "document_uid": document, "document_id": document, "source": "wiki", "title": document,
        "url": None, "section_id": "s", "chunk_ids": ["c"], "heading_path": ["X", "Part"], "quote": quote or text,
        "version": 1, "updated_at": None, "age_s": 1.0,
    }  # fmt: skip
    return {
        "query_id": "q", "answered": True, "kind": "extractive", "text": f"{text}[^1]",
        "sentences": [{"text": text, "citations": [1], "support": 0.9}], "citations": [citation], "judged_at": 1,
        "timings_ms": {"total": 9.0}, "support": 0.9,
    }  # fmt: skip


REFUSED: dict[str, Any] = {
    "query_id": "q", "answered": False, "kind": "refusal", "text": "No.", "judged_at": 1,
    "refusal": {"reason": "weak_evidence", "detail": "Nothing fits."},
}  # fmt: skip


def _right(body: dict[str, Any]) -> dict[str, Any]:
    return {
        "about one": _answer("a.md", "The lift stops at nine."),
        "about dated": _answer("b.md", "Trains run up to 700 km."),
        "about none": REFUSED,
    }[body["question"]]  # fmt: skip


def _passage(document: str) -> dict[str, Any]:
    return {
        "section_id": document, "document_uid": document, "document_id": document, "source": "wiki", "title": document,
        "url": None, "version": 1, "updated_at": None, "heading_path": ["X", "Part"], "text": TEXTS[document],
        "tokens": 5, "rank": 1, "chunk_ids": ["c"],
    }  # fmt: skip


def _found(documents: list[str]) -> dict[str, Any]:
    passages = [_passage(document) | {"rank": n} for n, document in enumerate(documents, 1)]
    return {
        "query_id": "q", "generation": "minilm", "hits": [], "complete_until": {}, "fresh": None,
        "counts": {"dense": 0, "sparse": 0, "exact": 0, "admitted": 0}, "starved": False, "judged_at": 1,
        "timings_ms": {},
        "evidence": {"mode": "sections", "passages": passages, "tokens": 5, "budget": 1000, "complete": True},
    }  # fmt: skip


def _run(
    paths: Paths, reply: Reply = _right, found: Callable[[dict[str, Any]], list[str]] = lambda body: [], **options: Any
) -> tuple[AnswerRun, list[httpx.Request]]:
    seen: list[httpx.Request] = []

    def handle(request: httpx.Request) -> httpx.Response:
        seen.append(request)
        body = json.loads(request.content)
        asked = request.url.path == "/v1/answer"
        return httpx.Response(200, json=reply(body) if asked else _found(found(body)))

    with QueryApi(Settings.model_validate(JWT), transport=httpx.MockTransport(handle)) as api:
        return run_answers(api, paths, "extractive", lambda done, total: None, **options), seen


def test_each_question_is_asked_by_its_own_person_on_its_own_day_without_cache(paths: Paths) -> None:
    made, seen = _run(paths)
    bodies = [json.loads(request.content) for request in seen]
    assert [body["question"] for body in bodies] == ["about one", "about dated", "about none"]
    assert [body.get("filters", {}) for body in bodies] == [{}, {"as_of": 1_767_225_600_000_000}, {}]
    assert {(body["cache"], body["style"], body.get("rerank")) for body in bodies} == {(False, "extractive", None)}
    token = seen[0].headers["Authorization"].removeprefix("Bearer ")
    assert TokenVerifier(Settings.model_validate(JWT).auth).verify(token).subject == "ann"
    assert made.ok
    assert made.report.interval.mean == 1.0
    assert made.report.overall.citations_right == 1.0
    assert made.diagnoses == ()


def test_sentences_are_held_against_the_files_and_not_against_the_quotes(paths: Paths) -> None:
    def lies(body: dict[str, Any]) -> dict[str, Any]:
        made = "The lift goes to the moon at nine."
        return _answer("a.md", made, quote=made) if body["question"] == "about one" else _right(body)

    made, _ = _run(paths, lies)
    assert made.report.unsupported_by_words == ("one: The lift goes to the moon at nine.",)
    assert made.reasons == ("faithfulness by words 0.500 is below 0.8",)


def test_an_answer_from_a_closed_page_fails_always(paths: Paths) -> None:
    secret = _answer("closed/c.md", "The code is 4711.")
    made, _ = _run(paths, lambda body: secret if body["question"] == "about none" else _right(body), store_run=True)
    assert not made.ok
    assert made.report.exposures == ("none: closed/c.md", "none: the fact itself")
    assert not paths.baseline.exists(), "it never becomes the baseline"
    assert [d.stage for d in made.diagnoses] == ["refusal"]


def test_a_drop_below_the_stored_run_fails(paths: Paths) -> None:
    assert _run(paths, store_run=True)[0].stored
    assert _run(paths)[0].ok
    wrong = _answer("b.md", "Trains run up to 700 km.")
    worse, _ = _run(paths, lambda body: wrong if body["question"] == "about none" else REFUSED)
    assert any("fell from 1.000" in reason for reason in worse.reasons)


@pytest.mark.requirement("C4")
@pytest.mark.parametrize(
    ("pool", "context", "oracle", "stage"),
    [
        (["b.md"], ["b.md"], "", "pool"),
        (["b.md", "a.md"], ["b.md"], "", "context"),
        (["a.md"], ["a.md"], "Something else.", "answerer"),
        (["a.md"], ["a.md"], "It stops at nine.", "nothing"),
    ],
)
def test_a_failed_question_is_followed_through_the_stages(
    paths: Paths, pool: list[str], context: list[str], oracle: str, stage: str
) -> None:
    given: list[list[str]] = []

    def say(question: Question, passages: Any) -> str:
        given.append([passage.document_id for passage in passages])
        return oracle

    made, seen = _run(
        paths,
        lambda body: REFUSED if body["question"] == "about one" else _right(body),
        lambda body: pool if body["k"] == 100 else context,
        oracle=say,
    )
    assert [(d.question, d.stage) for d in made.diagnoses] == [("one", stage)]
    assert {json.loads(r.content)["k"] for r in seen if r.url.path == "/v1/search"} == {100, 5}
    assert given == ([] if "a.md" not in pool else [["a.md"]]), "the oracle gets the labelled passages alone"


def test_a_sentence_of_two_clauses_may_rest_on_two_pages(paths: Paths) -> None:
    corpus = Corpus.of(paths.wiki)
    both = "The lift stops at nine, trains run up to 700 km"
    assert corpus.says(both, ["a.md", "b.md"])
    assert not corpus.says(both, ["a.md"])


def test_a_question_of_the_set_makes_a_valid_request() -> None:
    question = Question(id="q", question="?", user="ann", tenant="acme", kind="plain")
    made = request_of(question, "generated", context=3, budget=700)
    assert isinstance(made, AnswerRequest)
    assert (made.context, made.token_budget, made.explain) == (3, 700, True)


def test_missing_facts_are_an_error_with_a_remedy(paths: Paths) -> None:
    paths.facts.write_text("")
    with pytest.raises(InfraError, match="no facts for one, dated"):
        _run(paths)


def test_people_see_one_table_and_programs_the_figures(paths: Paths) -> None:
    made, _ = _run(paths, lambda body: REFUSED if body["question"] == "about one" else _right(body))
    out = Console(width=WIDTH, record=True, file=StringIO())
    show_answers(out, made)
    shown = out.export_text()
    for part in ("0.667 of the questions", "refusals: 1 of 1", "exposures: 0", "lost at", "pool: the corpus holds it"):
        assert part in shown
    said = json.loads(json.dumps(plain_answers(made)))
    assert said["diagnoses"][0]["id"] == "one"
    assert [answer["right"] for answer in said["answers"]] == [False, True, True]


def test_without_a_generator_relevance_is_by_the_answer_itself_and_refusals_have_none(paths: Paths) -> None:
    made, _ = _run(paths, embed=lambda text: [1.0, 0.0] if text.startswith("about") else [1.0, 1.0])
    report = made.report
    assert (report.relevance_by, report.relevance_of) == ("answer itself", 2)
    assert report.relevance == pytest.approx(2**-0.5)
    assert report.judge is None and report.judged is None


def test_a_generator_reads_each_answer_and_its_sentences(paths: Paths, tmp_path: Path) -> None:
    def reads(body: dict[str, Any]) -> Says:
        if "digit" in body["messages"][0]["content"]:
            return Says("5" if "nine" in body["messages"][1]["content"] else "3")
        return Says("When does it stop?\nDoes it stop?\nWhat stops?")

    model = ScriptedModel([])
    model.otherwise = reads
    settings = GeneratorSettings(url="http://llm.test/v1", model="scripted", attempts=1)
    generator = OpenAiGenerator(settings, InferenceSettings(), Metrics(), http_client=model.client())
    assessor = Assessor(generator, lambda text: [1.0, 0.0], 5.0, record=tmp_path / "none.json")
    made, _ = _run(paths, assessor=assessor)
    assessor.close()
    report = made.report
    assert [claim.judged for one in made.answers for claim in one.claims] == [1.0, 0.6]
    assert (report.judged, report.judged_claims, report.judge_counts) == (0.8, 2, False)
    assert report.relevance_by == "regenerated questions" and len(model.requests) == 4
