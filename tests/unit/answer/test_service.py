"""The whole way of an answer over a small world: a scripted model writes, the real checks decide what leaves."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import httpx
import pytest

from pipeline.settings_query import AnswerSettings, GeneratorSettings, InferenceSettings, LimitSettings
from query_service.app import Dependencies, create_app
from query_service.generate.openai_server import OpenAiGenerator
from query_service.querylog.entry import Entry
from schemas.api_answer import AnswerResponse
from schemas.documents import AccessRecord
from tests.fakes.llm import Answering, Hangs, Reply, Says, ScriptedModel, Status
from tests.unit.query.test_every_await import GROUP, Interrupted
from tests.unit.query.world import World, anyone, ref

pytestmark = pytest.mark.anyio
MEANS = "E17 means transfer status is pending. Do not resubmit until the status check completes."
CHECKS = "Transfer status checks normally finish within ten minutes."
RETRY = "After a network timeout, retry the read-only status lookup."
QUESTION = "Can I retry a transfer with E17 immediately?"
REFUSED = "The available documentation does not contain sufficient information to answer this question."


@pytest.fixture
def world(tmp_path: Path) -> World:
    made = World(tmp_path)
    made.principal("user:ann", GROUP)
    made.principal("user:bob")
    made.principal(GROUP)
    made.document("d1", MEANS, title="E17")
    made.document("d2", CHECKS, title="Status checks")
    made.document("d3", RETRY, title="Timeouts")
    return made


def numbered(body: dict[str, Any], *lines: tuple[str, str]) -> str:
    """What a model writes that cites the sources whose text holds certain words: pairs of a sentence and such words."""
    prompt = "\n".join(m["content"] for m in body["messages"])
    written = []
    for sentence, words in lines:
        at = prompt.index(words)
        number = prompt.rindex("[^", 0, at) if "[^" in prompt[:at] else -1
        cited = prompt[number + 2 : prompt.index("]", number)] if number >= 0 else ""
        written.append(f"{sentence}[^{cited}]" if cited.isdigit() else sentence)
    return " ".join(written)


class Asking:
    """A running service with a scripted model."""

    def __init__(self, world: World, model: ScriptedModel, client: httpx.AsyncClient, parts: Any) -> None:
        self.world, self.model, self.client, self.parts = world, model, client, parts

    async def post(self, question: str = QUESTION, sub: str = "ann", **body: Any) -> httpx.Response:
        headers = {"Authorization": f"Bearer {self.world.token(sub)}"}
        return await self.client.post("/v1/answer", json={"question": question, **body}, headers=headers)

    async def ask(self, question: str = QUESTION, sub: str = "ann", **body: Any) -> dict[str, Any]:
        reply = await self.post(question, sub, **body)
        assert reply.status_code == 200, reply.text
        return dict(reply.json())

    async def events(self, question: str = QUESTION, **body: Any) -> AsyncIterator[tuple[str, dict[str, Any]]]:
        headers = {"Authorization": f"Bearer {self.world.token()}", "Accept": "text/event-stream"}
        async with self.client.stream(
            "POST", "/v1/answer", json={"question": question, **body}, headers=headers
        ) as reply:
            assert reply.status_code == 200 and reply.headers["content-type"].startswith("text/event-stream")
            name = ""
            async for line in reply.aiter_lines():
                if line.startswith("event: "):
                    name = line[7:]
                elif line.startswith("data: "):
                    yield name, json.loads(line[6:])


@asynccontextmanager
async def asking(
    world: World, *replies: Reply, otherwise: Reply | Answering | None = None, limits: LimitSettings | None = None,
    answer: AnswerSettings | None = None, **generator: Any,
) -> AsyncIterator[Asking]:  # fmt: skip
    model = ScriptedModel(list(replies))
    if otherwise is not None:
        model.otherwise = otherwise
    settings = GeneratorSettings(url="http://llm.test/v1", model="scripted", attempts=1, **generator)
    made = OpenAiGenerator(settings, InferenceSettings(), world.metrics, http_client=model.client())
    deps: Dependencies = replace(world.dependencies(), generator=made)
    update: dict[str, Any] = {"generator": settings, "cache": deps.settings.cache.model_copy(update={"answers": 0})}
    if limits is not None:
        update["limits"] = limits
    if answer is not None:
        update["answer"] = answer
    deps.settings = deps.settings.model_copy(update=update)
    app = create_app(deps)
    world.progress()
    async with app.router.lifespan_context(app):
        transport = httpx.ASGITransport(app=app, raise_app_exceptions=False)
        async with httpx.AsyncClient(transport=transport, base_url="http://query.test") as client:
            run = Asking(world, model, client, app.state.parts)
            import asyncio

            while run.parts.state.reasons():
                await asyncio.sleep(0.01)
            yield run


# ---------------------------------------------------------------- what leaves


@pytest.mark.requirement("B8", "B7")
async def test_case_e17(world: World) -> None:
    def model(body: dict[str, Any]) -> Reply:
        return Says(
            numbered(
                body,
                ("Do not resubmit until the status check completes.", MEANS),
                ("Checks normally finish within ten minutes.", CHECKS),
                ("The transfer will finish in ten minutes.", CHECKS),
                ("Retry the transfer.", RETRY),
            )
        )

    async with asking(world, otherwise=model) as run:
        found = await run.ask(explain=True)
    assert [s["text"] for s in found["sentences"]] == [
        "Do not resubmit until the status check completes.",
        "Checks normally finish within ten minutes.",
    ]
    cited = {c["number"]: c["document_id"] for c in found["citations"]}
    assert [[cited[n] for n in s["citations"]] for s in found["sentences"]] == [["d1"], ["d2"]]
    assert {s["text"] for s in found["withheld_sentences"]} == {
        "The transfer will finish in ten minutes.", "Retry the transfer.",
    }  # fmt: skip
    assert found["text"].count("[^") == 2 and found["kind"] == "generated" and found["withheld"] == 2
    assert found["model"] == "scripted" and found["usage"]["completion_tokens"] > 0


@pytest.mark.requirement("B8")
async def test_citations_are_put_right_and_invented_ones_do_not_leave(world: World) -> None:
    says = Says(f"{CHECKS}[^7] {MEANS.split('. ')[1]}[^99] Lisbon is the capital of Portugal.[^1]")
    async with asking(world, says) as run:
        found = await run.ask()
    cited = {c["number"]: c["document_id"] for c in found["citations"]}
    assert [[cited[n] for n in s["citations"]] for s in found["sentences"]] == [["d2"], ["d1"]]
    assert "Lisbon" not in json.dumps(found)
    assert all(c["quote"] in MEANS + CHECKS for c in found["citations"])


@pytest.mark.requirement("B8")
async def test_refusals_tell_their_reason(world: World) -> None:
    async with asking(world, Says(REFUSED), Says("The moon is made of cheese.[^1]")) as run:
        declined = await run.ask()
        invented = await run.ask(style="generated")
        nothing = await run.ask("xylophone quartets", mode="sparse")
        stale = await run.ask(max_staleness_s=1)
    assert [r["refusal"]["reason"] for r in (declined, invented, nothing, stale)] == [
        "weak_evidence", "unsupported", "nothing_found", "stale",
    ]  # fmt: skip
    for reply in (declined, invented, nothing, stale):
        assert reply["text"] == REFUSED and not reply["answered"] and reply["sentences"] == reply["citations"] == []
    assert len(run.model.requests) == 2, "what is refused before costs nothing"


@pytest.mark.requirement("B8", "B9")
async def test_a_hidden_document_and_none_are_refused_alike(world: World) -> None:
    asked = "What is the zebra code of the harbour?"
    async with asking(world, otherwise=Says("The zebra code is 4711.[^1]")) as run:
        before = await run.ask(asked, "bob")
        world.document("hidden", "The zebra code of the harbour is 4711.", rule=anyone(GROUP))
        after = await run.ask(asked, "bob")
        told = await run.ask(asked, "ann")
    assert told["answered"] and "4711" in told["text"]
    left_out = ("query_id", "judged_at", "timings_ms")
    assert {k: v for k, v in before.items() if k not in left_out} == {
        k: v for k, v in after.items() if k not in left_out
    }


@pytest.mark.requirement("B8")
async def test_policies_for_what_is_not_supported(world: World) -> None:
    says = Says(f"{CHECKS} The moon is made of cheese.")
    async with asking(world, otherwise=says) as run:
        withheld = await run.ask()
        refused = await run.ask(unsupported="refuse")
        names = [name async for name, _ in run.events(unsupported="refuse")]
    assert [s["text"] for s in withheld["sentences"]] == [CHECKS] and withheld["withheld"] == 1
    assert refused["refusal"]["reason"] == "unsupported"
    assert "sentence" not in names and names[-1] == "done"


@pytest.mark.requirement("B8")
@pytest.mark.parametrize("style", ["extractive", "generated"])
async def test_sources_that_contradict_each_other_are_both_told(tmp_path: Path, style: str) -> None:
    world = World(tmp_path)
    world.principal("user:ann")
    one, other = "The customs form must be filed within 14 days.", "The customs form must be filed within 30 days."
    world.document("d1", one, title="Customs")
    world.document("d2", other, title="Customs forms")
    async with asking(world, otherwise=Says(f"{one}[^1][^2]")) as run:
        found = await run.ask("Within how many days must the customs form be filed?", style=style)
    assert found["needs_review"] and found["answered"] and found["withheld"] == 0
    assert {s["text"] for s in found["sentences"]} == {one, other}
    assert found["text"].startswith("Sources disagree:")
    sides = found["contradictions"][0]["sides"]
    cited = {c["number"]: c["document_id"] for c in found["citations"]}
    assert {(cited[s["citation"]], s["text"]) for s in sides} == {("d1", one), ("d2", other)}


# ---------------------------------------------------------------- streams


@pytest.mark.requirement("B8", "B9")
async def test_a_stream_releases_checked_sentences_and_ends_with_the_whole(world: World) -> None:
    says = Says(f"{CHECKS}[^1] The moon is made of cheese.[^2] {MEANS}[^1]")
    async with asking(world, says) as run:
        events = [(name, data) async for name, data in run.events()]
    sentences = [data["sentence"]["text"] for name, data in events if name == "sentence"]
    assert sentences == [CHECKS, *(f"{s.rstrip('.')}." for s in MEANS.split(". "))]
    whole = events[-1][1]
    assert events[-1][0] == "done" and [s["text"] for s in whole["sentences"]] == sentences
    assert {name for name, _ in events} == {"step", "sentence", "done"}


@pytest.mark.requirement("B8")
async def test_what_is_wrong_with_a_request_is_told_by_a_status_also_of_a_stream(world: World) -> None:
    async with asking(world) as run:
        headers = {"Authorization": f"Bearer {world.token()}"}
        body = {"question": "x", "stream": True, "token_budget": 999_999}
        reply = await run.client.post("/v1/answer", json=body, headers=headers)
        assert reply.status_code == 422 and reply.json()["errors"][0]["field"] == "token_budget"
        assert (await run.client.post("/v1/answer", json={"question": "x"})).status_code == 401
        blank = await run.post("  ")
        assert blank.status_code == 422


# ---------------------------------------------------------------- generators that fail


@pytest.mark.requirement("B8", "B12")
async def test_without_a_generator_sentences_of_the_sources_stand_in(world: World) -> None:
    async with asking(world, Status(500), Status(500)) as run:
        found = await run.ask()
        demanded = await run.post(style="generated")
    assert found["kind"] == "extractive" and found["fallback"] == "the generator failed" and found["answered"]
    assert all(s["text"] in f"{MEANS} {CHECKS} {RETRY}" for s in found["sentences"])
    assert demanded.status_code == 503 and "generator" in demanded.json()["detail"]


@pytest.mark.requirement("B8")
async def test_a_broken_stream_leaves_what_was_checked(world: World) -> None:
    says = Says(
        f"{CHECKS}[^1] {MEANS}[^1] And so it goes on for a long while without saying anything.", stream_breaks=True
    )
    async with asking(world, says) as run:
        found = await run.ask()
    assert (
        found["sentences"][0]["text"] == CHECKS and found["incomplete"] and found["fallback"] == "the generator failed"
    )


@pytest.mark.requirement("B8")
async def test_half_a_sentence_is_not_released(world: World) -> None:
    async with asking(world, Says(f"{CHECKS}[^1] E17 means transfer status is", finish="length")) as run:
        found = await run.ask()
    assert [s["text"] for s in found["sentences"]] == [CHECKS] and found["incomplete"]


@pytest.mark.requirement("B8")
async def test_a_model_that_hangs_ends_with_the_time_of_a_call(world: World) -> None:
    async with asking(world, otherwise=Hangs(), timeout_s=0.3) as run:
        found = await run.ask()
    assert found["kind"] == "extractive" and found["fallback"] == "the generator failed"


@pytest.mark.requirement("B7")
async def test_a_budget_that_is_used_up(world: World) -> None:
    limits = LimitSettings(request_tokens=10)
    async with asking(world, otherwise=Says(CHECKS), limits=limits) as run:
        found = await run.ask()
        demanded = await run.post(style="generated")
    assert found["kind"] == "extractive" and found["fallback"] == "the budget is used up"
    assert demanded.status_code == 429 and run.model.requests == []


@pytest.mark.requirement("B8")
@pytest.mark.parametrize("wrote", ["The moon is made of cheese.[^1] Whales sing in B flat.", "The moon is"])
async def test_sentences_of_the_sources_stand_in_where_nothing_that_was_written_is_left(
    world: World, wrote: str
) -> None:
    async with asking(world, otherwise=Says(wrote, finish="stop" if wrote.endswith(".") else "length")) as run:
        found = await run.ask(explain=True)
        streamed = [event async for event in run.events()]
    noted = Entry("answer", _scope(), 0)
    noted.replied(AnswerResponse.model_validate(found))
    told = "nothing that the generator wrote is said by the sources"
    assert found["answered"] and found["kind"] == "extractive" and found["fallback"] == told
    assert found["model"] is None and not found["incomplete"]
    assert found["sentences"] and all(s["text"] in f"{MEANS} {CHECKS} {RETRY}" for s in found["sentences"])
    assert "cheese" not in found["text"]
    assert [w["text"] for w in found["withheld_sentences"]] == (
        ["The moon is made of cheese.", "Whales sing in B flat."] if "cheese" in wrote else []
    )
    sent = [data["sentence"]["text"] for name, data in streamed if name == "sentence"]
    assert streamed[-1][0] == "done" and streamed[-1][1]["fallback"] == told
    assert sent == [s["text"] for s in streamed[-1][1]["sentences"]]
    assert noted.fallback == told


@pytest.mark.requirement("B8")
async def test_nothing_stands_in_for_what_was_demanded_refused_or_said(world: World) -> None:
    lie, half = "The moon is made of cheese.[^1]", f"{CHECKS}[^1] The moon is made of cheese.[^1]"
    async with asking(world, Says(lie), Says(lie), Says(REFUSED), Says(half)) as run:
        demanded = await run.ask(style="generated")
        strict = await run.ask(unsupported="refuse")
        declined = await run.ask()
        partly = await run.ask()
    assert [r["refusal"]["reason"] for r in (demanded, strict, declined)] == [
        "unsupported", "unsupported", "weak_evidence",
    ]  # fmt: skip
    assert [s["text"] for s in partly["sentences"]] == [CHECKS] and partly["kind"] == "generated"
    assert all(r["fallback"] is None for r in (demanded, strict, declined, partly))


@pytest.mark.requirement("B8")
async def test_the_refusal_of_a_model_that_refuses_too_much_is_not_heeded_where_so_configured(world: World) -> None:
    async with asking(world, otherwise=Says(REFUSED), answer=AnswerSettings(heed_refusals=False)) as run:
        found = await run.ask()
        demanded = await run.ask(style="generated")
        nothing = await run.ask("xylophone quartets", mode="sparse")
    assert found["kind"] == "extractive" and found["fallback"] == "the generator found no answer in the sources"
    assert found["sentences"] and REFUSED not in found["text"]
    assert [r["refusal"]["reason"] for r in (demanded, nothing)] == ["weak_evidence", "nothing_found"]


# ---------------------------------------------------------------- permissions on the way


@pytest.mark.requirement("B9", "A8", "I3", "I4")
@pytest.mark.parametrize("how", ["rule", "membership"])
@pytest.mark.parametrize("style", ["extractive", "generated"])
async def test_nothing_revoked_until_the_last_check_is_in_the_answer(tmp_path: Path, how: str, style: str) -> None:
    world = World(tmp_path)
    world.principal("user:ann", GROUP)
    world.principal(GROUP)
    world.document(
        "hidden", "The zebra plan of the harbour begins with the eastern crane.", rule=anyone(GROUP), title="zebra"
    )
    world.document("open", "The harbour plan needs the permit of the northern lock.")
    words = (
        "The zebra plan of the harbour begins with the eastern crane.[^1][^2] "
        "The harbour plan needs the permit of the northern lock."
    )
    withheld = 0
    async with asking(world, otherwise=Says(words)) as run:
        cut = Interrupted(run, how)  # type: ignore[arg-type]
        cut.begin(-1)
        assert "zebra" in (await run.post("With what does the zebra plan of the harbour begin?", style=style)).text
        for at in range(100):
            cut.begin(at)
            reply = await run.post("With what does the zebra plan of the harbour begin?", style=style)
            assert reply.status_code == 200, reply.text
            if cut.revoked_at is None:
                break
            if reply.json()["judged_at"] > cut.revoked_at:
                withheld += 1
                assert "zebra" not in reply.text.lower() and ref("hidden").uid not in reply.text, at
        else:
            raise AssertionError("more reads than expected")
    assert withheld > 4


@pytest.mark.requirement("B8", "B9")
async def test_a_version_that_was_replaced_while_the_model_wrote_is_not_cited(world: World) -> None:
    async with asking(world, Says(f"{CHECKS}[^1]")) as run:
        real = run.parts.reader.access

        async def access(*given: Any, **named: Any) -> dict[str, AccessRecord]:
            if run.model.requests:  # the model has written
                world.document("d2", "Transfer status checks normally finish within two hours.", title="Status checks")
            return dict(await real(*given, **named))

        run.parts.reader.access = access
        found = await run.ask()
    assert not found["answered"] and "ten minutes" not in json.dumps(found)


# ---------------------------------------------------------------- conversations, scope, log


@pytest.mark.requirement("B7")
async def test_what_was_said_before_is_searched_with_and_is_no_evidence(world: World) -> None:
    history = [
        {"role": "user", "content": "What does E17 mean?"},
        {"role": "assistant", "content": "E17 means the zebra was lost in transit."},
    ]
    replies = (Says("Can I retry a transfer with E17?"), Says(f"E17 means the zebra was lost in transit. {MEANS}[^1]"))
    async with asking(world, *replies) as run:
        found = await run.ask("and can I retry it?", history=history)
    assert "zebra" not in json.dumps(found) and found["answered"]
    assert len(run.model.requests) == 2 and found["usage"]["prompt_tokens"] > 0


@pytest.mark.requirement("B14")
async def test_everything_that_may_be_read_is_supplied_where_it_fits(world: World) -> None:
    async with asking(world, otherwise=Says(f"{RETRY}[^1]")) as run:
        found = await run.ask(evidence="all", context=1)
    assert found["supplied"] == 3 and found["complete_evidence"] and found["answered"]


@pytest.mark.requirement("C5", "B8")
async def test_the_log_has_the_answer_without_its_words(world: World, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level("INFO"):
        async with asking(world, otherwise=Says(f"{CHECKS}[^1] Cheese is a moon."), prompt_price=2.0) as run:
            await run.ask()
            entry = next(r for r in caplog.records if r.getMessage() == "query")
    logged = json.dumps(entry.__dict__, default=str)
    assert '"kind": "answer"' in logged and "minutes" not in logged and "Cheese" not in logged


@pytest.mark.requirement("C5")
async def test_feedback_may_be_given_to_an_answer(world: World) -> None:
    async with asking(world, otherwise=Says(f"{CHECKS}[^1]")) as run:
        found = await run.ask()
        shown = await run.parts.querylog.shown("acme", run.parts.querylog.references.scope(_scope()), found["query_id"])
    assert shown is not None and found["citations"][0]["document_uid"] in shown.targets


def _scope() -> Any:
    from query_service.scope import Scope

    return Scope(tenant="acme", subject="ann")


@pytest.mark.requirement("B12")
async def test_a_generated_answer_without_a_generator_is_a_fault_of_the_request(world: World) -> None:
    async with world.running() as run:
        reply = await run.client.post(
            "/v1/answer", json={"question": QUESTION, "style": "generated"}, headers=run.headers()
        )
    assert reply.status_code == 422 and reply.json()["errors"][0]["field"] == "style"
