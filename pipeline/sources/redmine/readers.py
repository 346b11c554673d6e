"""Who belongs to which group and audience, by Redmine's own rules.

A member of a project has the roles of the membership and no others. Everybody else has those of "Non member" in public
projects, or the ones given there to the group of that name. Administrators may read everything. Locked accounts and
archived projects read and are read by nobody.

Where one edge says exactly the same as many, it stands for them: all accounts, a group, the administrators. Then taking
a project or a group away is one record.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

from pipeline.clock import Clock
from pipeline.settings_sources import Person, RedmineSettings
from pipeline.sources.connector import SourceUnavailable
from pipeline.sources.redmine.api import Api, Refused, ids
from pipeline.sources.redmine.roles import Holder, Project, Rights, Role, Trackers
from pipeline.sources.redmine.rows import Naming, Row
from pipeline.sources.remote.contract import Readership
from pipeline.sources.remote.people import Account, Members, account_of, group_of, join
from schemas.access import EVERYONE, audience

FIRST_ROLES = 50
"""Ids among which the two built-in roles are looked for: every Redmine makes them before all others."""


@dataclass
class Membership:
    """Who has which roles in a project."""

    project: Project
    accounts: dict[int, frozenset[int]] = field(default_factory=dict)
    groups: dict[int, frozenset[int]] = field(default_factory=dict)
    others: frozenset[int] = frozenset()  # roles of accounts that are no members
    anonymous: frozenset[int] = frozenset()


class Readers:
    """Of one source."""

    def __init__(
        self, api: Api, naming: Naming, settings: RedmineSettings, people: tuple[Person, ...], clock: Clock
    ) -> None:
        self._api, self._naming, self._settings, self._people = api, naming, settings, people
        self._trackers = Trackers(api, clock)
        self._built_in: tuple[int, ...] | None = None

    def read(self, projects: Iterable[Row]) -> Readership:
        """The whole state, for these projects. Raises SourceUnavailable."""
        active = {row["id"]: row for row in self._list("/users.json", "users", {"status": 1})}
        groups = self._groups(set(active))
        roles = self._roles()
        alarms = [] if self._built_in else [_NO_BUILT_IN]
        visitors = self._settings.anonymous == "everyone" and self._visitors()
        memberships = [m for row in projects if (m := self._membership(Project.of(row), visitors)) is not None]
        logins = {id_: str(row["login"]) for id_, row in active.items() if not row.get("admin")}
        rights = self._trackers.rights(roles, _holders(memberships, logins))
        joined = join((_account(row) for row in active.values()), self._settings.identity, self._people)
        members = self._members(active, groups)
        members.joined(joined)
        for one in memberships:
            self._project(one, rights, set(logins), groups, members)
        return Readership(members.whole(), problems=tuple(joined.problems), alarms=tuple(alarms))

    def _members(self, active: dict[int, Row], groups: dict[int, frozenset[int]]) -> Members:
        members = Members(self._naming.tenant, self._naming.source)
        members.add(self._accounts)
        members.add(self._admins)
        for group, inside in groups.items():
            members.add(self._group(group))
            for account in inside:
                members.add(self._account(account), self._group(group))
        for id_, row in active.items():
            members.add(self._account(id_), self._accounts, *([self._admins] if row.get("admin") else []))
        return members

    def _project(
        self, one: Membership, rights: Rights, accounts: set[int], groups: dict[int, frozenset[int]], members: Members
    ) -> None:
        """Edges into the audiences of a project. ``accounts`` are those that are active and no administrators."""
        project = one.project
        own = {id_: rights.of(roles, project) for id_, roles in one.accounts.items() if id_ in accounts}
        others = rights.of(one.others, project)
        shared = others.intersection(*own.values())  # all accounts have it
        names = {id_: own.get(id_, others) for id_ in accounts}
        covered: dict[int, frozenset[str]] = dict.fromkeys(accounts, shared)
        self._add(members, self._accounts, project, shared)
        self._add(members, self._admins, project, project.everything())
        for group, roles in one.groups.items():
            inside = groups.get(group, frozenset()) & accounts
            given = rights.of(roles, project) - shared
            if all(given <= names[id_] for id_ in inside):  # else the two lists were read at different times
                self._add(members, self._group(group), project, given)
                covered |= {id_: covered[id_] | given for id_ in inside}
        for id_, given in names.items():
            self._add(members, self._account(id_), project, given - covered[id_])
        if one.anonymous:
            self._add(members, EVERYONE, project, _anonymous(rights.of(one.anonymous, project, anonymous=True)))
        for name in project.everything():
            members.add(self._naming.audience(project.id, name))

    def _add(self, members: Members, who: str, project: Project, names: Iterable[str]) -> None:
        found = [self._naming.audience(project.id, name) for name in names]
        if found:
            members.add(who, *found)
            for one in found:
                members.add(one)

    def _membership(self, project: Project, visitors: bool) -> Membership | None:
        """None where the project was archived or deleted meanwhile."""
        try:
            rows = self._api.everything(f"/projects/{project.id}/memberships.json", "memberships")
        except Refused:
            return None
        found = Membership(project)
        built_in = self._built_in or ()
        if project.public and len(built_in) == 2:
            found.others = frozenset(built_in[:1])
            found.anonymous = frozenset(built_in[1:]) if visitors else frozenset()
        for row in rows:
            roles = frozenset(ids(row.get("roles")))
            if "user" in row:
                found.accounts[row["user"]["id"]] = roles
            elif "group" in row:
                found.groups[row["group"]["id"]] = roles
            elif "group_non_member" in row and project.public:
                found.others = roles
            elif "group_anonymous" in row and project.public and visitors:
                found.anonymous = roles
        return found

    def _groups(self, active: set[int]) -> dict[int, frozenset[int]]:
        found: dict[int, frozenset[int]] = {}
        for id_ in ids(self._list("/groups.json", "groups")):
            try:
                row = self._api.get(f"/groups/{id_}.json", {"include": "users"})
            except Refused:  # deleted meanwhile
                continue
            found[id_] = frozenset(ids((row.get("group") or {}).get("users"))) & active
        return found

    def _roles(self) -> dict[int, Role]:
        given = list(ids(self._list("/roles.json", "roles")))
        if self._built_in is None:
            self._built_in = self._find_built_in(set(given))
        found: dict[int, Role] = {}
        for id_ in {*given, *(self._built_in or ())}:
            role = self._role(id_)
            if role is not None:
                found[id_] = role
        return found

    def _find_built_in(self, given: set[int]) -> tuple[int, ...] | None:
        """Ids of "Non member" and "Anonymous": roles that exist and are in no list, in the order of their making."""
        found: list[int] = []
        for id_ in range(1, FIRST_ROLES + 1):
            if id_ not in given and self._role(id_) is not None:
                found.append(id_)
            if len(found) == 2:
                return tuple(found)
        return None

    def _role(self, id_: int) -> Role | None:
        try:
            return Role.of(self._api.get(f"/roles/{id_}.json")["role"])
        except Refused:
            return None

    def _visitors(self) -> bool:
        """Whether somebody without an account may look at anything at all."""
        try:
            self._api.get("/projects.json", {"limit": 1}, user="")
        except (Refused, SourceUnavailable):
            return False
        return True

    def _list(self, path: str, key: str, params: Row | None = None) -> list[Row]:
        try:
            return list(self._api.everything(path, key, params))
        except Refused as refused:
            raise SourceUnavailable(
                f"{path} is refused ({refused.status}): "
                f"api_key of source {self._naming.source} must be an administrator's"
            ) from refused

    @property
    def _accounts(self) -> str:
        return audience(self._naming.source, "accounts")

    @property
    def _admins(self) -> str:
        return audience(self._naming.source, "administrators")

    def _account(self, id_: int) -> str:
        return account_of(self._naming.source, str(id_))

    def _group(self, id_: int) -> str:
        return group_of(self._naming.source, str(id_))


_NO_BUILT_IN = (
    "the roles 'Non member' and 'Anonymous' were not found: public projects are read by their members only; "
    "give the key an account that may see all roles"
)


def _anonymous(names: frozenset[str]) -> set[str]:
    """Visitors see every issue that is not private, however far their role reaches."""
    seen = {name.replace("view", "anonymous", 1) for name in names if name.split("/")[0] == "view"}
    return seen | (names & {"wiki"})


def _holders(memberships: list[Membership], logins: dict[int, str]) -> Iterable[Holder]:
    for one in memberships:
        for id_, roles in one.accounts.items():
            if id_ in logins:
                yield Holder(one.project, roles, logins[id_])
        outsider = next((login for id_, login in logins.items() if id_ not in one.accounts), None)
        if one.others and outsider is not None:
            yield Holder(one.project, one.others, outsider)
        if one.anonymous:
            yield Holder(one.project, one.anonymous, "")


def _account(row: Row) -> Account:
    """Addresses can be typed by their owners: only the settings can say that they are proven."""
    return Account(str(row["id"]), login=row.get("login") or None, email=row.get("mail") or None)
