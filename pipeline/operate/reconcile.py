"""Reconciliation of sources: their owners list everything, and what owners know is compared with the index.

Nothing is written here: owners and index consumers are asked (invariant 1). Repeating any of it does no harm.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass

from pipeline.errors import Retry
from pipeline.operate import owned
from pipeline.operate.against_index import Compared, Comparison, behind, given_up
from pipeline.operate.asking import Declined, Unanswered, request
from pipeline.operate.requests import Requester, asking, quiet
from pipeline.ports import IndexStore, ProgressBar
from pipeline.settings import Settings
from pipeline.sources.ledger import Ledger
from schemas.reconciliation import IndexReport, SourceReconciliation

SETTLE_S = 60.0
"""How long to wait for consumers to apply what is on the log before it is compared."""


@dataclass
class Reconciler(Requester):
    """What reconciliation needs of the world. ``opened`` makes the real one."""

    store: IndexStore
    memory: Callable[[str, str], Ledger]  # tenant and source: the owner's, as the log says now
    given_up: Callable[[str, str], Mapping[str, int]]  # by uid: the newest version with a dead letter
    behind: Callable[[str | None], int]  # of a generation: records that were not applied
    sleep: Callable[[float], None] = time.sleep

    def reconcile(
        self,
        tenant: str,
        source: str,
        *,
        repair: bool = True,
        confirm_deletions: bool = False,
        requested_by: str | None = None,
        timeout_s: float = 3600.0,
        progress: ProgressBar = quiet,
    ) -> SourceReconciliation:
        """A listing by the owner, then the owner's memory against the index. Raises BusUnavailable, StoreUnavailable.

        Where the owner does not answer or refuses, the index is compared all the same, and nothing of it is repaired.
        """
        listing, problem = None, None
        try:
            listing = self.listing(
                tenant, source, repair=repair, confirm_deletions=confirm_deletions, requested_by=requested_by,
                timeout_s=timeout_s, progress=progress,
            )  # fmt: skip
        except (Declined, Unanswered) as error:
            problem = str(error)
        index = self.index(
            tenant, source, repair=repair and listing is not None, requested_by=requested_by, progress=progress
        )
        return SourceReconciliation(tenant=tenant, source=source, listing=listing, index=index, problem=problem)

    def index(
        self,
        tenant: str,
        source: str,
        *,
        repair: bool,
        requested_by: str | None = None,
        progress: ProgressBar = quiet,
    ) -> IndexReport:
        """The owner's memory against the index; what differs is said again by the owner where ``repair``.

        Raises BusUnavailable, StoreUnavailable, Unanswered.
        """
        generation = self.store.active_generation()
        self._settled(generation, source, progress)
        compared = self._comparison(tenant, source, generation).walk(progress)
        behind = 0
        if compared.found:  # what was under way meanwhile is no difference
            behind = self._settled(generation, source, progress)
            again = self._comparison(tenant, source, generation).look(compared.documents())
            again.manifests, again.access = compared.manifests, compared.access
            compared = again
        why: list[str] = []
        repaired = 0
        if compared.found and repair:
            if behind:
                why.append(f"{behind} records are not applied yet: what differs may only be late; ask again later")
            else:
                repaired = self._repair(tenant, source, compared, requested_by, why, progress)
        return compared.report(behind=behind, repaired=repaired, why=why)

    def _comparison(self, tenant: str, source: str, generation: str | None) -> Comparison:
        return Comparison(self.store, self.memory(tenant, source), generation, self.given_up(tenant, source))

    def _settled(self, generation: str | None, source: str, progress: ProgressBar) -> int:
        """Wait until what is on the log now is applied; how many records are not, where that takes too long."""
        ends = self.owners.clock.elapsed() + SETTLE_S
        first = left = self.behind(generation)
        while left and self.owners.clock.elapsed() < ends:
            progress(f"{source}: waiting for the index", max(0, first - left), first)
            self.sleep(0.5)
            left = self.behind(generation)
        return left

    def _repair(
        self,
        tenant: str,
        source: str,
        compared: Compared,
        requested_by: str | None,
        why: list[str],
        progress: ProgressBar,
    ) -> int:
        hopeless = compared.found.get("unprocessable", {})
        extra = compared.found.get("extra", {})
        requests = [
            request(
                "document", tenant, source, clock=self.owners.clock, requested_by=requested_by, document=document,
                confirm_deletions=uid in extra,
            )
            for uid, document in compared.documents().items()
            if uid not in hopeless or uid in extra
        ]  # fmt: skip
        answers = self.owners.ask_all(requests, progress=progress)
        why += sorted({answer.refused for answer in answers if answer.refused is not None})[:5]
        return sum(answer.refused is None for answer in answers)


@contextmanager
def opened(settings: Settings) -> Iterator[Reconciler]:
    """On Kafka and Weaviate. Raises BusUnavailable, StoreUnavailable."""
    from pipeline.index.store import WeaviateStore

    with closing(WeaviateStore(settings)) as store, asking(settings) as asked:
        yield Reconciler(
            asked.owners,
            asked.configured,
            store,
            memory=lambda tenant, source: owned.memory(settings, tenant, source),
            given_up=lambda tenant, source: given_up(settings, tenant, source),
            behind=lambda generation: behind(settings, store, generation),
        )


def reconcile(
    settings: Settings,
    sources: Sequence[tuple[str, str]] | None = None,
    *,
    repair: bool = True,
    confirm_deletions: bool = False,
    requested_by: str | None = None,
    timeout_s: float = 3600.0,
    progress: ProgressBar = quiet,
) -> list[SourceReconciliation]:
    """Reconcile these sources (tenant and name), or all that the log and the settings know; one's failure does not
    keep the others from it. Sources without an owner process are compared with the index only."""
    known = sources
    if known is None:
        known = [(s.tenant, s.source) for s in owned.sources(settings) if s.configured or s.documents]
    reports = []
    with opened(settings) as reconciler:
        for tenant, source in known:
            try:
                report = reconciler.reconcile(
                    tenant, source, repair=repair, confirm_deletions=confirm_deletions, requested_by=requested_by,
                    timeout_s=timeout_s, progress=progress,
                )  # fmt: skip
            except (Unanswered, Retry) as error:
                report = SourceReconciliation(tenant=tenant, source=source, problem=str(error))
            reports.append(report)
    return reports
