"""Removes bodies that no event needs any more: of older versions, of deleted documents, of writes that broke off.

The owner alone writes its source's bodies, so the owner removes them. An event that was replaced may still be read by
a consumer that is behind: its body goes once every generation has passed the end that the log had when the body was
found superseded. Nothing is remembered: what a dead owner left is found by the next look.
"""

from __future__ import annotations

import logging
from collections.abc import Callable

from pipeline.clock import Clock
from pipeline.errors import Retry
from pipeline.observe import Metrics
from pipeline.ports import BodyTree, IndexStore
from pipeline.sources.ledger import Ledger
from schemas.topics import Topic

log = logging.getLogger("headwater.owner")

LOOK_S = 300.0
ASK_S = 2.0


class PassedByAll:
    """By partition of ``content``: the offset before which every generation that is not retired has read."""

    def __init__(self, store: IndexStore) -> None:
        self._store = store

    def __call__(self) -> dict[int, int] | None:
        """None where the store does not say, or where there is no generation. A partition that one of them has not
        begun is absent."""
        try:
            names = [name for name, g in self._store.read_generations().items() if g.state != "retired"]
            read = [self._store.read_progress("index", name, str(Topic.CONTENT)) for name in names]
        except Retry as error:
            log.warning("the store does not say how far the generations are: %s", error)
            return None
        if not read:
            return None
        begun = set.intersection(*(set(progress) for progress in read))
        return {partition: min(progress[partition].offset for progress in read) for partition in begun}


class SupersededBodies:
    """Used by the one thread that owns the ledger, between its writes."""

    def __init__(
        self,
        ledger: Ledger,
        tree: BodyTree,
        ends: Callable[[], dict[int, int]],
        passed: Callable[[], dict[int, int] | None],
        clock: Clock,
        observed: Metrics,
    ) -> None:
        """``ends``: next offset of ``content`` by partition; ``passed`` as ``PassedByAll``."""
        self._ledger, self._tree, self._ends, self._passed = ledger, tree, ends, passed
        self._clock, self._metrics = clock, observed
        self._look_due = 0.0
        self._ask_due = 0.0
        self._waiting: list[str] = []
        self._barrier: dict[int, int] = {}

    def step(self) -> None:
        """Look, wait or remove, whichever is due. Infrastructure that is away is asked again later."""
        now = self._clock.elapsed()
        try:
            if self._waiting:
                if now >= self._ask_due:
                    self._ask_due = now + ASK_S
                    self._remove()
            elif now >= self._look_due:
                self._look_due = now + LOOK_S
                self._look()
        except Retry as error:
            log.warning("source %s: superseded bodies wait: %s", self._ledger.source, error)

    def _look(self) -> None:
        standing = self._tree.of_source(self._ledger.tenant, self._ledger.source)
        if not standing:
            return
        needed = {known.body_path for _, known in self._ledger.states() if not known.deleted}
        self._waiting = [path for path in standing if path not in needed]
        if self._waiting:
            self._barrier = self._ends()  # after the look: what replaced them is on the log by now

    def _remove(self) -> None:
        passed = self._passed()
        if passed is None or any(passed.get(partition, 0) < end for partition, end in self._barrier.items()):
            return
        removed = 0
        for path in self._waiting:
            self._tree.delete(path)
            removed += 1
        self._waiting = []
        self._metrics.count("headwater_bodies_removed_total", removed, source=self._ledger.source)
