"""Sources, by request to their owners: windows of time said again, and full listings against what is indexed."""

import threading
from collections.abc import Iterator
from datetime import timedelta
from typing import TYPE_CHECKING

from dagster import (
    AssetCheckResult,
    AssetCheckSeverity,
    AssetCheckSpec,
    AssetExecutionContext,
    Config,
    DefaultScheduleStatus,
    Definitions,
    Failure,
    FreshnessPolicy,
    MaterializeResult,
    MultiPartitionKey,
    OpExecutionContext,
    RunRequest,
    ScheduleEvaluationContext,
    asset,
    define_asset_job,
    job,
    op,
    schedule,
)
from pydantic import Field

from dagster_project.following import Followed, followed
from dagster_project.lineage import CHANGE_LOG, OWNER, SOURCE_DOCUMENTS
from dagster_project.partitions import SOURCES, WINDOWS, source_key, source_of, window_of
from dagster_project.rendering import Cell, table
from dagster_project.resources import Headwater

if TYPE_CHECKING:
    from schemas.reconciliation import IndexReport, ReconciliationReport, SourceReconciliation

NIGHTLY = "0 2 * * *"
COUNTS = (
    "listed", "known", "new", "stale", "wrongly_readable", "memberships", "missing", "held", "released", "purged",
    "repaired",
)  # fmt: skip
INDEX_COUNTS = (
    "known", "manifests", "access", "extra", "missing", "unprocessable", "wrongly_readable", "wrongly_hidden",
    "repaired",
)  # fmt: skip
AS_LISTED = AssetCheckSpec(
    "as_listed",
    asset="source_reconciliation",
    description=(
        "The source was listed whole and its owner had missed nothing. To mend: materialize with repair, which "
        "appends, hides and deletes what differs; job undo_listing takes its holds back."
    ),
)
INDEXED = AssetCheckSpec(
    "indexed_as_known",
    asset="source_reconciliation",
    description=(
        "The active index holds exactly what the owner knows, with its readers. To mend: materialize with repair, "
        "which has the owner say those documents again."
    ),
)


@asset(
    deps=[SOURCE_DOCUMENTS],
    partitions_def=WINDOWS,
    group_name="sources",
    kinds={"kafka"},
    owners=[OWNER],
    pool="source_backfill",
)
def source_backfill(context: AssetExecutionContext, headwater: Headwater) -> MaterializeResult:  # type: ignore[type-arg]
    """What was updated in a month at a source, appended again by its owner, changed or not.

    It travels as bulk, so that live changes do not wait. The oldest month reaches back without end.
    """
    key = context.partition_key
    assert isinstance(key, MultiPartitionKey)
    tenant, source, begin, end = window_of(key)

    def work(told: Followed, stop: threading.Event) -> "ReconciliationReport":
        return headwater.backfill(tenant, source, begin, end, told.bar)

    found = followed(context, "backfill", work)
    return MaterializeResult(
        metadata={
            "documents": found.listed,
            "appended": found.repaired,
            "seconds": round(found.seconds, 1),
            "request": found.request_id,
            "remarks": "; ".join(found.why) or "none",
        }
    )


class Reconciliation(Config):
    """How to reconcile."""

    repair: bool = Field(default=True, description="False counts differences and changes nothing.")
    confirm_deletions: bool = Field(
        default=False, description="Delete what is missing even where that is suspiciously much."
    )


