"""Answers as a service would give them, for tests of what stands around it: its faces and its cancelling."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any

from query_service.answer.face import Event
from query_service.scope import Scope
from schemas.api_answer import AnswerRequest, AnswerResponse, SentenceEvent, StepEvent

NOW = 1_800_000_000_000_000
ID = "0f6f2f0e-6f8e-4f1c-9a53-1d2c3b4a5f60"
UID = "5b0a54c1-8f5d-5a53-9d0e-3a1b7f0c2d4e"


def citation(number: int = 1, **changes: Any) -> dict[str, Any]:
    return {
        "number": number, "document_uid": UID, "document_id": f"sales/{number}.md", "source": "wiki",
        "title": f"Refunds {number}", "url": f"https://wiki.example/sales/{number}", "section_id": "s",
        "chunk_ids": [f"c{number}"], "heading_path": ["Refunds", "Time"], "quote": "within five working days",
        "version": 1, "updated_at": NOW, "age_s": 7200.0, **changes,
    }  # fmt: skip


def answer(**changes: Any) -> AnswerResponse:
    """Two sentences, the second of which rests on both sources."""
    return AnswerResponse.model_validate(
        {
            "query_id": ID, "answered": True, "kind": "extractive",
            "text": "Refunds take five days.[^1] Größere – 🧾 – take ten.[^1][^2]",
            "sentences": [
                {"text": "Refunds take five days.", "citations": [1], "support": 0.99},
                {"text": "Größere – 🧾 – take ten.", "citations": [1, 2], "support": 0.8},
            ],
            "citations": [citation(1), citation(2)], "support": 0.8, "supplied": 3, "complete_until": {"wiki": NOW},
            "judged_at": NOW, "usage": {"prompt_tokens": 30, "completion_tokens": 12}, **changes,
        }
    )  # fmt: skip


def refused(reason: str = "weak_evidence", **changes: Any) -> AnswerResponse:
    given: dict[str, Any] = {
        "query_id": ID, "answered": False, "kind": "refusal", "text": "There is not enough to answer this.",
        "refusal": {"reason": reason, "detail": "Name the product, or search for its exact name."},
        "judged_at": NOW, "complete_until": {"wiki": NOW}, **changes,
    }  # fmt: skip
    return AnswerResponse.model_validate(given)


def events_of(found: AnswerResponse) -> list[Event]:
    """What a stream of this answer sends."""
    events: list[Event] = [StepEvent(step="searching"), StepEvent(step="reading", passages=found.supplied)]
    known: set[int] = set()
    for index, sentence in enumerate(found.sentences):
        new = tuple(c for c in found.citations if c.number in set(sentence.citations) - known)
        known |= {c.number for c in new}
        events.append(SentenceEvent(index=index, sentence=sentence, citations=new))
    return [*events, found]


class Scripted:
    """Gives events, raises errors and waits as it is told; notes who asked what, and whether its work was ended."""

    def __init__(self, *script: Event | Exception | float | asyncio.Event) -> None:
        self.script = script
        self.asked: list[tuple[Scope, AnswerRequest]] = []
        self.ended = asyncio.Event()
        self.finished = False

    async def answer(self, scope: Scope, request: AnswerRequest) -> AnswerResponse:
        """The last event of the script."""
        last: AnswerResponse | None = None
        async for event in self.stream(scope, request):
            last = event if isinstance(event, AnswerResponse) else last
        assert last is not None
        return last

    async def stream(self, scope: Scope, request: AnswerRequest) -> AsyncIterator[Event]:
        """The script."""
        self.asked.append((scope, request))
        try:
            for step in self.script:
                if isinstance(step, Exception):
                    raise step
                if isinstance(step, asyncio.Event):
                    await step.wait()
                elif isinstance(step, float):
                    await asyncio.sleep(step)
                else:
                    yield step
            self.finished = True
        finally:
            self.ended.set()
