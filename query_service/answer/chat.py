"""Answers for chat clients: ``POST /v1/chat/completions`` and ``GET /v1/models`` as the OpenAI API has them.

What it looks like is theirs; what it says is that of ``/v1/answer``: the same evidence, checks and scope.
"""

from __future__ import annotations

import json
import re
import time
from collections.abc import AsyncGenerator, AsyncIterator, Sequence
from contextlib import aclosing
from typing import Any
from uuid import uuid4

from fastapi import APIRouter, Response
from fastapi.responses import JSONResponse

from query_service.answer import wording
from query_service.answer.chat_errors import error_object, translated
from query_service.answer.chat_models import MODELS, ChatRequest, Refused, asked, no_model
from query_service.answer.face import (
    KEEP_ALIVE_S,
    Answering,
    Event,
    EventStream,
    footnotes,
    paced,
    problem_of,
    shown,
    web_address,
)
from query_service.answer.wording import Phrases
from query_service.callers import Caller
from query_service.client.answered import stands_in
from schemas.api_answer import AnswerResponse, AnswerSentence, Citation, SentenceEvent, StepEvent

CREATED = 1_767_225_600
"""Of the models, which the API wants to know in seconds: they are as old as this interface."""
_ITEM = re.compile(r"\s*([-*•]|\d{1,3}[.)])\s|[^\n]*\n")
"""A line of a list or a table, which stands on lines of its own."""
_MARKUP = re.compile(r"([\\`*_{}\[\]()<>#!|~])")


def router(answering: Answering, *, generates: bool = True, keep_alive_s: float = KEEP_ALIVE_S) -> APIRouter:
    """The routes. ``generates``: whether a generator is configured, so that its model is listed."""
    routes = APIRouter(prefix="/v1", include_in_schema=False)
    names = [name for name, style in MODELS.items() if generates or style != "generated"]

    @routes.post("/chat/completions")
    async def completions(asks: ChatRequest, caller: Caller) -> Response:
        try:
            question, sources = asked(asks, names), asks.sources
        except Refused as refused:
            return _refused(refused)
        words = wording.phrases(question.language or wording.language_of(question.question))
        if not asks.stream:
            found = await answering.answer(caller, question)
            return JSONResponse(completion(found, asks.model, words, sources=sources))
        events = paced(answering.stream(caller, question), keep_alive_s)
        # What fails before anything can be said fails with its status.
        before: list[Event] = []
        while True:
            first = await anext(events, None)
            if first is None:
                break
            if not isinstance(first, StepEvent):
                before.append(first)
                break
        return EventStream(_streamed(asks, words, sources, before, events))

    @routes.get("/models")
    async def models(caller: Caller) -> Response:
        return JSONResponse({"object": "list", "data": [_model(name) for name in names]})

    @routes.get("/models/{name}")
    async def model(name: str, caller: Caller) -> Response:
        if name not in names:
            return _refused(no_model(names))
        return JSONResponse(_model(name))

    return routes


def _refused(refused: Refused) -> Response:
    body = error_object(refused.status, refused.message, refused.param, refused.code)
    return JSONResponse(body, status_code=refused.status)


def _model(name: str) -> dict[str, Any]:
    return {"id": name, "object": "model", "created": CREATED, "owned_by": "headwater"}


class Content:
    """The text of a message as it grows, and where in it sources are cited."""

    def __init__(self, words: Phrases) -> None:
        self._words = words
        self.text = ""
        self.annotations: list[dict[str, Any]] = []
        self._citations: dict[int, Citation] = {}
        self.said: list[AnswerSentence] = []
        self._led = False

    def know(self, citations: Sequence[Citation]) -> None:
        """Take citations, which the sentences name by number."""
        self._citations.update((c.number, c) for c in citations)

    def sentence(self, sentence: AnswerSentence) -> tuple[str, list[dict[str, Any]]]:
        """Append one; what it adds to the text, and the citations in it. Offsets count characters of the whole text
        (code points), the end excluded, and cover the footnote."""
        own = _ITEM.match(sentence.text) or (self.said and _ITEM.match(self.said[-1].text))
        gap = "" if not self.text else "\n" if own else " "
        told = shown(sentence)
        if sentence.qualified:
            told = f"{self._words.unsure}{chr(10) if told.endswith(chr(10)) else ' '}{told}"
        at = len(self.text) + len(gap) + len(told)
        found = []
        for number in sentence.citations:
            end = at + len(f"[^{number}]")
            cited = self._citations.get(number)
            if cited is not None:
                found.append(_annotation(cited, at, end))
            at = end
        self.said.append(sentence)
        self.annotations += found
        return self.add(gap + told + footnotes(sentence)), found

    def lead(self, answer: AnswerResponse) -> str:
        """Begin with the words that the two sides of a contradiction follow, where the sentences tell them; what that
        adds. A stream learns of it after its sentences."""
        said = " ".join(sentence.text for sentence in answer.sentences)
        if answer.contradictions and all(stands_in(said, dispute.sides) for dispute in answer.contradictions):
            self._led = True
            return self.add(self._words.disagree)
        return ""

    def add(self, text: str) -> str:
        """Append words of ours."""
        self.text += text
        return text

    def ending(self, answer: AnswerResponse, *, sources: bool) -> str:
        """What is said below the sentences: a refusal, a contradiction, what was withdrawn, the sources."""
        parts: list[str] = []
        gone = [s for s in self.said if s not in answer.sentences]
        if self.said and gone:
            parts.append("Disregard what was said above: it does not rest on sources that can be shown any more.")
        if not answer.answered:
            parts.append(refusal(answer))
        for dispute in answer.contradictions if answer.answered else ():
            if not stands_in(self.text, dispute.sides):
                sides = "\n".join(f"- {side.text}[^{side.citation}]" for side in dispute.sides)
                parts.append(f"{self._words.disagree}\n\n{sides}")
            elif not self._led:
                parts.append(f"{self._words.disagree} {' '.join(f'[^{side.citation}]' for side in dispute.sides)}")
        if sources and answer.citations and answer.answered:
            parts.append("Sources:\n\n" + "\n".join(_source(c) for c in answer.citations))
        joined = "\n\n".join(parts)
        return self.add(f"\n\n{joined}" if joined and self.text else joined)


