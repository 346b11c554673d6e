"""Who may read: the one function that decides, its pre-filter, and names that look alike."""

from __future__ import annotations

import unicodedata
from urllib.parse import unquote

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st
from pydantic import ValidationError

from schemas.access import (
    EVERYONE,
    NOBODY,
    AccessRule,
    Clause,
    Closure,
    Grant,
    audience,
    deny_audience,
    group,
)

NOW = 1_772_438_400_000_000
NAMES = ["user:ann", "user:bob", "group:eng", "group:staff", "audience:s/a", EVERYONE, NOBODY]

names = st.sampled_from(NAMES)
grants = st.builds(Grant, principal=names, until=st.none() | st.sampled_from([NOW - 1, NOW, NOW + 1, NOW + 10**9]))
clauses = st.builds(
    Clause,
    any_of=st.lists(grants, min_size=1, max_size=4).map(tuple),
    size_hint=st.none() | st.integers(0, 2**53 - 1),
)
rules = st.builds(
    AccessRule,
    clauses=st.lists(clauses, min_size=1, max_size=4).map(tuple),
    deny=st.lists(names, max_size=2).map(tuple),
)
closures = st.builds(Closure, principals=st.frozensets(names), complete=st.booleans())


def closure(*principals: str, complete: bool = True) -> Closure:
    return Closure(principals=frozenset(principals), complete=complete)


def rule(*any_ofs: tuple[str, ...], deny: tuple[str, ...] = ()) -> AccessRule:
    return AccessRule(
        clauses=tuple(Clause(any_of=tuple(Grant(principal=p) for p in any_of)) for any_of in any_ofs), deny=deny
    )


@pytest.mark.requirement("I3", "I12", "B1")
@pytest.mark.parametrize(
    ("case", "the_rule", "caller", "admitted"),
    [
        ("one clause, named", rule(("user:ann",)), closure("user:ann"), True),
        ("one clause, any of", rule(("user:bob", "user:ann")), closure("user:ann"), True),
        ("one clause, not named", rule(("user:bob",)), closure("user:ann"), False),
        ("everyone", rule((EVERYONE,)), closure("user:ann", EVERYONE), True),
        ("everyone, caller is nobody", rule((EVERYONE,)), Closure.of_nobody(), False),
        ("two clauses, both", rule(("group:eng",), ("group:staff",)), closure("group:eng", "group:staff"), True),
        ("two clauses, first alone", rule(("group:eng",), ("group:staff",)), closure("group:eng"), False),
        ("two clauses, second alone", rule(("group:eng",), ("group:staff",)), closure("group:staff"), False),
        ("denied", rule((EVERYONE,), deny=("user:ann",)), closure("user:ann", EVERYONE), False),
        ("deny of somebody else", rule((EVERYONE,), deny=("user:bob",)), closure("user:ann", EVERYONE), True),
        ("deny of a group wins over a name", rule(("user:ann",), deny=("group:eng",)),
         closure("user:ann", "group:eng"), False),
        ("incomplete, no deny", rule(("user:ann",)), closure("user:ann", complete=False), True),
        ("incomplete, a deny set", rule(("user:ann",), deny=("user:bob",)), closure("user:ann", complete=False), False),
        ("nobody", AccessRule.nobody("x"), closure("user:ann", EVERYONE), False),
        ("nobody, caller claims the marker", AccessRule.nobody("x"), closure("user:ann", NOBODY), False),
        ("nobody beside a name", rule((NOBODY, "user:ann")), closure("user:ann"), True),
        ("nobody as a second clause", rule((EVERYONE,), (NOBODY,)), closure("user:ann", EVERYONE, NOBODY), False),
        ("no principals at all", rule((EVERYONE,)), closure(), False),
    ],
)  # fmt: skip
def test_truth_table(case: str, the_rule: AccessRule, caller: Closure, admitted: bool) -> None:
    assert the_rule.admits(caller, NOW) is admitted, case


