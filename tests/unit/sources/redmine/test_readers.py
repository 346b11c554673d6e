"""Everybody's direct parents from constructed projects, memberships, groups and roles."""

from __future__ import annotations

import pytest

from pipeline.settings_sources import IdentitySettings
from pipeline.sources.connector import SourceUnavailable
from pipeline.sources.redmine import Redmine
from pipeline.sources.remote.contract import Readership
from tests.unit.sources.redmine.support import READ, Desk, account, member, project, role

MANAGER, DEVELOPER, OWN = 3, 4, 5
MEMBERS = {"view", "issues", "wiki"}


def parents(found: Readership) -> dict[str, set[str]]:
    """Parents by principal, without what all have in common."""
    return {m.principal: set(m.parents) for m in found.memberships}


def names(found: Readership, person: str, project_id: int = 1) -> set[str]:
    """Audiences of a project in which somebody is, by whatever way."""
    edges = parents(found)
    todo, seen = [f"user:{person}"], set()
    while todo:
        one = todo.pop()
        if one not in seen:
            seen.add(one)
            todo += edges.get(one, set())
    prefix = f"audience:desk/project:{project_id}/"
    return {one.removeprefix(prefix) for one in seen if one.startswith(prefix)}


@pytest.fixture
def desk() -> Desk:
    desk = Desk()
    desk.users = {n: account(n, login) for n, login in ((5, "ana"), (6, "ben"), (7, "cleo"))}
    desk.users[8] = account(8, "boss", admin=True)
    return desk


@pytest.fixture
def system(desk: Desk) -> Redmine:
    return desk.system()


@pytest.mark.requirement("A8", "I12")
def test_roles_give_what_they_say(desk: Desk, system: Redmine) -> None:
    desk.members[1] = [member("user", 5, MANAGER), member("user", 6, DEVELOPER), member("user", 7, OWN)]
    found = system.readers()
    assert names(found, "ana") == {*MEMBERS, "private", "notes"}
    assert names(found, "ben") == MEMBERS
    assert names(found, "cleo") == {"view", "wiki"}  # its own issues only
    assert names(found, "boss") == {*MEMBERS, "private", "notes"}
    assert names(found, "nobody") == set()
    desk.projects[1] |= {"enabled_modules": [{"id": 2, "name": "wiki"}]}
    assert {names(system.readers(), p) == {"wiki"} for p in ("ana", "ben", "cleo", "boss")} == {True}
    desk.roles[4] = role(4, [], "all")
    assert names(system.readers(), "ben") == set()
    desk.roles[4] = role(4, READ, "something new")  # unknown visibility reaches nothing but own issues
    desk.projects[1] = project(1)
    assert names(system.readers(), "ben") == {"view", "wiki"}


@pytest.mark.requirement("A8", "I12")
def test_public_projects_are_read_by_all_accounts_and_members_by_their_roles_alone(desk: Desk, system: Redmine) -> None:
    desk.projects[1] |= {"is_public": True}
    found = system.readers()
    assert names(found, "ana") == MEMBERS
    assert parents(found)["audience:desk/account:5"] == {"audience:desk/accounts"}
    desk.members[1] = [member("user", 5, OWN)]  # a member who sees less than everybody else
    found = system.readers()
    assert names(found, "ana") == {"view", "wiki"}
    assert names(found, "ben") == MEMBERS
    desk.members[1] = [member("group_non_member", 3, MANAGER), member("user", 6, DEVELOPER)]
    found = system.readers()
    assert names(found, "ana") == {*MEMBERS, "private", "notes"}
    assert names(found, "ben") == MEMBERS
    desk.projects[1] |= {"is_public": False}
    assert names(system.readers(), "ana") == set()


@pytest.mark.requirement("A8")
def test_groups_carry_their_members(desk: Desk, system: Redmine) -> None:
    desk.groups = {9: [5, 6, 99]}  # 99 is locked: it is in no list of accounts
    inherited = [member("user", n, DEVELOPER, inherited=True) for n in (5, 6)]
    desk.members[1] = [member("group", 9, DEVELOPER), *inherited]
    found = system.readers()
    assert parents(found)["group:desk/9"] == {f"audience:desk/project:1/{n}" for n in MEMBERS}
    assert parents(found)["audience:desk/account:5"] == {"audience:desk/accounts", "group:desk/9"}
    assert "audience:desk/account:99" not in parents(found)
    assert names(found, "ana") == MEMBERS
    desk.members[1] = [member("group", 9, DEVELOPER), inherited[0]]  # ben was taken out between the two answers
    found = system.readers()
    assert (names(found, "ana"), names(found, "ben")) == (MEMBERS, set())
    desk.groups = {9: []}
    desk.answers["/groups/9.json"] = 404  # deleted meanwhile
    assert names(system.readers(), "ana") == MEMBERS  # as the membership still says


