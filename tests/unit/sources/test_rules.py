"""Comparing rules: the judgement "narrower" is never wrong for any caller (property test by brute force)."""

from __future__ import annotations

from itertools import chain, combinations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pipeline.sources.rules import is_within, reaches_nobody, rule_hash
from schemas.access import AccessRule, Clause, Closure, Grant

NAMES = ("user:a", "group:b", "audience:c", "everyone")
TIMES = (0, 5, 10, 15)
principals = st.sampled_from((*NAMES, "nobody"))
grants = st.builds(Grant, principal=principals, until=st.sampled_from((None, 5, 10)))
clauses = st.lists(grants, min_size=1, max_size=3).map(lambda g: Clause(any_of=tuple(g)))
rules = st.builds(
    AccessRule,
    clauses=st.lists(clauses, min_size=1, max_size=3).map(tuple),
    deny=st.lists(st.sampled_from(NAMES), max_size=2).map(tuple),
)
CALLERS = [
    Closure(principals=frozenset(names), complete=complete)
    for names in chain.from_iterable(combinations(NAMES, n) for n in range(len(NAMES) + 1))
    for complete in (True, False)
]


def readers(rule: AccessRule) -> set[tuple[int, int]]:
    return {(i, t) for i, caller in enumerate(CALLERS) for t in TIMES if rule.admits(caller, t)}


@pytest.mark.requirement("I4", "A8")
@given(rules, rules)
def test_within_means_that_nobody_gains(new: AccessRule, old: AccessRule) -> None:
    if is_within(new, old):
        assert readers(new) <= readers(old)


@pytest.mark.requirement("I4")
@given(rules, rules)
def test_equal_hashes_mean_equal_readers(one: AccessRule, other: AccessRule) -> None:
    if rule_hash(one) == rule_hash(other):
        assert readers(one) == readers(other)


@given(rules)
def test_a_rule_is_within_itself_however_it_is_written(rule: AccessRule) -> None:
    again = AccessRule(clauses=tuple(reversed(rule.clauses)) + rule.clauses[:1], deny=tuple(reversed(rule.deny)))
    assert rule_hash(again) == rule_hash(rule)
    assert is_within(again, rule) and is_within(rule, again)


@given(rules)
def test_nobody_is_within_everything(rule: AccessRule) -> None:
    nobody = AccessRule.nobody("closed")
    assert reaches_nobody(nobody) and is_within(nobody, rule)


@pytest.mark.parametrize(
    ("new", "old", "within"),
    [
        (AccessRule.any_of("user:a"), AccessRule.any_of("user:a", "user:b"), True),
        (AccessRule.any_of("user:a", "user:b"), AccessRule.any_of("user:a"), False),
        (AccessRule.any_of("user:a", deny=["group:x"]), AccessRule.any_of("user:a"), True),
        (AccessRule.any_of("user:a"), AccessRule.any_of("user:a", deny=["group:x"]), False),
        (AccessRule.any_of("user:a"), AccessRule.any_of("group:g"), False),
        (AccessRule.any_of("User:a".lower()), AccessRule.any_of("everyone"), False),
    ],
)
def test_table(new: AccessRule, old: AccessRule, within: bool) -> None:
    assert is_within(new, old) is within


def test_a_grant_that_ends_earlier_is_narrower() -> None:
    def until(t: int | None) -> AccessRule:
        return AccessRule(clauses=(Clause(any_of=(Grant(principal="user:a", until=t),)),))

    assert is_within(until(5), until(9)) and is_within(until(5), until(None))
    assert not is_within(until(9), until(5)) and not is_within(until(None), until(5))