@pytest.mark.requirement("I3")
@pytest.mark.parametrize(
    ("until", "admitted"), [(None, True), (NOW + 1, True), (NOW, False), (NOW - 1, False), (0, False)]
)
def test_until_is_exclusive(until: int | None, admitted: bool) -> None:
    the_rule = AccessRule(clauses=(Clause(any_of=(Grant(principal="user:ann", until=until),)),))
    assert the_rule.admits(closure("user:ann"), NOW) is admitted


@pytest.mark.requirement("I3")
def test_an_ended_grant_does_not_take_away_a_lasting_one() -> None:
    both = (Grant(principal="user:ann", until=NOW), Grant(principal="group:eng"))
    assert AccessRule(clauses=(Clause(any_of=both),)).admits(closure("user:ann", "group:eng"), NOW)


@pytest.mark.requirement("I4")
@given(rules, st.frozensets(names), st.data())
def test_prefilter_never_hides_an_admitted_caller(
    the_rule: AccessRule, others: frozenset[str], data: st.DataObject
) -> None:
    # a caller who holds one name of each clause, so that most examples are admitted
    chosen = {data.draw(st.sampled_from(clause.any_of)).principal for clause in the_rule.clauses}
    caller = Closure(principals=(others - set(the_rule.deny)) | chosen)
    if the_rule.admits(caller, NOW):
        for allow in the_rule.prefilter():
            assert caller.principals & set(allow)


@pytest.mark.requirement("I4")
@given(rules)
def test_prefilter_is_two_clauses_of_the_rule_and_never_their_union(the_rule: AccessRule) -> None:
    allow, allow2 = the_rule.prefilter()
    listed = [clause.names() for clause in the_rule.clauses]
    assert allow in listed
    assert allow2 in listed
    if len(the_rule.clauses) == 1:
        assert allow == allow2
    else:
        listed.remove(allow)
        assert allow2 in listed, "the second filter is another clause"


@pytest.mark.requirement("I4")
@pytest.mark.parametrize(
    ("hints", "grants_each", "order"),
    [
        ((120, 14, 3), (1, 1, 1), (2, 1)),
        ((None, 14, None), (1, 1, 2), (1, 0)),
        ((None, None, None), (3, 1, 2), (1, 2)),
        ((None, None, None), (1, 1, 1), (2, 1)),
        ((2**40, 2**39, None), (1, 1, 1), (1, 0)),
    ],
)
def test_prefilter_takes_the_clauses_with_the_fewest_people(
    hints: tuple[int | None, ...], grants_each: tuple[int, ...], order: tuple[int, int]
) -> None:
    clauses_ = tuple(
        Clause(any_of=tuple(Grant(principal=f"user:{i}-{n}") for n in range(count)), size_hint=hint)
        for i, (hint, count) in enumerate(zip(hints, grants_each, strict=True))
    )
    assert AccessRule(clauses=clauses_).prefilter() == (clauses_[order[0]].names(), clauses_[order[1]].names())


@pytest.mark.requirement("I4")
@pytest.mark.parametrize("hint", [None, 0, 5, 2**53 - 1])
def test_everyone_is_the_last_choice_whatever_its_hint(hint: int | None) -> None:
    wide = Clause(any_of=(Grant(principal=EVERYONE),), size_hint=hint)
    narrow = Clause(any_of=tuple(Grant(principal=f"user:{n}") for n in range(9)), size_hint=2**53 - 1)
    assert AccessRule(clauses=(narrow, wide)).prefilter() == (narrow.names(), [EVERYONE])


@pytest.mark.requirement("I12")
@given(closures, st.text(max_size=600))
def test_nobody_admits_nobody(caller: Closure, reason: str) -> None:
    assert not AccessRule.nobody(reason).admits(caller, NOW)


@pytest.mark.requirement("I12")
@given(rules)
def test_the_empty_caller_reads_nothing(the_rule: AccessRule) -> None:
    assert not the_rule.admits(Closure.of_nobody(), NOW)