@asset(
    deps=[SOURCE_DOCUMENTS, CHANGE_LOG],
    partitions_def=SOURCES,
    check_specs=[AS_LISTED, INDEXED],
    group_name="sources",
    kinds={"kafka", "weaviate"},
    owners=[OWNER],
    pool="source_reconciliation",
    freshness_policy=FreshnessPolicy.time_window(fail_window=timedelta(days=3), warn_window=timedelta(hours=26)),
)
def source_reconciliation(
    context: AssetExecutionContext, config: Reconciliation, headwater: Headwater
) -> MaterializeResult:  # type: ignore[type-arg]
    """A full listing of the source against what its owner knows, and that against the active index.

    Documents that are missing are deleted only where the listing is complete; where suspiciously many are missing
    they are hidden for the quarantine, and job undo_listing brings them back.
    """
    tenant, source = source_of(context.partition_key)

    def work(told: Followed, stop: threading.Event) -> "SourceReconciliation":
        return headwater.reconcile(tenant, source, config.repair, config.confirm_deletions, told.bar)

    found = followed(context, "reconciliation", work)
    listing, index = found.listing, found.index
    if listing is None and index is None:
        raise Failure(f"{context.partition_key} could not be reconciled: {found.problem}")
    counts: list[list[Cell]] = []
    examples: list[list[Cell]] = []
    for against, report, names in (("source", listing, COUNTS), ("index", index, INDEX_COUNTS)):
        if report is not None:
            counts += [[against, name.replace("_", " "), int(getattr(report, name))] for name in names]
            examples += [[against, name.replace("_", " "), one] for name, ids in report.examples.items() for one in ids]
    return MaterializeResult(
        metadata={
            "listed": listing.listed if listing is not None else 0,
            "differences": _differences(listing) + (index.differences if index is not None else 0),
            "repaired": (listing.repaired if listing is not None else 0) + (index.repaired if index is not None else 0),
            "request": listing.request_id if listing is not None else "none",
            "counts": table({"against": "string", "what": "string", "documents": "int"}, counts),
            "examples": table({"against": "string", "what": "string", "document": "string"}, examples),
        },
        check_results=[_as_listed(found.problem, listing), _indexed(index)],
    )


def _differences(listing: "ReconciliationReport | None") -> int:
    if listing is None:
        return 0
    return listing.new + listing.stale + listing.wrongly_readable + listing.missing


def _as_listed(problem: str | None, listing: "ReconciliationReport | None") -> AssetCheckResult:
    if listing is None:
        return AssetCheckResult(check_name=AS_LISTED.name, passed=False, description=problem or "It was not listed.")
    severe = not listing.complete or listing.wrongly_readable > 0 or listing.held > 0
    said = [f"{getattr(listing, n)} {n.replace('_', ' ')}" for n in COUNTS[2:] if getattr(listing, n)]
    return AssetCheckResult(
        check_name=AS_LISTED.name,
        passed=listing.complete and _differences(listing) == 0,
        severity=AssetCheckSeverity.ERROR if severe else AssetCheckSeverity.WARN,
        description="; ".join([*listing.why, *said]) or "Nothing differed.",
        metadata={"listing": listing.request_id},
    )


def _indexed(index: "IndexReport | None") -> AssetCheckResult:
    if index is None:
        return AssetCheckResult(check_name=INDEXED.name, passed=False, description="The index was not compared.")
    said = [f"{getattr(index, n)} {n.replace('_', ' ')}" for n in INDEX_COUNTS[3:] if getattr(index, n)]
    return AssetCheckResult(
        check_name=INDEXED.name,
        passed=index.differences == 0,
        severity=AssetCheckSeverity.ERROR,
        description="; ".join([*index.why, *said]) or "Nothing differed.",
        metadata={"generation": index.generation or "none", "behind": index.behind},
    )


class Undo(Config):
    """Which listing to take back."""

    tenant: str = Field(description="The source's tenant.")
    source: str = Field(description="The source.")
    listing: str = Field(description="'request' in the metadata of the reconciliation that hid documents.")


@op
def undo(context: OpExecutionContext, config: Undo, headwater: Headwater) -> None:
    """Lift every hold that one listing laid on: its documents are visible again at once."""
    found = headwater.undo(config.tenant, config.source, config.listing)
    context.add_output_metadata({"released": found.released, "remarks": "; ".join(found.why) or "none"})


@job(description=undo.description)
def undo_listing() -> None:
    """See ``undo``."""
    undo()


reconciliation_job = define_asset_job("reconciliation_job", selection=[source_reconciliation])


@schedule(
    job=reconciliation_job,
    cron_schedule=NIGHTLY,
    default_status=DefaultScheduleStatus.RUNNING,
    description="Every night at 02:00 UTC, one run a source.",
)
def reconciliation_nightly(context: ScheduleEvaluationContext, headwater: Headwater) -> Iterator[RunRequest]:
    """The run key holds the night: a tick that is repeated starts nothing twice."""
    night = context.scheduled_execution_time.date().isoformat()
    known = set(context.instance.get_dynamic_partitions(str(SOURCES.name)))
    for tenant, source in headwater.sources():
        key = source_key(tenant, source)
        if key not in known:  # the registration has not met it yet
            context.instance.add_dynamic_partitions(str(SOURCES.name), [key])
        yield RunRequest(run_key=f"{key}-{night}", partition_key=key)


defs = Definitions(
    assets=[source_backfill, source_reconciliation],
    jobs=[undo_listing, reconciliation_job],
    schedules=[reconciliation_nightly],
)
