"""Access files: parsing, closing, and that the memberships and rules mean what the files say (by brute force)."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pipeline.sources.folder import names
from pipeline.sources.folder.access import (
    OPEN,
    AccessFileError,
    FolderAccess,
    Groups,
    closed_denials,
    memberships,
    parse_access,
    parse_groups,
    reach,
    rule_of,
)
from schemas.access import EVERYONE, Closure

GROUPS = Groups(
    frozenset({"ann", "bob"}), {"eng": frozenset({"user:ann", "group:sre"}), "sre": frozenset({"user:bob"})}
)


@pytest.mark.requirement("A1")
def test_a_file_as_it_should_be() -> None:
    access = parse_access(b"allow: [user:ann, group:eng, everyone]\ndeny: ['user:bob']\n", ".access.yaml")
    assert access == FolderAccess(frozenset({"user:ann", "group:eng", "everyone"}), frozenset({"user:bob"}))
    assert parse_access(b"\xef\xbb\xbfallow: []\n", "f").allow == frozenset()


@pytest.mark.requirement("I12")
@pytest.mark.parametrize(
    ("text", "field", "remedy"),
    [
        ("allow: [ann]", "allow[0]", "user:ann, group:eng or everyone"),
        ("allow: [user:ann, Everyone]", "allow[1]", "user:ann"),
        ("allow: [USER:ann]", "allow[0]", "user:ann"),
        ("allow: [audience:x/y]", "allow[0]", "user:ann"),
        ("allow: ['user:']", "allow[0]", "user:ann"),
        ("allow: ['user: ann']", "allow[0]", "user:ann"),
        ("allow: [' user:ann']", "allow[0]", "bare name"),
        ("allow: [7]", "allow[0]", "quoted"),
        ("allow: [null]", "allow[0]", "quoted"),
        ("allow: user:ann", "allow", "Write allow: ["),
        ("allow: {user: ann}", "allow", "Write allow: ["),
        ("deny: [user:ann]", "allow", "allow: [everyone]"),
        ("allow: [everyone]\ndenied: [user:bob]", "denied", "allow and deny"),
        ("allow: [everyone]\nallow: [user:ann]", "line", "Correct"),
        ("allow: [everyone", "line", "Correct"),
        ("[everyone]", "file", "one key"),
        ("", "file", "one key"),
        ("allow: !!python/object/apply:os.system ['true']", "line", "Correct"),
    ],
)
def test_what_cannot_be_read_names_file_field_and_remedy(text: str, field: str, remedy: str) -> None:
    with pytest.raises(AccessFileError) as raised:
        parse_access(text.encode(), "hr/.access.yaml")
    assert str(raised.value).startswith(f"hr/.access.yaml: {field}") and remedy in str(raised.value)


def test_bytes_that_are_no_text_and_files_without_end_are_refused() -> None:
    with pytest.raises(AccessFileError, match="UTF-8"):
        parse_access(b"allow: [\xff]", "f")
    with pytest.raises(AccessFileError, match="larger"):
        parse_access(b"#" * 1_000_001, "f")


@pytest.mark.requirement("A1")
def test_groups_as_list_or_mapping_with_cycles_and_unlisted_members() -> None:
    groups, problems = parse_groups(
        b"users: {ann: {name: Ann}, bob: null}\n"
        b"groups:\n  eng: [ann, user:bob, group:ops, ghost]\n  ops: [group:eng, group:none]\n"
    )
    assert groups.users == {"ann", "bob"}
    assert groups.groups["eng"] == {"user:ann", "user:bob", "group:ops"} and groups.groups["ops"] == {"group:eng"}
    assert len(problems) == 2 and "'ghost'" in problems[0] and "'none'" in problems[1]
    whole, _ = memberships("acme", "wiki", groups, {"": OPEN})
    assert "user:ghost" not in {m.principal for m in whole}
    assert reach(groups, {"": FolderAccess(frozenset({"group:ops"}))}) == {"": 2}  # the cycle is walked once


@pytest.mark.requirement("I12")
@pytest.mark.parametrize(
    "text",
    [
        "users: ann",
        "users: [1]",
        "groups: [eng]",
        "groups: {eng: ann}",
        "groups: {eng: [everyone]}",
        "groups: {eng: [[ann]]}",
        "users: [ann]\nteams: {}",
        "groups: {7: [ann]}",
    ],
)
def test_groups_that_cannot_be_read(text: str) -> None:
    with pytest.raises(AccessFileError, match=r"groups\.yaml: "):
        parse_groups(text.encode())


@pytest.mark.requirement("I12")
def test_names_that_reach_nobody_are_reported_and_grant_nothing() -> None:
    folders = {"hr": FolderAccess(frozenset({"user:ghost", "group:none"}))}
    whole, problems = memberships("acme", "wiki", GROUPS, folders)
    assert len(problems) == 2 and all("hr/.access.yaml" in p for p in problems)
    assert not any(names.audience("wiki", "hr") in m.parents for m in whole)


@pytest.mark.requirement("I12")
@pytest.mark.parametrize(
    ("groups", "closed"),
    [
        ("groups: {out: [cleo]}", False),
        ("groups: {external: [cleo]}", True),  # the group was renamed, the denial not
        ("groups: {out: [cleo, group:partners]}", True),
        ("groups: {out: [group:near], near: [group:far], far: [group:out, group:gone]}", True),
        ("groups: {out: [cleo], other: [group:gone]}", False),
    ],
)
def test_a_denial_of_a_group_that_cannot_be_told_closes_the_folder(groups: str, closed: bool) -> None:
    parsed, _ = parse_groups(f"users: [ann, cleo]\n{groups}".encode())
    folders = {"": OPEN, "hr": FolderAccess(frozenset({EVERYONE}), frozenset({"group:out", "user:left"}))}
    whole, _ = memberships("acme", "wiki", parsed, folders)
    assert any(names.audience("wiki", "hr") in m.parents for m in whole) is not closed
    reasons = closed_denials(parsed, folders)
    assert list(reasons) == (["hr"] if closed else [])
    assert all("hr/.access.yaml: deny: group:out" in reason for reason in reasons.values())


@pytest.mark.requirement("I12")
def test_every_audience_has_a_record_so_that_closures_are_complete() -> None:
    folders = {"": OPEN, "hr": FolderAccess(closed="broken")}
    whole, _ = memberships("acme", "wiki", GROUPS, folders)
    known = {m.principal for m in whole}
    named = {p for m in whole for p in m.parents} | {p for f in folders for p in rule_of("wiki", ["", f]).deny}
    assert named <= known


@pytest.mark.requirement("I4")
def test_a_rule_depends_on_the_path_alone_so_an_access_file_changes_no_document() -> None:
    rule = rule_of("wiki", names.folders_of("hr/pay/list.md"), {"": 3, "hr": 1, "hr/pay": 2})
    assert [c.names() for c in rule.clauses] == [["audience:wiki/"], ["audience:wiki/hr"], ["audience:wiki/hr/pay"]]
    assert rule.prefilter() == (["audience:wiki/hr"], ["audience:wiki/hr/pay"])
    assert len(rule.deny) == 3


PATHS = ("", "a", "a/b", "c")
PEOPLE = ("ann", "bob", "cleo")
GROUP_NAMES = ("g", "h", "k")
entries = st.frozensets(
    st.sampled_from([EVERYONE, *(f"user:{p}" for p in PEOPLE), *(f"group:{g}" for g in GROUP_NAMES)]), max_size=3
)
folder = st.one_of(
    st.just(OPEN), st.builds(FolderAccess, allow=entries, deny=entries), st.just(FolderAccess(closed="broken"))
)
group_members = st.frozensets(
    st.sampled_from([*(f"user:{p}" for p in PEOPLE), *(f"group:{g}" for g in GROUP_NAMES)]), max_size=3
)


def _in_group(person: str, group: str, groups: dict[str, frozenset[str]], seen: frozenset[str] = frozenset()) -> bool:
    if group in seen:
        return False
    return any(
        m == f"user:{person}"
        or (m.startswith("group:") and _in_group(person, m.removeprefix("group:"), groups, seen | {group}))
        for m in groups[group]
    )


def _listed(person: str, listed: frozenset[str], groups: dict[str, frozenset[str]]) -> bool:
    return (
        EVERYONE in listed
        or f"user:{person}" in listed
        or any(_in_group(person, e.removeprefix("group:"), groups) for e in listed if e.startswith("group:"))
    )


@pytest.mark.requirement("I3", "I4", "A8")
@settings(max_examples=150, deadline=None)
@given(
    st.fixed_dictionaries(dict.fromkeys(PATHS, folder)),
    st.fixed_dictionaries(dict.fromkeys(GROUP_NAMES, group_members)),
)
def test_intersected_access_equals_a_plain_reading_of_the_files(
    folders: dict[str, FolderAccess], groups: dict[str, frozenset[str]]
) -> None:
    whole, _ = memberships("acme", "wiki", Groups(frozenset(PEOPLE), groups), folders)
    parents = {m.principal: m.parents for m in whole}
    for person in PEOPLE:
        closure, todo = {f"user:{person}", EVERYONE}, [f"user:{person}", EVERYONE]
        while todo:
            for parent in parents[todo.pop()]:
                if parent not in closure:
                    closure.add(parent)
                    todo.append(parent)
        for path in ("x.md", "a/x.md", "a/b/x.md", "c/x.md"):
            above = names.folders_of(path)
            expected = all(
                _listed(person, folders[f].allow, groups) and not _listed(person, folders[f].deny, groups)
                for f in above
            )
            rule = rule_of("wiki", above)
            assert rule.admits(Closure(principals=frozenset(closure)), 0) is expected
