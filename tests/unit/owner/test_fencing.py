"""A fenced producer is recognised however the client wraps it; other failures are not taken for that."""

from __future__ import annotations

import pytest
from kafka import errors

from pipeline.bus.client import TimedOut
from pipeline.bus.producer import _says_fenced


def _chained() -> BaseException:
    try:
        raise errors.KafkaError("outer") from errors.InvalidProducerEpochError()
    except errors.KafkaError as error:
        found: BaseException = error
        return found


@pytest.mark.requirement("I1")
@pytest.mark.parametrize(
    ("error", "fenced"),
    [
        (errors.ProducerFencedError(), True),
        (errors.KafkaError(errors.KafkaError("a previous request failed", errors.ProducerFencedError())), True),
        (errors.KafkaError(("a previous request failed", errors.ProducerFencedError())), True),
        (errors.KafkaError("we are in an error state: [Error 90] ProducerFencedError"), True),
        (_chained(), True),
        (errors.KafkaTimeoutError("slow"), False),
        (errors.NotLeaderForPartitionError(), False),
        (TimedOut("no answer"), False),
    ],
)
def test_fencing_is_recognised(error: BaseException, fenced: bool) -> None:
    assert _says_fenced(error) is fenced
