"""One request's expansion as it goes on: its queries, its budget, its steps."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Coroutine, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, TypeVar

from pipeline.errors import Retry
from pipeline.settings_query import ExpansionSettings
from query_service.expansion.interface import ORIGINAL_WEIGHT, Found, Ground, Retrieve, Seen
from query_service.generate.counting import prompt_tokens
from query_service.generate.interface import Generator, GeneratorUnavailable, Message, Usage
from query_service.outcome import Outcome
from schemas.api_ranking import Step

Kind = Literal["original", "decomposed", "multi_query", "hyde", "followup", "stop"]
_T = TypeVar("_T")
LEAST_REPLY = 16  # tokens of a reply below which a generator is not asked


class OutOfBudget(Exception):
    """A budget is used up; the reason is for the step."""


@dataclass
class Run:
    """Settings are budgets: none of its methods goes beyond one."""

    query: str
    ground: Ground
    settings: ExpansionSettings
    generator: Generator | None
    found: list[Found] = field(default_factory=list)
    usage: Usage = field(default_factory=Usage)
    _until: float = 0.0
    _asked: int = 0
    _numbers: int = 0

    def __post_init__(self) -> None:
        self._until = time.monotonic() + self.settings.budget_s

    @property
    def left_s(self) -> float:
        """Of its own time."""
        return self._until - time.monotonic()

    @property
    def queries_left(self) -> int:
        """Besides the original one."""
        return self.settings.queries - self._asked

    # ------------------------------------------------------------ searches

    async def original(self) -> Outcome:
        """The query as it was asked, outside of any budget. Raises StoreUnavailable or EncoderUnavailable."""
        number, started = self._begun(), time.monotonic()
        outcome = await self.ground.retrieve(self.query)
        self._ended(Found(self._step("original", self.query, started), outcome, ORIGINAL_WEIGHT, number=number))
        return outcome

    async def searched(
        self, kind: Kind, query: str, search: Retrieve, *, generated: bool, weight: float, basis: Sequence[Seen] = (),
        tokens: int = 0,
    ) -> Found:  # fmt: skip
        """One further search; its list is kept. What fails or is late brings none and says so."""
        number, started = self._begun(), time.monotonic()
        self._asked += 1
        outcome, reason = None, None
        try:
            async with asyncio.timeout(max(0.0, self.left_s)):
                outcome = await search(query)
        except TimeoutError:
            reason = "no time left"
        except Retry:
            reason = "the index did not answer"
        step = self._step(kind, query, started, generated=generated, tokens=tokens, reason=reason)
        return self._ended(Found(step, outcome, weight, tuple(basis), number))

    def note(self, kind: Kind, reason: str, *, generated: bool = False, tokens: int = 0) -> None:
        """A step without a search of its own."""
        step = self._step(kind, "", time.monotonic(), generated=generated, tokens=tokens, reason=reason)
        self._ended(Found(step, weight=0.0, number=self._begun()))

    def steps(self) -> list[Found]:
        """All of them in the order in which they were begun; ``new`` counts by that order."""
        known: set[str] = set()
        self.found.sort(key=lambda f: f.number)
        for one in self.found:
            ids = one.ids
            one.step = one.step.model_copy(update={"new": len(ids - known)})
            known |= ids
        return self.found

    def _begun(self) -> int:
        self._numbers += 1
        return self._numbers

    def _step(
        self, kind: Kind, query: str, started: float, *, generated: bool = False, tokens: int = 0,
        reason: str | None = None,
    ) -> Step:  # fmt: skip
        ms = round((time.monotonic() - started) * 1000, 3)
        return Step(kind=kind, query=query, generated=generated, admitted=0, new=0, ms=ms, tokens=tokens, reason=reason)

    def _ended(self, found: Found) -> Found:
        known = {name for one in self.found for name in one.ids}
        counts = {"admitted": len(found.ids), "new": len(found.ids - known)}
        found.step = found.step.model_copy(update=counts)
        self.found.append(found)
        return found

    # ------------------------------------------------------------ the generator

    async def generate(self, messages: Sequence[Message], max_tokens: int, temperature: float = 0.0) -> tuple[str, int]:
        """A reply and the tokens that it cost. Raises GeneratorUnavailable or OutOfBudget."""
        if self.generator is None:
            raise GeneratorUnavailable("no generator is configured")
        room = self.settings.tokens - self.usage.tokens - prompt_tokens(messages)
        if room < min(LEAST_REPLY, max_tokens):
            raise OutOfBudget("no tokens left")
        if self.left_s <= 0:
            raise OutOfBudget("no time left")
        done = await self.generator.complete(
            messages, max_tokens=min(max_tokens, room), timeout_s=self.left_s, temperature=temperature
        )
        now, one = self.usage, done.usage
        self.usage = Usage(
            now.prompt_tokens + one.prompt_tokens,
            now.completion_tokens + one.completion_tokens,
            now.cost + one.cost,
            now.estimated or one.estimated,
        )
        return done.text, one.tokens

    async def with_reply(self, reply: Coroutine[Any, Any, _T]) -> tuple[Outcome, _T | None, str | None]:
        """The original list and what ``reply`` makes of the generator, side by side; None and why where it fails.

        Raises what the original search raises.
        """
        task = asyncio.ensure_future(reply)
        try:
            original = await self.original()
            try:
                return original, await task, None
            except (GeneratorUnavailable, OutOfBudget) as error:
                return original, None, str(error)
        finally:
            if not task.cancel() and not task.cancelled():
                task.exception()  # nobody waits for it any more where the search failed
