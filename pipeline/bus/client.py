"""Common configuration of the Kafka clients, and the two repairs that they need.

``SafeClient``: without it a transactional request is lost when its coordinator's broker dies, and the caller waits
for ever. ``in_time``: transactional calls take no time limit of their own.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any, TypeVar

from kafka import errors as kafka_errors
from kafka.net.compat import KafkaNetClient

from pipeline.errors import BusUnavailable, ConfigError, HeadwaterError
from pipeline.settings import Settings

MAX_RECORD_BYTES = 2 * 1024 * 1024
"""Largest record that producers send, topics accept and consumers fetch; larger bodies go by claim check."""

T = TypeVar("T")


class SafeClient(KafkaNetClient):  # type: ignore[misc]
    """Answers "not ready" for a node that refuses the connection.

    The sender expects False there and puts the request back; the exception of the base class would drop it.
    """

    def await_ready(self, node_id: Any, timeout_ms: float = 30000) -> bool:
        """Whether the node can be talked to within ``timeout_ms``."""
        try:
            return bool(super().await_ready(node_id, timeout_ms=timeout_ms))
        except kafka_errors.KafkaConnectionError:
            return False


def common(settings: Settings, role: str) -> dict[str, Any]:
    """Settings shared by producers, consumers and the administrative client."""
    servers = [s.strip() for s in settings.kafka.bootstrap.split(",") if s.strip()]
    if not servers:
        raise ConfigError("kafka.bootstrap", "is empty", "Name at least one broker as host:port.")
    return {
        "bootstrap_servers": servers,
        "client_id": f"{settings.namespace}.{role}",
        "kafka_client": SafeClient,
        "request_timeout_ms": int(settings.kafka.request_timeout_s * 1000),
        "reconnect_backoff_max_ms": 1000,
        "metadata_max_age_ms": 10_000,
        "bootstrap_timeout_ms": int(settings.kafka.request_timeout_s * 1000),
    }


class TimedOut(HeadwaterError):
    """A call without a time limit of its own did not come back in time; it may still be running."""


def in_time(call: Callable[[], T], seconds: float) -> T:
    """Run ``call`` in a thread of its own and give up waiting after ``seconds`` (raises TimedOut)."""
    outcome: list[tuple[bool, Any]] = []

    def target() -> None:
        try:
            outcome.append((True, call()))
        except BaseException as error:  # handed to the waiting thread whatever it is
            outcome.append((False, error))

    thread = threading.Thread(target=target, name="kafka-watchdog", daemon=True)
    thread.start()
    thread.join(seconds)
    if not outcome:
        raise TimedOut(f"no answer within {seconds:.0f} s")
    fine, value = outcome[0]
    if not fine:
        raise value
    return value  # type: ignore[no-any-return]


def translated(error: Exception, doing: str) -> BusUnavailable:
    """The client's error as ours; chain it with ``from``."""
    return BusUnavailable(f"Kafka: {doing}: {type(error).__name__}: {error}")
