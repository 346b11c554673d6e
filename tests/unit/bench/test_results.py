"""What each benchmark makes of its measurements: a figure that misses its target never passes."""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace
from typing import Any, cast

import pytest

from infra.bench.corpora import Prepared
from infra.bench.history import replay_result
from infra.bench.ingest import Cost, Work, ingest_result, reingest_result
from infra.bench.lag import Lags, Removals, bulk_result, idle_result, revocations
from infra.bench.memory import Stage, memory_results
from infra.bench.recall import DEFAULT, recall_result
from infra.bench.search import Asked, Table, backfill_result, search_result


@pytest.mark.requirement("D3")
@pytest.mark.parametrize(
    ("cpu", "wall", "chunks", "ok"),
    [(110.0, 120.0, 1000, True), (112.0, 120.0, 1000, False), (110.0, 126.0, 1000, False), (100.0, 100.0, 999, False)],
)
def test_ingest_is_judged_by_cpu_and_by_the_clock(cpu: float, wall: float, chunks: int, ok: bool) -> None:
    alone = Cost(1000, 100.0, 100.0)
    both = alone.and_(Cost(1000, 100.0, 100.0))
    result = ingest_result(Cost(chunks, cpu, wall), both, Cost(250, 31.25, 31.25), 500, texts=1000)
    assert result.ok is ok
    assert result.ratio == pytest.approx(chunks / cpu / 10)
    assert result.extra["clock_ratio"] == pytest.approx(chunks / wall / 10, abs=1e-3)
    assert ("note" in result.extra) == (chunks != 1000)


@pytest.mark.requirement("D6")
@pytest.mark.parametrize(
    ("same", "newer", "edited", "ok"),
    [
        (Work(100, 0, 0), Work(100, 0, 0), Work(1, 2, 3), True),
        (Work(100, 1, 0), Work(100, 0, 0), Work(1, 1, 1), False),
        (Work(100, 0, 1), Work(100, 0, 0), Work(1, 1, 1), False),
        (Work(100, 0, 0, manifests=1), Work(100, 0, 0), Work(1, 1, 1), False),
        (Work(100, 0, 0), Work(100, 1, 0), Work(1, 1, 1), False),
        (Work(100, 0, 0), Work(100, 0, 1), Work(1, 1, 1), False),
        (Work(100, 0, 0), Work(100, 0, 0), Work(1, 3, 3), False),
    ],
)
def test_reingest_passes_only_without_work(same: Work, newer: Work, edited: Work, ok: bool) -> None:
    assert reingest_result(same, newer, edited, 120).ok is ok


@pytest.mark.requirement("D4")
def test_idle_lag_tells_both_ratios() -> None:
    result = idle_result(Lags([50.0] * 100, [25.0] * 100))
    assert result.ok
    assert (result.value, result.ratio, result.extra["ratio_of_p50"]) == (50.0, 2.0, 2.0)


@pytest.mark.requirement("D4")
def test_bulk_lag_is_judged_against_the_idle_one() -> None:
    assert bulk_result([80.0] * 10, [40.0] * 10, 5).ok
    assert bulk_result([81.0] * 10, [40.0] * 10, 5).ok is False
    assert bulk_result([], [40.0] * 10, 0).ok is False


@pytest.mark.requirement("D5")
def test_removals_are_judged_by_the_append_and_not_by_the_request() -> None:
    result = Removals([40.0] * 100, [400.0] * 100).result("delete_lag", 100.0, backlog=7)
    assert result.ok
    assert (result.value, result.extra["outside_p99"], result.extra["backlog"]) == (40.0, 400.0, 7)
    assert Removals([101.0], [1.0]).result("delete_lag", 100.0).ok is False


def test_revocations_take_turns() -> None:
    changes = revocations("acme", 3)
    assert [c["type"] for c in changes] == ["access", "membership"] * 3
    assert len({c.get("id") or c["principal"] for c in changes}) == 6


def _table(alone: float, together: float) -> Table:
    return {
        (clients, scope): Asked([ms] * 20, [ms - 1] * 20, [10] * 20, 2.0)
        for clients, ms in ((1, alone), (4, together))
        for scope in (1, 10)
    }


def _prepared() -> Prepared:
    corpus = SimpleNamespace(chunks=100)
    return Prepared(cast(Any, None), cast(Any, corpus), 12.0, False)


@pytest.mark.requirement("D1")
@pytest.mark.parametrize(("alone", "together", "ok"), [(50.0, 120.0, True), (50.1, 120.0, False), (50.0, 120.1, False)])
def test_search_is_judged_from_outside_by_its_worst_scope(alone: float, together: float, ok: bool) -> None:
    outside = _table(10, 10)
    outside[1, 10] = Asked([alone] * 20, [1.0] * 20, [10] * 20, 2.0)
    outside[4, 1] = Asked([together] * 20, [1.0] * 20, [10] * 20, 2.0)
    result = search_result("search_10k", outside, _table(999, 999), _prepared())
    assert result.ok is ok
    assert result.value == alone
    line = result.line(0)
    assert line["vectors"] == "synthetic"
    http = cast(dict[str, Any], line["http"])
    assert http["1 client"]["10 principals"]["p95"] == round(alone, 1)
    assert http["4 clients"]["1 principals"]["per_s"] == 10.0


@pytest.mark.requirement("D1")
@pytest.mark.parametrize(("busy", "left", "ok"), [(80.0, 5, True), (81.0, 5, False), (80.0, 0, False)])
def test_searches_count_only_while_the_backfill_runs(busy: float, left: int, ok: bool) -> None:
    result = backfill_result(_table(40, 40), _table(busy, 40), left, 50)
    assert result.ok is ok
    assert ("note" in result.extra) == (left == 0)


@pytest.mark.requirement("D1")
def test_recall_is_judged_as_configured() -> None:
    table: dict[str, dict[str, dict[str, float | None]]] = {
        tier: {DEFAULT: {"10 principals": 0.99, "1 principals": None}, "32": {"10 principals": 0.5}}
        for tier in ("hot", "cold")
    }
    assert recall_result(table, 100, 9).ok
    table["cold"][DEFAULT]["10 principals"] = 0.94
    assert recall_result(table, 100, 9).ok is False


@pytest.mark.requirement("D6")
def test_a_replay_passes_only_without_differences() -> None:
    assert replay_result(100, 10.0, 50, []).ok
    broken = replay_result(100, 10.0, 50, ["missing: a.md (A)"])
    assert broken.ok is False
    assert broken.extra["differences"] == ["missing: a.md (A)"]


@pytest.mark.requirement("D7")
def test_memory_may_grow_by_five_percent_and_fifty_mib() -> None:
    first = Stage(1_000, 10.0, {"index": 300.0, "query": 200.0}, 10.0)
    middle = Stage(20_000, 200.0, {"index": 400.0, "query": 200.0}, 12.0)
    last = Stage(100_000, 1_000.0, {"index": 470.0, "query": 260.0}, 29.0)
    grown, scale = memory_results(first, middle, last)
    assert grown.ok
    assert grown.value == 70.0
    assert scale.ok
    assert memory_results(first, middle, replace(last, mib={"index": 471.0, "query": 200.0}))[0].ok is False
    assert memory_results(first, middle, replace(last, mib={"index": 400.0, "query": 261.0}))[0].ok is False
    assert memory_results(first, middle, replace(last, seconds=1_300.0))[1].ok is False
    assert memory_results(first, middle, replace(last, query_p95=31.0))[1].ok is False
