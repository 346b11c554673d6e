"""``Generator`` through any OpenAI-compatible server: chat completions, whole or streamed.

    fits? ▸ circuit closed? ▸ request ▸ usable? ▸ usage, price
                                 │
                                 ├ no answer, 408, 409, 425, 429, 5xx: again while time and attempts last
                                 └ everything else: GeneratorUnavailable at once

Errors and logs name the kind of failure alone: neither the key, nor the prompt, nor the words of the server, which may
repeat both.
"""

from __future__ import annotations

import asyncio
import logging
import random
import time
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from pipeline.errors import ConfigError
from pipeline.observe import Metrics
from pipeline.settings import Settings
from pipeline.settings_query import GeneratorSettings, InferenceSettings
from query_service.generate.counting import prompt_tokens, usage_of
from query_service.generate.interface import Completion, GeneratorUnavailable, Message, Piece, Usage
from query_service.inference.breaker import Breaker, CircuitOpen

if TYPE_CHECKING:
    from openai import AsyncOpenAI

log = logging.getLogger("headwater.query.generate")

_AGAIN = frozenset({408, 409, 425, 429})
_OURS = frozenset({400, 413, 422})  # this prompt is refused; the next one may be taken
FIRST_WAIT_S = 0.25
LONGEST_WAIT_S = 4.0
HURRIED_S = 2.0  # a call that was given less, by a budget that was nearly used up, tells nothing of its server
_DECLINED = frozenset({"content_filter"})
MOST_BYTES = 16_000_000
MOST_TOKENS = 1_000_000_000


class _Failed(Exception):
    """One request without a usable answer. ``kind`` is safe to show; ``wait`` is what the server asked for, seconds."""

    def __init__(self, kind: str, *, again: bool = False, wait: float | None = None) -> None:
        super().__init__(kind)
        self.kind = kind
        self.again = again
        self.wait = wait


class _Refused(_Failed):
    """The server works and does not take this prompt, or declines to answer it."""


class _Hurried(_Failed):
    """The caller had too little time left for any server to answer."""


