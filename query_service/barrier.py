"""Whether a tail has read everything of a topic that was on the log at a moment: for memberships, so that no closure
is older than a change that was acknowledged, and for receipts, so that nothing kept is.

Closures are kept between requests and dropped by what the tail reads. The tail runs a little behind the log, longer on
a busy machine, so a kept closure might outlive a change that was acknowledged as applied. Before hits leave, the log's
end is asked, and the tail has to have come so far: one request to the broker, whatever number of principals the caller
has and however many callers wait.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor, wait
from typing import Protocol

from pipeline.bus.interface import Slot
from pipeline.errors import HeadwaterError
from query_service.freshness import Changes
from query_service.tail import LogTail, Start, TailFactory, close
from schemas.topics import Topic

log = logging.getLogger("headwater.query.barrier")

WAIT_S = 0.05
CLOSE_S = 3.0
STEP_S = 0.005  # transaction markers move the tail's position without a record that would wake us


class Follower(Protocol):
    """A tail with a thread of its own."""

    def alive(self) -> bool:
        """Whether it follows the log."""
        ...

    def partitions(self) -> dict[tuple[str, int], int]:
        """Next offset per followed (topic, partition)."""
        ...


class Barrier:
    """One a topic for the process, used in the event loop; the broker is asked in a thread of its own."""

    def __init__(
        self, open_tail: TailFactory, tail: Follower, changes: Changes, topic: Topic = Topic.MEMBERSHIP,
        wait_s: float = WAIT_S,
    ) -> None:  # fmt: skip
        self._topic = topic.value
        self._wait_s = wait_s
        self._open = open_tail
        self._tail = tail
        self._changes = changes
        self._asked: LogTail | None = None
        self._executor = ThreadPoolExecutor(max_workers=1, thread_name_prefix="log-end")
        self._running: asyncio.Task[Mapping[Slot, int]] | None = None
        self._waiting: asyncio.Task[Mapping[Slot, int]] | None = None

    async def passed(self) -> bool:
        """True once the tail has read everything that was on the log at the call; false where that cannot be told in
        ``wait_s``, so that the caller has to look at the store."""
        if not self._tail.alive():
            return False
        before = self._read()
        try:
            async with asyncio.timeout(self._wait_s):
                ends = await self._ends()
                if not _continues(before, ends):
                    return False
                while not self._reached(ends):
                    await self._changes.wait(STEP_S)
        except (TimeoutError, HeadwaterError):
            return False
        return self._tail.alive()

    def _read(self) -> dict[tuple[str, int], int]:
        """Next offsets of the tail in the topic that is asked about."""
        return {slot: offset for slot, offset in self._tail.partitions().items() if slot[0] == self._topic}

    def _reached(self, ends: Mapping[Slot, int]) -> bool:
        read = self._tail.partitions()
        return all(read.get((slot.topic, slot.partition), 0) >= end for slot, end in ends.items())

    async def _ends(self) -> Mapping[Slot, int]:
        """Ends of a look that began after this call; callers that come while one is under way share the next one."""
        if self._waiting is None:
            self._waiting = asyncio.ensure_future(self._look(self._running))
            self._waiting.add_done_callback(_retrieved)
        return await asyncio.shield(self._waiting)

    async def _look(self, before: asyncio.Task[Mapping[Slot, int]] | None) -> Mapping[Slot, int]:
        if before is not None and not before.done():
            await asyncio.wait({before})
        self._running, self._waiting = self._waiting, None
        return await asyncio.get_running_loop().run_in_executor(self._executor, self._ask)

    def _ask(self) -> Mapping[Slot, int]:
        try:
            if self._asked is None:
                self._asked = self._open((self._topic,), Start())
            return self._asked.ends()
        except HeadwaterError:
            self._forget()
            raise
        except Exception as error:
            log.exception("the log's end could not be asked")
            self._forget()
            raise HeadwaterError("the log's end could not be asked") from error

    def _forget(self) -> None:
        asked, self._asked = self._asked, None
        if asked is not None:
            close(asked, "the connection that asks for the log's end")

    def close(self) -> None:
        """Disconnect; waits at most CLOSE_S for a broker that does not answer. Blocks: not for the event loop."""
        wait([self._executor.submit(self._forget)], timeout=CLOSE_S)
        self._executor.shutdown(wait=False, cancel_futures=True)


def _continues(read: Mapping[tuple[str, int], int], ends: Mapping[Slot, int]) -> bool:
    """Whether this is the log that the tail reads: it names every partition, and none ends before what was read
    earlier. A topic that was made anew, or lost its end, begins at small offsets that the tail seems to have passed."""
    now = {(slot.topic, slot.partition): end for slot, end in ends.items()}
    return bool(read) and all(now.get(slot, -1) >= offset for slot, offset in read.items())


def _retrieved(task: asyncio.Task[Mapping[Slot, int]]) -> None:
    """Its error was every caller's own; one that nobody waited for is none."""
    if not task.cancelled():
        task.exception()
