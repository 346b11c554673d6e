"""Writing to Kafka: a plain idempotent publisher, and the owner's fenced transactional appender."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Sequence
from typing import Any

from kafka import KafkaProducer
from kafka import errors as kafka_errors

from pipeline.bus.client import MAX_RECORD_BYTES, TimedOut, common, in_time, translated
from pipeline.bus.topics import partitions_of, spec_of
from pipeline.errors import BusUnavailable, Crash, Reject
from pipeline.observe import Metrics, metrics
from pipeline.ports import Appended, Outgoing
from pipeline.settings import Settings
from schemas.keys import partition_of

log = logging.getLogger("headwater.bus")

WATCHDOG_S = 30.0
_FENCED = (
    kafka_errors.ProducerFencedError,
    kafka_errors.InvalidProducerEpochError,
    kafka_errors.TransactionCoordinatorFencedError,
)


def _says_fenced(error: BaseException) -> bool:
    """Whether the error is a fencing or wraps one.

    Once one send of a transaction was refused for it, the client wraps that in a plain error for the later ones. Taken
    for a passing failure it would make the fenced owner take the id back from its successor.
    """
    todo: list[object] = [error]
    seen: set[int] = set()
    while todo:
        current = todo.pop()
        if isinstance(current, _FENCED):
            return True
        if isinstance(current, BaseException) and id(current) not in seen:
            seen.add(id(current))
            todo += [*current.args, current.__cause__, current.__context__]
        elif isinstance(current, tuple | list):
            todo += current
        elif isinstance(current, str) and any(kind.__name__ in current for kind in _FENCED):
            return True
    return False


def partition_for(record: Outgoing, settings: Settings) -> int:
    """Partition of a record: murmur2 of its partition key (else its key), or 0 in a topic of one partition."""
    count = partitions_of(spec_of(record.topic), settings)
    return partition_of(record.partition_key if record.partition_key is not None else record.key, count)


def _configuration(settings: Settings, role: str) -> dict[str, Any]:
    return common(settings, role) | {
        "acks": "all",
        "enable_idempotence": True,
        "linger_ms": 0,
        "delivery_timeout_ms": int(max(20.0, settings.kafka.request_timeout_s + 5) * 1000),
        "max_block_ms": int(settings.kafka.request_timeout_s * 1000),
        "max_request_size": MAX_RECORD_BYTES,
        "metrics_enabled": False,
        "allow_auto_create_topics": False,
    }


def _send(producer: KafkaProducer, settings: Settings, record: Outgoing) -> Any:
    return producer.send(
        spec_of(record.topic).topic.physical(settings.namespace),
        value=record.value,
        key=record.key.encode("utf-8"),
        headers=[(name, value) for name, value in record.headers],
        partition=partition_for(record, settings),
    )


def _appended(record: Outgoing, metadata: Any) -> Appended:
    return Appended(record.topic, metadata.partition, metadata.offset, int(metadata.timestamp) * 1000)


def _check_sizes(records: Sequence[Outgoing]) -> None:
    """Refuse before anything is sent, so that neighbours in the batch are not half written."""
    for record in records:
        size = len(record.value or b"") + len(record.key.encode("utf-8"))
        size += sum(len(name) + len(value) for name, value in record.headers)
        if size > MAX_RECORD_BYTES - 1024:
            raise Reject(
                f"the record for {record.key} is too large: {size} bytes, the log takes {MAX_RECORD_BYTES}; "
                "lower bodies.inline_limit so that its body goes by claim check",
                stage="append",
                kind="too_large",
            )


class KafkaPublisher:
    """``pipeline.ports.Publisher``: idempotent, acknowledged by all replicas in sync. Thread-safe."""

    def __init__(self, settings: Settings, role: str = "publisher") -> None:
        self._settings = settings
        self._role = role
        self._timeout_s = max(5.0, settings.kafka.request_timeout_s / 2)
        self._lock = threading.Lock()
        self._producer: Any = self._connected()  # None after a failure, until the next call

    def _connected(self) -> KafkaProducer:
        try:
            return KafkaProducer(**_configuration(self._settings, self._role))
        except kafka_errors.KafkaError as error:
            raise translated(error, f"no broker answers at {self._settings.kafka.bootstrap}") from error

    def publish(self, records: Sequence[Outgoing]) -> list[Appended]:
        """See ``Publisher.publish``. Raises Reject for a record above the log's limit; then none is sent."""
        _check_sizes(records)
        deadline = time.monotonic() + self._timeout_s
        with self._lock:
            if self._producer is None:
                self._producer = self._connected()
            producer = self._producer
        try:
            futures = [_send(producer, self._settings, record) for record in records]
            return [
                _appended(record, future.get(timeout=max(0.001, deadline - time.monotonic())))
                for record, future in zip(records, futures, strict=True)
            ]
        except kafka_errors.KafkaError as error:
            self._replace(producer)
            raise translated(error, "publishing") from error

    def _replace(self, failed: Any) -> None:
        """A producer whose broker died can wait on it long after its return: the next call gets a new one."""
        with self._lock:
            if self._producer is not failed:
                return
            self._producer = None
        threading.Thread(target=failed.close, kwargs={"timeout": 0.5}, name="close-producer", daemon=True).start()

    def close(self) -> None:
        """Wait for what is on its way, at most two seconds, and disconnect."""
        with self._lock:
            producer, self._producer = self._producer, None
        if producer is not None:
            producer.close(timeout=2)


