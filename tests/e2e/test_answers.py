"""Answers of the whole product: a generator over HTTP, real sources, permissions that go while it writes."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from uuid import uuid4

import httpx
import pytest

from infra.endpoints import Endpoints
from tests.fakes.llm import Says, ScriptedModel, Waits
from tests.product import Product, until

HERON = "The heron statue in the lobby is cleaned every second Monday."
PELICAN = "The pelican script rolls a release back within four minutes."


@pytest.fixture(scope="module")
def model() -> ScriptedModel:
    return ScriptedModel(otherwise=Says("The moon is made of cheese.[^1]"))


@pytest.fixture(scope="module")
def answering(
    model: ScriptedModel, services: Endpoints, cache_dir: Path, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Product]:
    with model.served() as url:
        extra = {"generator": {"url": url, "model": "scripted", "attempts": 1, "timeout_s": 40.0}}
        base = tmp_path_factory.mktemp("answers")
        made = Product(services, f"a{uuid4().hex[:10]}", base, cache_dir, extra)
        made.groups(["ann", "bob"], eng=["ann"])
        made.access("", "everyone")
        made.access("eng", "group:eng")
        made.write("index.md", f"# Start\n\n## The statue\n\n{HERON}\n")
        made.write("eng/deploy.md", f"# Deploying\n\n## Rollback\n\n{PELICAN}\n")
        try:
            made.up()
            until(lambda: len(made.found("ann", "heron statue pelican script")) == 2, 60)
            yield made
        finally:
            made.down()


def ask(product: Product, user: str, question: str, **body: Any) -> dict[str, Any]:
    headers = {"Authorization": f"Bearer {product.token(user)}"}
    reply = httpx.post(f"{product.query}/v1/answer", json={"question": question, **body}, headers=headers, timeout=60)
    assert reply.status_code == 200, reply.text
    return dict(reply.json())


@pytest.mark.requirement("B8", "B7", "C5")
def test_a_generated_answer_cites_what_it_rests_on(answering: Product, model: ScriptedModel) -> None:
    model.replies.append(Says(f"{HERON}[^1] It is made of gold.[^1]"))
    found = ask(answering, "bob", "How often is the heron statue cleaned?")
    assert [s["text"] for s in found["sentences"]] == [HERON] and found["withheld"] == 1
    assert found["citations"][0]["document_id"] == "index.md" and found["citations"][0]["quote"] == HERON
    assert found["complete_until"]["wiki"] and found["citations"][0]["age_s"] >= 0
    prompt = model.prompts[-1]
    assert HERON in prompt and "pelican" not in prompt, "the prompt holds what its reader may read"
    assert model.requests[-1]["temperature"] == 0


@pytest.mark.requirement("A8", "B9", "I4")
def test_what_is_revoked_while_a_sentence_is_written_does_not_leave(answering: Product, model: ScriptedModel) -> None:
    gate = threading.Event()
    model.replies.append(Waits(f"{PELICAN}[^1][^2] {HERON}[^1][^2]", f"{PELICAN[:-1]}, they say.[^1][^2] Done.", gate))
    headers = {"Authorization": f"Bearer {answering.token('ann')}"}
    body = {"question": "What does the pelican script do and when is the heron statue cleaned?", "stream": True}
    events: list[tuple[str, dict[str, Any]]] = []
    with httpx.stream("POST", f"{answering.query}/v1/answer", json=body, headers=headers, timeout=60) as reply:
        name = ""
        for line in reply.iter_lines():
            if line.startswith("event: "):
                name = line[7:]
            elif line.startswith("data: "):
                events.append((name, json.loads(line[6:])))
                if name == "sentence" and not gate.is_set() and events[-1][1]["sentence"]["text"] == PELICAN:
                    answering.groups(["ann", "bob"], eng=["bob"])  # ann has left the group
                    until(lambda: not answering.found("ann", "pelican script", mode="sparse"), 30, "revoked")
                    gate.set()
    whole = events[-1][1]
    assert events[-1][0] == "done" and [s["text"] for s in whole["sentences"]] == [HERON]
    assert "pelican" not in json.dumps(whole).lower(), "what was sent before is taken back by the whole answer"
    again = ask(answering, "ann", "What does the pelican script do and when is the heron statue cleaned?")
    assert "pelican" not in json.dumps(again).lower()


@pytest.mark.requirement("B10", "A8", "F01")
def test_a_deleted_page_is_not_answered_from_again(answering: Product, model: ScriptedModel) -> None:
    sentence = "The osprey printer stands on floor nine."
    answering.write("osprey.md", f"# Printer\n\n{sentence}\n")
    until(lambda: answering.found("bob", "osprey printer", mode="sparse"), 30)
    question = "On which floor does the osprey printer stand?"
    assert sentence in ask(answering, "bob", question, style="extractive")["text"]

    def kept() -> bool:  # a receipt that came late makes the first one too old to be kept
        found = ask(answering, "bob", question, style="extractive")
        assert sentence in found["text"]
        return bool(found["cached"] == "exact")

    until(kept, 20, "it is given from what is kept")
    (answering.folder / "osprey.md").unlink()
    until(lambda: not answering.found("bob", "osprey printer", mode="sparse"), 30)
    assert "floor nine" not in json.dumps(ask(answering, "bob", question, style="extractive"))


@pytest.mark.requirement("E1", "B8")
def test_a_write_can_be_waited_for(answering: Product) -> None:
    name = f"ibis-{uuid4().hex[:6]}"
    person = {"type": "membership", "tenant": "acme", "principal": "user:bob", "parents": ["group:gate"]}
    assert answering.change(person, wait="applied").status_code == 200
    document = {
        "type": "upsert", "tenant": "acme", "id": name, "title": "Ibis", "content_type": "text/markdown",
        "text": "The ibis gate opens at seven in the morning.", "access": {"allow": ["group:gate"]},
    }  # fmt: skip
    reply = answering.change(document)
    assert reply.status_code in (200, 202), reply.text
    token = reply.json()["token"]
    found = ask(answering, "bob", "When does the ibis gate open?", after=token, wait_ms=20_000, style="extractive")
    assert found["fresh"] is True and "seven in the morning" in found["text"]
