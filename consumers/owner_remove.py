"""Ends a source for good: whoever runs this owns it meanwhile and writes the deletion of all its documents.

For a source that was taken out of the settings, whose documents would stay searchable for ever. Running it again after
a failure goes on where it ended.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import closing

from consumers.owner_engine import OwnerLog
from consumers.owner_writer import OwnerWriter
from pipeline.clock import Clock
from pipeline.observe import Metrics
from pipeline.ports import Outgoing, ProgressBar, SourceDeletion
from pipeline.sources.bodies import BodyPlacer
from pipeline.sources.changes import Limits, ended_cursor_record
from pipeline.sources.ledger import Ledger
from pipeline.sources.tally import Tally
from schemas.events import SourceCursor
from schemas.receipts import Receipt, StageTimes
from schemas.reconciliation import ReconciliationReport
from schemas.topics import Topic

BATCH = 200


def remove_source(
    tenant: str,
    source: str,
    *,
    open_log: Callable[[], OwnerLog],
    bodies: BodyPlacer,
    clock: Clock,
    observed: Metrics,
    limits: Limits,
    request_id: str,
    progress: ProgressBar,
) -> ReconciliationReport:
    """Fence the source's owner, end its memberships, delete its documents and its cursor; what was done.

    The memory of the documents stays as long as that of any deleted one, so that versions never go back. Raises
    BusUnavailable, or Crash where another owner takes the source over meanwhile.
    """
    tally = Tally(request_id, "remove", clock.now())
    with closing(open_log()) as opened:
        ledger = Ledger(tenant, source, clock, bodies)
        for record in opened.states():
            ledger.load_cursor(record)
        for record in opened.memberships():
            ledger.load_membership(record)
        writer = OwnerWriter(ledger, opened.appender, opened.publisher, bodies, clock, observed, limits)

        def cursor() -> SourceCursor:
            return ledger.cursor(polled_at=clock.now(), pending=False)

        documents = [document for document, known in ledger.states() if not known.deleted]
        tally.known = len(documents)
        ended = ledger.memberships([], whole=True)
        tally.memberships = len(ended)
        writer.write(ended, cursor)
        for start in range(0, len(documents), BATCH):
            part = documents[start : start + BATCH]
            changes = [c for d in part for c in ledger.deletion(SourceDeletion(d, reason="its source was removed"))]
            writer.write(changes, cursor)
            for document in part:
                tally.note("purged", document)
                tally.note("repaired", document)
            progress(f"{source}: deleting", start + len(part), len(documents))
        report = tally.report(tenant, source, clock.now())
        receipt = Receipt(
            lane="source",
            tenant=tenant,
            source=source,
            event_type="request.remove",
            version=ledger.last_version,
            outcome="done",
            request_id=request_id,
            times=StageTimes(started_at=tally.began_at),
            details=report.model_dump(mode="json"),
        )
        writer.append(
            [
                Outgoing(Topic.RECEIPTS, request_id, receipt.model_dump_json().encode()),
                ended_cursor_record(tenant, source),
            ]
        )
    return report
