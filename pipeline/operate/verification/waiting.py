"""Waiting until a generation, and the access lane beside it, have applied everything before the ends of the log."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from pipeline.operate.verification.means import Ends, Means
from pipeline.ports import IndexStore, ProgressBar
from schemas.topics import Topic

TOPICS = (Topic.CONTENT, Topic.ACCESS, Topic.MEMBERSHIP)
LOOK_S = 0.5
STALLED_S = 120.0
"""Without any headway for so long nothing more is waited for: the report then says what is behind."""


@dataclass(frozen=True)
class Lane:
    """One line of progress records."""

    lane: str
    generation: str
    topic: Topic

    @property
    def name(self) -> str:
        """For people."""
        return f"generation {self.generation}, {self.topic}" if self.generation else f"the {self.lane} lane"


def lanes(generations: Sequence[str]) -> list[Lane]:
    """What parity needs: both generations' index lanes and the shared lanes of permissions."""
    index = [Lane("index", name, topic) for name in generations for topic in (Topic.CONTENT, Topic.ACCESS)]
    return [*index, Lane("access", "", Topic.ACCESS), Lane("membership", "", Topic.MEMBERSHIP)]


def applied(store: IndexStore, lane: Lane) -> dict[int, int]:
    """Applied offsets by partition. Raises StoreUnavailable."""
    found = store.read_progress(lane.lane, lane.generation, str(lane.topic))
    return {partition: progress.offset for partition, progress in found.items()}


def behind(store: IndexStore, lane: Lane, ends: Ends) -> int:
    """Records before the ends that the lane has not applied."""
    at = applied(store, lane)
    return sum(max(0, end - at.get(partition, 0)) for partition, end in ends[str(lane.topic)].items())


def wait(means: Means, generations: Sequence[str], ends: Ends, progress: ProgressBar) -> dict[Lane, int]:
    """Wait; what is still missing, by lane, once all is applied or nothing moved for STALLED_S."""
    wanted = lanes(generations)
    left = {lane: behind(means.store, lane, ends) for lane in wanted}
    first, least, since = sum(left.values()), sum(left.values()), means.clock.elapsed()
    while any(left.values()):
        progress("waiting for the log's end", first - least, first)
        if means.clock.elapsed() - since > STALLED_S:
            break
        means.sleep(LOOK_S)
        left = {lane: behind(means.store, lane, ends) for lane in wanted}
        if sum(left.values()) < least:
            least, since = sum(left.values()), means.clock.elapsed()
    return left