class KafkaAppender:
    """``pipeline.ports.Appender``: one fenced transactional producer per source. Used by one thread.

    A newer appender of the same ``transactional_id`` fences this one, which then raises Crash. After any other
    failure the transaction is aborted and the producer usable again; whether the failed transaction was committed is
    then unknown, which is harmless because events carry whole state and newer versions.
    """

    def __init__(
        self,
        settings: Settings,
        transactional_id: str,
        *,
        watchdog_s: float = WATCHDOG_S,
        observed: Metrics | None = None,
    ) -> None:
        self._settings = settings
        self._id = f"{settings.namespace}.{transactional_id}"
        self._watchdog_s = watchdog_s
        self._metrics = observed if observed is not None else metrics()
        self._producer: KafkaProducer | None = None
        self._fenced = False
        self._start()

    def _start(self) -> KafkaProducer:
        """Make the producer and take the transactional id over; fences an older holder."""
        settings = self._settings
        configuration = _configuration(settings, "owner") | {
            "transactional_id": self._id,
            "transaction_timeout_ms": int(settings.kafka.transaction_timeout_s * 1000),
            # Back-to-back transactions wait for the last one's completion in steps of this.
            "retry_backoff_ms": 2,
        }
        try:
            producer = KafkaProducer(**configuration)
        except kafka_errors.KafkaError as error:
            raise translated(error, f"no broker answers at {settings.kafka.bootstrap}") from error
        try:
            in_time(producer.init_transactions, self._watchdog_s)
        except (kafka_errors.KafkaError, TimedOut) as error:
            _discard(producer)
            raise translated(error, f"taking over transactional id {self._id}") from error
        self._producer = producer
        return producer

    def append(self, records: Sequence[Outgoing]) -> list[Appended]:
        """See ``Appender.append``. Raises ValueError above the configured number of events, Reject for a record above
        the log's limit; nothing is sent then."""
        limit = self._settings.kafka.transaction_events
        if len(records) > limit:
            raise ValueError(f"{len(records)} events in one transaction, at most {limit} (kafka.transaction_events)")
        if self._fenced:
            raise self._crash()
        if not records:
            return []
        _check_sizes(records)
        producer = self._producer if self._producer is not None else self._start()
        try:
            producer.begin_transaction()
            futures = [_send(producer, self._settings, record) for record in records]
            metadata = [future.get(timeout=self._watchdog_s) for future in futures]
            in_time(producer.commit_transaction, self._watchdog_s)
        except (kafka_errors.KafkaError, TimedOut) as error:
            if _says_fenced(error):
                raise self._fence() from error
            self._abort(producer, error)
            raise translated(error, f"transaction of {self._id}") from error
        self._metrics.count("headwater_transactions_total", result="committed")
        return [_appended(record, m) for record, m in zip(records, metadata, strict=True)]

    def _abort(self, producer: KafkaProducer, cause: Exception) -> None:
        """Abort; where that fails too, drop the producer: its successor's start ends the transaction."""
        try:
            if isinstance(cause, TimedOut):
                raise cause
            in_time(producer.abort_transaction, self._watchdog_s)
            self._metrics.count("headwater_transactions_total", result="aborted")
        except (kafka_errors.KafkaError, TimedOut) as error:
            if _says_fenced(error):
                raise self._fence() from error
            log.warning("producer %s is replaced: %s", self._id, error)
            self._metrics.count("headwater_transactions_total", result="expired")
            self._producer = None
            _discard(producer)

    def _fence(self) -> Crash:
        self._fenced = True
        self._metrics.count("headwater_transactions_total", result="fenced")
        if self._producer is not None:
            _discard(self._producer)
            self._producer = None
        return self._crash()

    def _crash(self) -> Crash:
        return Crash(f"another owner took over transactional id {self._id}; this process must stop")

    def close(self) -> None:
        """Disconnect; an open transaction was ended by ``append`` already."""
        producer, self._producer = self._producer, None
        if producer is not None:
            _discard(producer, wait=True)


def _discard(producer: KafkaProducer, *, wait: bool = False) -> None:
    """Close in the background: a producer whose call hangs may hang in close as well."""
    thread = threading.Thread(target=lambda: producer.close(timeout=2), name="kafka-close", daemon=True)
    thread.start()
    if wait:
        thread.join(5)


__all__ = ["WATCHDOG_S", "BusUnavailable", "KafkaAppender", "KafkaPublisher", "partition_for"]
