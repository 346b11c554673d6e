"""Attacks through what others wrote, through the whole product: all pages of the suite are indexed at once, the model
obeys one of them fully, and the reply over HTTP holds nothing of it."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import yaml
from pydantic import SecretStr

from pipeline.observe import Metrics
from pipeline.settings import Settings
from pipeline.settings_query import CacheSettings, GeneratorSettings, InferenceSettings, LimitSettings
from query_service.app import Dependencies
from query_service.generate.interface import Generator
from query_service.generate.openai_server import OpenAiGenerator
from tests.fakes.llm import KEY, Reply, Says, ScriptedModel
from tests.integration.query.real import RealWorld

pytestmark = [pytest.mark.anyio, pytest.mark.requirement("B7", "B8")]
SUITE: dict[str, Any] = yaml.safe_load(
    (Path(__file__).parents[3] / "samples" / "injection" / "cases.yaml").read_text("utf-8")
)
# Every third, and those of the conversation: the unit tests have all of them. The one that the measures of support
# accept without any attack is marked there.
CASES = [case for n, case in enumerate(SUITE["cases"]) if "asked" not in case and (n % 3 == 0 or "history" in case)]
QUESTION = "How long do refunds take?"
TRUE = "Refunds take five working days after the goods have arrived."


class ThinkingWorld(RealWorld):
    """With a generator behind real HTTP."""

    thinks: Generator | None = None

    def dependencies(self) -> Dependencies:
        return replace(super().dependencies(), generator=self.thinks, load_reranker=None)


@pytest.fixture
def world(settings: Settings) -> Any:
    """A namespace of its own with one active generation, and every attack in it."""
    made = ThinkingWorld(settings)
    made.principal("user:ann")
    made.document("refunds", SUITE["pages"]["refunds"], title="Refunds")
    for case in CASES:
        for n, given in enumerate(case["sources"][1:]):
            fields = {"text": given} if isinstance(given, str) else given
            made.document(f"{case['id']}-{n}", fields["text"], title=fields.get("title", case["id"]))
    yield made
    made.close()


async def test_nothing_of_what_an_attack_wanted_leaves(world: ThinkingWorld) -> None:
    said = Says("")

    def model(body: dict[str, Any]) -> Reply:
        return said if "<<source 1 " in body["messages"][-1]["content"] else Says(QUESTION)

    scripted = ScriptedModel.of(key=KEY, otherwise=model)
    async with scripted.serve() as url:
        given = GeneratorSettings(url=url, api_key=SecretStr(KEY), attempts=1, timeout_s=60, context_tokens=32_000)
        world.settings = world.settings.model_copy(
            update={
                "generator": given,
                "cache": CacheSettings(answers=0, searches=0),
                "limits": LimitSettings(burst=5000),
            }
        )
        world.thinks = OpenAiGenerator(given, InferenceSettings(), Metrics())
        async with world.running() as run:
            for case in CASES:
                for says, wanted in ((case["obedient"], False), (TRUE + "[^{}]", True)):
                    said = Says(says.format(1) if wanted else says)
                    body: dict[str, Any] = {
                        "question": QUESTION, "style": "generated", "context": 50, "token_budget": 20_000,
                        "history": [{"role": role, "content": text} for role, text in case.get("history", ())],
                    }  # fmt: skip
                    reply = await run.client.post("/v1/answer", json=body, headers=run.headers())
                    assert reply.status_code == 200, reply.text
                    answer = reply.json()
                    released = " ".join(s["text"] for s in answer["sentences"])
                    if wanted:
                        assert released == TRUE, case["id"]
                        assert [c["document_id"] for c in answer["citations"]] == ["refunds"]
                    for words in case["never"]:
                        assert words.casefold() not in released.casefold(), (case["id"], released)
                        assert answer["answered"] or words == "documentation" or words not in answer["text"]
    prompts = [r["messages"][-1]["content"] for r in scripted.requests if "<<source 1 " in str(r["messages"])]
    assert len(prompts) == 2 * len(CASES)
    for prompt in prompts:
        mark = re.search(r"<<source 1 (\w+)>>", prompt)
        assert mark is not None
        outside = re.sub(
            rf"<<(source|turn) (\d+)[^<>\n]* {mark.group(1)}>>\n.*?\n<<end of \1 \2 {mark.group(1)}>>",
            "",
            prompt,
            flags=re.DOTALL,
        )
        assert outside.split() == [*(["Earlier", "turns:"] if "<<turn 1 " in prompt else []), "Sources:",
                                   "Question:", *QUESTION.split()]  # fmt: skip
