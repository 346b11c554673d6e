"""Query services that live, by their heartbeats."""

from __future__ import annotations

import time
from collections.abc import Iterable
from dataclasses import dataclass

from pydantic import ValidationError

from pipeline.clock import Clock, SystemClock
from pipeline.errors import BusUnavailable
from pipeline.ports import Record
from pipeline.settings import Settings
from schemas.instances import GONE_AFTER_S, InstanceHeartbeat
from schemas.topics import Topic

READ_S = 10.0  # longest wait for the heartbeats of the last seconds


@dataclass(frozen=True)
class Instance:
    """A live query service: its newest heartbeat and when the log received it (µs)."""

    beat: InstanceHeartbeat
    heard_at: int


def living(records: Iterable[Record], now: int) -> tuple[Instance, ...]:
    """The instances that were heard within GONE_AFTER_S and are not stopping, by their newest heartbeat.

    A heartbeat that cannot be read is passed over: its sender counts by what it said before, and is gone soon.
    """
    newest: dict[str, Instance] = {}
    for record in records:
        try:
            beat = InstanceHeartbeat.model_validate_json(record.value or b"")
        except ValidationError:
            continue
        newest[beat.instance] = Instance(beat, record.timestamp)
    since = now - int(GONE_AFTER_S * 1_000_000)
    return tuple(i for _, i in sorted(newest.items()) if not i.beat.stopping and i.heard_at >= since)


def living_instances(settings: Settings, clock: Clock | None = None) -> tuple[Instance, ...]:
    """Those that live now. Raises BusUnavailable."""
    from pipeline.bus.tail import KafkaTail

    clock = clock if clock is not None else SystemClock()
    tail = KafkaTail(settings, [Topic.INSTANCES], since=2 * GONE_AFTER_S, clock=clock)
    records: list[Record] = []
    limit = time.monotonic() + READ_S
    try:
        while not tail.caught_up():
            if time.monotonic() > limit:
                raise BusUnavailable(f"the heartbeats could not be read within {READ_S:.0f} s")
            records += tail.poll(50)
    finally:
        tail.close()
    return living(records, clock.now())
