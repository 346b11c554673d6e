"""The encoder's thread: embeds in slices of at most ~100 ms, live documents first (invariant 13).

    worker ──submit(task)──▶ live queue ─┐
                             bulk queue ─┴▶ slice ▸ embed ──on_slice──▶ worker (stage, commit)

A slice never mixes live and bulk texts, so a live edit waits for one running slice at most. Slice sizes follow the
measured rate. Errors are handed back with the task: EncoderUnavailable and unexpected ones as they are; a text that
the encoder refuses fails only its own document; an encoder that cannot be the generation's stops the process.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from itertools import islice
from time import perf_counter

from pipeline.clock import Clock
from pipeline.errors import ConfigError, Crash, Retry
from pipeline.flow import Prepared
from pipeline.ports import Embedder
from schemas.documents import Chunk

MAX_SLICE = 32
LOOK_AHEAD = 96
LEAST_BULK = 4  # fewer texts a call cost more CPU each, and a slow clock must not ask for them


@dataclass(eq=False)
class EmbedTask:
    """The missing vectors of one prepared document."""

    prepared: Prepared
    live: bool
    waiting: deque[Chunk] = field(default_factory=deque)
    done: list[Chunk] = field(default_factory=list)
    error: Exception | None = None

    @property
    def finished(self) -> bool:
        """Nothing is left to embed, or the task has failed."""
        return self.error is not None or not self.waiting


class EncoderLane:
    """One thread around an Embedder. ``on_progress(task)`` is called from it after each slice that touched the task."""

    def __init__(
        self, embedder: Embedder, on_progress: Callable[[EmbedTask], None], clock: Clock, *, slice_ms: int, first: int
    ) -> None:
        self._embedder = embedder
        self._on_progress = on_progress
        self._clock = clock
        self._slice_s = slice_ms / 1000
        self._chunk_s = self._slice_s / max(1, first)
        self._queues: tuple[deque[EmbedTask], deque[EmbedTask]] = (deque(), deque())
        self._changed = threading.Condition()
        self._stopping = False
        self._thread = threading.Thread(target=self._run, name="encoder", daemon=True)
        self.busy_s = 0.0
        self.embedded = 0

    def start(self) -> None:
        """Start the thread."""
        self._thread.start()

    def stop(self) -> None:
        """Finish the running slice and end the thread; queued tasks are dropped."""
        with self._changed:
            self._stopping = True
            self._changed.notify_all()
        self._thread.join(timeout=30)

    def submit(self, task: EmbedTask) -> None:
        """Queue a task; its missing texts are taken from ``prepared``."""
        task.waiting.extend(task.prepared.missing())
        with self._changed:
            self._queues[0 if task.live else 1].append(task)
            self._changed.notify_all()

    def backlog(self) -> int:
        """Texts that wait to be embedded."""
        with self._changed:
            return sum(len(t.waiting) for q in self._queues for t in q)

    def _slice(self) -> list[tuple[EmbedTask, Chunk]]:
        """Texts of the next slice: of live documents in order of arrival, else of bulk ones of similar length."""
        size = max(1, min(MAX_SLICE, int(self._slice_s / max(self._chunk_s, 1e-6))))
        if self._embedder.backend.name == "endpoint":  # a request costs its latency, whatever it holds
            size = MAX_SLICE
        live, bulk = self._queues
        if any(task.waiting for task in live):
            return self._drawn(self._first(live, size))
        return self._drawn(self._alike(self._first(bulk, LOOK_AHEAD), max(size, LEAST_BULK)))

    @staticmethod
    def _first(queue: deque[EmbedTask], count: int) -> list[tuple[EmbedTask, Chunk]]:
        """The oldest waiting texts; tasks with nothing left are dropped on the way."""
        while queue and not queue[0].waiting:
            queue.popleft()
        found: list[tuple[EmbedTask, Chunk]] = []
        for task in queue:
            found.extend((task, chunk) for chunk in islice(task.waiting, count - len(found)))
            if len(found) >= count:
                break
        return found

    @staticmethod
    def _alike(found: list[tuple[EmbedTask, Chunk]], size: int) -> list[tuple[EmbedTask, Chunk]]:
        """The oldest text and those nearest to it in length: padding is computed like text, and nothing starves."""
        if not found:
            return []
        tokens = found[0][1].tokens
        return [found[0], *sorted(found[1:], key=lambda item: abs(item[1].tokens - tokens))[: size - 1]]

    @staticmethod
    def _drawn(chosen: list[tuple[EmbedTask, Chunk]]) -> list[tuple[EmbedTask, Chunk]]:
        """Take the chosen texts out of their tasks."""
        for task in {id(t): t for t, _ in chosen}.values():
            mine = {id(chunk) for t, chunk in chosen if t is task}
            task.waiting = deque(chunk for chunk in task.waiting if id(chunk) not in mine)
        return chosen

    def _run(self) -> None:
        while True:
            with self._changed:
                taken = self._slice()
                while not taken and not self._stopping:
                    self._changed.wait(0.5)
                    taken = self._slice()
                if self._stopping:
                    return
            self._embed(taken)

    def _embed(self, taken: list[tuple[EmbedTask, Chunk]]) -> None:
        started = perf_counter()
        try:
            vectors = self._embedder.embed_documents([c.embed_text for _, c in taken])
        except ConfigError as error:  # no document is to blame: nothing may be set aside, nothing committed
            self._failed(taken, Crash(str(error)))
            return
        except Exception as error:
            self._failed(taken, error)
            return
        took = perf_counter() - started
        self.busy_s += took
        self.embedded += len(taken)
        self._chunk_s += 0.2 * (took / len(taken) - self._chunk_s)
        now = self._clock.now()
        touched: dict[int, EmbedTask] = {}
        for (task, chunk), vector in zip(taken, vectors, strict=True):
            task.prepared.vectors[chunk.embed_hash] = vector
            task.prepared.embedded += 1
            task.prepared.tokens += chunk.tokens
            task.prepared.embedded_at = now
            task.done.append(chunk)
            touched[id(task)] = task
        for task in touched.values():
            self._on_progress(task)

    def _failed(self, taken: list[tuple[EmbedTask, Chunk]], error: Exception) -> None:
        """An infrastructure error fails every task of the slice; another one is tried alone to find whose it is."""
        tasks = list({id(t): t for t, _ in taken}.values())
        if len(tasks) > 1 and not isinstance(error, Retry | Crash):
            for task in tasks:
                self._embed([(t, c) for t, c in taken if t is task])
            return
        for task in tasks:
            task.error = error
            task.waiting.clear()
            self._on_progress(task)
