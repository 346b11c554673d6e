"""Hot and cold: nightly, and whenever somebody asks, what has not changed for the hot window moves to cold."""

import threading
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
    FreshnessPolicy,
    MaterializeResult,
    ScheduleDefinition,
    asset,
    define_asset_job,
)
from pydantic import Field

from dagster_project.following import Followed, followed
from dagster_project.lineage import ACTIVE_INDEX, OWNER
from dagster_project.rendering import Cell, bars, table
from dagster_project.resources import Headwater

if TYPE_CHECKING:
    from pipeline.operate.tiers import TenantTiers, TierRun

NIGHTLY = "30 1 * * *"
MOVED = AssetCheckSpec(
    "all_moved",
    asset="cold_tier",
    description=(
        "Every planned move was carried out. To mend: materialize again, which moves what is left; documents that "
        "could not be moved were compared with their manifest already."
    ),
)
WITHIN = AssetCheckSpec(
    "hot_within_size",
    asset="cold_tier",
    description=(
        "No tenant keeps more chunks in hot than tiers.hot_chunks. To mend: materialize again where moves were "
        "postponed (tiers.run_chunks), or lower tiers.hot_days."
    ),
)
COLUMNS = {
    "generation": "string", "tenant": "string", "hot before": "int", "cold before": "int", "hot planned": "int",
    "hot limit": "int", "documents to move": "int", "postponed": "int",
}  # fmt: skip


class Compaction(Config):
    """What to compact."""

    generation: str = Field(default="", description="One generation; empty means all that are written.")
    tenants: list[str] = Field(default_factory=list, description="These tenants; empty means all.")


@asset(
    deps=[ACTIVE_INDEX],
    check_specs=[MOVED, WITHIN],
    group_name="tiers",
    kinds={"weaviate"},
    owners=[OWNER],
    pool="cold_tier",
    freshness_policy=FreshnessPolicy.cron(deadline_cron="0 5 * * *", lower_bound_delta=timedelta(hours=4)),
)
def cold_tier(context: AssetExecutionContext, config: Compaction, headwater: Headwater) -> MaterializeResult:  # type: ignore[type-arg]
    """Documents that have not changed for the hot window move to cold with their vectors: nothing is embedded.

    The owner of each document copies, verifies, waits and removes. Where hot is larger than allowed, the longest
    unchanged documents follow. Cancelling lets the moves that are under way end.
    """

    def work(told: Followed, stop: threading.Event) -> "list[TierRun]":
        return headwater.compact(config.generation or None, config.tenants or None, told.bar, stop)

    runs = followed(context, "compaction", work)
    plans = [run.plan for run in runs]
    rows: list[list[Cell]] = [
        [p.generation, t.tenant, t.hot, t.cold, t.hot_planned, t.hot_limit, len(t.moves), t.postponed]
        for p in plans
        for t in p.tenants
    ]
    sizes = [_size(p.generation, t) for p in plans for t in p.tenants]
    left = sum(run.refused + run.unanswered for run in runs)
    reasons = {reason: count for run in runs for reason, count in run.reasons.items()}
    too_large = [f"{p.generation}/{t.tenant}" for p in plans for t in p.tenants if t.hot_planned > t.hot_limit]
    return MaterializeResult(
        metadata={
            "documents moved": sum(run.moved for run in runs),
            "chunks copied": sum(run.chunks_copied for run in runs),
            "documents left": left,
            "tenants": table(COLUMNS, rows),
            "hot tier": bars("Chunks in hot after this run, of those allowed", sizes),
            "reasons": table({"reason": "string", "documents": "int"}, [[k, v] for k, v in reasons.items()]),
        },
        check_results=[
            AssetCheckResult(
                check_name=MOVED.name,
                passed=all(run.whole for run in runs),
                severity=AssetCheckSeverity.WARN,
                description=f"{left} documents were not moved" if left else "Every planned document was moved.",
            ),
            AssetCheckResult(
                check_name=WITHIN.name,
                passed=not too_large,
                severity=AssetCheckSeverity.WARN,
                description=", ".join(too_large) or "Hot is within its size everywhere.",
            ),
        ],
    )


def _size(generation: str, tenant: "TenantTiers") -> tuple[str, float, float, str]:
    planned, limit = tenant.hot_planned, tenant.hot_limit
    return f"{generation} {tenant.tenant}"[:22], planned, limit, f"{planned} of {limit}"


cold_tier_job = define_asset_job("cold_tier_job", selection=[cold_tier])
nightly = ScheduleDefinition(
    name="cold_tier_nightly",
    job=cold_tier_job,
    cron_schedule=NIGHTLY,
    default_status=DefaultScheduleStatus.RUNNING,
    description="Every night at 01:30 UTC.",
)

defs = Definitions(assets=[cold_tier], jobs=[cold_tier_job], schedules=[nightly])
