"""Pauses between attempts."""

from __future__ import annotations

import random

import pytest

from consumers.backoff import Backoff


@pytest.mark.requirement("I8")
def test_pauses_double_up_to_the_most_with_half_of_it_random() -> None:
    backoff = Backoff(first=0.1, most=2.0, source=random.Random(7))
    pauses = [backoff.next() for _ in range(100)]
    for attempt, pause in enumerate(pauses):
        full = min(2.0, 0.1 * 2 ** min(attempt, 30))
        assert full / 2 <= pause <= full
    assert len(set(pauses[-20:])) > 1
    backoff.reset()
    assert backoff.failures == 0 and backoff.next() <= 0.1