@pytest.mark.requirement("A8", "I12")
def test_a_role_limited_to_trackers_is_found_by_whoever_has_it_alone(desk: Desk, system: Redmine) -> None:
    desk.members[1] = [member("user", 5, MANAGER), member("user", 6, DEVELOPER), member("user", 7, MANAGER, DEVELOPER)]
    desk.trackers = {"ana": [1], "cleo": [1, 2]}
    found = system.readers()
    assert names(found, "ana") == {"view/tracker:1", "issues/tracker:1", "private/tracker:1", "notes", "wiki"}
    assert names(found, "ben") == MEMBERS
    assert names(found, "cleo") == {*MEMBERS, "view/tracker:1", "issues/tracker:1", "private/tracker:1", "notes"}
    asked = desk.count["/projects/1.json"]
    system.readers()
    assert desk.count["/projects/1.json"] == asked  # for a minute
    desk.clock.advance(61)
    desk.trackers = {}
    assert names(system.readers(), "ana") == {*MEMBERS, "private", "notes"}


@pytest.mark.requirement("I12")
def test_of_roles_that_nobody_has_alone_only_what_is_sure_counts(desk: Desk, system: Redmine) -> None:
    desk.members[1] = [member("user", 5, MANAGER, DEVELOPER)]
    desk.trackers = {"ana": [1]}
    assert names(system.readers(), "ana") == {"view/tracker:1", "issues/tracker:1", "notes", "wiki"}
    desk.answers["/projects/1.json"] = 412  # locked between two answers
    desk.clock.advance(61)
    assert names(system.readers(), "ana") == {"notes", "wiki"}


@pytest.mark.requirement("A8")
def test_visitors(desk: Desk) -> None:
    desk.projects[1] |= {"is_public": True}
    assert "everyone" not in parents(desk.system().readers())
    shared = desk.system(anonymous="everyone")
    assert parents(shared.readers())["everyone"] == {f"audience:desk/project:1/{n}" for n in ("anonymous", "wiki")}
    desk.trackers = {"": [2]}
    desk.clock.advance(61)
    assert "audience:desk/project:1/anonymous/tracker:2" in parents(shared.readers())["everyone"]
    desk.members[1] = [member("group_anonymous", 2, OWN)]
    desk.roles[5] = role(5, ["view_wiki_pages"])
    assert parents(shared.readers())["everyone"] == {"audience:desk/project:1/wiki"}
    desk.projects[1] |= {"is_public": False}
    assert "everyone" not in parents(shared.readers())


@pytest.mark.requirement("A8", "I12")
def test_what_cannot_be_asked_is_closed(desk: Desk, system: Redmine) -> None:
    desk.projects |= {2: project(2, is_public=True)}
    desk.members = {1: [member("user", 5, MANAGER)], 2: []}
    desk.answers["/projects/1/memberships.json"] = 403  # archived meanwhile
    found = system.readers()
    assert (names(found, "ana"), names(found, "ana", 2)) == (set(), MEMBERS)
    assert not any("project:1/" in p for m in found.memberships for p in m.parents)
    del desk.roles[1]
    found = desk.system().readers()
    assert names(found, "ana", 2) == set() and len(found.alarms) == 1
    desk.answers["/users.json"] = 403
    with pytest.raises(SourceUnavailable, match="api_key of source desk must be an administrator's"):
        system.readers()


@pytest.mark.requirement("I12")
def test_addresses_that_their_owners_can_edit_join_nobody(desk: Desk) -> None:
    desk.members[1] = [member("user", 5, MANAGER)]
    by_mail = desk.system(identity=IdentitySettings(join="email")).readers()
    assert not any(m.principal.startswith("user:") for m in by_mail.memberships) and by_mail.problems
    proven = desk.system(identity=IdentitySettings(join="email", email_verified=True)).readers()
    assert names(proven, "ana@example.org") == {*MEMBERS, "private", "notes"}


@pytest.mark.requirement("A1")
def test_check(desk: Desk, system: Redmine) -> None:
    import httpx

    desk.answers["/users/current.json"] = lambda _: httpx.Response(
        200, json={"user": {"login": "sync", "admin": False}}
    )
    desk.issues[1] = {"id": 1, "updated_on": "2026-11-30T20:00:00Z", "description": "## Markdown\n\n```\nx\n```"}
    found = {f.what.split()[0]: f for f in system.check()}
    bad = [f.remedy or "" for f in system.check() if not f.good]
    assert len(found) > 2 and len(bad) == 2
    assert any("api_key of source desk" in r for r in bad) and any('text = "markdown"' in r for r in bad)
    desk.answers["/users/current.json"] = 403
    (only,) = system.check()
    assert not only.good and "REST" in (only.remedy or "")