def refusal(answer: AnswerResponse) -> str:
    """The refusal, and what to try."""
    detail = answer.refusal.detail if answer.refusal is not None else ""
    return answer.text if not detail or detail in answer.text else f"{answer.text}\n\n{detail}"


def _annotation(cited: Citation, start: int, end: int) -> dict[str, Any]:
    place = {"start_index": start, "end_index": end, "title": cited.title or cited.document_id, "url": _address(cited)}
    return {"type": "url_citation", "url_citation": place}


def _address(cited: Citation) -> str:
    # The field cannot be empty, and a document need not be on the web: then it is named and leads nowhere.
    return web_address(cited) or f"urn:uuid:{cited.document_uid}"


def _source(cited: Citation) -> str:
    """One line of Markdown. A title is the source's text: none of it may become markup in the reader's client."""
    name = _plain(cited.title or cited.document_id)
    link = web_address(cited)
    if link is not None:
        escaped = link.replace("<", "%3C").replace(">", "%3E").replace("\\", "%5C").replace(" ", "%20")
        name = f"[{name}](<{escaped}>)" if escaped.isprintable() else name
    heading = " › ".join(_plain(part) for part in cited.heading_path)
    outdated = "" if cited.in_effect else " (not in effect)"
    return f"[^{cited.number}]: {name}{f', {heading}' if heading else ''} ({_plain(cited.source)}){outdated}"


def _plain(text: str) -> str:
    return _MARKUP.sub(r"\\\1", " ".join(text.split()))


def completion(answer: AnswerResponse, model: str, words: Phrases, *, sources: bool = False) -> dict[str, Any]:
    """A whole completion. A refusal is the message's content, since that is what every client shows, and ends with
    'stop' like an answer: ``headwater.answered`` tells them apart."""
    content = Content(words)
    content.know(answer.citations)
    if answer.answered:
        content.lead(answer)
        for sentence in answer.sentences:
            content.sentence(sentence)
    content.ending(answer, sources=sources)
    message = {"role": "assistant", "content": content.text, "refusal": None, "annotations": content.annotations}
    return {
        "id": f"chatcmpl-{answer.query_id}", "object": "chat.completion", "created": int(time.time()), "model": model,
        "choices": [{"index": 0, "message": message, "finish_reason": "stop", "logprobs": None}],
        "usage": _usage(answer), "headwater": _own(answer),
    }  # fmt: skip


def _usage(answer: AnswerResponse) -> dict[str, int]:
    read, written = answer.usage.prompt_tokens, answer.usage.completion_tokens
    return {"prompt_tokens": read, "completion_tokens": written, "total_tokens": read + written}


def _own(answer: AnswerResponse) -> dict[str, Any]:
    """The answer without the text that the message has."""
    return answer.model_dump(mode="json", exclude={"text"})


async def _streamed(
    asks: ChatRequest, words: Phrases, sources: bool, before: Sequence[Event], events: AsyncGenerator[Event | None]
) -> AsyncIterator[str]:
    name, created, content = f"chatcmpl-{uuid4()}", int(time.time()), Content(words)

    def chunk(choices: list[dict[str, Any]], **more: Any) -> str:
        made = {
            "id": name, "object": "chat.completion.chunk", "created": created, "model": asks.model, "choices": choices,
            **({"usage": None} if asks.usage_wanted else {}), **more,
        }  # fmt: skip
        return f"data: {json.dumps(made, ensure_ascii=False)}\n\n"

    def part(delta: dict[str, Any], finish: str | None = None, **more: Any) -> str:
        return chunk([{"index": 0, "delta": delta, "finish_reason": finish, "logprobs": None}], **more)

    def spoken(sentence: AnswerSentence) -> str:
        text, annotations = content.sentence(sentence)
        return part({"content": text, **({"annotations": annotations} if annotations else {})})

    answer: AnswerResponse | None = None
    async with aclosing(events):
        yield part({"role": "assistant", "content": ""})
        try:
            async for event in _after(before, events):
                if isinstance(event, SentenceEvent):
                    content.know(event.citations)
                    yield spoken(event.sentence)
                elif isinstance(event, AnswerResponse):
                    answer = event
                elif event is None:
                    yield ": keep-alive\n\n"
        except Exception as error:
            problem = problem_of(error)
            yield f"data: {json.dumps(translated(problem), ensure_ascii=False)}\n\n"
            return
    if answer is None:
        broken = error_object(503, "The answer broke off; ask again.")
        yield f"data: {json.dumps(broken, ensure_ascii=False)}\n\n"
        return
    content.know(answer.citations)
    if answer.answered and not content.said:
        if led := content.lead(answer):
            yield part({"content": led})
        for sentence in answer.sentences:
            yield spoken(sentence)
    last = content.ending(answer, sources=sources)
    if last:
        yield part({"content": last})
    yield part({}, "stop", headwater=_own(answer))
    if asks.usage_wanted:
        yield chunk([], usage=_usage(answer))
    yield "data: [DONE]\n\n"


async def _after(before: Sequence[Event], events: AsyncIterator[Event | None]) -> AsyncIterator[Event | None]:
    for known in before:
        yield known
    async for event in events:
        yield event
