"""Audits on the shop: the log in memory as checks see it."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from pipeline.bus.interface import Slot
from pipeline.operate.audit import CheckResult, Mended, examine, mend
from pipeline.operate.audit.sight import Sight
from pipeline.operate.maintenance import receipt_of
from pipeline.ports import Record
from pipeline.settings import AuditSettings, KafkaSettings, Settings
from schemas.receipts import Receipt
from schemas.topics import Topic
from tests.fakes.bus import MemoryPublisher, MemoryTail
from tests.unit.flow.flow_world import GENERATION
from tests.unit.upkeep.shop import Shop


class MemoryLog:
    """``LogView`` on the log in memory."""

    def __init__(self, shop: Shop) -> None:
        self._broker = shop.broker

    def ends(self, topics: Sequence[Topic]) -> dict[Slot, int]:
        return {
            Slot(str(t), n): self._broker.end_offset(Slot(str(t), n))
            for t in topics
            for n in range(self._broker.partitions)
        }

    def records(self, topic: Topic) -> Iterable[Record]:
        return self._broker.records(topic)

    def receipts(self, seconds: float) -> Iterable[Receipt]:
        tail = MemoryTail(self._broker, [Topic.RECEIPTS], since=seconds)
        return [receipt for record in tail.poll(0) if (receipt := receipt_of(record)) is not None]


def sight(shop: Shop, **audit: float) -> Sight:
    """A new look. Waiting lets the clock pass."""
    settings = Settings(
        namespace="headwater", kafka=KafkaSettings(partitions=shop.broker.partitions),
        audit=AuditSettings.model_validate(audit),
    )  # fmt: skip
    return Sight(settings, shop.store, MemoryLog(shop), shop.clock, GENERATION, pause=shop.clock.advance)


def look(shop: Shop, name: str, **audit: float) -> CheckResult:
    """One check alone."""
    return examine(sight(shop, **audit), [name]).results[0]


def failing(shop: Shop) -> set[str]:
    """Names of all checks that do not pass."""
    return {found.name for found in examine(sight(shop)).results if not found.passed}


def mended(shop: Shop, found: CheckResult) -> Mended:
    """Have it mended by owners that do at once what they are asked."""
    return mend(found, shop.owners(), MemoryPublisher(shop.broker), shop.store, shop.clock)
