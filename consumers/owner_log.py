"""The owner's log on Kafka, requests to owners, and how far the index consumers are."""

from __future__ import annotations

import json
import logging
import threading
from bisect import bisect_left
from collections.abc import Callable, Iterator
from operator import itemgetter

from consumers.backoff import Backoff
from pipeline.bus.codec import decode
from pipeline.bus.producer import KafkaAppender, KafkaPublisher
from pipeline.bus.tail import KafkaTail, read_compacted
from pipeline.errors import Reject, Retry
from pipeline.ports import Appender, IndexStore, Publisher, Record
from pipeline.settings import Settings
from pipeline.sources.changes import source_partition_key
from schemas.events import SourceRequest
from schemas.keys import cursor_key, partition_of
from schemas.topics import Topic

log = logging.getLogger("headwater.owner")


class KafkaOwnerLog:
    """``OwnerLog`` of one source. Making it takes the transactional id over, so that an older owner can write no more.

    Raises BusUnavailable.
    """

    def __init__(self, settings: Settings, tenant: str, source: str) -> None:
        self._settings, self._tenant, self._source = settings, tenant, source
        self.appender: Appender = KafkaAppender(settings, f"owner.{tenant}.{source}")
        try:
            self.publisher: Publisher = KafkaPublisher(settings, "owner")
        except BaseException:
            self.appender.close()
            raise

    def states(self) -> Iterator[Record]:
        """The partition of ``cursors`` that holds all of this source's records."""
        place = partition_of(source_partition_key(self._tenant, self._source), self._settings.kafka.partitions)
        return read_compacted(
            self._settings, Topic.CURSORS, partitions=[place], wanted=lambda key: self._mine(key, 0, 1)
        )

    def memberships(self) -> Iterator[Record]:
        """This source's membership records."""
        return read_compacted(self._settings, Topic.MEMBERSHIP, wanted=lambda key: self._mine(key, 0, 2))

    def content_ends(self) -> dict[int, int]:
        """Next offset of ``content`` by partition, whoever wrote there."""
        tail = KafkaTail(self._settings, [Topic.CONTENT], since="end")
        try:
            return {slot.partition: offset for slot, offset in tail.positions().items()}
        finally:
            tail.close()

    def _mine(self, key: str | None, tenant: int, source: int) -> bool:
        try:
            parts = json.loads(key or "")
        except ValueError:
            return False
        if not isinstance(parts, list) or len(parts) <= source:
            return False
        return bool(parts[tenant] == self._tenant and parts[source] == self._source)

    def close(self) -> None:
        """Disconnect."""
        self.appender.close()
        self.publisher.close()


def cursor_offset(settings: Settings, tenant: str, source: str) -> int:
    """Offset of the source's newest cursor: its owner writes one every few seconds. Raises BusUnavailable."""
    key = cursor_key(tenant, source, "changes")
    place = partition_of(source_partition_key(tenant, source), settings.kafka.partitions)
    records = read_compacted(settings, Topic.CURSORS, partitions=[place], wanted=lambda k: k == key)
    return max((record.offset for record in records), default=-1)


class RequestFeed:
    """Reads the topic ``requests`` in a thread of its own, for all sources of this process."""

    def __init__(self, settings: Settings, wake: Callable[[str, str], None]) -> None:
        """``wake(tenant, source)`` is called when a request for it has come."""
        self._settings, self._wake = settings, wake
        self._lock = threading.Lock()
        self._requests: dict[tuple[str, str], list[tuple[int, SourceRequest]]] = {}  # as long as the topic keeps them
        self._next = 0
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name="requests", daemon=True)
        self._thread.start()

    def of(self, tenant: str, source: str) -> SourceRequests:
        """The requests to one source."""
        return SourceRequests(self, tenant, source)

    def since(self, position: int, tenant: str, source: str) -> list[tuple[int, SourceRequest]]:
        """Requests to a source at this offset or later."""
        with self._lock:
            known = self._requests.get((tenant, source), [])
            return known[bisect_left(known, position, key=itemgetter(0)) :]

    def _run(self) -> None:
        backoff = Backoff(first=0.2, most=5.0)
        while not self._stop.is_set():
            try:
                self._follow()
            except Retry as error:
                log.warning("requests cannot be read: %s", error)
                self._stop.wait(backoff.next())

    def _follow(self) -> None:
        tail = KafkaTail(self._settings, [Topic.REQUESTS], since="beginning")
        try:
            while not self._stop.is_set():
                for record in tail.poll(500):
                    self._accept(record)
        finally:
            tail.close()

    def _accept(self, record: Record) -> None:
        if record.offset < self._next:
            return  # read again after a reconnect
        try:
            request = decode(record, SourceRequest)
        except Reject as error:
            log.warning("request at offset %d cannot be read: %s", record.offset, error.reason)
            self._next = record.offset + 1
            return
        with self._lock:
            self._requests.setdefault((request.tenant, request.source), []).append((record.offset, request))
            self._next = record.offset + 1
        self._wake(request.tenant, request.source)

    def close(self) -> None:
        """Stop reading."""
        self._stop.set()
        self._thread.join(5)


class SourceRequests:
    """``Requests`` of one source."""

    def __init__(self, feed: RequestFeed, tenant: str, source: str) -> None:
        self._feed, self._tenant, self._source = feed, tenant, source

    def take(self, position: int) -> list[tuple[int, SourceRequest]]:
        """See ``Requests.take``."""
        return self._feed.since(position, self._tenant, self._source)


class AppliedOffsets:
    """Next offset of ``content`` by partition in the active generation, asked from the store at most twice a second."""

    def __init__(self, store: IndexStore, generation: str, elapsed: Callable[[], float]) -> None:
        self._store, self._generation, self._elapsed = store, generation, elapsed
        self._asked = -1.0
        self._silent_since: float | None = None
        self._known: dict[int, int] | None = None
        self._lock = threading.Lock()

    def __call__(self) -> dict[int, int] | None:
        """None where the store does not say."""
        with self._lock:
            if self._asked < 0 or self._elapsed() - self._asked >= 0.5:
                self._asked = self._elapsed()
                self._known = self._read()
            return self._known

    def _read(self) -> dict[int, int] | None:
        try:
            generation = self._store.active_generation() or self._generation
            progress = self._store.read_progress("index", generation, str(Topic.CONTENT))
        except Retry as error:
            if self._silent_since is None:
                self._silent_since = self._elapsed()
                log.warning("the store does not say how far the index is, bulk work may have to wait: %s", error)
            return None
        if self._silent_since is not None:
            log.info("the store says again how far the index is")
            self._silent_since = None
        return {partition: record.offset for partition, record in progress.items()}
