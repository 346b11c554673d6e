"""Where replies are kept: bounded by number, bytes and age, each tenant's apart, so that none pushes out all others.

Any thread may drop; the event loop looks up and keeps. What a reply was made from is indexed, so that a document or a
principal is forgotten at once.
"""

from __future__ import annotations

import threading
from collections import OrderedDict, deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from pipeline.clock import Clock
from pipeline.observe import Metrics
from pipeline.ports import Vectors
from query_service.cache.keys import Key, Kind
from query_service.cache.signature import Signature

LARGEST = 8  # one reply may take an eighth of all bytes
OVERHEAD = 512  # bytes of an entry besides its reply, its vector and its documents: keys, indexes
PER_DOCUMENT = 200
Mark = tuple[int, ...]


@dataclass(frozen=True)
class Used:
    """A document that a reply was made from. A version of None: the reply did not say which."""

    uid: str
    source: str | None = None
    version: int | None = None
    access_version: int | None = None


@dataclass(frozen=True)
class Asked:
    """A question as others are compared with it: unit vector, shape (1, dimension), and what must be equal."""

    vector: Vectors
    signature: Signature


@dataclass(frozen=True, eq=False)
class Kept:
    """A reply as JSON, with what it holds for. ``kept_at`` by ``Clock.elapsed``, ``made_at`` by ``Clock.now``."""

    key: Key
    reply: bytes
    used: tuple[Used, ...]
    mark: Mark
    principals: frozenset[str]
    kept_at: float
    asked: Asked | None = None
    made_at: int = 0

    @property
    def size(self) -> int:
        """Bytes that it counts for."""
        vector = self.asked.vector.nbytes if self.asked is not None else 0
        return OVERHEAD + len(self.reply) + vector + PER_DOCUMENT * len(self.used)


class _Line:
    """One tenant's entries of one kind, least recently used first."""

    def __init__(self) -> None:
        self.entries: OrderedDict[Key, Kept] = OrderedDict()
        self.bytes = 0


