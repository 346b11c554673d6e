"""All principals of a caller: breadth-first over direct parents, from the store's records under the tail's overlay."""

from __future__ import annotations

from collections import OrderedDict, deque
from collections.abc import Awaitable, Callable

from pipeline.clock import Clock
from pipeline.closures import MAX_DEPTH, MAX_PRINCIPALS, Walk, walking
from pipeline.ports import IndexReader
from query_service.overlay import Overlay
from query_service.scope import Scope
from schemas.access import Closure

MAX_CACHED = 10_000
CACHE_S = 60.0


async def walk(
    reader: IndexReader,
    overlay: Overlay,
    scope: Scope,
    *,
    now: int,
    max_principals: int = MAX_PRINCIPALS,
    max_depth: int = MAX_DEPTH,
) -> Walk:
    """The caller's closure at ``now`` (µs). Raises StoreUnavailable."""
    steps = walking(scope.user, scope.groups, now=now, max_principals=max_principals, max_depth=max_depth)
    frontier = next(steps)
    while True:
        records = await reader.principals(scope.tenant, frontier)
        newest = {name: overlay.principal(scope.tenant, name, records.get(name)) for name in frontier}
        try:
            frontier = steps.send(newest)
        except StopIteration as end:
            found: Walk = end.value
            return found


class Closures:
    """Closures, cached while the tail is alive and dropped by membership events of any principal in them.

    None outlives the first end of a membership in it: the clock sends no event.
    """

    def __init__(
        self, reader: IndexReader, overlay: Overlay, clock: Clock, alive: Callable[[], bool],
        passed: Callable[[], Awaitable[bool]],
    ) -> None:  # fmt: skip
        """``passed`` tells whether the overlay holds all that is on the log now."""
        self._reader = reader
        self._overlay = overlay
        self._clock = clock
        self._alive = alive
        self._passed = passed
        self._cached: OrderedDict[Scope, tuple[float, Walk]] = OrderedDict()
        # Filled by the tail's thread, emptied by ours: a deque's ends are safe to use from two threads.
        self._changed: deque[tuple[str, str]] = deque()
        self._by_principal: dict[tuple[str, str], set[Scope]] = {}
        self.walked = 0  # confirmations for which the overlay alone was not enough
        overlay.subscribe(self._on_change)

    def _on_change(self, tenant: str, principal: str) -> None:
        self._changed.append((tenant, principal))

    async def resolve(self, scope: Scope) -> Closure:
        """The caller's closure now. Raises StoreUnavailable."""
        self._drop_changed()
        key = Scope(tenant=scope.tenant, subject=scope.subject, groups=scope.groups)
        found = self._cached.get(key)
        if found is not None and self._alive() and self._good(*found):
            self._cached.move_to_end(key)
            return found[1].closure
        for _ in range(3):
            before = self._overlay.membership_changes
            result = await walk(self._reader, self._overlay, scope, now=self._clock.now())
            if self._overlay.membership_changes == before:
                self._keep(key, result)
                break
        return result.closure

    async def confirmed(self, scope: Scope) -> Closure:
        """The caller's closure with every change that was applied before this call: what the last check before an
        answer leaves goes by. Raises StoreUnavailable."""
        if await self._passed():
            return await self.resolve(scope)
        self.walked += 1
        return (await walk(self._reader, self._overlay, scope, now=self._clock.now())).closure

    def _good(self, kept_at: float, walked: Walk) -> bool:
        ended = walked.until is not None and self._clock.now() >= walked.until
        return not ended and self._clock.elapsed() - kept_at <= CACHE_S

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
