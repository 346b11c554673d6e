"""Has what checks found mended: every mend is a request to the one owner of a document (invariant 1).

Only where no owner can exist any more, for the collections of a dropped generation, is anything removed from here.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from contextlib import closing

from pydantic import Field

from pipeline.clock import Clock
from pipeline.operate.audit.model import AuditReport, CheckResult, Finding
from pipeline.operate.maintenance import Answer, Maintenance, opened
from pipeline.ports import IndexStore, Outgoing, ProgressBar, Publisher
from pipeline.settings import Settings
from schemas.base import ClosedModel
from schemas.events import ACCESS_ONLY, MaintenanceCommand, SourceRequest
from schemas.topics import Topic


class Mended(ClosedModel):
    """What became of the findings of one check. ``asked`` of a source's owner: it reads the document again."""

    check: str
    findings: int = Field(ge=0)
    mended: int = Field(default=0, ge=0)
    asked: int = Field(default=0, ge=0)
    failed: int = Field(default=0, ge=0)
    left: int = Field(default=0, ge=0, description="Findings without a mend: a person has to look.")
    reasons: dict[str, int] = Field(default_factory=dict)

    @property
    def whole(self) -> bool:
        """Whether all that can be mended was."""
        return self.failed == 0


def mend(
    found: CheckResult,
    owners: Maintenance,
    publisher: Publisher,
    store: IndexStore,
    clock: Clock,
    *,
    requested_by: str = "audit",
    progress: ProgressBar | None = None,
    stop: Callable[[], bool] = lambda: False,
) -> Mended:
    """Ask for the mend of every finding and wait for the owners' receipts. Repeating it does no harm.

    Raises BusUnavailable, StoreUnavailable.
    """
    now = clock.now()
    commands = [_command(finding, now) for finding in found.findings if finding.mend in _COMMANDS]
    answers: list[Answer] = []

    def on_answer(answer: Answer) -> None:
        answers.append(answer)
        if progress is not None:
            progress(f"mending {found.name}", len(answers), len(commands))

    owners.carry_out(commands, on_answer=on_answer, stop=stop)
    requests = [_request(f, now, n, requested_by) for n, f in enumerate(found.findings) if f.mend == "ask_owner"]
    if requests:
        publisher.publish([_outgoing(request) for request in requests])
    dropped = {f.generation for f in found.findings if f.mend == "drop_generation" and f.generation is not None}
    for name in sorted(dropped):
        store.drop_generation(name)
    done = sum(answer.done for answer in answers)
    reasons = Counter(answer.reason or str(answer.outcome) for answer in answers if not answer.done)
    return Mended(
        check=found.name,
        findings=found.count,
        mended=done + len(dropped),
        asked=len(requests),
        failed=len(commands) - done,
        left=found.count - len(commands) - len(requests) - len(dropped),
        reasons=dict(reasons),
    )


_COMMANDS = ("recheck", "recheck_access", "reprocess")


def _command(finding: Finding, now: int) -> MaintenanceCommand:
    assert finding.document is not None
    if finding.mend == "reprocess" and finding.offset is not None:
        return MaintenanceCommand(
            type="reprocess", document=finding.document, generation=finding.generation, offset=finding.offset,
            requested_at=now,
        )  # fmt: skip
    if finding.mend == "recheck_access":
        return MaintenanceCommand(
            type="recheck", document=finding.document, generation=ACCESS_ONLY, requested_at=now, priority="live"
        )
    return MaintenanceCommand(
        type="recheck", document=finding.document, generation=finding.generation, requested_at=now,
        chunk_ids=finding.chunk_ids, section_ids=finding.section_ids,
    )  # fmt: skip


def _request(finding: Finding, now: int, number: int, requested_by: str) -> SourceRequest:
    document = finding.document
    assert document is not None
    return SourceRequest(
        type="document", tenant=document.tenant, source=document.source, document=document,
        request_id=f"audit-{now}-{number}", requested_at=now, requested_by=requested_by,
    )  # fmt: skip


def _outgoing(request: SourceRequest) -> Outgoing:
    return Outgoing(str(Topic.REQUESTS), request.source, request.model_dump_json().encode())


def mend_all(
    settings: Settings,
    report: AuditReport,
    *,
    requested_by: str = "audit",
    progress: ProgressBar | None = None,
    stop: Callable[[], bool] = lambda: False,
) -> list[Mended]:
    """Mend what the checks of a report found, over the real services. Raises BusUnavailable, StoreUnavailable."""
    from pipeline.bus.producer import KafkaPublisher
    from pipeline.clock import SystemClock
    from pipeline.index.store import WeaviateStore

    wanted = [found for found in report.results if found.mendable]
    if not wanted:
        return []
    with (
        closing(WeaviateStore(settings)) as store,
        closing(KafkaPublisher(settings, "audit")) as publisher,
        opened(settings, "audit") as owners,
    ):
        return [
            mend(
                found, owners, publisher, store, SystemClock(), requested_by=requested_by, progress=progress, stop=stop
            )
            for found in wanted
        ]


def unmended(found: Sequence[Mended]) -> int:
    """Findings that nobody mended."""
    return sum(one.failed + one.left for one in found)
