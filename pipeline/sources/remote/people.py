"""Who is who: accounts of a source joined to people, and everybody's direct parents.

An account of a source is an audience of its own (``audience:source/account:5``). Rules and groups of the source speak
of accounts only; a person is a member of the accounts that are surely theirs. So one record joins or parts the two, and
a renamed, moved or locked account changes nothing else. Unmatched or ambiguous means no access (invariant 12).
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from pipeline.ports import SourceMembership
from pipeline.settings_sources import IdentitySettings, Person
from schemas.access import audience, group
from schemas.base import name_fault

SHOWN = 5
"""Accounts that a problem names at most."""


@dataclass(frozen=True)
class Account:
    """An account of a source. ``id`` is immutable there. ``verified``: the source proved that the address is theirs."""

    id: str
    login: str | None = None
    email: str | None = None
    verified: bool = False
    active: bool = True


@dataclass
class Joined:
    """Person of each account that has one, and why others have none."""

    people: dict[str, str] = field(default_factory=dict)  # account id -> person
    problems: list[str] = field(default_factory=list)


def account_of(source: str, id_: str) -> str:
    """The principal of an account."""
    return audience(source, f"account:{id_}")


def group_of(source: str, id_: str) -> str:
    """The principal of a group of a source, by its immutable id there."""
    return group(source, id_)


def join(accounts: Iterable[Account], settings: IdentitySettings, directory: Iterable[Person] = ()) -> Joined:
    """Join active accounts to people.

    ``settings.people`` (account id or login → person) goes before everything. Else by ``settings.join``: ``email``
    takes an address that the source verified, or all of them where ``settings.email_verified`` says so; the person is
    the one in ``directory`` whose address it is, or the address itself (in lower case) where there is no directory.
    ``login`` takes the login as the person's name. An address or login of two accounts, or of two people, joins nobody.
    """
    known = [a for a in accounts if a.active]
    joined = Joined()
    addresses = _directory(directory)
    claims: dict[str, list[Account]] = defaultdict(list)
    unmatched: list[Account] = []
    unverified: list[Account] = []
    ids = {one.id for one in known}
    for one in known:
        named = settings.people.get(one.id)
        if named is None and one.login and one.login not in ids:  # a login may look like another account's id
            named = settings.people.get(one.login)
        if named is not None:
            joined.people[one.id] = named
        elif settings.join == "email" and one.email and (one.verified or settings.email_verified):
            claims[one.email.strip().lower()].append(one)
        elif settings.join == "email" and one.email:
            unverified.append(one)
        elif settings.join == "login" and one.login:
            claims[one.login].append(one)
        else:
            unmatched.append(one)
    listed = set(joined.people.values())
    for claim, claimants in claims.items():
        person = _person(claim, settings, addresses)
        if person in listed:
            names = ", ".join(a.login or a.id for a in claimants[:SHOWN])
            joined.problems.append(f"{person} is listed for another account than {names}: list these too if they are")
        elif len(claimants) > 1:
            names = ", ".join(a.login or a.id for a in claimants[:SHOWN])
            joined.problems.append(f"accounts {names} claim one {settings.join}: none of them is joined to a person")
        elif person is None:
            unmatched.append(claimants[0])
        else:
            joined.people[claimants[0].id] = person
    if unverified:
        joined.problems.append(
            f"{_counted(unverified)} cannot be joined: addresses are not verified at the source; "
            "list them under identity.people, or set identity.email_verified where every address is"
        )
    if unmatched:
        joined.problems.append(f"{_counted(unmatched)} belong to no known person and may read nothing")
    return joined


def _counted(accounts: list[Account]) -> str:
    shown = ", ".join(a.login or a.id for a in accounts[:SHOWN])
    more = f" and {len(accounts) - SHOWN} more" if len(accounts) > SHOWN else ""
    return f"accounts {shown}{more}"


def _directory(people: Iterable[Person]) -> dict[str, set[str]]:
    """People by address, in lower case."""
    found: dict[str, set[str]] = defaultdict(set)
    for person in people:
        for address in person.emails:
            found[address.strip().lower()].add(person.id)
    return found


def _person(claim: str, settings: IdentitySettings, addresses: Mapping[str, set[str]]) -> str | None:
    if settings.join == "email" and addresses:
        owners = addresses.get(claim, set())
        return next(iter(owners)) if len(owners) == 1 else None
    return claim if claim and name_fault(claim) is None else None


class Members:
    """Collects who is a direct member of what, and gives it as a whole."""

    def __init__(self, tenant: str, source: str) -> None:
        self._tenant, self._source = tenant, source
        self._parents: dict[str, set[str]] = defaultdict(set)

    def add(self, member: str, *parents: str) -> None:
        """``member`` is directly in each of ``parents``."""
        self._parents[member].update(parents)

    def joined(self, joined: Joined) -> None:
        """People are members of their accounts."""
        for id_, person in joined.people.items():
            self.add(f"user:{person}", account_of(self._source, id_))

    def whole(self) -> tuple[SourceMembership, ...]:
        """Everybody, sorted."""
        return tuple(
            SourceMembership(self._tenant, principal, tuple(sorted(parents)))
            for principal, parents in sorted(self._parents.items())
        )
