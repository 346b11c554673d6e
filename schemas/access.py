"""Who may read: principals, clauses, rules, and the one function that decides.

A rule is a conjunction of clauses; each clause is an any-of set of grants; a deny set overrides all of them. Unknown
means closed: an empty or unreadable rule is ``nobody``, never everybody (invariant 12).
"""

from __future__ import annotations

import hashlib
from collections.abc import Collection, Iterable, Mapping
from functools import lru_cache
from typing import Annotated
from urllib.parse import quote

from pydantic import AfterValidator, Field, StringConstraints

from schemas.base import MAX_SAFE_INTEGER, ClosedModel, Micros, name_fault

EVERYONE = "everyone"
NOBODY = "nobody"
# Parents of ``everyone`` by which an operator closes a tenant; no container can be named so.
SUSPENDED = "audience:headwater/#suspended"
ERASING = "audience:headwater/#erasing"
_PREFIXES = ("user:", "group:", "audience:")
_LONGEST_CONTAINER = 600


@lru_cache(maxsize=65_536)  # a search reads hundreds of rules that name the same few thousand principals
def _principal(value: str) -> str:
    """Check the spelling of a principal; look-alikes (blanks, other case of the prefix) are refused, not repaired."""
    if value in (EVERYONE, NOBODY):
        return value
    for prefix in _PREFIXES:
        name = value.removeprefix(prefix)
        if value.startswith(prefix) and name:
            fault = name_fault(name)
            if fault is not None:
                raise ValueError(f"a principal's name {fault}")
            return value
    raise ValueError("a principal is 'everyone', 'nobody' or starts with 'user:', 'group:' or 'audience:'")


Principal = Annotated[str, StringConstraints(min_length=1, max_length=1024), AfterValidator(_principal)]


def _no_ends(ends: dict[str, int]) -> bool:
    return not ends


Ends = Annotated[
    dict[Principal, Micros],
    Field(
        exclude_if=_no_ends,  # so that a payload without ends is as it was before there were any
        description="By parent: the moment from which on the membership does not count. Absent: for ever.",
    ),
]


def check_ends(parents: Collection[str], until: Mapping[str, int]) -> None:
    """Raises ValueError for the end of a membership that there is not."""
    if any(parent not in parents for parent in until):
        raise ValueError("'until' names a principal that is not among 'parents'")


def _contained(kind: str, source: str, name: str, mark: str) -> str:
    """``kind:source/name``, one spelling for each (source, name), whatever the name holds."""
    unsafe = name_fault(name) is not None or not name
    plain = "".join(c if c not in "%#" else f"%{ord(c):02X}" for c in name)
    # quote() escapes every non-ASCII character, so that names which only look alike stay two names
    escaped = quote(name, safe="/ !$&'()*+,;=:@-._~", errors="surrogatepass") if unsafe else plain
    escaped = escaped.replace(" ", "%20") if escaped != escaped.strip() else escaped
    if len(escaped) > _LONGEST_CONTAINER:
        escaped = f"{escaped[:64].rstrip()}%~{hashlib.sha256(name.encode('utf-8', 'surrogatepass')).hexdigest()}"
    return f"{kind}:{source}/{escaped}{mark}"


def audience(source: str, container: str) -> str:
    """The audience of a container (space, project, folder, role) of a source; distinct for distinct containers.

    Characters that a principal must not hold, and '%' and '#', are percent-encoded; very long names are hashed.
    """
    return _contained("audience", source, container, "")


def group(source: str, name: str) -> str:
    """A group of a source, however other sources name theirs; spelt as ``audience`` spells containers."""
    return _contained("group", source, name, "")


def deny_audience(source: str, container: str) -> str:
    """The set of principals that the container turns away; no container can be named so that it is this one."""
    return _contained("audience", source, container, "#deny")


class Grant(ClosedModel):
    """One principal, optionally only until a moment (exclusive)."""

    principal: Principal
    until: Micros | None = None

    def live(self, now: int) -> bool:
        """Whether the grant still holds at ``now`` (microseconds)."""
        return self.until is None or now < self.until


class Clause(ClosedModel):
    """Any one of the grants satisfies the clause. ``size_hint`` is about how many people it reaches."""

    any_of: tuple[Grant, ...] = Field(min_length=1)
    size_hint: int | None = Field(default=None, ge=0, le=MAX_SAFE_INTEGER)

    def satisfied(self, principals: frozenset[str], now: int) -> bool:
        """Whether one of the caller's principals holds a live grant; ``nobody`` never does."""
        return any(g.principal != NOBODY and g.principal in principals and g.live(now) for g in self.any_of)

    def names(self) -> list[str]:
        """Distinct principals, sorted."""
        return sorted({g.principal for g in self.any_of})


class AccessRule(ClosedModel):
    """Conjunction of clauses and a deny set."""

    clauses: tuple[Clause, ...] = Field(min_length=1)
    deny: tuple[Principal, ...] = ()
    reason: str | None = Field(default=None, max_length=500, description="Why the rule is what it is, e.g. why nobody.")

    @staticmethod
    def nobody(reason: str) -> AccessRule:
        """The closed rule, with the reason for it."""
        return AccessRule(clauses=(Clause(any_of=(Grant(principal=NOBODY),), size_hint=0),), reason=reason[:500])

    @staticmethod
    def any_of(*principals: str, deny: Iterable[str] = ()) -> AccessRule:
        """A rule of one clause."""
        return AccessRule(clauses=(Clause(any_of=tuple(Grant(principal=p) for p in principals)),), deny=tuple(deny))

    def admits(self, closure: Closure, now: int) -> bool:
        """The decision: every clause satisfied, nothing denied; an incomplete closure never passes a deny set."""
        if not closure.principals:
            return False
        if self.deny and (not closure.complete or any(d in closure.principals for d in self.deny)):
            return False
        return all(clause.satisfied(closure.principals, now) for clause in self.clauses)

    def prefilter(self) -> tuple[list[str], list[str]]:
        """Principals of the clause with the fewest people and of the next one (the same where there is only one).

        A caller who satisfies the rule satisfies both clauses, so the pair never hides a permitted document.
        """
        last = len(self.clauses) - 1

        def rank(item: tuple[int, Clause]) -> tuple[bool, int, int, int]:
            index, clause = item
            reach = clause.size_hint if clause.size_hint is not None else MAX_SAFE_INTEGER
            everyone = any(g.principal == EVERYONE for g in clause.any_of)
            return everyone, reach, len(clause.any_of), last - index

        ordered = [clause for _, clause in sorted(enumerate(self.clauses), key=rank)]
        return ordered[0].names(), ordered[min(1, last)].names()


class Closure(ClosedModel):
    """All principals of a caller: itself, its groups and audiences transitively, and ``everyone`` with its own.

    ``complete`` is false when the walk was cut or met a missing record; an empty set is nobody.
    """

    principals: frozenset[str]
    complete: bool = True

    @staticmethod
    def of_nobody() -> Closure:
        """The caller without a live record."""
        return Closure(principals=frozenset(), complete=False)
