"""``headwater answer``: what it asks, how sentences, sources, doubts and refusals look, and what it says of errors."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import httpx
import pytest
from typer.testing import CliRunner, Result

from infra import cli
from infra.asking import QueryApi
from infra.errors import InfraError
from pipeline.settings import Settings
from schemas.api_answer import AnswerResponse, SentenceEvent, StepEvent
from tests.unit.answer.scripted import answer, citation, events_of, refused

AWAY = 'event: error\ndata: {"title": "t", "status": 503, "detail": "index away"}\n\n'
NAMES: dict[Any, str] = {StepEvent: "step", SentenceEvent: "sentence", AnswerResponse: "done"}
ASK = ["answer", "How long do refunds take?", "--user", "ann"]


def streamed(events: list[Any], more: str = "") -> httpx.Response:
    parts = [f"event: {NAMES[type(e)]}\ndata: {e.model_dump_json()}\n\n" for e in events]
    return httpx.Response(200, text="".join(parts) + more, headers={"Content-Type": "text/event-stream"})


@pytest.fixture
def invoke(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Any:
    """Runs the command against one reply; the result and what was asked."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HEADWATER_STATE_DIR", str(tmp_path))
    monkeypatch.setenv("COLUMNS", "120")
    original = QueryApi.__init__

    def run(arguments: list[str], reply: httpx.Response | Exception) -> tuple[Result, list[dict[str, Any]]]:
        asked: list[dict[str, Any]] = []

        def handle(request: httpx.Request) -> httpx.Response:
            assert request.url.path == "/v1/answer"
            asked.append(json.loads(request.content))
            if isinstance(reply, Exception):
                raise reply
            return reply

        def connected(self: QueryApi, settings: Settings) -> None:
            original(self, settings, transport=httpx.MockTransport(handle))

        monkeypatch.setattr(QueryApi, "__init__", connected)
        return CliRunner().invoke(cli.build(), arguments), asked

    return run


@pytest.mark.requirement("B8", "E3")
def test_sentences_footnotes_sources_and_how_it_was_made(invoke: Any) -> None:
    found = answer(
        withheld=1, timings_ms={"total": 70.4}, citations=[citation(1), citation(2, in_effect=False, url=None)]
    )
    result, asked = invoke(ASK, streamed(events_of(found)))
    assert result.exit_code == 0, result.output
    for part in (
        "Refunds take five days. [1]\n", "Größere – 🧾 – take ten. [1][2]\n", "Sources",
        "[1] Refunds 1  wiki:sales/1.md",
        "Refunds › Time", "“within five working days”", "2 h old, https://wiki.example/sales/1", "not in effect",
        "the sources' own sentences, 3 passages, weakest support 0.80, 1 withheld, 70 ms\nquery 0f6f",
        "wiki: complete until",
    ):  # fmt: skip
        assert part in result.stdout, part
    assert asked == [{"question": "How long do refunds take?", "stream": True}]


@pytest.mark.requirement("B8", "E3")
def test_options_reach_the_service_and_json_is_the_reply_itself(invoke: Any) -> None:
    options = [
        "--source", "wiki", "--as-of", "2026-01-01", "--style", "extractive", "--unsupported", "qualify", "--context",
        "3", "--explain", "--json",
    ]  # fmt: skip
    whole = httpx.Response(200, json=answer().model_dump(mode="json"))
    result, asked = invoke([*ASK, *options], whole)
    assert json.loads(result.stdout)["sentences"][1]["citations"] == [1, 2]
    assert asked == [
        {
            "question": "How long do refunds take?", "style": "extractive", "unsupported": "qualify", "context": 3,
            "explain": True, "filters": {"sources": ["wiki"], "as_of": 1_767_225_600_000_000},
        }
    ]  # fmt: skip
    result, asked = invoke([*ASK, "--no-stream"], httpx.Response(200, json=answer().model_dump(mode="json")))
    assert "Refunds take five days. [1]\n" in result.stdout and "stream" not in asked[0]


