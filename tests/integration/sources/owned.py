"""A real system and its owner, with the log in memory and a clock that the test moves."""

from __future__ import annotations

from collections.abc import Callable

from consumers.owner_engine import OwnerEngine
from consumers.owner_jobs import Pace
from pipeline.clock import Clock, ManualClock
from pipeline.observe import Metrics
from pipeline.sources.bodies import BodyPlacer
from pipeline.sources.guard import DeletionGuard
from pipeline.sources.ledger import Ledger
from pipeline.sources.remote.contract import System
from pipeline.sources.remote.source import RemoteSource, Rhythm
from schemas.access import Closure
from schemas.events import AccessSet, ContentDeleted, ContentUpserted, HoldChanged
from tests.unit.owner.support import MemoryLog, MemoryOwnerLog


class OwnedSystem:
    """What the log says of a system after its owner looked."""

    def __init__(self, make: Callable[[Clock], System], name: str, rhythm: Rhythm, walk_s: float) -> None:
        self.clock, self.log = ManualClock(), MemoryLog()
        self._make, self._name, self._rhythm, self._walk_s = make, name, rhythm, walk_s
        self.engine: OwnerEngine
        self.connector: RemoteSource

    def start(self) -> None:
        """A new owner on the same log."""

        def connect(ledger: Ledger) -> RemoteSource:
            system = self._make(self.clock)
            made = RemoteSource(system, self.clock, self._rhythm, known=ledger.state, states=ledger.states)
            self.connector = made
            return made

        self.engine = OwnerEngine(
            MemoryOwnerLog(self.log, self.clock),
            connect,
            tenant="acme",
            source=self._name,
            clock=self.clock,
            bodies=BodyPlacer(None),
            observed=Metrics(),
            pace=Pace(walk_s=self._walk_s, window=1000),
            guard=DeletionGuard(0.5, 20),
            quarantine_s=86_400.0,
        )
        self.engine.start()
        self.look(0.0)

    def look(self, seconds: float) -> None:
        """Let so much time pass, and the owner do what is due."""
        for number in range(40):
            self.clock.advance((seconds / 20 if number < 20 else 0.0) + 0.001)  # what began last is finished too
            self.connector.wake()  # this clock does not move while anybody waits
            self.engine.step()

    def live(self) -> dict[str, ContentUpserted]:
        """Newest content of each document that is neither deleted nor hidden."""
        newest = {e.document.id: e for e in self.log.content() if isinstance(e, ContentUpserted | ContentDeleted)}
        holds = {e.document.id: e.active for e in self.log.access() if isinstance(e, HoldChanged)}
        return {i: e for i, e in newest.items() if isinstance(e, ContentUpserted) and not holds.get(i)}

    def may_read(self, user: str, id_: str) -> bool:
        """What the query service would decide by the log."""
        parents = self.log.parents()
        if f"user:{user}" not in parents:
            return False
        seen, todo, complete = set[str](), [f"user:{user}", "everyone"], True
        while todo:
            one = todo.pop()
            seen.add(one)
            complete &= one in parents
            todo += [p for p in parents.get(one, ()) if p not in seen]
        rule = [e for e in self.log.access() if isinstance(e, AccessSet) and e.document.id == id_][-1].rule
        return rule.admits(Closure(principals=frozenset(seen), complete=complete), self.clock.now())
