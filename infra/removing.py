"""``headwater sources remove``: checks, and the owner of record while it lasts."""

from __future__ import annotations

import time
import uuid
from functools import partial
from typing import TYPE_CHECKING

from infra.errors import InfraError
from pipeline.settings import Settings
from schemas.reconciliation import ReconciliationReport

if TYPE_CHECKING:
    from pipeline.ports import ProgressBar

ALIVE_S = 12.0
"""Whoever writes for a source writes its cursor at least every ten seconds."""


class Removal:
    """One source of one tenant."""

    def __init__(self, settings: Settings, tenant: str, source: str, *, alive_s: float = ALIVE_S) -> None:
        self._settings, self._tenant, self._source, self._alive_s = settings, tenant, source, alive_s

    def check(self, *, take_over: bool) -> int:
        """How many documents there are to delete. Raises InfraError where it must not be, or BusUnavailable."""
        from consumers.owner_log import cursor_offset
        from pipeline.operate.owned import sources

        if any((s.tenant, s.name) == (self._tenant, self._source) for s in self._settings.sources):
            raise InfraError(
                f"{self._source} is among the configured sources: its owner would bring everything back.",
                "Take it out of the settings, restart the owners (`headwater down`, `headwater up`), and ask again.",
            )
        known = [s for s in sources(self._settings) if (s.tenant, s.source) == (self._tenant, self._source)]
        if not known:
            raise InfraError(f"No source {self._source} of {self._tenant}.", "See `headwater sources list`.")
        if not take_over:
            before = cursor_offset(self._settings, self._tenant, self._source)
            time.sleep(self._alive_s)
            if cursor_offset(self._settings, self._tenant, self._source) != before:
                raise InfraError(
                    f"Something writes for {self._source}: an owner with other settings, or the change gateway.",
                    "Stop that owner first. For a source that is fed through the gateway, say --take-over.",
                )
        return known[0].documents

    def carry_out(self, progress: ProgressBar) -> ReconciliationReport:
        """Delete. Raises BusUnavailable, or Crash where another owner takes the source over meanwhile."""
        from consumers.owner_log import KafkaOwnerLog
        from consumers.owner_remove import remove_source
        from pipeline.bus.bodies import FsspecBodyStore
        from pipeline.clock import SystemClock
        from pipeline.observe import metrics
        from pipeline.sources.bodies import BodyPlacer
        from pipeline.sources.changes import Limits

        bodies = self._settings.bodies
        return remove_source(
            self._tenant,
            self._source,
            open_log=partial(KafkaOwnerLog, self._settings, self._tenant, self._source),
            bodies=BodyPlacer(FsspecBodyStore.of(self._settings), bodies.inline_limit, bodies.max_bytes),
            clock=SystemClock(),
            observed=metrics(),
            limits=Limits(events=self._settings.kafka.transaction_events),
            request_id=uuid.uuid4().hex,
            progress=progress,
        )
