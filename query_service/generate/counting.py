"""Tokens and money of a generator: what the server says, else an estimate."""

from __future__ import annotations

from collections.abc import Sequence

from pipeline.settings_query import GeneratorSettings
from query_service.generate.interface import Message, Usage

BYTES_A_TOKEN = 4  # of UTF-8; a character of Chinese has three, so the estimate holds there too
AROUND = 4  # tokens that a chat format puts around a message


def estimated(text: str) -> int:
    """About how many tokens a text has; never 0 for a text that is not empty."""
    return -(-len(text.encode("utf-8", "replace")) // BYTES_A_TOKEN)


def prompt_tokens(messages: Sequence[Message]) -> int:
    """About how many tokens the model reads."""
    return sum(estimated(m.content) + AROUND for m in messages)


def usage_of(
    settings: GeneratorSettings, messages: Sequence[Message], written: str, told: tuple[int, int] | None
) -> Usage:
    """The usage of one call. ``told``: the server's own counts of what it read and wrote, None where it is silent."""
    read, wrote = told if told is not None else (prompt_tokens(messages), estimated(written))
    cost = (read * settings.prompt_price + wrote * settings.completion_price) / 1e6
    return Usage(read, wrote, cost, estimated=told is None)
