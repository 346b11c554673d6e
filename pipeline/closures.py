"""All principals of a caller: breadth-first over direct parents. No input or output: whoever drives it reads.

The query service drives it with the store's records under its tail, verification with all records of a tenant.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Mapping, Sequence
from dataclasses import dataclass

from schemas.access import EVERYONE, NOBODY, SUSPENDED, Closure
from schemas.documents import PrincipalRecord

MAX_PRINCIPALS = 20_000
MAX_DEPTH = 50

Walking = Generator[list[str], Mapping[str, PrincipalRecord | None], "Walk"]


@dataclass(frozen=True)
class Walk:
    """A closure and every principal whose record decided it, missing ones included."""

    closure: Closure
    visited: frozenset[str]
    until: int | None = None  # the first end of a membership in it (µs): from then on it is another one


def walking(
    start: str,
    groups: Sequence[str] = (),
    *,
    now: int,
    max_principals: int = MAX_PRINCIPALS,
    max_depth: int = MAX_DEPTH,
) -> Walking:
    """Yields principals to read and takes their records (None or absent: there is none); returns the walk.

    A caller without a live record is nobody. A group or user whose record is missing counts as a principal of those
    who name it as parent, but its own parents are unknown, so the closure is incomplete; a removed one does not
    count, and a user is nobody's parent. Audiences and ``everyone`` need no record of their own: without one they
    have no parents. A membership whose end has come at ``now`` (µs) is none.
    """
    principals: dict[str, None] = {}
    visited: set[str] = set()
    complete = True
    ends: list[int] = []
    frontier = [start, EVERYONE, *groups]
    depth = 0
    while frontier:
        if depth >= max_depth or len(principals) + len(frontier) > max_principals:
            complete = False
            break
        visited.update(frontier)
        records = yield frontier
        following: dict[str, None] = {}
        if _suspended(records.get(EVERYONE)):
            return Walk(Closure.of_nobody(), frozenset({start, EVERYONE}))
        for name in frontier:
            record = records.get(name)
            live = record is not None and not record.removed
            if name == start and not live:
                return Walk(Closure.of_nobody(), frozenset({start}))
            if record is None and not _needs_record(name):
                principals[name] = None
            elif record is None:
                complete = False
                principals[name] = None
            elif not live:
                complete = complete and not _needs_record(name)
            else:
                principals[name] = None
                current = record.parents_at(now)
                parents = [p for p in current if p != NOBODY and not p.startswith("user:")]
                complete = complete and len(parents) == len(current)
                ends += [record.until[p] for p in current if p in record.until]
                following.update(dict.fromkeys(parents))
        frontier = [p for p in following if p not in visited]
        depth += 1
    closure = Closure(principals=frozenset(principals), complete=complete)
    return Walk(closure, frozenset(visited), min(ends, default=None))


def closure_by(start: str, read: Callable[[Sequence[str]], Mapping[str, PrincipalRecord | None]], now: int) -> Closure:
    """The closure of a caller at ``now`` (µs); ``read`` gives the records of some principals."""
    steps = walking(start, now=now)
    try:
        frontier = next(steps)
        while True:
            frontier = steps.send(read(frontier))
    except StopIteration as end:
        walk: Walk = end.value
        return walk.closure


def closure_among(start: str, records: Mapping[str, PrincipalRecord | None], now: int) -> Closure:
    """The closure of a caller at ``now`` (µs) where all records of the tenant are at hand."""
    return closure_by(start, lambda names: records, now)


def _suspended(everyone: PrincipalRecord | None) -> bool:
    """Whether the tenant is closed by an operator: then each of its callers is nobody."""
    return everyone is not None and SUSPENDED in everyone.parents


def _needs_record(principal: str) -> bool:
    return principal.startswith(("user:", "group:"))
