"""What generators may cost: by request and by day, also when many ask at once and other processes spend too."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence

import pytest

from pipeline.clock import ManualClock
from pipeline.errors import BusUnavailable
from pipeline.observe import Metrics
from pipeline.settings_query import GeneratorSettings, LimitSettings
from query_service.answer.spending import DAY_US, BudgetExhausted, MeteredGenerator, Spending
from query_service.generate.interface import Completion, GeneratorUnavailable, Message, Piece, Usage
from query_service.querylog.entry import CURRENT, Entry
from query_service.scope import Scope

pytestmark = pytest.mark.anyio

PRICES = GeneratorSettings(prompt_price=1_000_000, completion_price=2_000_000, max_tokens=100)  # 1 and 2 a token
ASK = [Message("user", "x" * 24)]  # 10 tokens by the estimate: 6 of text and 4 around


class Says:
    """A generator that says so many tokens were used; ``hold`` stops it until it is set."""

    model = "says"

    def __init__(self, usage: Usage | None = None, *, fails: bool = False) -> None:
        self.usage = usage or Usage(10, 5, 20.0)
        self.fails = fails
        self.hold: asyncio.Event | None = None
        self.calls = 0

    async def complete(
        self, messages: Sequence[Message], *, max_tokens: int, timeout_s: float, temperature: float = 0.0
    ) -> Completion:
        self.calls += 1
        if self.hold is not None:
            await self.hold.wait()
        if self.fails:
            raise GeneratorUnavailable("no")
        return Completion("yes", "stop", self.model, self.usage)

    async def stream(
        self, messages: Sequence[Message], *, max_tokens: int, timeout_s: float, temperature: float = 0.0
    ) -> AsyncIterator[Piece]:
        self.calls += 1
        yield Piece("four")
        if self.fails:
            raise GeneratorUnavailable("broke off")
        yield Piece("", "stop", self.usage)

    async def close(self) -> None:
        pass


class Made:
    """Spending with its clock, what the log says, and a metered generator."""

    def __init__(self, inner: Says, **limits: float) -> None:
        self.clock = ManualClock()
        self.said = (0.0, 0)
        self.looked = 0
        self.broken = False
        self.spending = Spending(LimitSettings.model_validate(limits), self.clock, self.logged, Metrics())
        self.generator = MeteredGenerator(inner, PRICES, self.spending)

    def logged(self, tenant: str, since: int) -> tuple[float, int]:
        assert since % DAY_US == 0 and since <= self.clock.now()
        self.looked += 1
        if self.broken:
            raise BusUnavailable("being built")
        return self.said

    async def ask(self, tenant: str = "acme", max_tokens: int = 10, entry: Entry | None = None) -> Entry:
        entry = entry or Entry(kind="answer", scope=Scope(tenant=tenant, subject="ann"), at=self.clock.now())
        token = CURRENT.set(entry)
        try:
            await self.generator.complete(ASK, max_tokens=max_tokens, timeout_s=1.0)
        finally:
            CURRENT.reset(token)
        return entry

    async def read(self, take: int = 99) -> Entry:
        entry = Entry(kind="answer", scope=Scope(tenant="acme", subject="ann"), at=0)
        token = CURRENT.set(entry)
        pieces = self.generator.stream(ASK, max_tokens=10, timeout_s=1.0)
        try:
            for _ in range(take):
                await anext(pieces)
        except StopAsyncIteration:
            pass
        finally:
            await pieces.aclose()  # type: ignore[attr-defined]
            CURRENT.reset(token)
        return entry


@pytest.mark.requirement("B7")
async def test_what_a_call_cost_is_counted_for_its_query() -> None:
    entry = await Made(Says()).ask()
    assert entry.tokens == {"read": 10, "written": 5} and entry.cost == 20.0 and not entry.estimated


async def test_a_day_has_a_limit_and_the_next_day_another() -> None:
    made = Made(Says(), daily_cost=50)  # a call may cost 10 + 2 * 10 = 30 and does cost 20
    await made.ask()
    await made.ask()
    with pytest.raises(BudgetExhausted, match="today"):
        await made.ask()
    await made.ask("globex")  # another tenant has its own
    made.clock.advance(24 * 3600)
    await made.ask()


async def test_calls_at_once_cannot_exceed_the_limit_together() -> None:
    inner = Says()
    inner.hold = asyncio.Event()
    made = Made(inner, daily_cost=70)
    asked = [asyncio.create_task(made.ask()) for _ in range(3)]
    await asyncio.sleep(0.05)
    assert inner.calls == 2, "each sets 30 aside before it is sent"
    inner.hold.set()
    done = await asyncio.gather(*asked, return_exceptions=True)
    assert sum(isinstance(one, BudgetExhausted) for one in done) == 1
    await made.ask()  # 40 were spent: what was set aside and not used is free again


async def test_tokens_have_limits_too() -> None:
    made = Made(Says(), daily_tokens=50)
    await made.ask(max_tokens=10)
    await made.ask(max_tokens=10)
    with pytest.raises(BudgetExhausted):
        await made.ask(max_tokens=11)  # 30 were used, and 10 + 11 is one too many


async def test_what_others_spent_is_read_from_the_log() -> None:
    made = Made(Says(), daily_cost=50)
    made.said = (30.0, 0)
    with pytest.raises(BudgetExhausted):
        await made.ask()
    made = Made(Says(), daily_cost=50)
    made.broken = True
    await made.ask()  # a file that cannot be read stops nobody
    unlimited = Made(Says())
    await unlimited.ask()
    assert unlimited.looked == 0


async def test_one_request_has_limits_over_all_its_calls() -> None:
    made = Made(Says(), request_cost=45)
    entry = await made.ask()
    with pytest.raises(BudgetExhausted, match="request"):
        await made.ask(entry=entry)  # 20 and at most 30 more
    await made.ask()
    tokens = Made(Says(), request_tokens=30)
    entry = await tokens.ask()
    with pytest.raises(BudgetExhausted):
        await tokens.ask(entry=entry)


async def test_failures_cost_nothing_and_broken_streams_what_was_written() -> None:
    made = Made(Says(fails=True), daily_cost=30)
    with pytest.raises(GeneratorUnavailable):
        await made.ask()
    with pytest.raises(GeneratorUnavailable):
        await made.ask()  # nothing is set aside any more
    broken = Made(Says(fails=True))
    with pytest.raises(GeneratorUnavailable, match="broke"):
        await broken.read()
    left = await Made(Says()).read(take=1)
    assert left.tokens == {"read": 10, "written": 1} and left.cost == 12.0 and left.estimated
    whole = await Made(Says()).read()
    assert whole.cost == 20.0 and not whole.estimated


async def test_a_cancelled_call_was_sent() -> None:
    inner = Says()
    inner.hold = asyncio.Event()
    made = Made(inner)
    entry = Entry(kind="answer", scope=Scope(tenant="acme", subject="ann"), at=0)
    task = asyncio.create_task(made.ask(entry=entry))
    await asyncio.sleep(0.02)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert entry.cost == 10.0
