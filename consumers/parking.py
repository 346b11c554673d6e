"""When a source is parked, and when the process stops (invariant 8). Pure.

One bad document is a dead letter. A source whose content mostly fails is parked: its records become dead letters
without being tried, but for one in ``probe_every``, so that a repaired source is noticed. Several sources parked with
one kind of error point at us, not at them: the process stops.
"""

from __future__ import annotations

from collections import Counter, deque
from dataclasses import dataclass, field

from pipeline.settings import IndexSettings


@dataclass(frozen=True)
class ParkingPolicy:
    """Parked when more than ``share`` of the last ``window`` (at least ``minimum``) records failed."""

    window: int = 100
    minimum: int = 20
    share: float = 0.5
    stop_sources: int = 3
    probe_every: int = 10

    @staticmethod
    def of(settings: IndexSettings) -> ParkingPolicy:
        """The configured policy."""
        return ParkingPolicy(
            window=settings.park_window,
            minimum=settings.park_minimum,
            share=settings.park_share,
            stop_sources=settings.stop_sources,
        )


@dataclass
class _Source:
    outcomes: deque[str | None]  # error kind, None where it went well
    parked: bool = False
    seen_parked: int = 0


@dataclass
class Parking:
    """The state of all sources of one process."""

    policy: ParkingPolicy
    _sources: dict[tuple[str, str], _Source] = field(default_factory=dict)

    def _of(self, tenant: str, source: str) -> _Source:
        return self._sources.setdefault((tenant, source), _Source(deque(maxlen=self.policy.window)))

    def try_it(self, tenant: str, source: str) -> bool:
        """Whether the next record of this source is to be processed; false means a dead letter (parked) at once."""
        state = self._of(tenant, source)
        if not state.parked:
            return True
        state.seen_parked += 1
        return state.seen_parked % self.policy.probe_every == 0

    def succeeded(self, tenant: str, source: str) -> None:
        """A record of this source was processed. A parked source is taken up again: its content works once more."""
        state = self._of(tenant, source)
        if state.parked:
            state.parked = False
            state.outcomes.clear()
        state.outcomes.append(None)

    def failed(self, tenant: str, source: str, kind: str) -> bool:
        """A record of this source became a dead letter; true when this parks the source."""
        state = self._of(tenant, source)
        state.outcomes.append(kind)
        failures = sum(1 for outcome in state.outcomes if outcome is not None)
        enough = len(state.outcomes) >= self.policy.minimum
        if state.parked or not enough or failures <= self.policy.share * len(state.outcomes):
            return False
        state.parked = True
        state.seen_parked = 0
        return True

    def parked(self) -> list[tuple[str, str]]:
        """Parked sources as (tenant, source), sorted."""
        return sorted(key for key, state in self._sources.items() if state.parked)

    def common_kind(self) -> str | None:
        """The error kind that parked ``stop_sources`` or more sources, which stops the process; else None."""
        kinds = Counter(
            Counter(outcome for outcome in state.outcomes if outcome is not None).most_common(1)[0][0]
            for state in self._sources.values()
            if state.parked
        )
        for kind, count in kinds.most_common(1):
            if count >= self.policy.stop_sources:
                return kind
        return None
