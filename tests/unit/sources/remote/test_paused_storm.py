"""Thousands of notifications to a paused source fit on the log and are answered together."""

from __future__ import annotations

import uuid

import pytest

from pipeline.bus.client import MAX_RECORD_BYTES
from schemas.events import SourceRequest
from schemas.topics import Topic
from tests.unit.sources.remote.scripted import Owned


def notified(kb: Owned, times: int) -> None:
    """As the gateway asks: five times a second at most."""
    for _ in range(times):
        offset = len(kb.asked.all)
        request = SourceRequest(
            type="notify",
            tenant="acme",
            source="kb",
            request_id=f"notify-{uuid.uuid4().hex}",
            requested_at=1,
            requested_by="webhook",
        )
        kb.asked.all.append((offset, request))


def paused() -> Owned:
    kb = Owned()
    kb.script.put("a", "a")
    kb.start()
    kb.asked.ask("pause")
    kb.settle(5)
    assert kb.engine.paused
    return kb


@pytest.mark.requirement("D7", "F22")
def test_notifications_during_a_pause_do_not_fill_the_record_of_requests() -> None:
    kb = paused()
    notified(kb, 25_000)  # 83 minutes; the record cannot be appended then, nor can ``resume`` be answered any more
    kb.passes(40, 5)
    largest = max(len(r.value or b"") for r in kb.log.topic(Topic.CURSORS))
    assert largest < MAX_RECORD_BYTES, f"{largest} bytes of {MAX_RECORD_BYTES}"


@pytest.mark.requirement("D7", "F22")
def test_resuming_after_many_notifications_does_not_write_each_with_all_others() -> None:
    kb = paused()
    notified(kb, 1000)  # 200 seconds
    kb.passes(40, 5)
    before, transactions = sum(len(r.value or b"") for r in kb.log.records), len(kb.log.transactions)
    kb.asked.ask("resume")
    kb.settle(3)
    written = sum(len(r.value or b"") for r in kb.log.records) - before
    assert len(kb.log.transactions) - transactions < 100 and written < 5_000_000, (
        f"{len(kb.log.transactions) - transactions} transactions, {written} bytes, in one step of the owner"
    )
