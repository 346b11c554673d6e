"""What chat clients send, and the question that is made of it. Fields that mean nothing here are passed over."""

from __future__ import annotations

import re
from collections.abc import Collection
from typing import Any

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from query_service.scope import FieldError
from schemas.api import MAX_QUERY
from schemas.api_answer import MAX_TURN, MAX_TURNS, AnswerRequest, Style, Turn
from schemas.wording import plainly

MODELS: dict[str, Style] = {
    "headwater": "auto",
    "headwater-extractive": "extractive",
    "headwater-generated": "generated",
}
OWN = frozenset({"question", "history", "stream"})
"""Fields of an AnswerRequest that the chat itself says."""
_FOOTNOTE = re.compile(r"\[\^\d{1,4}\](:[^\n]*)?")
_TEXTS = frozenset({"text", "input_text", "output_text", "refusal"})


class Refused(Exception):
    """A request that this face cannot do. ``status`` and the parts of OpenAI's error object."""

    def __init__(self, message: str, *, param: str | None, code: str, status: int = 400) -> None:
        super().__init__(message)
        self.message, self.param, self.code, self.status = message, param, code, status


class _Sent(BaseModel):
    model_config = ConfigDict(extra="ignore")


class ChatMessage(_Sent):
    """One message. Content is a text, or parts of which only texts can be read."""

    role: str = Field(max_length=64)
    content: str | list[dict[str, Any]] | None = None


class StreamOptions(_Sent):
    """Of a stream."""

    include_usage: bool = False


class ChatRequest(_Sent):
    """The fields of a chat completion that matter here."""

    model: str = Field(default="headwater", max_length=256)
    messages: list[ChatMessage] = Field(min_length=1)
    stream: bool | None = False
    stream_options: StreamOptions | None = None
    n: int | None = None
    max_tokens: int | None = Field(default=None, ge=1)
    max_completion_tokens: int | None = Field(default=None, ge=1)
    response_format: dict[str, Any] | None = None
    tool_choice: str | dict[str, Any] | None = None
    modalities: list[str] | None = None
    headwater: dict[str, Any] = Field(default_factory=dict)

    @property
    def sources(self) -> bool:
        """Whether the sources are listed below the text. Raises FieldError."""
        wanted = self.headwater.get("sources", False)
        if not isinstance(wanted, bool):
            raise FieldError("headwater.sources", "is true or false")
        return wanted

    @property
    def usage_wanted(self) -> bool:
        """Whether a stream ends with its usage."""
        return self.stream_options is not None and self.stream_options.include_usage


def asked(request: ChatRequest, models: Collection[str] = frozenset(MODELS)) -> AnswerRequest:
    """The question, with what was said before. ``models`` are those that can answer here. Raises Refused, FieldError.

    The last message of the user is the question. Texts of system and developer messages are not used at all: they can
    neither be evidence nor change how answers are made. Earlier turns lose their footnotes, whose numbers meant the
    sources of other answers; the latest MAX_TURNS are kept, each with its beginning.
    """
    _possible(request, models)
    places = [i for i, m in enumerate(request.messages) if m.role == "user"]
    if not places:
        raise Refused("Send a message with the role 'user': it is the question.", param="messages", code="no_question")
    last = places[-1]
    question = _text(request.messages[last], last).strip()
    if not question:
        raise Refused("The last message of the user is empty.", param=f"messages.{last}.content", code="no_question")
    if len(question) > MAX_QUERY:
        said = f"The question has {len(question)} characters; it may have {MAX_QUERY}."
        raise Refused(said, param=f"messages.{last}.content", code="string_above_max_length")
    given = {name: value for name, value in request.headwater.items() if name != "sources"}
    for name in sorted(OWN & set(given)):
        raise FieldError(f"headwater.{name}", "is said by the messages and by 'stream'; leave it out")
    tokens = request.max_completion_tokens or request.max_tokens
    if tokens is not None:
        given.setdefault("max_tokens", min(max(tokens, 16), 32_768))
    given.setdefault("style", MODELS[request.model])
    history = _history(request.messages[:last])
    try:
        return AnswerRequest.model_validate({"question": question, "history": history, **given})
    except ValidationError as error:
        first = error.errors(include_url=False, include_input=False, include_context=False)[0]
        found = ".".join(map(str, first["loc"]))[:200]
        said = plainly(first)
    if found.partition(".")[0] in OWN:
        raise FieldError(f"messages.{last}.content", said)
    raise FieldError(f"headwater.{found}" if found else "headwater", said)


def no_model(models: Collection[str]) -> Refused:
    """That a model is not there, and which ones are."""
    said = f"There is no such model here; choose from {', '.join(name for name in MODELS if name in models)}."
    return Refused(said, param="model", code="model_not_found", status=404)


def _possible(request: ChatRequest, models: Collection[str]) -> None:
    if request.model not in models:
        raise no_model(models)
    if request.n not in (None, 1):
        raise Refused("One answer is given to a question: leave n out.", param="n", code="unsupported_value")
    kind = (request.response_format or {}).get("type", "text")
    if kind != "text":
        said = "Answers are text with footnotes: leave response_format out; POST /v1/answer replies with JSON."
        raise Refused(said, param="response_format", code="unsupported_value")
    if request.tool_choice is not None and request.tool_choice not in ("none", "auto"):
        said = "No tool is called here: leave tool_choice out, or set it to none."
        raise Refused(said, param="tool_choice", code="unsupported_value")
    if "audio" in (request.modalities or ()):
        raise Refused("Answers are text: leave modalities out.", param="modalities", code="unsupported_value")


def _text(message: ChatMessage, place: int, *, lenient: bool = False) -> str:
    """``lenient``: parts that are no text are passed over, so that a picture does not end a conversation."""
    if message.content is None or isinstance(message.content, str):
        return message.content or ""
    texts = []
    for number, part in enumerate(message.content):
        kind = str(part.get("type", ""))[:40]
        if kind not in _TEXTS and not lenient:
            said = f"Only text can be read here, not '{kind}': send the question in words."
            raise Refused(said, param=f"messages.{place}.content.{number}", code="unsupported_content")
        texts.append(str(part.get("text") or part.get("refusal") or ""))
    return "\n".join(texts)


def _history(messages: list[ChatMessage]) -> tuple[Turn, ...]:
    """Raises FieldError."""
    turns: list[Turn] = []
    for place, message in enumerate(messages):
        if message.role not in ("user", "assistant"):
            continue
        said = _text(message, place, lenient=True)
        if message.role == "assistant":
            said = _FOOTNOTE.sub("", said)
        if said.strip():
            try:
                said.encode("utf-8")
            except UnicodeEncodeError:
                raise FieldError(f"messages.{place}.content", "must be valid Unicode") from None
            turns.append(Turn(role="user" if message.role == "user" else "assistant", content=said.strip()[:MAX_TURN]))
    return tuple(turns[-MAX_TURNS:])