class OpenAiGenerator:
    """One server and model. Connects at the first call; each call has one deadline, its repetitions included."""

    def __init__(
        self,
        settings: GeneratorSettings,
        inference: InferenceSettings,
        metrics: Metrics,
        *,
        http_client: Any = None,
        now: Callable[[], float] = time.monotonic,
    ) -> None:
        """``http_client`` (of the library that the SDK uses) replaces its own, ``now`` is the circuit breaker's clock.

        Raises ConfigError: no address, or the package openai is not installed.
        """
        if settings.url is None:
            raise ConfigError("generator.url", "is not set", "Name the server's base address, which ends in /v1.")
        try:
            import openai
        except ImportError as error:
            raise ConfigError(
                "generator.url", "the package openai is not installed", "Install the extra 'endpoints'."
            ) from error
        self._openai = openai
        self._settings = settings
        self._metrics = metrics
        self._breaker = Breaker(
            "generator", inference.failures, inference.cool_s, metrics, spared=(_Refused,), untold=(_Hurried,), now=now
        )
        # The SDK insists on a key, servers without one ignore it.
        self._client: AsyncOpenAI = openai.AsyncOpenAI(
            base_url=settings.url,
            api_key=settings.api_key.get_secret_value() if settings.api_key else "none",
            max_retries=0,
            timeout=settings.timeout_s,
            http_client=http_client if http_client is not None else openai.DefaultAsyncHttpxClient(**_CLIENT),
        )
        # What the environment may name belongs to another account.
        self._client.organization = self._client.project = None

    @property
    def model(self) -> str:
        """As the settings name it."""
        return self._settings.model

    async def complete(
        self, messages: Sequence[Message], *, max_tokens: int, timeout_s: float, temperature: float = 0.0
    ) -> Completion:
        """See ``Generator``. ``timeout_s`` holds for all attempts together, and never exceeds the settings'."""
        deadline = time.monotonic() + min(timeout_s, self._settings.timeout_s)
        options = self._options(messages, max_tokens, temperature)
        attempt = 0
        while True:
            started = time.monotonic()
            try:
                with self._breaker.call():
                    answer = await self._asked(options, deadline)
                    text, finish = _text_of(answer)
            except (_Failed, CircuitOpen) as error:
                await self._once_more(error, attempt, deadline)
                attempt += 1
                continue
            self._answered(started)
            usage = self._counted(messages, text, _told(getattr(answer, "usage", None)))
            return Completion(text, finish, str(getattr(answer, "model", None) or self.model), usage)

    async def stream(
        self, messages: Sequence[Message], *, max_tokens: int, timeout_s: float, temperature: float = 0.0
    ) -> AsyncIterator[Piece]:
        """See ``Generator``. Repeated only before the first piece; the last piece is empty and carries the usage."""
        deadline = time.monotonic() + min(timeout_s, self._settings.timeout_s)
        options = self._options(messages, max_tokens, temperature)
        options |= {"stream": True, "stream_options": {"include_usage": True}}
        attempt = 0
        while True:
            started, written = time.monotonic(), _Written()
            try:
                with self._breaker.call():
                    opened = await self._asked(options, deadline)
                    try:
                        while (part := await self._next(opened, deadline)) is not None:
                            if text := written.add(part):
                                yield Piece(text)
                    finally:
                        await opened.close()
                    written.check()
            except (_Failed, CircuitOpen) as error:
                if written.pieces:
                    self._counted(messages, written.text, written.told)  # what was written until then is paid for
                    raise self._unavailable(error) from None
                await self._once_more(error, attempt, deadline)
                attempt += 1
                continue
            self._answered(started)
            yield Piece("", written.finish, self._counted(messages, written.text, written.told))
            return

    async def close(self) -> None:
        """Close connections."""
        await self._client.close()

    # ------------------------------------------------------------ requests

    def _options(self, messages: Sequence[Message], max_tokens: int, temperature: float) -> dict[str, Any]:
        """Raises GeneratorUnavailable for a prompt that leaves no room for an answer."""
        room = self._settings.context_tokens - prompt_tokens(messages)
        limit = min(max_tokens, self._settings.max_tokens, room)
        if limit < 1:
            raise self._unavailable(_Refused("the prompt is longer than the model reads"))
        return {
            "model": self._settings.model,
            "messages": [{"role": m.role, "content": m.content} for m in messages],
            "max_tokens": limit,
            "temperature": temperature,
        }

    async def _once_more(self, error: _Failed | CircuitOpen, attempt: int, deadline: float) -> None:
        """Wait before another attempt. Raises GeneratorUnavailable where there is none."""
        if isinstance(error, CircuitOpen) or not error.again or attempt + 1 >= self._settings.attempts:
            raise self._unavailable(error) from None
        # spread, so that several services do not come back at the same moment
        wait = error.wait if error.wait is not None else FIRST_WAIT_S * 2.0**attempt * random.uniform(0.5, 1.0)
        if wait > LONGEST_WAIT_S or time.monotonic() + wait >= deadline:
            raise self._unavailable(error) from None
        self._metrics.count("headwater_generator_requests_total", model=self.model, outcome="repeated")
        await asyncio.sleep(wait)

    async def _asked(self, options: dict[str, Any], deadline: float) -> Any:
        openai = self._openai
        try:
            left = max(0.001, deadline - time.monotonic())
            async with asyncio.timeout(left):
                return await self._client.chat.completions.create(**options, timeout=left)
        except (TimeoutError, openai.APITimeoutError):
            failed = _Hurried if left < min(HURRIED_S, 0.9 * self._settings.timeout_s) else _Failed
            raise failed("it does not answer in time") from None
        except openai.APIStatusError as error:
            status = error.status_code
            again, wait = status in _AGAIN or status >= 500, _seconds(error.response.headers)
            failed = _Refused if status in _OURS else _Failed
            raise failed(f"status {status}", again=again, wait=wait) from None
        except openai.APIConnectionError:
            raise _Failed("no connection", again=True) from None
        except (openai.OpenAIError, ValueError, TypeError, RecursionError) as error:
            raise _Failed(f"an answer that cannot be read ({type(error).__name__})") from None

    async def _next(self, opened: Any, deadline: float) -> Any:
        """The next part of a stream, None at its end. The clock runs only while we wait, not while our reader does."""
        try:
            async with asyncio.timeout_at(asyncio.get_running_loop().time() + max(0.001, deadline - time.monotonic())):
                return await anext(opened, None)
        except (TimeoutError, self._openai.APITimeoutError):
            raise _Failed("it does not answer in time") from None
        except Exception as error:  # of the SDK, or of whichever HTTP library it uses
            raise _Failed(f"the stream broke ({type(error).__name__})") from None

    # ------------------------------------------------------------ answers

    def _answered(self, started: float) -> None:
        self._metrics.count("headwater_generator_requests_total", model=self.model, outcome="answered")
        self._metrics.observe("headwater_generator_seconds", time.monotonic() - started, model=self.model)

    def _counted(self, messages: Sequence[Message], text: str, told: tuple[int, int] | None) -> Usage:
        usage = usage_of(self._settings, messages, text, told)
        name, currency = self.model, self._settings.currency
        self._metrics.count("headwater_generator_tokens_total", usage.prompt_tokens, model=name, kind="read")
        self._metrics.count("headwater_generator_tokens_total", usage.completion_tokens, model=name, kind="written")
        self._metrics.count("headwater_generator_cost_total", usage.cost, model=name, currency=currency)
        return usage

    def _unavailable(self, error: _Failed | CircuitOpen) -> GeneratorUnavailable:
        """The error to raise, counted and logged."""
        kind = error.kind if isinstance(error, _Failed) else "left alone after failures"
        self._metrics.count("headwater_generator_requests_total", model=self.model, outcome="failed")
        log.warning("the generator cannot be used", extra={"fields": {"model": self.model, "reason": kind}})
        return GeneratorUnavailable(kind)


