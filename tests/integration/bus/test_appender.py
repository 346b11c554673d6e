"""The owner's producer on the real broker when things go wrong inside a transaction."""

from __future__ import annotations

import time
from typing import Any

import pytest
from kafka import errors as kafka_errors

import pipeline.bus.producer as producer_module
from pipeline.bus.producer import KafkaAppender
from pipeline.bus.tail import read_compacted
from pipeline.errors import BusUnavailable
from pipeline.observe import Metrics
from pipeline.ports import Outgoing
from pipeline.settings import Settings
from schemas.topics import Topic


def out(key: str) -> Outgoing:
    return Outgoing(str(Topic.CONTENT), key, b"x")


def keys(settings: Settings) -> list[str]:
    return sorted(r.key or "" for r in read_compacted(settings, Topic.CONTENT))


@pytest.mark.requirement("I9")
def test_a_failure_between_two_records_leaves_none_of_them_and_the_next_transaction_works(
    topics: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    observed = Metrics()
    appender = KafkaAppender(topics, "owner", observed=observed)
    appender.append([out("before")])
    send = producer_module._send

    def failing(producer: Any, settings: Settings, record: Outgoing) -> Any:
        if record.key == "second":
            raise kafka_errors.KafkaTimeoutError("no room")
        return send(producer, settings, record)

    monkeypatch.setattr(producer_module, "_send", failing)
    with pytest.raises(BusUnavailable, match="no room"):
        appender.append([out("first"), out("second")])
    appender.append([out("after")])
    assert keys(topics) == ["after", "before"]
    assert observed.value("headwater_transactions_total", result="aborted") == 1
    assert observed.value("headwater_transactions_total", result="committed") == 2
    appender.close()


@pytest.mark.requirement("I8", "I9")
def test_a_commit_that_never_answers_is_given_up_and_the_producer_replaced(
    topics: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    observed = Metrics()
    appender = KafkaAppender(topics, "owner", watchdog_s=2.0, observed=observed)
    appender.append([out("before")])
    hanging = appender._producer
    assert hanging is not None
    monkeypatch.setattr(hanging, "commit_transaction", lambda: time.sleep(30))
    began = time.monotonic()
    with pytest.raises(BusUnavailable, match="no answer within 2 s"):
        appender.append([out("lost")])
    assert time.monotonic() - began < 10
    appender.append([out("after")])
    assert appender._producer is not hanging
    assert keys(topics) == ["after", "before"], "taking the id over ended the open transaction"
    assert observed.value("headwater_transactions_total", result="expired") == 1
    appender.close()


@pytest.mark.requirement("D4")
def test_transactions_that_follow_at_once_do_not_wait_for_the_clients_default_pause(topics: Settings) -> None:
    appender = KafkaAppender(topics, "owner", observed=Metrics())
    appender.append([out("warm")])
    took = []
    for number in range(20):
        began = time.perf_counter()
        appender.append([out(f"k{number}")])
        took.append(time.perf_counter() - began)
    took.sort()
    assert took[5] < 0.09, "with the default of 100 ms each of them would take longer"
    appender.close()
