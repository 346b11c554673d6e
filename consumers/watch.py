"""What ends an index consumer besides a signal: its parent's death, its generation's end.

A child of the fleet or of a build does not outlive it: nobody would stop it. It leaves in order, so its partitions
move at once.
"""

from __future__ import annotations

import logging
import os
import threading
from collections.abc import Callable, Mapping

from consumers.process import Stopping
from pipeline.errors import Crash, Retry
from schemas.generation import Generation

log = logging.getLogger("headwater.watch")

PARENT_S = 0.25
GENERATION_S = 1.0


def follow_parent(parent: int, stopping: Stopping) -> None:
    """Ask to stop when this process is no longer the child of ``parent``."""

    def watch() -> None:
        while os.getppid() == parent:
            if stopping.event.wait(PARENT_S):
                return
        log.warning("process %d, which started this one, is gone", parent)
        stopping.ask()

    threading.Thread(target=watch, name="parent", daemon=True).start()


class GenerationWatch:
    """Looks at the generation's record: asks to stop when it is retired, fails when it is another one by now.

    The second happens only when the store was replaced under a running consumer; going on would put two encoders'
    vectors into one collection.
    """

    def __init__(
        self,
        generation: Generation,
        read: Callable[[], Mapping[str, Generation]],
        stopping: Stopping,
        fail: Callable[[BaseException], None],
    ) -> None:
        self._generation = generation
        self._read = read
        self._stopping = stopping
        self._fail = fail

    def start(self) -> None:
        """Look once a second, in a thread of its own."""
        threading.Thread(target=self._watch, name="generation", daemon=True).start()

    def _watch(self) -> None:
        while not self._stopping.event.wait(GENERATION_S):
            if self.look():
                return

    def look(self) -> bool:
        """Whether the consumer was told to end."""
        mine = self._generation
        try:
            found = self._read().get(mine.name)
        except Retry:
            return False  # the store will be back
        if found is None:
            return False
        if found.state == "retired":
            log.info("generation %s is retired", mine.name)
            self._stopping.ask()
            return True
        if (found.encoder, found.chunking) != (mine.encoder, mine.chunking):
            self._fail(Crash(f"the record of generation {mine.name} names another encoder or chunking by now"))
            return True
        return False
