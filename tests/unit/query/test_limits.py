"""Limits: rates and requests at once of each caller, fairness among tenants, bounded memory."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pipeline.settings_query import LimitSettings
from query_service.limits import Buckets, Lease, Limited, Limits
from query_service.scope import Scope
from schemas.api import Problem
from schemas.tokens import FreshnessToken, TokenDocument
from tests.unit.query.world import World

ANN, BOB, EVE = Scope("acme", "ann"), Scope("acme", "bob"), Scope("other", "ann")


class Clock:
    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now


def limits(clock: Clock | None = None, **settings: Any) -> Limits:
    return Limits(LimitSettings(**{"requests_per_minute": 60, "burst": 3, **settings}), clock or Clock())


def run(made: Limits, scope: Scope = ANN) -> None:
    with made.begin(scope):
        pass


def test_a_burst_then_the_rate() -> None:
    clock = Clock()
    made = limits(clock)
    for _ in range(3):
        run(made)
    with pytest.raises(Limited) as over:
        run(made)
    assert over.value.retry_after == 1 and over.value.allowance is not None
    assert over.value.allowance.headers() == {
        "RateLimit-Limit": "3", "RateLimit-Remaining": "0", "RateLimit-Reset": "3",
    }  # fmt: skip
    run(made, BOB)
    run(made, EVE)  # the same name in another tenant
    run(made, Scope("acme", "ann", key_id="k"))  # a key of the same person
    clock.now = 1.0
    run(made)
    with pytest.raises(Limited):
        run(made)


@given(st.lists(st.floats(min_value=0, max_value=30), max_size=60), st.integers(1, 120), st.integers(1, 10))
def test_never_more_than_burst_and_rate(pauses: list[float], per_minute: int, burst: int) -> None:
    clock = Clock()
    buckets = Buckets(per_minute, burst, clock)
    allowed = 0
    for pause in pauses:
        clock.now += pause
        ok, wait, left = buckets.take("a")
        allowed += ok
        assert ok or wait >= 1
        assert left is not None and 0 <= left.remaining <= burst
        assert allowed <= burst + clock.now * per_minute / 60 + 1e-6


@given(st.integers(1, 100), st.integers(1, 10))
def test_retry_after_is_long_enough(per_minute: int, burst: int) -> None:
    clock = Clock()
    buckets = Buckets(per_minute, burst, clock)
    while (answer := buckets.take("a"))[0]:
        continue
    clock.now += answer[1]
    assert buckets.take("a")[0]


def test_memory_is_bounded_and_the_busiest_stay() -> None:
    buckets = Buckets(60, 1, Clock(), most=10)
    buckets.take("busy")
    for number in range(100):
        buckets.take(number)
        assert not buckets.take("busy")[0]
    assert len(buckets) == 10


def test_requests_at_once() -> None:
    made = limits(concurrent=2, burst=100)
    first, second = made.begin(ANN), made.begin(ANN)
    with pytest.raises(Limited, match="at once"):
        made.begin(ANN)
    with made.begin(BOB):
        first.__exit__()
        with made.begin(ANN):
            assert made.running == 3
    second.__exit__()
    assert made.running == 0


def test_operators_have_no_rate_but_the_other_limits() -> None:
    made = limits(concurrent=1)
    operator = Scope("acme", "ops", operator=True)
    for _ in range(50):
        run(made, operator)
    with made.begin(operator), pytest.raises(Limited):
        made.begin(operator)


@given(st.integers(1, 64), st.lists(st.tuples(st.integers(0, 4), st.booleans()), max_size=300))
def test_a_flood_leaves_room_and_the_total_holds(total: int, steps: list[tuple[int, bool]]) -> None:
    made = limits(total=total, concurrent=0, requests_per_minute=0)
    held: dict[int, list[Lease]] = {n: [] for n in range(5)}
    for tenant, begins in steps:
        if not begins and held[tenant]:
            held[tenant].pop().__exit__()
        elif begins:
            free = total - made.running
            try:
                held[tenant].append(made.begin(Scope(f"t{tenant}", "ann")))
            except Limited:
                assert len(held[tenant]) >= free
            else:
                assert len(held[tenant]) <= free
        assert made.running == sum(map(len, held.values())) <= total
        busy = sum(1 for leases in held.values() if leases)
        if made.running == total:
            assert busy > 1 or total == 1  # never one tenant alone


def test_zero_switches_each_off() -> None:
    made = limits(requests_per_minute=0, concurrent=0, total=0, refused_per_minute=0)
    for _ in range(1000):
        made.begin(ANN)
        made.refused("10.0.0.1")


def test_addresses_without_a_token() -> None:
    made = limits(refused_per_minute=4)
    for _ in range(2):
        made.refused("10.0.0.1")
        made.refused(None)
    for each in ("10.0.0.1", "::ffff:10.0.0.1", None):
        with pytest.raises(Limited):
            made.refused(each)
    made.refused("2001:db8::1")
    made.refused("2001:db8::2")
    with pytest.raises(Limited):
        made.refused("2001:db8::3")  # one subscriber has all of them
    made.refused("2001:db8:0:1::1")
    made.refused("testclient")


# ---------------------------------------------------------------- on the API


def too_many(reply: Any) -> Problem:
    assert reply.status_code == 429 and int(reply.headers["retry-after"]) >= 1
    assert reply.headers["content-type"] == "application/problem+json"
    assert reply.headers["x-content-type-options"] == "nosniff"
    return Problem.model_validate_json(reply.content)


@pytest.mark.anyio
async def test_replies_say_what_is_left_and_health_is_exempt(world: World) -> None:
    world.settings.limits = LimitSettings(requests_per_minute=1, burst=2)
    for tenant in ("acme", "other"):
        world.principal("user:ann", tenant=tenant)
    async with world.running() as run:
        first = await run.get("/v1/freshness")
        assert first.headers["ratelimit-limit"] == "2" and first.headers["ratelimit-remaining"] == "1"
        await run.get("/v1/freshness")
        third = await run.get("/v1/freshness")
        assert "ann" not in too_many(third).detail and third.headers["ratelimit-remaining"] == "0"
        assert (await run.get("/v1/freshness", tenant="other")).status_code == 200
        for path in ("/healthz", "/readyz", "/metrics"):
            assert {(await run.get(path)).status_code for _ in range(5)} == {200}


@pytest.mark.anyio
async def test_bad_tokens_become_429_and_good_ones_from_there_do_not(world: World) -> None:
    world.settings.limits = LimitSettings(refused_per_minute=10)
    world.principal("user:ann")
    async with world.running() as run:
        replies = [await run.client.get("/v1/freshness", headers={"X-API-Key": "hw_x"}) for _ in range(6)]
        assert [r.status_code for r in replies] == [401] * 5 + [429]
        too_many(replies[-1])
        too_many(await run.client.get("/v1/freshness"))
        assert (await run.get("/v1/freshness")).status_code == 200


@pytest.mark.anyio
@pytest.mark.requirement("B1")
async def test_a_flood_of_one_tenant_leaves_room_for_another(world: World) -> None:
    world.settings.limits = LimitSettings(total=6, concurrent=0)
    for tenant in ("acme", "other"):
        world.principal("user:ann", tenant=tenant)
    m = world.document("a", "plan")
    coming = TokenDocument(source="wiki", kind="page", id="a", content=m.content_version + 1)
    token = FreshnessToken(tenant="acme", documents=(coming,)).encode()
    body = {"query": "x", "after": token, "wait_ms": 30_000}
    async with world.running() as run:
        flood = [asyncio.ensure_future(run.post(body)) for _ in range(10)]
        refused = set[Any]()
        while len(refused) < 7:
            done, _ = await asyncio.wait(flood, timeout=10, return_when=asyncio.FIRST_COMPLETED)
            refused |= done
            flood = [f for f in flood if f not in done]
        for each in refused:
            assert "busy" in too_many(each.result()).detail
        assert (await run.get("/v1/freshness", tenant="other")).status_code == 200
        for each in flood:
            each.cancel()
        await asyncio.gather(*flood, return_exceptions=True)
        assert (await run.get("/v1/freshness")).status_code == 200  # what was cancelled holds nothing
