"""How an owner says that it is: to metrics at every step, to the log whenever that changes."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Literal

from pipeline.clock import Clock
from pipeline.observe import Metrics
from schemas.reconciliation import OwnerStatus

if TYPE_CHECKING:
    from consumers.owner_engine import OwnerEngine

AGAIN_S = 30.0
"""How often it is said although nothing changed."""
LEAST_S = 1.0
"""How often it is said at most."""
SHOWN = 20
"""Problems and alarms that are named."""

State = Literal["waiting", "working", "starved", "unreachable", "paused"]
STATES: tuple[State, ...] = ("waiting", "working", "starved", "unreachable", "paused")


class Telling:
    """Used by the owner's thread."""

    def __init__(self, engine: OwnerEngine, clock: Clock, observed: Metrics) -> None:
        self._engine, self._clock, self._metrics = engine, clock, observed
        self._state: State | None = None
        self._since = 0
        self._told: tuple[object, ...] = ()
        self._at = float("-inf")
        self._complete: tuple[int, int | None] = (0, None)  # the last complete listing: documents, end

    def restore(self, status: OwnerStatus | None) -> None:
        """Go on from what an earlier owner told."""
        if status is not None:
            self._complete = (status.listed, status.listed_at)

    def step(self, tell: Callable[[OwnerStatus], None]) -> None:
        """Say it where it is time."""
        state = self._current()
        now = self._clock.elapsed()
        if state != self._state:
            self._state, self._since = state, self._clock.now()
        if now - self._at < LEAST_S:
            return
        engine = self._engine
        shown = (state, tuple(engine.alarms), tuple(engine.problems), engine.listed)
        if shown == self._told and now - self._at < AGAIN_S:
            return
        self._told, self._at = shown, now
        status = self._status(state)
        self._measure(status)
        tell(status)

    def _current(self) -> State:
        engine = self._engine
        if engine.paused:
            return "paused"
        if engine.connector.degraded is not None and not engine.connector.watched and engine.connector.reach():
            return "unreachable"
        if engine.starved:
            return "starved"
        return "working" if engine.busy else "waiting"

    def _status(self, state: State) -> OwnerStatus:
        engine = self._engine
        reach, listed = engine.connector.reach(), engine.listed
        if listed is not None and listed.complete:
            self._complete = (listed.listed, listed.finished_at)
        return OwnerStatus(
            state=state,
            since=self._since,
            why=engine.connector.degraded,
            documents=engine.ledger.live(),
            backlog=engine.backlog(),
            listed=self._complete[0],
            listed_at=self._complete[1],
            problems=tuple(engine.problems[:SHOWN]),
            alarms=tuple(engine.alarms[:SHOWN]),
            requests=reach.requests if reach is not None else 0,
            failures=reach.failures if reach is not None else 0,
            limited=reach.limited if reach is not None else 0,
            limited_s=max(0.0, reach.waiting_until - self._clock.elapsed()) if reach is not None else 0.0,
            notes=dict(reach.notes) if reach is not None else {},
        )

    def _measure(self, status: OwnerStatus) -> None:
        source = self._engine.ledger.source
        for state in STATES:
            self._metrics.set("headwater_source_state", float(state == status.state), source=source, state=state)
        listed = (status.listed_at or 0) / 1e6
        for name, value in (
            ("headwater_source_documents", status.documents),
            ("headwater_source_backlog", status.backlog),
            ("headwater_source_listed_timestamp", listed),
            ("headwater_source_requests", status.requests),
            ("headwater_source_failures", status.failures),
            ("headwater_source_limited", status.limited),
            ("headwater_source_limited_seconds", status.limited_s),
        ):
            self._metrics.set(name, float(value), source=source)
