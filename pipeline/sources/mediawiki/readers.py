"""Who may read a wiki, by namespace.

The wiki-wide right to read is asked for each account as the wiki computes it, so that rights which its settings revoke
count as revoked. A restricted namespace is read by members of its groups who have that right. Protection and blocks do
not matter: they are about editing.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from pipeline.settings_sources import MediaWikiSettings, Person
from pipeline.sources.mediawiki.api import WikiApi
from pipeline.sources.mediawiki.site import WIKI_READERS, Scope, Site
from pipeline.sources.remote.contract import Readership
from pipeline.sources.remote.people import Account, Members, account_of, group_of, join
from schemas.access import EVERYONE, audience

ANYBODY, SIGNED_IN = "*", "user"
PER_PAGE = 500


def readership(api: WikiApi, scope: Scope, site: Site, directory: Iterable[Person]) -> Readership:
    """Everybody's direct parents. Accounts that belong to no person are not written: they let nobody in."""
    rows = _accounts(api)
    settings = scope.settings
    accounts = [Account(str(row["userid"]), login=row["name"]) for row in rows]
    joined = join(_as_persons(accounts, settings, list(directory)), settings.identity)
    members = Members(scope.tenant, settings.name)
    for principal in _containers(scope, site):
        members.add(principal)
    open_to_all = settings.anonymous == "everyone" and "read" in site.rights.get(ANYBODY, ())
    _anybody(members, scope, site, open_to_all)
    for row in rows:
        if str(row["userid"]) in joined.people:
            _account(members, scope, site, row)
    members.joined(joined)
    problems = list(joined.problems)
    if settings.identity.join == "email":
        problems.insert(0, "identity.join = 'email' joins nobody: MediaWiki shows no addresses; use 'login' or people")
    alarms = unknown_groups(scope, site) + [
        f"namespace {n} is restricted at the wiki and the settings do not say to whom, so nobody may read it: "
        f"write readers = {{ {n} = [...] }}"
        for n in sorted(scope.closed)
    ]
    return Readership(members.whole(), problems=tuple(problems), alarms=tuple(alarms))


def _accounts(api: WikiApi) -> list[dict[str, Any]]:
    rows: dict[int, dict[str, Any]] = {}
    asked = {"list": "allusers", "auprop": "groups|implicitgroups|rights", "aulimit": PER_PAGE}
    for answer in api.all(asked):
        for row in answer.get("query", {}).get("allusers", []):
            if row.get("userid"):
                rows[row["userid"]] = row
    return list(rows.values())


def _containers(scope: Scope, site: Site) -> list[str]:
    """Every audience and group has a record, so that nobody's closure meets a missing one."""
    name = scope.settings.name
    namespaces = [scope.audience(n) for n in scope.namespaces(site)]
    return [audience(name, WIKI_READERS), *namespaces, *(group_of(name, g) for g in site.rights if g != ANYBODY)]


def _anybody(members: Members, scope: Scope, site: Site, open_to_all: bool) -> None:
    """Namespaces that are not restricted are read by the wiki's readers; by all where it is open."""
    readers = audience(scope.settings.name, WIKI_READERS)
    for namespace in scope.namespaces(site):
        allowed = scope.restricted(namespace)
        if allowed is None:
            members.add(readers, scope.audience(namespace))
        elif ANYBODY in allowed and open_to_all:
            members.add(EVERYONE, scope.audience(namespace))
    if open_to_all:
        members.add(EVERYONE, readers)


def _account(members: Members, scope: Scope, site: Site, row: dict[str, Any]) -> None:
    name = scope.settings.name
    account = account_of(name, str(row["userid"]))
    groups = frozenset(row.get("groups", [])) | frozenset(row.get("implicitgroups", []))
    members.add(account, *(group_of(name, g) for g in groups if g in site.rights and g != ANYBODY))
    if "read" not in row.get("rights", ()):
        return
    members.add(account, audience(name, WIKI_READERS))
    for namespace in scope.namespaces(site):
        allowed = scope.restricted(namespace)
        if allowed is not None and allowed & (groups | {ANYBODY, SIGNED_IN}):
            members.add(account, scope.audience(namespace))


def _as_persons(accounts: list[Account], settings: MediaWikiSettings, directory: list[Person]) -> list[Account]:
    """Logins as the company writes them, where the directory knows one person who is called so but for the wiki's ways:
    the first letter of a login is in upper case there, and ``_`` is a blank."""
    if settings.identity.join != "login":
        return accounts
    named: dict[str, list[str]] = {}
    for person in directory:
        named.setdefault(_as_login(person.id), []).append(person.id)
    out = []
    for one in accounts:
        assert one.login is not None
        people = named.get(one.login, [])
        listed = one.id in settings.identity.people or one.login in settings.identity.people
        if listed or not people:
            out.append(one)
        elif len(people) == 1:
            out.append(Account(one.id, login=people[0]))
        else:
            out.append(Account(one.id))  # two people would be one account: neither is
    return out


def _as_login(person: str) -> str:
    name = person.replace("_", " ").strip()
    return name[:1].upper() + name[1:]


def unknown_groups(scope: Scope, site: Site) -> list[str]:
    """Groups in the settings that the wiki does not have."""
    alarms = []
    for namespace, groups in sorted(scope.settings.readers.items()):
        unknown = sorted(set(groups) - set(site.rights) - {ANYBODY, SIGNED_IN})
        if unknown:
            alarms.append(
                f"readers.{namespace} names groups that the wiki does not have: {', '.join(unknown)}; "
                "they let nobody in: correct the names"
            )
    return alarms
