"""Memberships that end by the clock: what of them takes away, what gives, what is nothing new."""

from __future__ import annotations

import pytest
from pydantic import ValidationError

from pipeline.ports import SourceMembership
from pipeline.sources.changes import Change
from schemas.api_changes import CHANGES
from schemas.events import MembershipSet
from tests.unit.sources.support import Bench

A, B, DENIED = "group:kb/a", "group:kb/b", "audience:kb/x#deny"
DAY = 24 * 3600 * 1_000_000


@pytest.fixture
def bench() -> Bench:
    return Bench()


def member(*parents: str, name: str = "user:ann", **until: int) -> SourceMembership:
    names = {"a": A, "b": B, "denied": DENIED}
    return SourceMembership("acme", name, parents, until={names[key]: end for key, end in until.items()})


def say(bench: Bench, *seen: SourceMembership, gains: bool = True) -> list[tuple[dict[str, int], bool]]:
    """The ends that are written, and whether at once; over a restart."""
    changes: list[Change] = bench.ledger.memberships(seen, gains=gains)
    bench.write(changes)
    bench.reload()
    return [(c.membership[0].until, c.urgent) for c in changes]


@pytest.mark.requirement("A8", "I4")
def test_a_nearer_end_takes_away_and_a_later_one_gives(bench: Bench) -> None:
    now = bench.clock.now()
    assert say(bench, member(A, B)) == [({}, False)]
    assert say(bench, member(A, B, a=now + DAY)) == [({A: now + DAY}, True)], "newly set"
    assert say(bench, member(A, B, a=now + DAY)) == [], "remembered over the restart"
    assert say(bench, member(A, B, a=now + 2 * DAY)) == [({A: now + 2 * DAY}, False)]
    assert say(bench, member(A, B, a=now + DAY)) == [({A: now + DAY}, True)]
    assert say(bench, member(A, B)) == [({}, False)], "the end is taken back"


@pytest.mark.requirement("A8", "I4", "I12")
def test_in_what_denies_it_is_the_other_way_round(bench: Bench) -> None:
    now = bench.clock.now()
    say(bench, member(DENIED, denied=now + DAY))
    assert say(bench, member(DENIED, denied=now + 2 * DAY)) == [({DENIED: now + 2 * DAY}, True)]
    assert say(bench, member(DENIED, denied=now + DAY)) == [({DENIED: now + DAY}, False)]
    assert say(bench, member(DENIED)) == [({}, True)]


@pytest.mark.requirement("A8", "I4")
def test_without_gains_the_nearer_end_counts_and_in_what_denies_the_later(bench: Bench) -> None:
    now = bench.clock.now()
    say(bench, member(A, B, DENIED, a=now + DAY, b=now + DAY, denied=now + DAY))
    swapped = member(A, B, DENIED, a=now + 2 * DAY, b=now + 1, denied=now + 2 * DAY)
    assert say(bench, swapped, gains=False) == [({A: now + DAY, B: now + 1, DENIED: now + 2 * DAY}, True)]
    assert say(bench, swapped, gains=False) == []
    assert say(bench, swapped) == [({A: now + 2 * DAY, B: now + 1, DENIED: now + 2 * DAY}, False)]
    assert say(bench, member(A, B, a=now + 2 * DAY, b=now + 1), gains=False) == [], "a denial that goes is a gain"


@pytest.mark.requirement("I4")
def test_an_undecided_parent_keeps_its_end(bench: Bench) -> None:
    now = bench.clock.now()
    say(bench, member(A, B, a=now + DAY))
    changes = bench.ledger.memberships([member(B, b=now + 5)], undecided=frozenset({A}))
    assert [(c.membership[0].parents, c.membership[0].until) for c in changes] == [((A, B), {A: now + DAY, B: now + 5})]


@pytest.mark.requirement("I4")
def test_what_leads_to_a_denial_no_more_does_not_deny(bench: Bench) -> None:
    now = bench.clock.now()
    say(bench, member(DENIED, name=A, denied=now + DAY), member(name="user:ann"))
    (denied,) = bench.ledger.memberships([member(A)])
    assert denied.urgent
    bench.reload()
    bench.clock.advance(2 * 24 * 3600)
    (given,) = bench.ledger.memberships([member(A)])
    assert not given.urgent


@pytest.mark.requirement("I12")
def test_an_end_of_nothing_is_refused() -> None:
    with pytest.raises(ValidationError, match="not among 'parents'"):
        MembershipSet(
            tenant="acme", principal="user:ann", parents=(A,), until={B: 5}, version=1, observed_at=1, source="kb"
        )
    change = {"type": "membership", "tenant": "acme", "principal": "user:ann", "parents": [A]}
    with pytest.raises(ValidationError, match="not among 'parents'"):
        CHANGES.validate_python([{**change, "until": {B: 2 * 10**15}}])
    with pytest.raises(ValidationError, match="valid integer"):
        CHANGES.validate_python([{**change, "until": {A: "tomorrow"}}])
    with pytest.raises(ValidationError, match="microseconds"):  # in seconds it would have ended in 1970
        CHANGES.validate_python([{**change, "until": {A: 1_900_000_000}}])


@pytest.mark.requirement("I12")
def test_a_payload_without_ends_is_what_it_was_before_there_were_any() -> None:
    event = MembershipSet(tenant="acme", principal="user:ann", parents=(A,), version=1, observed_at=1, source="kb")
    assert "until" not in event.model_dump_json()
