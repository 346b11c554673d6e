"""One record by its coordinates: for replays of dead letters and rechecks, which are rare."""

from __future__ import annotations

import threading
import time

from kafka import KafkaConsumer
from kafka import errors as kafka_errors

from pipeline.bus.client import translated
from pipeline.bus.interface import MIN_POLL_MS, Slot
from pipeline.bus.reading import Names, asking, configuration
from pipeline.ports import Record
from pipeline.settings import Settings
from schemas.topics import Topic


class RecordFetcher:
    """Reads single committed records of one topic. Thread-safe; connects on first use."""

    def __init__(self, settings: Settings, topic: Topic, *, timeout_s: float = 10.0) -> None:
        self._settings = settings
        self._topic = topic
        self._names = Names(settings, [topic])
        self._timeout = timeout_s
        self._consumer: KafkaConsumer | None = None
        self._lock = threading.Lock()

    def __call__(self, partition: int, offset: int) -> Record | None:
        """The record, or None where the log no longer holds that offset. Raises BusUnavailable."""
        with self._lock, asking(f"reading {self._topic}/{partition}/{offset}"):
            consumer = self._connected()
            tp = self._names.to(Slot(str(self._topic), partition))
            consumer.assign([tp])
            if not consumer.beginning_offsets([tp])[tp] <= offset < consumer.end_offsets([tp])[tp]:
                return None
            consumer.seek(tp, offset)
            end = time.monotonic() + self._timeout
            while time.monotonic() < end:
                for raw in consumer.poll(timeout_ms=MIN_POLL_MS, max_records=1).get(tp, []):
                    # compaction may have removed it: then the next record comes instead
                    return self._names.record(raw) if raw.offset == offset else None
                if consumer.position(tp) > offset:
                    return None
            raise kafka_errors.KafkaTimeoutError(f"no answer within {self._timeout:.0f} s")

    def _connected(self) -> KafkaConsumer:
        if self._consumer is None:
            try:
                self._consumer = KafkaConsumer(**configuration(self._settings, "fetch", "read_committed"))
            except kafka_errors.KafkaError as error:
                raise translated(error, f"no broker answers at {self._settings.kafka.bootstrap}") from error
        return self._consumer

    def close(self) -> None:
        """Disconnect."""
        with self._lock:
            if self._consumer is not None:
                self._consumer.close(autocommit=False, timeout_ms=2000)
                self._consumer = None
