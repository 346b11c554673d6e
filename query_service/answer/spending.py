"""What generators may cost: by request, and by tenant and day (UTC). Every call of every use passes here.

The most that a call can cost is set aside before it, so that calls at once cannot exceed a limit together; what it did
cost is counted after it. What other processes and earlier runs spent comes from the query log.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Callable, Sequence
from dataclasses import dataclass

from pipeline.clock import Clock
from pipeline.errors import BusUnavailable
from pipeline.observe import Metrics
from pipeline.settings_query import GeneratorSettings, LimitSettings
from query_service.generate.counting import estimated, prompt_tokens
from query_service.generate.interface import Completion, Generator, GeneratorUnavailable, Message, Piece, Usage
from query_service.querylog.entry import Entry, current

DAY_US = 86_400_000_000
LOOK_S = 5.0  # for so long what the log said of a tenant counts

Logged = Callable[[str, int], tuple[float, int]]
"""Cost and tokens of a tenant since a moment (µs), from the query log. Reads a file: not for the loop."""


class BudgetExhausted(GeneratorUnavailable):
    """Nothing is generated: a limit of the request or of the tenant's day would be exceeded."""


@dataclass
class _Day:
    number: int
    cost: float = 0.0
    tokens: int = 0
    set_aside_cost: float = 0.0
    set_aside_tokens: int = 0
    looked_at: float = float("-inf")
    logged_cost: float = 0.0
    logged_tokens: int = 0


class Spending:
    """One for the process, used in the event loop."""

    def __init__(self, limits: LimitSettings, clock: Clock, logged: Logged | None, metrics: Metrics) -> None:
        self._limits = limits
        self._clock = clock
        self._logged = logged
        self._metrics = metrics
        self._days: dict[str, _Day] = {}

    async def reserve(self, entry: Entry | None, cost: float, tokens: int) -> Reserved:
        """Set aside the most that a call can cost. Raises BudgetExhausted."""
        if entry is not None:
            self._check_request(entry, cost, tokens)
        tenant = entry.scope.tenant if entry is not None else ""
        day = await self._of(tenant)
        if entry is not None:
            spent = max(day.cost, day.logged_cost) + day.set_aside_cost + cost
            used = max(day.tokens, day.logged_tokens) + day.set_aside_tokens + tokens
            if 0 < self._limits.daily_cost < spent or 0 < self._limits.daily_tokens < used:
                self._metrics.count("headwater_budget_refusals_total", kind="day")
                raise BudgetExhausted("the tenant's budget of today is used up")
        day.set_aside_cost += cost
        day.set_aside_tokens += tokens
        return Reserved(day, entry, cost, tokens)

    def _check_request(self, entry: Entry, cost: float, tokens: int) -> None:
        used = entry.tokens.get("read", 0) + entry.tokens.get("written", 0) + tokens
        limits = self._limits
        if 0 < limits.request_cost < entry.cost + cost or 0 < limits.request_tokens < used:
            self._metrics.count("headwater_budget_refusals_total", kind="request")
            raise BudgetExhausted("the request's budget does not allow it")

    async def _of(self, tenant: str) -> _Day:
        number = self._clock.now() // DAY_US
        day = self._days.get(tenant)
        if day is None or day.number != number:
            day = self._days[tenant] = _Day(number)
        limited = self._limits.daily_cost > 0 or self._limits.daily_tokens > 0
        if limited and self._logged is not None and time.monotonic() - day.looked_at > LOOK_S:
            try:
                cost, tokens = await asyncio.to_thread(self._logged, tenant, number * DAY_US)
            except BusUnavailable:  # its file is being built again: our own count stands
                return day
            day.logged_cost, day.logged_tokens = max(day.logged_cost, cost), max(day.logged_tokens, tokens)
            day.looked_at = time.monotonic()
        return day


@dataclass
class Reserved:
    """What was set aside for one call; settled once."""

    _day: _Day
    _entry: Entry | None
    _cost: float
    _tokens: int
    _settled: bool = False

    def settle(self, usage: Usage | None) -> None:
        """Count what the call cost; None where it cost nothing."""
        if self._settled:
            return
        self._settled = True
        self._day.set_aside_cost -= self._cost
        self._day.set_aside_tokens -= self._tokens
        if usage is None:
            return
        self._day.cost += usage.cost
        self._day.tokens += usage.tokens
        if self._entry is not None:
            self._entry.paid(usage)


class MeteredGenerator:
    """``Generator`` whose calls are held to the limits of the query that runs in their context."""

    def __init__(self, inner: Generator, settings: GeneratorSettings, spending: Spending) -> None:
        self._inner = inner
        self._settings = settings
        self._spending = spending

    @property
    def model(self) -> str:
        """See ``Generator``."""
        return self._inner.model

    async def complete(
        self, messages: Sequence[Message], *, max_tokens: int, timeout_s: float, temperature: float = 0.0
    ) -> Completion:
        """See ``Generator``. Raises BudgetExhausted too."""
        reserved = await self._reserve(messages, max_tokens)
        usage: Usage | None = self._usage(prompt_tokens(messages), 0)  # of a call that is cancelled: it was sent
        try:
            done = await self._inner.complete(
                messages, max_tokens=max_tokens, timeout_s=timeout_s, temperature=temperature
            )
            usage = done.usage
            return done
        except GeneratorUnavailable:
            usage = None
            raise
        finally:
            reserved.settle(usage)

    async def stream(
        self, messages: Sequence[Message], *, max_tokens: int, timeout_s: float, temperature: float = 0.0
    ) -> AsyncIterator[Piece]:
        """See ``Generator``. Raises BudgetExhausted too."""
        reserved = await self._reserve(messages, max_tokens)
        written: list[str] = []
        told: Usage | None = None
        failed = False
        pieces = self._inner.stream(messages, max_tokens=max_tokens, timeout_s=timeout_s, temperature=temperature)
        try:
            async for piece in pieces:
                written.append(piece.text)
                told = piece.usage or told
                yield piece
        except GeneratorUnavailable:
            failed = True
            raise
        finally:
            if told is None and (written or not failed):
                told = self._usage(prompt_tokens(messages), estimated("".join(written)))
            reserved.settle(told)
            close = getattr(pieces, "aclose", None)
            if close is not None:
                await close()

    async def close(self) -> None:
        """See ``Generator``."""
        await self._inner.close()

    async def _reserve(self, messages: Sequence[Message], max_tokens: int) -> Reserved:
        most = self._usage(prompt_tokens(messages), min(max_tokens, self._settings.max_tokens))
        return await self._spending.reserve(current(), most.cost, most.tokens)

    def _usage(self, read: int, wrote: int) -> Usage:
        cost = (read * self._settings.prompt_price + wrote * self._settings.completion_price) / 1e6
        return Usage(read, wrote, cost, estimated=True)