class Shelf:
    """One for the process."""

    def __init__(self, most: Mapping[Kind, int], size: int, ttl_s: float, clock: Clock, metrics: Metrics) -> None:
        """``most`` entries of a kind, ``size`` bytes of all together."""
        self._most, self._size, self._ttl = most, size, ttl_s
        self._clock, self._metrics = clock, metrics
        self._lock = threading.RLock()
        self._lines: dict[tuple[str, Kind], _Line] = {}
        # Oldest first; some are gone already. It holds no reply, so what is forgotten is nowhere.
        self._ages: deque[tuple[float, Key]] = deque()
        self._groups: dict[Key, dict[Key, Kept]] = {}
        self._documents: dict[str, set[Key]] = {}
        self._closures: dict[tuple[str, str], tuple[frozenset[str], set[Key]]] = {}

    def get(self, key: Key) -> Kept | None:
        """The entry, as long as it is young enough; it counts as used."""
        with self._lock:
            self._expire()
            line = self._lines.get((key.tenant, key.kind))
            found = line.entries.get(key) if line is not None else None
            if line is None or found is None or self._old(found):
                return None
            line.entries.move_to_end(key)
            return found

    def group(self, key: Key) -> list[Kept]:
        """Entries whose key differs in the question alone."""
        with self._lock:
            self._expire()
            return [entry for entry in self._groups.get(key.group, {}).values() if not self._old(entry)]

    def put(self, entry: Kept, holds: Callable[[], bool]) -> bool:
        """Keep it if it ``holds`` and is not too large. What is forgotten from another thread at this moment is asked
        about under the lock, so that nothing forgotten is kept afterwards."""
        with self._lock:
            kind = entry.key.kind
            fits = entry.size <= self._size // LARGEST and self._most.get(kind, 0) > 0
            if not fits or self._old(entry) or not holds():
                return False
            self.drop(entry.key)
            self._expire()
            line = self._lines.setdefault((entry.key.tenant, kind), _Line())
            line.entries[entry.key] = entry
            line.bytes += entry.size
            self._ages.append((entry.kept_at, entry.key))
            self._groups.setdefault(entry.key.group, {})[entry.key] = entry
            for used in entry.used:
                self._documents.setdefault(used.uid, set()).add(entry.key)
            closure = (entry.key.tenant, entry.key.closure)
            self._closures.setdefault(closure, (entry.principals, set()))[1].add(entry.key)
            self._shrink(kind)
            self._publish()
            return True

    def drop(self, key: Key) -> bool:
        """Forget an entry; whether it was there."""
        with self._lock:
            line = self._lines.get((key.tenant, key.kind))
            entry = line.entries.pop(key, None) if line is not None else None
            if line is None or entry is None:
                return False
            line.bytes -= entry.size
            if not line.entries:
                del self._lines[(key.tenant, key.kind)]
            group = self._groups[key.group]
            del group[key]
            if not group:
                del self._groups[key.group]
            for uid in {used.uid for used in entry.used}:
                self._documents[uid].discard(key)
                if not self._documents[uid]:
                    del self._documents[uid]
            closure = (key.tenant, key.closure)
            self._closures[closure][1].discard(key)
            if not self._closures[closure][1]:
                del self._closures[closure]
            self._publish()
            return True

    def drop_document(self, uid: str) -> int:
        """Forget all that a document was used for; how many."""
        with self._lock:
            return self._dropped(self._documents.get(uid, set()))

    def drop_principal(self, tenant: str, principal: str) -> int:
        """Forget all that was given to callers who are this principal, or are in it; how many."""
        with self._lock:
            # Callers with entries are few, so they are looked through.
            found = [keys for (of, _), (names, keys) in self._closures.items() if of == tenant and principal in names]
            return self._dropped({key for keys in found for key in keys})

    def with_document(self, uid: str) -> int:
        """Entries for which a document was used."""
        with self._lock:
            self._expire()
            return len(self._documents.get(uid, set()))

    def count(self, kind: Kind) -> int:
        """Entries of a kind."""
        with self._lock:
            return sum(len(line.entries) for (_, of), line in self._lines.items() if of == kind)

    def bytes(self, kind: Kind) -> int:
        """What they count for."""
        with self._lock:
            return sum(line.bytes for (_, of), line in self._lines.items() if of == kind)

    # ------------------------------------------------------------ under the lock

    def _dropped(self, keys: set[Key]) -> int:
        dropped = 0
        for key in list(keys):
            if self.drop(key):
                dropped += 1
                self._metrics.count("headwater_cache_total", cache=key.kind, outcome="dropped")
        return dropped

    def _expire(self) -> None:
        now = self._clock.elapsed()
        while self._ages and now - self._ages[0][0] > self._ttl:
            _, key = self._ages.popleft()
            line = self._lines.get((key.tenant, key.kind))
            entry = line.entries.get(key) if line is not None else None
            if entry is not None and self._old(entry):  # else it was kept again since
                self.drop(key)

    def _old(self, entry: Kept) -> bool:
        return self._clock.elapsed() - entry.kept_at > self._ttl

    def _shrink(self, kind: Kind) -> None:
        """Who has most loses first."""
        while self.count(kind) > self._most[kind]:
            self._lose(max((len(line.entries), name) for name, line in self._lines.items() if name[1] == kind)[1])
        while sum(line.bytes for line in self._lines.values()) > self._size:
            self._lose(max((line.bytes, name) for name, line in self._lines.items())[1])

    def _lose(self, name: tuple[str, Kind]) -> None:
        self.drop(next(iter(self._lines[name].entries)))

    def _publish(self) -> None:
        for kind in self._most:
            self._metrics.set("headwater_cache_entries", self.count(kind), cache=kind)
            self._metrics.set("headwater_cache_bytes", self.bytes(kind), cache=kind)
