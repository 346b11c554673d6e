"""The strategies on passages in memory, the generator behind the real SDK: budgets, stops, failures."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from typing import Any

import pytest

from pipeline.errors import StoreUnavailable
from pipeline.observe import Metrics
from pipeline.settings_query import ExpansionSettings
from query_service.expansion.expander import Expander, decompose
from query_service.expansion.hyde import hyde
from query_service.expansion.interface import WITHHELD
from query_service.expansion.iterative import iterative
from query_service.expansion.multi_query import multi_query
from query_service.generate.openai_server import OpenAiGenerator
from tests.fakes.llm import Garbage, Hangs, Says, ScriptedModel, Status, Unreachable
from tests.unit.expansion.index import Index, names

pytestmark = [pytest.mark.anyio, pytest.mark.requirement("B11")]
Make = Callable[[ScriptedModel], OpenAiGenerator]
PASSAGES = {
    "leak": "The release candidate has a file handle leak. It appears on the Heron device alone.",
    "life": "Heron: security updates until 2028.",
    "noise": "The canteen opens at eleven.",
    "other": "Updates are signed by the release team.",
}
QUESTION = "until when does the device with the file handle leak get fixes"


def follow(text: str) -> Says:
    return Says(json.dumps({"query": text}))


async def ended(before: set[asyncio.Task[Any]]) -> None:
    """Nothing that was begun since is left running."""
    async with asyncio.timeout(2):
        while asyncio.all_tasks() - before:
            await asyncio.sleep(0.001)


# ---------------------------------------------------------------- decompose


async def test_parts_are_asked_beside_the_question() -> None:
    index = Index(PASSAGES)
    run = index.run("When does the canteen open, and who signs the updates?")
    found = await decompose(run)
    assert index.asked[0] == "When does the canteen open, and who signs the updates?" and len(index.asked) == 3
    assert {"noise", "other"} <= set(names(found))
    assert [f.step.kind for f in run.steps()] == ["original", "decomposed", "decomposed"]
    assert not any(f.step.generated for f in run.found)


async def test_a_question_without_parts_is_asked_once_and_says_so() -> None:
    index = Index(PASSAGES)
    run = index.run("canteen")
    assert names(await decompose(run)) == ["noise"] and index.asked == ["canteen"]
    assert [(s.step.kind, s.step.reason) for s in run.steps()] == [
        ("original", None), ("stop", "the question has no parts"),
    ]  # fmt: skip


async def test_a_part_that_fails_costs_only_itself_the_question_everything() -> None:
    question = "When does the canteen open, and who signs the updates?"
    index = Index(PASSAGES, fails={"who signs the updates"})
    run = index.run(question)
    assert "noise" in names(await decompose(run))
    assert "the index did not answer" in [f.step.reason for f in run.steps()]
    before = asyncio.all_tasks()
    with pytest.raises(StoreUnavailable):
        await decompose(Index(PASSAGES, fails={question}).run(question))
    await ended(before)


# ---------------------------------------------------------------- multi_query


async def test_wordings_are_searched_and_the_nonsense_among_them_is_not(generator: Make) -> None:
    model = ScriptedModel.of(Says('["canteen hours", "", "canteen hours!", "when to eat", "' + "x" * 400 + '", 5]'))
    index = Index(PASSAGES)
    run = index.run("when can I eat", generator(model), queries=4)
    found = await multi_query(run)
    assert index.asked == ["when can I eat", "canteen hours"] or index.asked[0] == "when can I eat"
    assert set(index.asked) == {"when can I eat", "canteen hours", "when to eat"}
    assert names(found)[0] == "noise"
    steps = [f.step for f in run.steps()]
    assert [s.kind for s in steps] == ["original", "multi_query", "multi_query"]
    assert [s.tokens > 0 for s in steps] == [False, True, False] and run.usage.tokens == steps[1].tokens


async def test_no_more_wordings_than_the_budget(generator: Make) -> None:
    model = ScriptedModel.of(Says(json.dumps([f"canteen number {i}" for i in range(50)])))
    index = Index(PASSAGES)
    await multi_query(index.run("canteen", generator(model), queries=3))
    assert len(index.asked) == 4


_BROKEN = [Unreachable(), Status(500), Status(401), Garbage(), Says(""), Says("{"), Says("I'm sorry, I cannot."),
           Says("", refusal="no"), Says("", finish="content_filter")]  # fmt: skip


@pytest.mark.parametrize("strategy", [multi_query, hyde, iterative])
@pytest.mark.parametrize("reply", [*_BROKEN, None])
async def test_whatever_the_generator_does_the_question_is_answered(strategy: Any, reply: Any, generator: Make) -> None:
    index = Index(PASSAGES)
    plain = names(await index.retrieve("canteen"))
    made = generator(ScriptedModel.of(reply)) if reply is not None else None
    run = index.run("canteen", made)
    found = await strategy(run)
    assert names(found)[: len(plain)] == plain
    steps = [f.step for f in run.steps()]
    assert steps[0].kind == "original" and steps[-1].reason


async def test_a_generator_that_hangs_costs_the_budget_and_no_more(generator: Make) -> None:
    for strategy in (multi_query, hyde, iterative):
        index = Index(PASSAGES)
        run = index.run("canteen", generator(ScriptedModel.of(Hangs())), budget_s=0.05)
        async with asyncio.timeout(3):
            assert "noise" in names(await strategy(run))
        assert run.steps()[-1].step.reason


async def test_tokens_are_a_budget(generator: Make) -> None:
    model = ScriptedModel.of()
    for strategy in (multi_query, hyde, iterative):
        run = Index(PASSAGES).run("canteen", generator(model), tokens=20)
        await strategy(run)
        assert run.steps()[-1].step.reason == "no tokens left"
    assert not model.requests


async def test_a_search_that_fails_ends_the_wording_beside_it(generator: Make) -> None:
    model = ScriptedModel.of(Hangs())
    index = Index(PASSAGES, fails={"canteen"})
    before = asyncio.all_tasks()
    with pytest.raises(StoreUnavailable):
        await multi_query(index.run("canteen", generator(model)))
    await ended(before)


# ---------------------------------------------------------------- hyde


async def test_a_hypothetical_passage_is_compared_with_and_nothing_else(generator: Make) -> None:
    invented = "The canteen opens at six and serves dragons."
    index = Index(PASSAGES)
    run = index.run("when is food", generator(ScriptedModel.of(Says(invented))))
    found = await hyde(run)
    assert index.compared == [invented] and index.asked == ["when is food"]
    assert "noise" in names(found)
    assert index.peeks == 0 and all("dragons" not in r.candidate.chunk_id for r in found.ranked)
    step = run.steps()[-1].step
    assert (step.kind, step.generated, step.reason) == ("hyde", True, None)


async def test_without_a_dense_leg_no_passage_is_asked_for(generator: Make) -> None:
    model = ScriptedModel.of()
    run = Index(PASSAGES, dense=False).run("canteen", generator(model))
    await hyde(run)
    assert not model.requests and "sparse" in (run.steps()[-1].step.reason or "")


# ---------------------------------------------------------------- iterative


async def test_the_second_hop_by_names_without_a_generator() -> None:
    index = Index(PASSAGES)
    run = index.run(QUESTION)
    assert "life" not in names(await index.retrieve(QUESTION))
    found = await iterative(run)
    assert "life" in names(found)
    assert any("Heron" in query for query in index.asked[1:])
    assert not any(f.step.generated for f in run.steps())


async def test_the_second_hop_by_a_generator(generator: Make) -> None:
    model = ScriptedModel.of(follow("Heron security updates"), Says("STOP"))
    index = Index(PASSAGES)
    run = index.run(QUESTION, generator(model))
    found = await iterative(run)
    assert "life" in names(found) and index.asked == [QUESTION, "Heron security updates"]
    assert "appears on the Heron" in model.prompts[0] and "security updates until" in model.prompts[1]
    assert "Searched already: Heron security updates" in model.prompts[1]
    assert [f.step.kind for f in run.steps()] == ["original", "followup", "stop"]
    assert run.steps()[-1].step.reason == "the generator has enough"


@pytest.mark.parametrize(
    ("replies", "settings", "searches", "reason"),
    [
        ([follow("Heron"), follow("canteen"), follow("release team")], {"rounds": 2}, 3, "no rounds left"),
        ([follow("Heron"), follow("canteen")], {"queries": 1}, 2, "no queries left"),
        ([follow("leak handle")], {}, 2, "no new passages"),
        ([follow(QUESTION.upper())], {}, 1, "the same was asked again"),
        ([Says("two\nlines of talk")], {}, 1, "the reply held no usable query"),
        ([Says('{"query": ["a", "b"]}')], {}, 1, "the reply held no usable query"),
        ([Says("stop.")], {}, 1, "the generator has enough"),
    ],
)
async def test_it_stops(
    replies: list[Says], settings: dict[str, int], searches: int, reason: str, generator: Make
) -> None:
    index = Index(PASSAGES)
    run = index.run(QUESTION, generator(ScriptedModel.of(*replies)), **settings)
    await iterative(run)
    assert len(index.asked) == searches
    assert run.steps()[-1].step.kind == "stop" and run.steps()[-1].step.reason == reason


async def test_nothing_found_asks_nothing(generator: Make) -> None:
    model = ScriptedModel.of()
    run = Index(PASSAGES).run("zebra", generator(model))
    assert names(await iterative(run)) == [] and not model.requests
    assert run.steps()[-1].step.reason == "nothing was found"


async def test_a_generator_that_fails_in_the_middle_leaves_the_rules(generator: Make) -> None:
    index = Index(PASSAGES)
    run = index.run(QUESTION, generator(ScriptedModel.of(Unreachable())))
    assert "life" in names(await iterative(run))
    assert "the generator was not used: no connection" in (run.steps()[-1].step.reason or "")


# ---------------------------------------------------------------- revocation


@pytest.mark.requirement("B11", "I3")
async def test_no_prompt_holds_what_was_revoked_before_it(generator: Make) -> None:
    """The first follow-up was made of a passage that is revoked before the second prompt: neither is told again."""
    index = Index(PASSAGES)

    async def revoke(count: int) -> None:
        if count == 2:
            index.hidden.add("leak")

    index.on_retrieve = revoke
    model = ScriptedModel.of(follow("Heron handle security"), follow("who signs updates"), Says("STOP"))
    run = index.run(QUESTION, generator(model))
    found = await iterative(run)
    assert "appears on the Heron" in model.prompts[0]
    for prompt in model.prompts[1:]:
        assert "appears on the Heron" not in prompt and "Heron handle" not in prompt
    assert len(model.prompts) > 1
    expanded_steps = run.steps()
    assert expanded_steps[1].step.query == "Heron handle security"
    assert "life" not in names(found) or len(model.prompts) > 2, "the list of that query is gone"


@pytest.mark.requirement("B11", "I3")
async def test_steps_are_told_without_queries_made_of_what_was_revoked(generator: Make) -> None:
    index = Index(PASSAGES)
    for made in (None, generator(ScriptedModel.of(follow("Heron security"), Says("STOP")))):
        index.hidden.clear()
        expanded = await Expander(ExpansionSettings(), made, Metrics()).expand("iterative", QUESTION, index.ground())
        told = await expanded.told(index.peek)
        assert "Heron" in told[1].query
        index.hidden.add("leak")
        told = await expanded.told(index.peek)
        assert told[0].query == QUESTION
        assert all("Heron" not in step.query for step in told) and told[1].reason == WITHHELD


@pytest.mark.requirement("B11", "I3")
async def test_the_list_of_a_query_made_of_what_was_revoked_is_dropped(generator: Make) -> None:
    index = Index(PASSAGES)

    async def revoke(count: int) -> None:
        if count == 2:
            index.hidden.add("leak")

    index.on_retrieve = revoke
    run = index.run(QUESTION, generator(ScriptedModel.of(follow("Heron security"), Says("STOP"))))
    assert "life" not in names(await iterative(run))


# ---------------------------------------------------------------- the expander


async def test_the_expander_counts_and_none_has_no_steps(generator: Make) -> None:
    metrics, index = Metrics(), Index(PASSAGES)
    expander = Expander(ExpansionSettings(), None, metrics)
    plain = await expander.expand("none", "canteen", index.ground())
    assert names(plain.outcome) == ["noise"] and plain.steps == ()
    whole = await expander.expand("decompose", "When does the canteen open, and who signs?", index.ground())
    assert next(s.new for s in whole.steps) == whole.steps[0].admitted
    await expander.expand("multi_query", "canteen", index.ground())
    assert metrics.value("headwater_expansions_total", kind="decompose", outcome="whole") == 1
    assert metrics.value("headwater_expansions_total", kind="multi_query", outcome="less") == 1


@pytest.mark.parametrize("kind", ["decompose", "multi_query", "hyde", "iterative"])
async def test_a_false_premise_brings_no_invented_hit(kind: Any, generator: Make) -> None:
    """Whatever is thought of, only passages of the index are found."""
    model = ScriptedModel.of(otherwise=Says('["the emperor of the moon canteen", "moon base"]'))
    index = Index(PASSAGES)
    expander = Expander(ExpansionSettings(), generator(model), Metrics())
    found = await expander.expand(kind, "Who is the emperor of the moon, and when does he dine?", index.ground())
    assert set(names(found.outcome)) <= set(PASSAGES)
    assert all(r.candidate.distance is None or r.candidate.distance == 0.5 for r in found.outcome.ranked)
