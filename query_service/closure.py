"""All principals of a caller: breadth-first over direct parents, from the store's records under the tail's overlay."""

from __future__ import annotations

from collections import OrderedDict, deque
from collections.abc import Callable
from dataclasses import dataclass

from pipeline.clock import Clock
from pipeline.ports import IndexReader
from query_service.overlay import Overlay
from query_service.scope import Scope
from schemas.access import EVERYONE, NOBODY, Closure
from schemas.documents import PrincipalRecord

MAX_PRINCIPALS = 20_000
MAX_DEPTH = 50
MAX_CACHED = 10_000
CACHE_S = 60.0


@dataclass(frozen=True)
class Walk:
    """A closure and every principal whose record decided it, missing ones included."""

    closure: Closure
    visited: frozenset[str]


async def walk(
    reader: IndexReader,
    overlay: Overlay,
    scope: Scope,
    *,
    max_principals: int = MAX_PRINCIPALS,
    max_depth: int = MAX_DEPTH,
) -> Walk:
    """The caller's closure. Raises StoreUnavailable.

    A caller without a live record is nobody. A group or user whose record is missing counts as a principal of those
    who name it as parent, but its own parents are unknown, so the closure is incomplete; a removed one does not
    count, and a user is nobody's parent. Audiences and ``everyone`` need no record of their own: without one they
    have no parents.
    """
    start = scope.user
    principals: dict[str, None] = {}
    visited: set[str] = set()
    complete = True
    frontier = [start, EVERYONE, *scope.groups]
    depth = 0
    while frontier:
        if depth >= max_depth or len(principals) + len(frontier) > max_principals:
            complete = False
            break
        visited.update(frontier)
        records = await reader.principals(scope.tenant, frontier)
        following: dict[str, None] = {}
        for name in frontier:
            record = overlay.principal(scope.tenant, name, records.get(name))
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
                parents = _parents(record)
                complete = complete and len(parents) == len(record.parents)
                following.update(dict.fromkeys(parents))
        frontier = [p for p in following if p not in visited]
        depth += 1
    return Walk(Closure(principals=frozenset(principals), complete=complete), frozenset(visited))


def _needs_record(principal: str) -> bool:
    return principal.startswith(("user:", "group:"))


def _parents(record: PrincipalRecord) -> tuple[str, ...]:
    return tuple(p for p in record.parents if p != NOBODY and not p.startswith("user:"))


class Closures:
    """Closures, cached while the tail is alive and dropped by membership events of any principal in them."""

    def __init__(self, reader: IndexReader, overlay: Overlay, clock: Clock, alive: Callable[[], bool]) -> None:
        self._reader = reader
        self._overlay = overlay
        self._clock = clock
        self._alive = alive
        self._cached: OrderedDict[Scope, tuple[float, Walk]] = OrderedDict()
        # Filled by the tail's thread, emptied by ours: a deque's ends are safe to use from two threads.
        self._changed: deque[tuple[str, str]] = deque()
        self._by_principal: dict[tuple[str, str], set[Scope]] = {}
        overlay.subscribe(self._on_change)

    def _on_change(self, tenant: str, principal: str) -> None:
        self._changed.append((tenant, principal))

    async def resolve(self, scope: Scope) -> Closure:
        """The caller's closure now. Raises StoreUnavailable."""
        self._drop_changed()
        key = Scope(tenant=scope.tenant, subject=scope.subject, groups=scope.groups)
        found = self._cached.get(key)
        if found is not None and self._alive() and self._clock.elapsed() - found[0] <= CACHE_S:
            self._cached.move_to_end(key)
            return found[1].closure
        for _ in range(3):
            before = self._overlay.membership_changes
            result = await walk(self._reader, self._overlay, scope)
            if self._overlay.membership_changes == before:
                self._keep(key, result)
                break
        return result.closure

    def _keep(self, key: Scope, result: Walk) -> None:
        if not self._alive():
            return
        self._forget(key)
        self._cached[key] = (self._clock.elapsed(), result)
        for principal in result.visited:
            self._by_principal.setdefault((key.tenant, principal), set()).add(key)
        while len(self._cached) > MAX_CACHED:
            self._forget(next(iter(self._cached)))

    def _forget(self, key: Scope) -> None:
        entry = self._cached.pop(key, None)
        if entry is None:
            return
        for principal in entry[1].visited:
            keys = self._by_principal.get((key.tenant, principal))
            if keys is not None:
                keys.discard(key)
                if not keys:
                    del self._by_principal[(key.tenant, principal)]

    def _drop_changed(self) -> None:
        while self._changed:
            name = self._changed.popleft()
            for key in list(self._by_principal.get(name, ())):
                self._forget(key)
