"""Who may hand in a document: a bounded number of bodies for each class of children, in the order of asking.

Nothing here locks: the pool calls it under its own lock, and fires the signals that it returns outside of it.
"""

from __future__ import annotations

import logging
import threading
import time
from collections import OrderedDict, deque
from collections.abc import Callable
from dataclasses import dataclass, field

from pipeline.errors import HeadwaterError

log = logging.getLogger(__name__)

Key = tuple[str, str, str | None]  # sha256 of the body, content type, path

FRESH_S = 0.25  # a place is kept free for the one it was offered to for this long
_OFFER_S = 30.0  # and for this long he goes before all others when he comes


class Signal:
    """Something that happens once; whoever waits for it or left a callback learns of it."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._event = threading.Event()
        self._callbacks: list[Callable[[], None]] = []

    def fire(self) -> None:
        """It has happened. Callbacks run in this thread, each once; what one raises is logged."""
        with self._lock:
            self._event.set()
            callbacks, self._callbacks = self._callbacks, []
        for callback in callbacks:
            try:
                callback()
            except Exception:
                log.exception("a callback of the extractor pool failed")

    def wait(self, seconds: float | None) -> bool:
        """Whether it happened within the time; None waits without end."""
        return self._event.wait(seconds)

    def when(self, callback: Callable[[], None]) -> None:
        """Call back once when it happens: at once where it has."""
        with self._lock:
            if not self._event.is_set():
                self._callbacks.append(callback)
                return
        callback()


@dataclass
class Job:
    """A document that was taken in. ``outcome`` is the reply's bytes, or what is to be raised; None until done."""

    key: Key
    body: bytes
    content_type: str
    path: str | None
    media: str
    done: Signal = field(default_factory=Signal)
    outcome: bytes | HeadwaterError | None = None
    done_at: float = 0.0


class Line:
    """The queue of one class of children.

    ``places`` bodies are held at most, those in work included. Who finds no place stands in line by its key; when a
    place is free, the first in line is told and the place is kept for it a moment. One that never comes back loses the
    place, not the others their turn.
    """

    def __init__(self, places: int, clock: Callable[[], float] = time.monotonic) -> None:
        self.queue: deque[Job] = deque()
        self._places = places
        self._clock = clock
        self._held = 0
        self._waiting: OrderedDict[Key, Signal] = OrderedDict()
        self._offered: OrderedDict[Key, float] = OrderedDict()

    def admit(self, key: Key) -> Signal | None:
        """None: take the body now, a place is held until ``leave``. Else what fires when asking again is worthwhile."""
        offered = self._offered.pop(key, None)
        if self._held < self._places and (offered is not None or (self._free(self._clock()) and not self._waiting)):
            self._held += 1
            return None
        signal = self._waiting.get(key)
        if signal is None:
            signal = self._waiting[key] = Signal()
            if offered is not None:
                self._waiting.move_to_end(key, last=False)  # it came late, but before everybody behind it
        return signal

    def leave(self) -> list[Signal]:
        """A body is done with. Returns what is to be fired."""
        self._held -= 1
        return self.offers()

    def offers(self) -> list[Signal]:
        """Offer the free places to the first in line. Returns what is to be fired."""
        now = self._clock()
        while self._offered and now - next(iter(self._offered.values())) > _OFFER_S:
            self._offered.popitem(last=False)
        found = []
        while self._waiting and self._free(now):
            key, signal = self._waiting.popitem(last=False)
            self._offered[key] = now
            found.append(signal)
        return found

    def clear(self) -> list[Signal]:
        """Nobody is admitted any more. Returns what is to be fired."""
        signals = list(self._waiting.values())
        self._waiting.clear()
        self._offered.clear()
        self.queue.clear()
        return signals

    @property
    def crowded(self) -> bool:
        """Whether somebody stands in line."""
        return bool(self._waiting)

    def _free(self, now: float) -> bool:
        fresh = sum(1 for at in self._offered.values() if now - at < FRESH_S)
        return self._held + fresh < self._places
