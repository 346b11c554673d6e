"""Which documents move to cold, and what becomes of them."""

from __future__ import annotations

import pytest

from pipeline.operate import tiers
from pipeline.settings import TierSettings
from schemas.keys import DocumentRef
from tests.unit.upkeep.shop import G, Shop, page

LIMITS = TierSettings(hot_days=30, hot_chunks=1000)


def planned(shop: Shop, limits: TierSettings) -> list[tuple[DocumentRef, str]]:
    found = tiers.plan(shop.store, G, limits, shop.clock.now())
    return [(move.document, move.why) for tenant in found.tenants for move in tenant.moves]


def run(shop: Shop, limits: TierSettings = LIMITS) -> tiers.TierRun:
    found = tiers.plan(shop.store, G, limits, shop.clock.now())
    return tiers.carry_out(found, shop.owners(), limits, shop.clock.now())


@pytest.mark.requirement("A9")
def test_documents_unchanged_for_the_hot_window_move_oldest_first() -> None:
    shop = Shop()
    for number, age in enumerate((40, 10, 31, 29.9)):
        shop.put(page(number), f"text {number}", age_days=age)
    assert planned(shop, LIMITS) == [(page(0), "unchanged"), (page(2), "unchanged")]
    shop.clock.advance(86_400)
    assert (page(3), "unchanged") in planned(shop, LIMITS)


@pytest.mark.requirement("A9")
def test_hot_stays_within_its_size_by_moving_the_longest_unchanged() -> None:
    shop = Shop()
    for number in range(10):
        shop.put(page(number), "\n\n".join(f"text {number} {i}" for i in range(5)), age_days=20 - number)
    shop.put(page(1, tenant="other"), "small", age_days=25)
    limits = TierSettings(hot_days=30, hot_chunks=22)
    assert planned(shop, limits) == [(page(n), "size") for n in range(6)]
    before = len(shop.embedded)
    done = run(shop, limits)
    assert (done.moved, done.chunks_copied, done.whole) == (6, 30, True)
    shop.wait_removals([page(n) for n in range(10)])
    assert shop.store.count_chunks(G, "acme") == {"hot": 20, "cold": 30}
    assert shop.store.count_chunks(G, "other") == {"hot": 1, "cold": 0}
    assert len(shop.embedded) == before
    for number in range(10):
        assert shop.texts_of(page(number)) == [f"text {number} {i}" for i in range(5)]
    assert run(shop, limits).plan.documents == 0


@pytest.mark.requirement("A9")
def test_what_does_not_change_the_text_does_not_make_a_document_recent() -> None:
    shop = Shop()
    shop.put(page(0), "text", age_days=50)
    shop.put(page(0), "text", "group:ops")  # the same text again under another rule, seen now
    shop.flow.recheck(page(0), None)
    assert planned(shop, LIMITS) == [(page(0), "unchanged")]
    shop.put(page(0), "text changed")
    assert planned(shop, LIMITS) == []


@pytest.mark.requirement("A9", "A6")
def test_an_edited_cold_document_returns_with_its_changed_chunk_alone() -> None:
    shop = Shop()
    shop.put(page(0), "a\n\nb\n\nc", age_days=40)
    run(shop)
    shop.wait_removals([page(0)])
    shop.put(page(0), "a\n\nx\n\nc")
    shop.wait_removals([page(0)])
    assert shop.store.count_chunks(G, "acme") == {"hot": 1, "cold": 2}
    assert planned(shop, LIMITS) == []
    shop.clock.advance(31 * 86_400)
    assert run(shop).chunks_copied == 1
    shop.wait_removals([page(0)])
    assert shop.store.count_chunks(G, "acme") == {"hot": 0, "cold": 3}
    assert shop.texts_of(page(0)) == ["a", "x", "c"]


@pytest.mark.requirement("A9")
def test_deleted_documents_and_unfinished_moves_are_left() -> None:
    shop = Shop()
    for number in range(3):
        shop.put(page(number), f"text {number}", age_days=40)
    shop.delete(page(0))
    shop.flow.move(page(1), "cold", None)
    assert planned(shop, LIMITS) == [(page(2), "unchanged")]


@pytest.mark.requirement("A9")
def test_a_run_keeps_to_its_budget_and_tenants_take_turns() -> None:
    shop = Shop()
    for number in range(6):
        shop.put(page(number), "a\n\nb", age_days=40)
    shop.put(page(0, tenant="other"), "a\n\nb", age_days=40)
    limits = TierSettings(hot_days=30, run_chunks=6)
    found = tiers.plan(shop.store, G, limits, shop.clock.now())
    assert {t.tenant: (len(t.moves), t.postponed, t.hot_planned) for t in found.tenants} == {
        "acme": (2, 4, 8),
        "other": (1, 0, 0),
    }
    huge = TierSettings(hot_days=30, run_chunks=1)
    assert tiers.plan(shop.store, G, huge, shop.clock.now()).documents == 1
    for _ in range(4):
        run(shop, limits)
        shop.wait_removals([page(n) for n in range(6)] + [page(0, tenant="other")])
    assert shop.store.count_chunks(G, "acme")["hot"] == 0


@pytest.mark.requirement("A9")
def test_a_run_that_is_cut_off_is_finished_by_the_next() -> None:
    shop = Shop()
    for number in range(8):
        shop.put(page(number), "a\n\nb", age_days=40)
    limits = TierSettings(hot_days=30, credit_chunks=4)
    found = tiers.plan(shop.store, G, limits, shop.clock.now())
    done = tiers.carry_out(
        found, shop.owners(), limits, shop.clock.now(), stop=lambda: len(shop.asked) >= 4
    )  # fmt: skip
    assert done.cancelled and done.moved == 4 and len(shop.asked) == 4
    shop.restart()
    again = tiers.carry_out(found, shop.owners(), limits, shop.clock.now())
    assert (again.moved, again.cancelled) == (8, False), "a move that has not been finished is done again"
    shop.wait_removals([page(n) for n in range(8)])
    assert shop.store.count_chunks(G, "acme") == {"hot": 0, "cold": 16}
    last = tiers.carry_out(found, shop.owners(), limits, shop.clock.now())
    assert (last.moved, last.unchanged) == (0, 8)


@pytest.mark.requirement("A9")
def test_a_document_that_cannot_move_is_rechecked_and_moves_in_the_next_run() -> None:
    shop = Shop()
    shop.put(page(0), "a\n\nb", age_days=40)
    del shop.store.tier(G, "hot", "acme")[shop.of(page(0)).chunks[0].chunk_id]
    done = run(shop)
    assert (done.refused, done.whole) == (1, False) and "recheck" in next(iter(done.reasons))
    assert shop.texts_of(page(0)) == ["a", "b"]
    assert run(shop).moved == 1
    shop.wait_removals([page(0)])
    assert shop.store.count_chunks(G, "acme") == {"hot": 0, "cold": 2}


@pytest.mark.requirement("A9")
def test_consumers_that_do_not_answer_are_said() -> None:
    shop = Shop()
    shop.put(page(0), "a", age_days=40)
    shop.deaf = True
    owners = shop.owners()
    original = owners._tail.poll

    def poll(timeout_ms: int = 200) -> list[object]:
        shop.clock.advance(10)
        return original(0)  # type: ignore[return-value]

    owners._tail.poll = poll  # type: ignore[method-assign,assignment]
    found = tiers.plan(shop.store, G, LIMITS, shop.clock.now())
    done = tiers.carry_out(found, owners, LIMITS, shop.clock.now())
    assert done.unanswered == 1 and "consumer" in next(iter(done.reasons))