class _Written:
    """What a stream brought so far."""

    def __init__(self) -> None:
        self.pieces: list[str] = []
        self.told: tuple[int, int] | None = None
        self.finish: str | None = None

    @property
    def text(self) -> str:
        return "".join(self.pieces)

    def add(self, part: Any) -> str:
        """The part's text, empty where it has none."""
        self.told = _told(getattr(part, "usage", None)) or self.told
        choices = getattr(part, "choices", None)
        if not isinstance(choices, list) or not choices:
            return ""
        ended = getattr(choices[0], "finish_reason", None)
        self.finish = str(ended) if ended else self.finish
        text = getattr(getattr(choices[0], "delta", None), "content", None)
        if not isinstance(text, str) or not text:
            return ""
        self.pieces.append(_clean(text))
        return self.pieces[-1]

    def check(self) -> None:
        """Raises _Failed where this was no whole answer."""
        if self.finish in _DECLINED:
            raise _Refused("it declined")
        if self.finish is None:
            raise _Failed("the stream ended in the middle")
        if not self.text.strip():
            raise _Failed("no text")


def _text_of(answer: Any) -> tuple[str, str]:
    """Text and finish reason. Raises _Failed for an answer without text: garbage, a refusal, a filter."""
    choices = getattr(answer, "choices", None)
    if not isinstance(choices, list) or not choices:
        raise _Failed("an answer without a choice")
    message = getattr(choices[0], "message", None)
    text, finish = getattr(message, "content", None), str(getattr(choices[0], "finish_reason", None) or "stop")
    if finish in _DECLINED or getattr(message, "refusal", None):
        raise _Refused("it declined")
    if not isinstance(text, str) or not text.strip():
        raise _Failed("no text")
    return _clean(text), finish


def _clean(text: str) -> str:
    """Without halves of surrogate pairs, which JSON can hold and no UTF-8 can."""
    return text.encode("utf-8", "replace").decode()


def _told(usage: Any) -> tuple[int, int] | None:
    """The server's counts, None where they are missing or cannot be counts."""
    read, wrote = getattr(usage, "prompt_tokens", None), getattr(usage, "completion_tokens", None)
    if type(read) is not int or type(wrote) is not int or not 0 <= min(read, wrote) <= max(read, wrote) <= MOST_TOKENS:
        return None
    return read, wrote


async def _bounded(response: Any) -> None:
    """Have the reading of a reply stop after MOST_BYTES, whatever its server sends."""
    if response.headers.get("content-encoding", "identity") != "identity":
        raise ValueError("a compressed reply")
    # The stream's base class is that of the HTTP library that the SDK uses.
    base = next(c for c in type(response.stream).__mro__ if c.__name__ == "AsyncByteStream")
    given = response.stream

    async def parts(self: object) -> AsyncIterator[bytes]:
        left = MOST_BYTES
        async for part in given:
            left -= len(part)
            if left < 0:
                raise ValueError("a reply of too many bytes")
            yield part

    async def aclose(self: object) -> None:
        await given.aclose()

    response.stream = type("Bounded", (base,), {"__aiter__": parts, "aclose": aclose})()


# A server that redirects would have prompts, and so passages, sent to an address that nobody configured.
_CLIENT: dict[str, Any] = {
    "follow_redirects": False,
    "headers": {"Accept-Encoding": "identity"},
    "event_hooks": {"response": [_bounded]},
}


def _seconds(headers: Mapping[str, str]) -> float | None:
    """Retry-After in seconds; a date there is left to the usual waits."""
    try:
        return max(0.0, float(headers.get("retry-after", "")))
    except ValueError:
        return None


def generator_of(settings: Settings, metrics: Metrics) -> OpenAiGenerator | None:
    """The generator that the settings name, None where they name none. Raises ConfigError."""
    if settings.generator.url is None:
        return None
    return OpenAiGenerator(settings.generator, settings.inference, metrics)