@pytest.mark.requirement("I12")
@given(rules, st.frozensets(names, min_size=1))
def test_an_incomplete_closure_passes_no_deny_set(the_rule: AccessRule, principals: frozenset[str]) -> None:
    assume(the_rule.deny)
    assert not the_rule.admits(Closure(principals=principals, complete=False), NOW)


@pytest.mark.requirement("I3")
@given(rules, st.frozensets(names, min_size=1), st.data())
def test_deny_wins(the_rule: AccessRule, principals: frozenset[str], data: st.DataObject) -> None:
    denied = data.draw(st.sampled_from(sorted(principals)))
    closed = the_rule.model_copy(update={"deny": (*the_rule.deny, denied)})
    assert not closed.admits(Closure(principals=principals), NOW)


@pytest.mark.requirement("I3")
@given(rules, closures, clauses)
def test_a_further_clause_never_admits_more(the_rule: AccessRule, caller: Closure, extra: Clause) -> None:
    narrower = the_rule.model_copy(update={"clauses": (*the_rule.clauses, extra)})
    assert the_rule.admits(caller, NOW) or not narrower.admits(caller, NOW)


@pytest.mark.requirement("I3")
@given(rules, closures)
def test_admission_is_every_clause_and_no_deny(the_rule: AccessRule, caller: Closure) -> None:
    """The rule spelt out once more, in sets."""
    live = [{g.principal for g in c.any_of if g.until is None or g.until > NOW} - {NOBODY} for c in the_rule.clauses]
    expected = (
        bool(caller.principals)
        and all(caller.principals & names_ for names_ in live)
        and not (caller.principals & set(the_rule.deny))
        and (caller.complete or not the_rule.deny)
    )
    assert the_rule.admits(caller, NOW) is expected


# ---------------------------------------------------------------- spelling of principals

LOOK_ALIKES = [
    "Group:eng", "GROUP:eng", "group:eng ", " group:eng", "group: eng", "group:", "user:", "audience:", "user: ",
    "Everyone", "everyone ", "NOBODY", "eng", "", "group", "group;eng", "role:eng", "groups:eng",
    "group\uff1aeng",        # full-width colon
    "group:eng\u200b",       # zero-width space
    "group:e\u200dng",       # zero-width joiner
    "group:\ufeffeng",       # byte order mark
    "group:e\u00adng",       # soft hyphen
    "group:\u202egne",       # right-to-left override
    "group:\u2066eng\u2069", # isolates
    "group:eng\u00a0", "group:e\u00a0ng", "group:e\u2003ng", "group:e\u3000ng",  # other blanks
    "group:eng\t", "group:e\ng", "group:e\x00g", "group:e\x7fg", "group:e\x85g",
    "group:eng\u2028", "group:eng\ufe0f", "group:eng\U000e0100", "group:\u3164", "group:eng\u034f", "group:eng\u2800",
    "group:eng\ue000",       # private use
    "group:cafe\u0301",      # decomposed
    "group:\u212bngstr\u00f6m",  # compatibility singleton of U+00C5
    "user:\ud800",
    "user:" + "x" * 1024,
]  # fmt: skip


@pytest.mark.requirement("I12")
@pytest.mark.parametrize("principal", LOOK_ALIKES, ids=[ascii(p)[:40] for p in LOOK_ALIKES])
def test_look_alikes_are_refused_everywhere(principal: str) -> None:
    with pytest.raises(ValidationError):
        Grant(principal=principal)
    with pytest.raises(ValidationError):
        AccessRule.any_of("user:ann", deny=[principal])


@pytest.mark.requirement("I12")
@pytest.mark.parametrize(
    "other",
    ["group:Eng", "group:ENG", "group:eng-", "group:eng/x", "group:еng", "user:eng", "audience:eng", "group:e ng"],
)
def test_what_is_allowed_and_looks_near_stays_another_principal(other: str) -> None:
    assert Grant(principal=other).principal == other
    assert not AccessRule.any_of("group:eng").admits(closure(other), NOW)
    assert not AccessRule.any_of(other).admits(closure("group:eng"), NOW)
    assert AccessRule.any_of(other, deny=["group:eng"]).admits(closure(other), NOW)


