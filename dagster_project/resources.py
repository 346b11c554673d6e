"""What assets, jobs, checks and sensors work with: one installation, as the settings describe it.

Methods only pass on to ``pipeline.operate`` and the store's adapter, which the command line calls too. Tests replace
them by a subclass.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from dagster import ConfigurableResource, InitResourceContext
from pydantic import Field

from dagster_project.orphans import leave_with_parent
from pipeline import settings as config
from pipeline.settings import Settings

if TYPE_CHECKING:
    from pipeline.operate.audit import AuditReport, Mended
    from pipeline.operate.build import BuildProgress, BuildResult
    from pipeline.operate.control import CommandType, Known
    from pipeline.operate.letters import Letter, LetterDepth
    from pipeline.operate.owned import SourceStatus
    from pipeline.operate.replay import Replayed
    from pipeline.operate.reprocess import Reprocessed
    from pipeline.operate.tiers import TierRun
    from pipeline.ports import ProgressBar
    from schemas.receipts import Receipt
    from schemas.reconciliation import ReconciliationReport, SourceReconciliation
    from schemas.verification import VerificationReport


class Headwater(ConfigurableResource):  # type: ignore[type-arg]
    """One installation: addresses, keys and limits come from the settings of the process that starts runs."""

    requested_by: str = Field(default="dagster", description="Who asks, as receipts and records of generations say it.")

    def setup_for_execution(self, context: InitResourceContext) -> None:
        """A run leaves in order when the process that started it is gone."""
        leave_with_parent()

    def settings(self) -> Settings:
        """The settings as they are now. Raises ConfigError."""
        return config.load()

    def known(self) -> Known:
        """Records of generations, the retired ones included, and which one serves. Raises StoreUnavailable."""
        from pipeline.operate.control import known

        return known(self.settings())

    def sources(self) -> list[tuple[str, str]]:
        """(tenant, source) of each configured source that can be listed."""
        return [(source.tenant, source.name) for source in self.settings().sources]

    def source_states(self) -> list[SourceStatus]:
        """Every source, with what its owner last said of itself. Raises BusUnavailable or ConfigError."""
        from pipeline.operate.owned import sources

        return sources(self.settings())

    def letters(self) -> LetterDepth:
        """Unsettled dead letters. Raises BusUnavailable or StoreUnavailable."""
        from pipeline.operate.letters import depth

        return depth(self.settings())

    def build(
        self,
        generation: str,
        workers: int | None,
        on_progress: Callable[[BuildProgress], None],
        stop: threading.Event,
    ) -> BuildResult:
        """Build until the generation is ready or ``stop`` is set. Raises ConfigError, Crash, Retry."""
        from pipeline.operate.build import build

        return build(
            self.settings(), generation,
            workers=workers, on_progress=on_progress, stop=stop, requested_by=self.requested_by,
        )  # fmt: skip

    def compact(
        self, generation: str | None, tenants: Sequence[str] | None, progress: ProgressBar, stop: threading.Event
    ) -> list[TierRun]:
        """Move to cold what is due. Raises StoreUnavailable, BusUnavailable."""
        from pipeline.operate.tiers import compact

        return compact(
            self.settings(), generation=generation, tenants=tenants, progress=progress, stop=stop.is_set
        )  # fmt: skip

    def command(self, type: CommandType, generation: str, **fields: Any) -> Receipt:
        """Send a command to control and wait. Raises Refused, Unanswered, ConfigError, BusUnavailable."""
        from pipeline.operate.control import send

        return send(self.settings(), type, generation, requested_by=self.requested_by, **fields)

    def verify(self, generation: str, against: str | None, progress: ProgressBar) -> VerificationReport:
        """Verify and hand the summary to control. Raises ConfigError, Refused, Retry."""
        from pipeline.operate.verification.verify import verify

        return verify(
            self.settings(), generation, against=against, progress=progress, requested_by=self.requested_by
        )  # fmt: skip

    def reconcile(
        self, tenant: str, source: str, repair: bool, confirm_deletions: bool, progress: ProgressBar
    ) -> SourceReconciliation:
        """A full listing by the owner, then the index. Raises BusUnavailable, StoreUnavailable."""
        from pipeline.operate.reconcile import reconcile

        (found,) = reconcile(
            self.settings(), [(tenant, source)], repair=repair, confirm_deletions=confirm_deletions,
            requested_by=self.requested_by, progress=progress,
        )  # fmt: skip
        return found

    def backfill(
        self, tenant: str, source: str, begin: int | None, end: int | None, progress: ProgressBar
    ) -> ReconciliationReport:
        """The owner appends again what was updated in the window. Raises Declined, Unanswered, BusUnavailable."""
        from pipeline.operate.requests import asking

        with asking(self.settings()) as asked:
            return asked.backfill(
                tenant, source, updated_from=begin, updated_until=end, requested_by=self.requested_by,
                progress=progress,
            )  # fmt: skip

    def undo(self, tenant: str, source: str, listing: str) -> ReconciliationReport:
        """Lift every hold that a listing laid on. Raises Declined, Unanswered, BusUnavailable."""
        from pipeline.operate.requests import asking

        with asking(self.settings()) as asked:
            return asked.undo(tenant, source, listing, requested_by=self.requested_by)

    def pause(self, tenant: str, source: str) -> ReconciliationReport:
        """Have nothing read from a source until it is resumed. Raises as ``undo``."""
        from pipeline.operate.requests import asking

        with asking(self.settings()) as asked:
            return asked.pause(tenant, source, requested_by=self.requested_by)

    def resume(self, tenant: str, source: str) -> ReconciliationReport:
        """Have a paused source read again. Raises as ``undo``."""
        from pipeline.operate.requests import asking

        with asking(self.settings()) as asked:
            return asked.resume(tenant, source, requested_by=self.requested_by)

    def reset(self, tenant: str, source: str, progress: ProgressBar) -> ReconciliationReport:
        """Have every document of a source read again. Raises as ``undo``."""
        from pipeline.operate.requests import asking

        with asking(self.settings()) as asked:
            return asked.reset(tenant, source, requested_by=self.requested_by, progress=progress)

    def audit(
        self,
        checks: Sequence[str],
        generation: str | None = None,
        tenants: Sequence[str] | None = None,
        progress: ProgressBar | None = None,
    ) -> AuditReport:
        """Look, and change nothing. Raises ConfigError, StoreUnavailable, BusUnavailable."""
        from pipeline.operate.audit import audit

        return audit(self.settings(), checks, generation=generation, tenants=tenants, progress=progress)

    def mend(self, report: AuditReport, progress: ProgressBar, stop: threading.Event) -> list[Mended]:
        """Ask owners to mend what was found. Raises BusUnavailable, StoreUnavailable."""
        from pipeline.operate.audit import mend_all

        return mend_all(
            self.settings(), report, requested_by=self.requested_by, progress=progress, stop=stop.is_set
        )  # fmt: skip

    def reprocess(
        self,
        tenant: str | None,
        source: str | None,
        document: Sequence[str],
        window: tuple[int | None, int | None],
        generations: Sequence[str] | None,
        progress: ProgressBar,
        stop: threading.Event,
    ) -> Reprocessed:
        """Process chosen documents again. ``document``: the four parts of a key, or none of them; ``window`` in µs.

        Raises ConfigError, BusUnavailable, StoreUnavailable.
        """
        from pipeline.errors import ConfigError
        from pipeline.operate.reprocess import Selection, reprocess
        from schemas.keys import DocumentRef

        one = None
        if document:
            if len(document) != 4:
                raise ConfigError("document", f"{list(document)} is no key", "Give tenant, source, kind and id.")
            one = DocumentRef(tenant=document[0], source=document[1], kind=document[2], id=document[3])
        chosen = Selection(tenant, source, one, *window)
        return reprocess(
            self.settings(), chosen, generations=generations, progress=progress, stop=stop.is_set
        )  # fmt: skip

    def open_letters(self) -> list[Letter]:
        """Unsettled dead letters, oldest first. Raises BusUnavailable, StoreUnavailable."""
        from contextlib import closing

        from pipeline.index.store import WeaviateStore
        from pipeline.operate.letters import read

        settings = self.settings()
        with closing(WeaviateStore(settings)) as store:
            return read(settings, store)

    def replay(self, names: Sequence[str], narrowing: Mapping[str, str], progress: ProgressBar) -> list[Replayed]:
        """Process letters again and wait. Raises NotFound, BusUnavailable, StoreUnavailable."""
        from pipeline.operate.replay import replay, select

        chosen = select(self.open_letters(), names, parked=None, **narrowing)
        return replay(self.settings(), chosen, requested_by=self.requested_by, progress=progress)

    def discard(self, names: Sequence[str], narrowing: Mapping[str, str], reason: str) -> int:
        """Settle letters without processing them; how many. Raises NotFound, BusUnavailable, StoreUnavailable."""
        from pipeline.operate.replay import discard, select

        chosen = select(self.open_letters(), names, parked=None, **narrowing)
        discard(self.settings(), chosen, by=self.requested_by, reason=reason)
        return len(chosen)

    def release(self, tenant: str, source: str, progress: ProgressBar) -> list[Replayed]:
        """Take a parked source up again. Raises ConfigError for one that is not parked, or Retry."""
        from pipeline.errors import ConfigError
        from pipeline.operate.letters import parked
        from pipeline.operate.replay import release

        of_source = [p for p in parked(self.open_letters()) if (p.tenant, p.source) == (tenant, source)]
        if not of_source:
            raise ConfigError("source", f"{tenant}/{source} is not parked", "See the asset dead_letters.")
        settings, by = self.settings(), self.requested_by
        return [
            replayed
            for one in of_source
            for replayed in release(settings, one, self.open_letters, requested_by=by, progress=progress)
        ]

    def quality(self, mode: str, stop: threading.Event) -> dict[str, Any]:
        """A golden run as ``headwater quality`` prints it, in a process of its own: it starts a whole world.

        Raises Crash with what that process said.
        """
        import json
        import subprocess
        import sys

        from pipeline.errors import Crash

        command = [sys.executable, "-m", "infra.cli", "quality", "--mode", mode, "--json"]
        with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as child:
            while True:
                try:
                    said, noise = child.communicate(timeout=1.0)
                    break
                except subprocess.TimeoutExpired:
                    if stop.is_set():
                        child.terminate()
        lines = [line for line in said.splitlines() if line.startswith("{")]
        found: dict[str, Any] = json.loads(lines[-1]) if lines else {}
        if "report" not in found:  # a failed gate is a result, an error is none
            raise Crash(f"headwater quality ended with status {child.returncode}: {(said + noise).strip()[-1000:]}")
        return found
