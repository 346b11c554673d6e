"""An installation in memory: what ``Headwater`` answers is set by the test, what it is asked is kept."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from typing import Any, ClassVar

from dagster_project.resources import Headwater
from pipeline.errors import StoreUnavailable
from pipeline.operate.audit import AuditReport, CheckResult, Mended
from pipeline.operate.build import BuildProgress, BuildResult, PartitionProgress
from pipeline.operate.control import Known, Refused
from pipeline.operate.letters import LetterDepth, LetterGroup
from pipeline.operate.owned import SourceStatus
from pipeline.operate.tiers import TierRun
from pipeline.ports import ProgressBar
from pipeline.settings import Settings
from schemas.generation import BackendChoice, Generation, GenerationState
from schemas.receipts import Receipt
from schemas.reconciliation import ReconciliationReport, SourceReconciliation
from schemas.verification import VerificationReport


def generation(name: str, state: GenerationState = "building") -> Generation:
    """A record of a generation."""
    return Generation(name=name, state=state, backend=BackendChoice(name="stub", agreement=1.0), created_at=1)


def depth(newest_at: int = 3_600_000_000, **counts: int) -> LetterDepth:
    """Letters of tenant acme by source."""
    groups = tuple(
        LetterGroup(
            tenant="acme", source=source, lane="index", generation="minilm", stage="extract", kind="unreadable",
            count=count, parked=0, oldest_at=0, newest_at=newest_at,
        )
        for source, count in counts.items()
    )  # fmt: skip
    return LetterDepth(at=3_600_000_000, total=sum(counts.values()), groups=groups)


def look(applied: int, total: int = 100, rate: float | None = 5.0) -> BuildProgress:
    """A build of two partitions, the first of which is done."""
    done = PartitionProgress("content", 0, 0, total, total, total, 0.0)
    rest = PartitionProgress("content", 1, 0, applied, total, total, rate)
    return BuildProgress("bge", 1, (done, rest))


def built(progress: BuildProgress, state: str = "ready", stopped: bool = False) -> BuildResult:
    """The result of a build that took two seconds."""
    return BuildResult("bge", state, stopped, 2.0, 40, 80, 60, 9000, 0, 0, progress)


class World:
    """What the fakes of one test answer and keep."""

    def __init__(self) -> None:
        self.generations: dict[str, Generation] = {}
        self.active: str | None = None
        self.sources: list[tuple[str, str]] = []
        self.states: list[SourceStatus] = []
        self.letters = depth()
        self.down = False
        self.commands: list[tuple[str, str, dict[str, Any]]] = []
        self.refusal: str | None = None
        self.build: Callable[[Callable[[BuildProgress], None], threading.Event], BuildResult] | None = None
        self.workers: int | None = None
        self.report: VerificationReport | None = None
        self.against: str | None = None
        self.reconciled: SourceReconciliation | None = None
        self.asked: list[tuple[Any, ...]] = []
        self.backfilled: ReconciliationReport | None = None
        self.runs: list[TierRun] = []
        self.found: dict[str, list[CheckResult]] = {}
        self.mended: list[Mended] = []


class FakeHeadwater(Headwater):
    """Answers from ``world``, which the test sets."""

    world: ClassVar[World] = World()

    def _up(self) -> World:
        if self.world.down:
            raise StoreUnavailable("nobody answers at http://127.0.0.1:1")
        return self.world

    def known(self) -> Known:
        world = self._up()
        return Known(world.generations, world.active)

    def sources(self) -> list[tuple[str, str]]:
        return self.world.sources

    def source_states(self) -> list[SourceStatus]:
        return self._up().states

    def pause(self, tenant: str, source: str) -> ReconciliationReport:
        return self._asked("pause", tenant, source)

    def resume(self, tenant: str, source: str) -> ReconciliationReport:
        return self._asked("resume", tenant, source)

    def reset(self, tenant: str, source: str, progress: ProgressBar) -> ReconciliationReport:
        progress(f"{source}: reset", 7, 9)
        return self._asked("reset", tenant, source)

    def _asked(self, type_: Any, tenant: str, source: str) -> ReconciliationReport:
        self._up().asked.append((type_, tenant, source))
        return ReconciliationReport(
            type=type_, tenant=tenant, source=source, request_id="r1", listed=9, began_at=0, finished_at=1_500_000
        )

    def letters(self) -> LetterDepth:
        return self._up().letters

    def settings(self) -> Settings:
        return Settings()

    def command(self, type: Any, generation: str, **fields: Any) -> Receipt:
        self._up().commands.append((type, generation, fields))
        if self.world.refusal is not None:
            raise Refused(f"{type} {generation}", self.world.refusal, {"checks": {"warm": False}})
        return Receipt(lane="control", tenant="-", event_type=f"control.{type}", version=1, outcome="done")

    def build(
        self,
        generation: str,
        workers: int | None,
        on_progress: Callable[[BuildProgress], None],
        stop: threading.Event,
    ) -> BuildResult:
        assert self.world.build is not None
        self.world.workers = workers
        return self.world.build(on_progress, stop)

    def compact(
        self, generation: str | None, tenants: Sequence[str] | None, progress: ProgressBar, stop: threading.Event
    ) -> list[TierRun]:
        self.world.asked.append((generation, tenants))
        return self._up().runs

    def verify(self, generation: str, against: str | None, progress: ProgressBar) -> VerificationReport:
        assert self.world.report is not None
        self.world.against = against
        return self.world.report

    def reconcile(
        self, tenant: str, source: str, repair: bool, confirm_deletions: bool, progress: ProgressBar
    ) -> SourceReconciliation:
        assert self.world.reconciled is not None
        self.world.asked.append((tenant, source, repair, confirm_deletions))
        return self.world.reconciled

    def backfill(
        self, tenant: str, source: str, begin: int | None, end: int | None, progress: ProgressBar
    ) -> ReconciliationReport:
        assert self.world.backfilled is not None
        self.world.asked.append((tenant, source, begin, end))
        return self.world.backfilled

    def audit(
        self,
        checks: Sequence[str],
        generation: str | None = None,
        tenants: Sequence[str] | None = None,
        progress: ProgressBar | None = None,
    ) -> AuditReport:
        """Each look takes the next scripted result of a check; the last one stays."""
        self.world.asked.append(tuple(checks))
        results = []
        for name in checks:
            left = self._up().found.get(name) or [CheckResult(name=name, title=name)]
            results.append(left.pop(0) if len(left) > 1 else left[0])
        return AuditReport(at=1, generation="minilm", results=tuple(results))

    def mend(self, report: AuditReport, progress: ProgressBar, stop: threading.Event) -> list[Mended]:
        return self.world.mended
