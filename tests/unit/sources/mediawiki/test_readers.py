"""Who may read a wiki: rights, groups, restricted namespaces, accounts and people."""

from __future__ import annotations

from typing import Any

import pytest

from pipeline.settings_sources import IdentitySettings, Person
from pipeline.sources.connector import SourceUnavailable
from pipeline.sources.remote.contract import Readership
from schemas.access import EVERYONE
from tests.unit.sources.mediawiki.fake import FakeWiki, connect

PEOPLE = (Person(id="ann"), Person(id="bob"), Person(id="carl"), Person(id="zoe", tenant="other"))


def user(id_: int, name: str, *groups: str, read: bool = True) -> dict[str, Any]:
    rights = ["edit", *(["read"] if read else [])]
    return {
        "userid": id_,
        "name": name,
        "groups": ["*", "user", *groups],
        "implicitgroups": ["*", "user"],
        "rights": rights,
    }


def readership(wiki: FakeWiki, **more: Any) -> Readership:
    return connect(wiki, PEOPLE, **({"identity": IdentitySettings(join="login")} | more)).readers()


def audiences(found: Readership, person: str | None) -> set[str]:
    """Namespaces that somebody reaches; None: who has no account."""
    parents = {m.principal: m.parents for m in found.memberships}
    todo = [EVERYONE] + ([f"user:{person}"] if person is not None else [])
    known = set(todo)
    while todo:
        for parent in parents.get(todo.pop(), ()):
            assert parent in parents, f"{parent} has no record"
            known |= {parent}
            todo.append(parent)
    return {p.removeprefix("audience:wiki/ns:") for p in known if p.startswith("audience:wiki/ns:")}


@pytest.mark.requirement("A8", "I12")
def test_an_open_wiki_is_for_everyone_or_for_its_accounts() -> None:
    wiki = FakeWiki()
    wiki.users = [user(1, "Ann"), user(2, "Bob", "hr")]
    found = readership(wiki)
    assert audiences(found, None) == audiences(found, "ann") == {"0", "6", "3002"}
    narrowed = readership(wiki, anonymous="accounts")
    assert audiences(narrowed, None) == set() and audiences(narrowed, "ann") == {"0", "6", "3002"}


@pytest.mark.requirement("A8", "I12")
def test_a_restricted_namespace_needs_its_group_and_the_right_to_read() -> None:
    wiki = FakeWiki()
    wiki.users = [user(1, "Ann"), user(2, "Bob", "hr"), user(3, "Carl", "hr", read=False)]
    found = readership(wiki, readers={3002: ("hr",)})
    assert audiences(found, None) == {"0", "6"}
    assert audiences(found, "bob") == {"0", "6", "3002"}
    wiki.rights["*"] = []
    found = readership(wiki, readers={3002: ("hr",)})
    assert audiences(found, None) == set()
    assert audiences(found, "ann") == {"0", "6"}
    assert audiences(found, "bob") == {"0", "6", "3002"}
    assert audiences(found, "carl") == set(), "a group alone gives no right to read"


@pytest.mark.requirement("A8", "I12")
def test_talk_is_restricted_as_what_it_is_about() -> None:
    wiki = FakeWiki()
    wiki.users = [user(1, "Ann"), user(2, "Bob", "hr")]
    found = readership(wiki, readers={3002: ("hr",)}, namespaces=(0, 3003))
    assert audiences(found, "ann") == {"0"} and audiences(found, "bob") == {"0", "3003"}


@pytest.mark.requirement("I12")
def test_a_restriction_that_only_the_wiki_knows_closes_the_namespace() -> None:
    wiki = FakeWiki()
    wiki.users = [user(1, "Ann")]
    wiki.page(1, "Harbour")
    wiki.page(2, "HR:Plan", ns=3002)
    wiki.denied = {"HR:Plan"}
    found = readership(wiki)
    assert audiences(found, "ann") == {"0", "6"}
    assert len(found.alarms) == 1 and "readers = { 3002 = [...] }" in found.alarms[0]
    wiki.denied = set()
    assert readership(wiki).alarms == ()


@pytest.mark.requirement("I12")
def test_accounts_are_people_by_login_whatever_the_wiki_does_to_its_case() -> None:
    wiki = FakeWiki()
    wiki.rights["*"] = []
    wiki.users = [user(1, "Ann"), user(2, "Bob"), user(3, "Zoe"), user(4, "Stranger")]
    found = readership(wiki)
    assert audiences(found, "ann") and audiences(found, "bob")
    assert audiences(found, "zoe") == set(), "of another tenant"
    assert "user:Zoe" in {m.principal for m in found.memberships}, "whom no directory knows is called as in the wiki"
    listed = readership(wiki, identity=IdentitySettings(join="listed", people={"Stranger": "ann"}))
    assert audiences(listed, "ann") and not audiences(listed, "bob")
    assert any("Bob" in problem for problem in listed.problems)


@pytest.mark.requirement("I12")
def test_two_people_who_would_be_one_account_are_neither() -> None:
    wiki = FakeWiki()
    wiki.rights["*"] = []
    wiki.users = [user(1, "Ann")]
    system = connect(wiki, (Person(id="ann"), Person(id="Ann")), identity=IdentitySettings(join="login"))
    assert audiences(system.readers(), "ann") == audiences(system.readers(), "Ann") == set()


@pytest.mark.requirement("I12")
def test_addresses_join_nobody_and_it_is_said() -> None:
    wiki = FakeWiki()
    wiki.users = [user(1, "Ann")]
    found = readership(wiki, identity=IdentitySettings(join="email"))
    assert "MediaWiki shows no addresses" in found.problems[0]


@pytest.mark.requirement("I12")
def test_an_unknown_group_is_an_alarm() -> None:
    found = readership(FakeWiki(), readers={3002: ("hr", "humanresources")})
    assert len(found.alarms) == 1 and "humanresources" in found.alarms[0]


@pytest.mark.requirement("A8")
def test_all_accounts_are_read_whatever_the_size_of_an_answer() -> None:
    wiki = FakeWiki()
    wiki.rights["*"] = []
    wiki.users = [user(n, f"User{n}") for n in range(1, 12)]
    wiki.page_size = 3
    assert all(audiences(readership(wiki), f"User{n}") for n in range(1, 12))


@pytest.mark.requirement("A8", "I8")
def test_a_list_of_accounts_that_does_not_end_is_no_answer() -> None:
    wiki = FakeWiki()
    wiki.users = [user(1, "Ann")]
    wiki._part = lambda *_: {"query": {}, "continue": {"aufrom": "Ann"}}  # type: ignore[method-assign]
    with pytest.raises(SourceUnavailable):
        readership(wiki)
