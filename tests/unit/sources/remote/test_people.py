"""Accounts joined to people: only where it is sure."""

from __future__ import annotations

import pytest

from pipeline.settings_sources import IdentitySettings, Person
from pipeline.sources.remote.people import Account, Members, account_of, group_of, join


def settings(**given: object) -> IdentitySettings:
    return IdentitySettings.model_validate(given)


ANN = Account("1", "ann", "Ann@Acme.example", verified=True)
BOB = Account("2", "bob", "bob@acme.example")


@pytest.mark.requirement("I12", "A8")
def test_nobody_is_joined_unless_it_is_said_how() -> None:
    found = join([ANN, BOB], settings())
    assert found.people == {} and "ann, bob" in found.problems[0]


@pytest.mark.requirement("A8")
def test_an_address_joins_only_where_it_is_verified() -> None:
    found = join([ANN, BOB], settings(join="email"))
    assert found.people == {"1": "ann@acme.example"} and "not verified" in found.problems[0]
    assert join([ANN, BOB], settings(join="email", email_verified=True)).people == {
        "1": "ann@acme.example",
        "2": "bob@acme.example",
    }


@pytest.mark.requirement("I12")
def test_one_address_of_two_accounts_joins_neither() -> None:
    twin = Account("3", "ann2", "ann@acme.EXAMPLE", verified=True)
    found = join([ANN, twin], settings(join="email"))
    assert found.people == {} and "ann, ann2" in found.problems[0]


@pytest.mark.requirement("I12")
def test_a_directory_decides_whose_an_address_is() -> None:
    people = (Person(id="a.smith", emails=("ann@acme.example",)), Person(id="b.jones", emails=("bob@acme.example",)))
    assert join([ANN, BOB], settings(join="email", email_verified=True), people).people == {
        "1": "a.smith",
        "2": "b.jones",
    }
    both = (*people, Person(id="other", emails=("ANN@acme.example",)))
    assert join([ANN], settings(join="email"), both).people == {}
    assert join([ANN], settings(join="email"), people[1:]).people == {}


@pytest.mark.requirement("A8")
def test_what_is_configured_goes_before_everything() -> None:
    found = join([ANN, BOB], settings(join="email", people={"1": "a.smith", "bob": "b.jones"}))
    assert found.people == {"1": "a.smith", "2": "b.jones"} and found.problems == []


@pytest.mark.requirement("A8")
def test_a_login_is_a_name_where_the_settings_say_so() -> None:
    assert join([ANN, BOB], settings(join="login")).people == {"1": "ann", "2": "bob"}


@pytest.mark.requirement("A8", "I12")
def test_a_locked_account_joins_nobody() -> None:
    locked = Account("1", "ann", "ann@acme.example", verified=True, active=False)
    assert join([locked], settings(join="email", people={"1": "ann"})).people == {}


@pytest.mark.requirement("I12")
@pytest.mark.parametrize("login", ["", " ann", "ann\u200b", "a\nb"])
def test_a_login_that_cannot_be_a_name_joins_nobody(login: str) -> None:
    assert join([Account("1", login)], settings(join="login")).people == {}


@pytest.mark.requirement("A1")
def test_a_renamed_account_changes_no_membership_but_its_join() -> None:
    def whole(login: str) -> dict[str, tuple[str, ...]]:
        members = Members("acme", "wiki")
        members.joined(join([Account("7", login)], settings(people={"7": "ann"})))
        members.add(account_of("wiki", "7"), group_of("wiki", "staff"))
        return {m.principal: m.parents for m in members.whole()}

    assert (
        whole("ann")
        == whole("ann-the-great")
        == {
            "audience:wiki/account:7": ("group:wiki/staff",),
            "user:ann": ("audience:wiki/account:7",),
        }
    )


@pytest.mark.requirement("E1")
def test_two_sources_name_their_accounts_apart() -> None:
    assert account_of("wiki", "7") != account_of("tickets", "7") and group_of("wiki", "7") != account_of("wiki", "7")
