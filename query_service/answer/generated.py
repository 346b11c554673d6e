"""``Writer`` over a generator: a prompt, a stream of text, and its cost. Nothing asked or written is logged."""

from __future__ import annotations

import time
from collections.abc import AsyncIterator
from typing import Literal

from pipeline.settings import Settings
from query_service.answer.interface import Ask, Written
from query_service.answer.prompt import prompt
from query_service.generate.counting import usage_of
from query_service.generate.interface import Generator, GeneratorUnavailable, Message, Usage

TEMPERATURE = 0.0


class GeneratedWriter:
    """One for the process."""

    def __init__(self, generator: Generator, settings: Settings) -> None:
        self._generator = generator
        self._settings = settings

    @property
    def kind(self) -> Literal["generated", "extractive"]:
        """See ``Writer``."""
        return "generated"

    @property
    def model(self) -> str | None:
        """The generator's."""
        return self._generator.model

    async def write(self, ask: Ask) -> AsyncIterator[Written]:
        """See ``Writer``. The last part has no text; it tells usage, how it ended, and how many sources did not fit.
        Where the generator fails after it began to write, such a part comes too, its usage estimated and its ``finish``
        'error', before GeneratorUnavailable is raised: what was written is paid for."""
        made = prompt(ask, self._settings)
        left = ask.deadline - time.monotonic()
        if left <= 0:
            raise GeneratorUnavailable("no time is left")
        pieces = self._generator.stream(
            made.messages, max_tokens=ask.max_tokens, timeout_s=left, temperature=TEMPERATURE
        )
        text: list[str] = []
        usage, finish = Usage(), None
        try:
            async for piece in pieces:
                usage, finish = piece.usage or usage, piece.finish or finish
                if piece.text:
                    text.append(piece.text)
                    yield Written(piece.text)
        except GeneratorUnavailable:
            if text:
                yield _last(self._estimated(made.messages, text), "error", made.left_out)
            raise
        finally:
            if (close := getattr(pieces, "aclose", None)) is not None:
                await close()
        if not usage.tokens:
            usage = self._estimated(made.messages, text)
        yield _last(usage, finish, made.left_out)

    def _estimated(self, messages: tuple[Message, ...], text: list[str]) -> Usage:
        return usage_of(self._settings.generator, messages, "".join(text), None)


def _last(usage: Usage, finish: str | None, left_out: int) -> Written:
    return Written(
        "", usage.prompt_tokens, usage.completion_tokens, usage.cost, usage.estimated, finish, left_out
    )  # fmt: skip
