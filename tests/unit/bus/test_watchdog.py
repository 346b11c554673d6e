"""The repairs of the Kafka client that need no broker."""

from __future__ import annotations

import time

import pytest
from kafka import errors as kafka_errors
from kafka.net.compat import KafkaNetClient

from pipeline.bus.client import SafeClient, TimedOut, common, in_time
from pipeline.errors import ConfigError
from pipeline.settings import Settings


@pytest.mark.requirement("I8")
def test_a_refused_connection_is_not_ready_rather_than_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    def refused(self: object, node_id: object, timeout_ms: float = 0) -> bool:
        raise kafka_errors.KafkaConnectionError("refused")

    monkeypatch.setattr(KafkaNetClient, "await_ready", refused)
    client = SafeClient.__new__(SafeClient)
    assert client.await_ready(1) is False


def test_a_call_that_hangs_is_given_up_and_one_that_fails_raises_its_own_error() -> None:
    began = time.monotonic()
    with pytest.raises(TimedOut):
        in_time(lambda: time.sleep(5), 0.05)
    assert time.monotonic() - began < 2
    with pytest.raises(ZeroDivisionError):
        in_time(lambda: 1 // 0, 1)
    assert in_time(lambda: 3, 1) == 3


def test_the_safe_client_is_part_of_every_configuration() -> None:
    assert common(Settings(), "any")["kafka_client"] is SafeClient
    settings = Settings()
    empty = settings.model_copy(update={"kafka": settings.kafka.model_copy(update={"bootstrap": " , "})})
    with pytest.raises(ConfigError, match=r"kafka\.bootstrap"):
        common(empty, "any")
