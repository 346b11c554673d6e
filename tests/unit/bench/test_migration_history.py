"""The judge of a migration's history: each kind of wrong answer is told, and every right one passes."""

from __future__ import annotations

from dataclasses import replace

import pytest

from infra.bench.migration.history import (
    ContentChange,
    Found,
    History,
    MemberChange,
    Period,
    Query,
    RuleChange,
    judge,
    lags,
)

pytestmark = pytest.mark.requirement("A10", "I7")
OLD, NEW = "minilm", "bge"


def history(*queries: Query) -> History:
    """Document d: editions 0 and 1, deleted at 1000, edition 2 again at 2000; ann may read it until 600, bob from 500.

    In the new generation edition 1 stands later than in the old one.
    """
    return History(
        content=[
            ContentChange("d", 0, 10, 100, 110),
            ContentChange("d", 1, 20, 300, 310),
            ContentChange("d", None, 30, 1000, 1010),
            ContentChange("d", 2, 40, 2000, 2010),
        ],
        rules=[
            RuleChange("d", frozenset({"group:g", "user:cy"}), 11, 100, 110),
            RuleChange("d", frozenset({"user:bob"}), 21, 500, 600),
            RuleChange("d", frozenset({"everyone"}), 41, 2000, 2010),
        ],
        members=[
            MemberChange("ann", frozenset({"group:g"}), 50, 60),
            MemberChange("bob", frozenset(), 50, 60),
            MemberChange("cy", frozenset(), 50, 60),
            MemberChange("ann", frozenset(), 400, 450),
        ],
        visible={
            (OLD, "d"): [(10, 200), (20, 400), (40, 2200)],
            (NEW, "d"): [(20, 800), (40, 2300)],
        },
        refreshed={(OLD, "d"): [(11, 200), (21, 700), (41, 2200)], (NEW, "d"): [(21, 800), (41, 2300)]},
        queries=list(queries),
    )


def hit(version: int, edition: int | None, place: int = 0, chunk: str = "c0") -> Found:
    return Found("d", version, edition, place, chunk)


def asked(person: str, began: int, ended: int, *found: Found, generation: str = OLD, about: str | None = "d") -> Query:
    return Query(person, about, began, ended, ended, generation, tuple(found))


RIGHT = [
    asked("cy", 210, 220, hit(10, 0)),
    asked("cy", 210, 220, hit(10, 0), hit(10, None, 1, "c1")),
    asked("cy", 320, 330, hit(10, 0)),  # edition 1 is on its way
    asked("cy", 320, 330, hit(20, 1)),
    asked("cy", 120, 130),  # not indexed yet
    asked("ann", 430, 440),  # the group is being left
    asked("ann", 430, 440, hit(20, 1)),
    asked("bob", 550, 560, hit(20, 1)),  # the rule may have been applied
    asked("bob", 650, 660),  # applied, but the chunks do not carry it yet
    asked("cy", 550, 560, hit(20, 1)),
    asked("bob", 1005, 1006, hit(20, 1)),  # the deletion is not acknowledged
    asked("bob", 1100, 1200),
    asked("ann", 2300, 2310, hit(40, 2)),
    asked("cy", 700, 710, generation=NEW),  # there edition 1 does not stand yet
    asked("cy", 700, 710, generation=NEW, about=None),
]
WRONG = {
    "missed": [
        asked("cy", 210, 220),
        asked("cy", 410, 420),
        asked("bob", 900, 910),
        asked("bob", 900, 910, generation=NEW),
        asked("zoe", 2300, 2310, hit(40, 2)),  # nobody: forbidden, see below
    ],
    "stale": [asked("cy", 410, 420, hit(10, 0)), asked("bob", 2400, 2410, hit(20, 1))],
    "mixed": [
        asked("cy", 320, 330, hit(10, 0), hit(20, 1, 1, "c1")),
        asked("cy", 320, 330, hit(20, 0)),
        replace(asked("cy", 210, 220, hit(10, 0)), foreign=("c0 told 0.5, is 0.3",)),
    ],
    "doubled": [asked("cy", 210, 220, hit(10, 0), hit(10, 0)), asked("cy", 210, 220, hit(10, 0), hit(10, 0, 1))],
    "forbidden": [
        asked("ann", 460, 470, hit(20, 1)),
        asked("cy", 601, 610, hit(20, 1)),
        replace(asked("cy", 590, 650, hit(20, 1)), judged=601),  # revoked while it ran: judged at its end
        asked("zoe", 2300, 2310, hit(40, 2)),
        replace(asked("bob", 1005, 1030, hit(20, 1)), judged=1011),  # deleted while it ran
    ],
}
WRONG["missed"].pop()


@pytest.mark.parametrize("query", RIGHT)
def test_a_right_answer_passes(query: Query) -> None:
    verdict = judge(history(query))
    assert verdict.right and verdict.examples == [], verdict.examples


@pytest.mark.parametrize(("what", "query"), [(what, q) for what, queries in WRONG.items() for q in queries])
def test_a_wrong_answer_is_told(what: str, query: Query) -> None:
    verdict = judge(history(query))
    assert getattr(verdict, what) == 1, verdict
    assert not verdict.right and verdict.examples


def test_a_query_that_is_judged_before_a_revocation_is_right() -> None:
    query = replace(asked("cy", 590, 650, hit(20, 1)), judged=595)
    assert judge(history(query)).right


def test_a_switch_that_goes_back_in_time_is_told() -> None:
    """Edition 1 stood in the old generation at 400; the new one, active since 500, gets it at 800."""
    served = [Period(OLD, 0, 500), Period(NEW, 500)]
    visible = {(OLD, "d"): [(10, 200), (20, 400)], (NEW, "d"): [(10, 250), (20, 800)]}
    base = replace(history(), visible=visible)
    back = replace(base, queries=[asked("cy", 520, 530, hit(10, 0), generation=NEW)])
    assert judge(back).right, "by its own generation it is right"
    assert judge(back, served).regressed == 1
    assert judge(back, [served[0], served[1]._replace(strict=False)]).right, "going back may, and warns"
    forth = replace(base, queries=[asked("cy", 520, 530, hit(20, 1), generation=NEW)])
    assert judge(forth, served).right


def test_lag_counts_in_the_generation_that_served() -> None:
    assert lags(history(), [Period(OLD, 0, 250), Period(NEW, 250)]) == [0.1, 0.5, 0.3]
