"""Calls of one model shared by requests: what arrives while a batch runs forms the next one.

    submit ▸ heap by urgency, then arrival ▸ worker takes up to `batch` ▸ run ▸ a result or an error for each item
               │ full: Busy                      │ cancelled, late: dropped here

An idle lane starts the first call at once. After a batch its worker waits until the oldest item is ``window_s`` old or
a batch is full: calls that were answered together come back together.
"""

from __future__ import annotations

import heapq
import threading
import time
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field
from typing import Generic, TypeVar

from pipeline.errors import Retry
from pipeline.observe import Metrics

In = TypeVar("In")
Out = TypeVar("Out")

JOIN_S = 5.0


class Busy(Retry):
    """More calls wait than the queue takes."""


class Late(Exception):
    """The item's deadline passed before its turn."""


@dataclass(order=True)
class _Item(Generic[In, Out]):
    urgency: int
    number: int
    value: In = field(compare=False)
    cost: float = field(compare=False)
    deadline: float | None = field(compare=False)
    at: float = field(compare=False)
    future: Future[Out] = field(compare=False, default_factory=Future)

    def gone(self, now: float) -> bool:
        """Whether nobody waits for it any more."""
        return self.future.cancelled() or (self.deadline is not None and self.deadline <= now)


class Lane(Generic[In, Out]):
    """The queue and the threads of one model; thread-safe. Threads start with the first item.

    ``run`` gets 1 to ``batch`` values whose costs sum to at most ``most_cost`` (one value alone may cost more), and
    answers a result or an exception for each, in order. What it raises is the error of each of them. ``workers`` calls
    of it run at once. ``queue`` items wait at most.
    """

    def __init__(
        self,
        name: str,
        run: Callable[[Sequence[In]], Sequence[Out | Exception]],
        metrics: Metrics,
        *,
        batch: int,
        queue: int,
        window_s: float = 0.0,
        workers: int = 1,
        most_cost: float = float("inf"),
        now: Callable[[], float] = time.monotonic,
    ) -> None:
        self.name = name
        self._run = run
        self._metrics = metrics
        self._batch = batch
        self._queue = queue
        self._window_s = window_s if batch > 1 else 0.0
        self._workers = workers
        self._most_cost = most_cost
        self._now = now
        self._changed = threading.Condition()
        self._heap: list[_Item[In, Out]] = []
        self._running = 0.0
        self._count = 0
        self._threads: list[threading.Thread] = []
        self._closed = False

    def submit(self, value: In, *, cost: float = 1.0, urgency: int = 0, deadline: float | None = None) -> Future[Out]:
        """One item; see ``submit_all``."""
        return self.submit_all([value], [cost], urgency=urgency, deadline=deadline)[0]

    def submit_all(
        self, values: Sequence[In], costs: Sequence[float], *, urgency: int = 0, deadline: float | None = None
    ) -> list[Future[Out]]:
        """Queue all or none. Smaller ``urgency`` goes first; ``deadline`` is by the lane's clock.

        A future that is cancelled before its turn frees its place. Raises Busy where the queue is full or closed.
        """
        now = self._now()
        with self._changed:
            if self._closed:
                raise Busy(f"{self.name}: closed")
            if len(self._heap) + len(values) > self._queue:
                self._purge(now)
            if len(self._heap) + len(values) > self._queue:
                self._metrics.count("headwater_inference_refused_total", len(values), lane=self.name, reason="full")
                raise Busy(f"{self.name}: {len(self._heap)} calls wait already")
            futures: list[Future[Out]] = []
            for value, cost in zip(values, costs, strict=True):
                item: _Item[In, Out] = _Item(urgency, self._count, value, cost, deadline, now)
                self._count += 1
                heapq.heappush(self._heap, item)
                futures.append(item.future)
            while len(self._threads) < self._workers:
                name = f"{self.name}-{len(self._threads)}"
                self._threads.append(threading.Thread(target=self._work, name=name, daemon=True))
                self._threads[-1].start()
            self._changed.notify_all()
        return futures

    def backlog(self, urgency: int = 0) -> float:
        """Cost of what runs and of what would go before a new item of this urgency."""
        now = self._now()
        with self._changed:
            return self._running + sum(i.cost for i in self._heap if i.urgency <= urgency and not i.gone(now))

    @property
    def workers(self) -> int:
        """Batches that run at once."""
        return self._workers

    def close(self) -> None:
        """Refuse what waits, end the threads after the batches that run."""
        with self._changed:
            self._closed = True
            left, self._heap = self._heap, []
            self._changed.notify_all()
        for item in left:
            if item.future.set_running_or_notify_cancel():
                item.future.set_exception(Busy(f"{self.name}: closed"))
        until = time.monotonic() + JOIN_S  # for all of them together
        for thread in self._threads:
            if thread is not threading.current_thread():
                thread.join(max(0.0, until - time.monotonic()))

    # ------------------------------------------------------------ inside

    def _purge(self, now: float) -> None:
        kept: list[_Item[In, Out]] = []
        for item in self._heap:
            if item.gone(now):
                self._drop(item)
            else:
                kept.append(item)
        heapq.heapify(kept)
        self._heap = kept

    def _drop(self, item: _Item[In, Out]) -> None:
        if item.future.set_running_or_notify_cancel():
            reason = "late"
            item.future.set_exception(Late(f"{self.name}: the deadline passed"))
        else:
            reason = "cancelled"
        self._metrics.count("headwater_inference_refused_total", lane=self.name, reason=reason)

    def _work(self) -> None:
        busy = False
        while True:
            with self._changed:
                while not self._heap and not self._closed:
                    busy = False
                    self._changed.wait()
                if busy:
                    self._gather()
                if self._closed:
                    return
                items = self._take()
                cost = sum(item.cost for item in items)
                self._running += cost
            if items:
                try:
                    self._answer(items)
                finally:
                    with self._changed:
                        self._running -= cost
                busy = True

    def _gather(self) -> None:
        """Wait for more while the oldest item is younger than the window; another worker may empty the heap."""
        while self._heap and len(self._heap) < self._batch and not self._closed:
            left = min(item.at for item in self._heap) + self._window_s - self._now()
            if left <= 0:
                return
            self._changed.wait(left)

    def _take(self) -> list[_Item[In, Out]]:
        now = self._now()
        taken: list[_Item[In, Out]] = []
        cost = 0.0
        while self._heap and len(taken) < self._batch:
            first = self._heap[0]
            if taken and cost + first.cost > self._most_cost:
                break
            heapq.heappop(self._heap)
            late = first.deadline is not None and first.deadline <= now
            if late or not first.future.set_running_or_notify_cancel():
                self._drop_taken(first, late)
                continue
            taken.append(first)
            cost += first.cost
            self._metrics.observe("headwater_inference_wait_seconds", now - first.at, lane=self.name)
        return taken

    def _drop_taken(self, item: _Item[In, Out], late: bool) -> None:
        if late:
            self._drop(item)
        else:  # it was cancelled, and has been told
            self._metrics.count("headwater_inference_refused_total", lane=self.name, reason="cancelled")

    def _answer(self, items: Sequence[_Item[In, Out]]) -> None:
        self._metrics.observe("headwater_inference_batch_items", len(items), lane=self.name)
        results: Sequence[Out | Exception]
        try:
            results = self._run([item.value for item in items])
            if len(results) != len(items):
                raise RuntimeError(f"{self.name}: {len(items)} items were run, {len(results)} results came")
        except Exception as error:  # whatever a model's library raises: it is the callers', the lane goes on
            results = [error] * len(items)
        for item, result in zip(items, results, strict=True):
            if isinstance(result, Exception):
                item.future.set_exception(result)
            else:
                item.future.set_result(result)