@pytest.mark.parametrize(
    "principal",
    ["user:ann", "user:ann@example.com", "group:wiki/Ingénierie", "group:ключи", "user:日本 太郎", "audience:s/",
     "audience:s/a b/c", "audience:s/a#deny", "user:everyone", EVERYONE, NOBODY],
)  # fmt: skip
def test_ordinary_principals_pass_unchanged(principal: str) -> None:
    assert Grant(principal=principal).principal == principal


@pytest.mark.requirement("I12")
@given(st.text(max_size=8))
def test_whatever_passes_is_visible_and_composed(name: str) -> None:
    try:
        principal = Grant(principal=f"user:{name}").principal
    except ValidationError:
        return
    assert unicodedata.is_normalized("NFC", principal)
    assert name == name.strip()
    assert all(unicodedata.category(c)[0] not in "C" for c in name)


@pytest.mark.parametrize(
    "make",
    [
        lambda: AccessRule(clauses=()),
        lambda: Clause(any_of=()),
        lambda: AccessRule.any_of(),
        lambda: Clause(any_of=(Grant(principal="user:a"),), size_hint=-1),
        lambda: Grant(principal="user:a", until=-1),
        lambda: Grant(principal="user:a", until=2**53),
        lambda: AccessRule.model_validate({"clauses": [{"any_of": [{"principal": "user:a"}]}], "allow": ["everyone"]}),
        lambda: Grant.model_validate({"principal": "user:a", "until": "17"}),
        lambda: Grant.model_validate({"principal": "user:a", "until": 17.0}),
        lambda: Grant.model_validate({"principal": "user:a", "until": True}),
    ],
)
@pytest.mark.requirement("I12")
def test_a_rule_that_says_less_or_more_than_it_should_is_refused(make: object) -> None:
    assert callable(make)
    with pytest.raises(ValidationError):
        make()


def test_a_long_reason_is_cut() -> None:
    assert len(AccessRule.nobody("x" * 2000).reason or "") == 500


# ---------------------------------------------------------------- audiences

FOLDERS = st.text(
    st.one_of(st.sampled_from("ab/#%~. \u0301é\u200b日2F3"), st.characters()), max_size=10
)  # lone surrogates included: names of files that are not UTF-8


@pytest.mark.requirement("I12", "F09")
@given(FOLDERS, FOLDERS)
def test_distinct_containers_are_distinct_audiences(one: str, other: str) -> None:
    made = {make("s", name) for make in (audience, deny_audience, group) for name in (one, other)}
    assert len(made) == (3 if one == other else 6)
    for principal in made:
        assert Grant(principal=principal).principal == principal


@pytest.mark.requirement("I12")
@given(FOLDERS)
def test_a_container_is_read_back_from_its_audience(name: str) -> None:
    spelt = audience("s", name).removeprefix("audience:s/")
    assert unquote(spelt, errors="surrogatepass") == name


@pytest.mark.requirement("I12")
@pytest.mark.parametrize("container", ["a#deny", "a%23deny", "%", "a/", "/a", "", "cafe\u0301", " a ", "\udcff"])
def test_no_container_can_pose_as_the_deny_set_of_another(container: str) -> None:
    assert audience("s", container) != deny_audience("s", container.removesuffix("#deny"))
    assert audience("s", container).count("#") == 0


@pytest.mark.requirement("I12")
def test_very_long_containers_stay_distinct_and_within_limits() -> None:
    longest = "s" * 256
    one, other = audience(longest, "é/" * 2000 + "a"), audience(longest, "é/" * 2000 + "b")
    assert one != other
    for principal in (one, other, deny_audience(longest, "\u200b" * 4000)):
        assert Grant(principal=principal).principal == principal
