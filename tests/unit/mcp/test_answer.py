"""The tool ``answer`` through the SDK's client: structure and readable text, refusals as such, bounds, faults."""

from __future__ import annotations

from typing import Any

import jsonschema
import pytest

from query_service.client.answered import NOTE, AnswerText, told_of
from query_service.generate.interface import GeneratorUnavailable
from query_service.mcp.models import MAX_CHARS
from query_service.state import NotReady
from tests.unit.answer.scripted import Scripted, answer, citation, refused
from tests.unit.mcp.talk import MODES, application, talking
from tests.unit.query.world import Running, World

pytestmark = pytest.mark.anyio


def answered_by(run: Running, answering: Scripted) -> None:
    run.parts.mcp._answering = answering  # before the first request, which starts the server


@pytest.mark.requirement("E3", "B8")
@pytest.mark.parametrize("mode", MODES)
async def test_an_answer_is_structure_and_text_with_its_sources(world: World, mode: str) -> None:
    world.principal("user:ann")
    old = citation(2, in_effect=False, url=None)
    sides = [{"citation": 1, "text": "Five days."}, {"citation": 2, "text": "Ten days."}]
    found = answer(citations=[citation(1), old], needs_review=True, contradictions=[{"kind": "number", "sides": sides}])
    answering = Scripted(found)
    async with world.running() as run:
        answered_by(run, answering)
        async with talking(application(run), run.headers(), mode) as client:
            tool = {t.name: t for t in (await client.list_tools()).tools}["answer"]
            given = {"question": "How long?", "style": "extractive", "sources": ["wiki"], "as_of": "2026-01-01"}
            jsonschema.validate(given, tool.input_schema)
            result = await client.call_tool("answer", given)
    assert not result.is_error
    assert tool.output_schema is not None
    jsonschema.validate(result.structured_content, tool.output_schema)
    made = AnswerText.model_validate(result.structured_content)
    assert made.note == NOTE and made.answered and [c.number for c in made.citations] == [1, 2]
    assert made.citations[0].quote == "within five working days"
    (block,) = result.content
    assert block.text == (  # type: ignore[union-attr]
        "Refunds take five days.[^1] Größere – 🧾 – take ten.[^1][^2]\n\n"
        "Sources disagree:\n- Five days.[^1]\n- Ten days.[^2]\n\n"
        "Sources:\n"
        "[^1] Refunds 1, Refunds › Time (wiki, updated 2027-01-15T08:00:00Z) https://wiki.example/sales/1\n"
        "[^2] Refunds 2, Refunds › Time (wiki, updated 2027-01-15T08:00:00Z, not in effect)"
    )
    scope, request = answering.asked[0]
    assert (scope.subject, request.style, request.filters.sources) == ("ann", "extractive", ("wiki",))
    assert request.filters.as_of == 1_767_225_600_000_000


@pytest.mark.requirement("E3", "B8")
def test_a_contradiction_that_the_text_tells_is_not_told_again() -> None:
    sides = [{"citation": s.citations[0], "text": s.text} for s in answer().sentences]
    dispute = {"kind": "number", "sides": sides}
    found = answer(text=f"Sources disagree: {answer().text}", needs_review=True, contradictions=[dispute])
    text = told_of(found, 20_000).plain()
    assert text.count("Refunds take five days.") == 1 and text.count("disagree") == 1


@pytest.mark.requirement("E3", "B7")
async def test_a_refusal_is_told_as_one_and_is_no_error(world: World) -> None:
    world.principal("user:ann")
    async with world.running() as run:
        answered_by(run, Scripted(refused()))
        async with talking(application(run), run.headers()) as client:
            result = await client.call_tool("answer", {"question": "How long?"})
            for arguments, named in (
                ({}, "question"),
                ({"question": "x", "style": "poem"}, "style"),
                ({"question": "x", "user": "bob"}, "user: this field is not known here"),
                ({"question": " "}, "question"),
            ):
                told = await client.call_tool("answer", arguments)
                assert told.is_error and named in told.content[0].text, arguments  # type: ignore[union-attr]
    assert not result.is_error
    made = AnswerText.model_validate(result.structured_content)
    assert (made.answered, made.reason) == (False, "weak_evidence") and made.advice
    assert result.content[0].text.startswith("No answer. There is not enough")  # type: ignore[union-attr]


@pytest.mark.requirement("E3", "I12")
@pytest.mark.parametrize(
    ("error", "said"),
    [
        (NotReady("secret"), "try again"), (GeneratorUnavailable("secret"), "extractive"),
        (RuntimeError("secret"), "logged"),
    ],
)  # fmt: skip
async def test_what_fails_is_told_without_its_words(world: World, error: Exception, said: str) -> None:
    world.principal("user:ann")
    async with world.running() as run:
        answered_by(run, Scripted(error))
        async with talking(application(run), run.headers()) as client:
            told = await client.call_tool("answer", {"question": "How long?"})
    text = told.content[0].text  # type: ignore[union-attr]
    assert told.is_error and said in text and "secret" not in text


@pytest.mark.requirement("E3")
@pytest.mark.parametrize(
    "found",
    [
        {"citations": [citation(n, quote="word " * 2_000) for n in range(1, 51)]},
        {"citations": [citation(n, title="T" * 3_000, quote="q" * 900) for n in range(1, 51)]},
        {"text": 'ключ "\n' * 9_000},
    ],
    ids=["quotes", "titles", "text"],
)
async def test_a_result_is_bounded(world: World, found: dict[str, Any]) -> None:
    world.principal("user:ann")
    async with world.running() as run:
        answered_by(run, Scripted(answer(**found)))
        async with talking(application(run), run.headers()) as client:
            made = AnswerText.model_validate(
                (await client.call_tool("answer", {"question": "How long?"})).structured_content
            )
    assert len(made.model_dump_json()) <= MAX_CHARS
    if "text" in found:
        assert made.cut and made.text and found["text"].startswith(made.text)
    else:
        assert not made.cut and len(made.citations) >= 30 and made.text.startswith("Refunds take")
