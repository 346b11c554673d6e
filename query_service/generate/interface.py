"""What generates text: for query expansion now, for answers later."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass
from typing import Literal, Protocol

from pipeline.errors import Retry


class GeneratorUnavailable(Retry):
    """The generator does not answer, refuses, or answers with what cannot be used."""


@dataclass(frozen=True)
class Message:
    """One message of a chat."""

    role: Literal["system", "user", "assistant"]
    content: str


@dataclass(frozen=True)
class Usage:
    """Tokens and money of one call."""

    prompt_tokens: int = 0
    completion_tokens: int = 0
    cost: float = 0.0
    estimated: bool = False  # the server did not say

    @property
    def tokens(self) -> int:
        """All of them."""
        return self.prompt_tokens + self.completion_tokens


@dataclass(frozen=True)
class Completion:
    """A whole reply."""

    text: str
    finish: str
    model: str
    usage: Usage


@dataclass(frozen=True)
class Piece:
    """A part of a streamed reply; the last one carries the usage."""

    text: str
    finish: str | None = None
    usage: Usage | None = None


class Generator(Protocol):
    """One server and model; used in the event loop, many calls at once."""

    @property
    def model(self) -> str: ...

    async def complete(
        self, messages: Sequence[Message], *, max_tokens: int, timeout_s: float, temperature: float = 0.0
    ) -> Completion:
        """Raises GeneratorUnavailable."""
        ...

    def stream(
        self, messages: Sequence[Message], *, max_tokens: int, timeout_s: float, temperature: float = 0.0
    ) -> AsyncIterator[Piece]:
        """Raises GeneratorUnavailable, also in the middle."""
        ...

    async def close(self) -> None: ...