@pytest.mark.requirement("B7", "E3")
def test_a_refusal_says_why_and_what_to_try(invoke: Any) -> None:
    hint = {"kind": "spelling", "text": "Did you mean refund?", "query": "refund"}
    result, _ = invoke(ASK, streamed(events_of(refused("nothing_found", suggestion=hint))))
    assert result.exit_code == 0, result.output
    for part in (
        "There is not enough to answer this.", "Name the product", "Did you mean refund?",
        "no answer: nothing found, ",
    ):  # fmt: skip
        assert part in result.stdout, part
    assert "Sources" not in result.stdout


@pytest.mark.requirement("B8", "E3")
def test_contradictions_doubts_and_what_was_withheld_or_withdrawn_are_shown(invoke: Any) -> None:
    sides = [{"citation": 1, "text": "Five [b]days[/b]."}, {"citation": 2, "text": "Ten days."}]
    unsure = {"text": "It may be ten.", "citations": [2], "support": 0.4, "qualified": True}
    found = answer(
        sentences=[unsure], needs_review=True, contradictions=[{"kind": "number", "sides": sides}], kind="generated",
        model="small", fallback=None, cached="exact",
        withheld_sentences=[{"text": "It is always free.", "reason": "not_supported", "support": 0.02}],
    )  # fmt: skip
    result, _ = invoke(ASK, streamed([*events_of(answer())[:3], *events_of(found)[2:]]))
    assert result.exit_code == 0, result.output
    for part in (
        "Needs review: the sources contradict each other.", "[1] Five [b]days[/b].", "[2] Ten days.",
        "not stated plainly: It may be ten. [2]", "withheld (not_supported, support 0.02): It is always free.",
        "Withdrawn", "  Refunds take five days.", "written by small, every sentence checked", "kept from before",
    ):  # fmt: skip
        assert part in result.stdout, part


@pytest.mark.requirement("B8", "E3")
def test_a_contradiction_that_the_sentences_tell_is_not_told_again(invoke: Any) -> None:
    sides = [{"citation": n, "text": s.text} for n, s in enumerate(answer().sentences, 1)]
    found = answer(needs_review=True, contradictions=[{"kind": "number", "sides": sides}])
    result, _ = invoke(ASK, streamed(events_of(found)))
    assert result.stdout.count("Refunds take five days.") == 1
    assert "Needs review: the sources contradict each other.\n  [1] and [2]\n" in result.stdout


@pytest.mark.requirement("I12")
@pytest.mark.parametrize("options", [[], ["--no-stream"], ["--json"]])
def test_a_person_whom_nobody_knows_is_named(invoke: Any, monkeypatch: pytest.MonkeyPatch, options: list[str]) -> None:
    monkeypatch.setattr("infra.commands.people.unknown", lambda tenant, user: user == "ghost")
    for user, found, warns in (
        ("ghost", refused("nothing_found"), True),
        ("ann", refused("nothing_found"), False),
        ("ghost", answer(), False),
    ):
        whole = httpx.Response(200, json=found.model_dump(mode="json"))
        result, _ = invoke([*ASK[:-1], user, *options], whole if options else streamed(events_of(found)))
        assert result.exit_code == 0, result.output
        assert ("no live record of user:ghost" in result.stderr) is warns


@pytest.mark.parametrize(
    ("reply", "said"),
    [
        (lambda: httpx.Response(422, json={"title": "t", "status": 422, "detail": "d", "errors": [
            {"field": "filters.sources", "problem": "names no source"}]}), "names no source"),
        (lambda: httpx.ConnectError("refused"), "does not answer"),
        (lambda: streamed(events_of(answer())[:3]), "broke off"),
        (lambda: streamed([], AWAY), "index away"),
        (lambda: httpx.Response(200, json={"hello": "world"}), "not this version's"),
    ],
    ids=["fields", "down", "half", "error", "somebody else"],
)  # fmt: skip
def test_no_usable_answer_names_the_remedy(invoke: Any, reply: Any, said: str) -> None:
    result, _ = invoke(ASK, reply())
    assert isinstance(result.exception, InfraError)
    assert said in result.exception.problem and result.exception.remedy


def test_a_question_that_cannot_be_asked_is_not_sent(invoke: Any) -> None:
    for arguments, said in ((["answer", "  ", "--user", "ann"], "question"), ([*ASK, "--since", "x"], "--since")):
        result, asked = invoke(arguments, streamed([]))
        assert isinstance(result.exception, InfraError) and said in result.exception.problem
        assert asked == []
