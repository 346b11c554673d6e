"""Dead letters: how many there are and of what kind; growth raises an alarm once."""

import hashlib
import json
from datetime import timedelta

from dagster import (
    AssetCheckResult,
    AssetCheckSeverity,
    AssetCheckSpec,
    AssetExecutionContext,
    Config,
    DefaultSensorStatus,
    Definitions,
    FreshnessPolicy,
    MaterializeResult,
    RunConfig,
    RunRequest,
    SensorEvaluationContext,
    SensorResult,
    SkipReason,
    asset,
    define_asset_job,
    sensor,
)
from pydantic import Field

from dagster_project.lineage import CHANGE_LOG, OWNER
from dagster_project.rendering import Cell, table
from dagster_project.resources import Headwater
from pipeline.errors import Retry
from pipeline.operate.letters import LetterGroup

EVERY_S = 60
GROWTH = AssetCheckSpec(
    "no_growth",
    asset="dead_letters",
    description=(
        "No kind of dead letter has more than when it was last looked at. To mend: headwater letters list, inspect and "
        "replay, or discard with a reason."
    ),
)


class Before(Config):
    """What stood there when somebody last looked, by kind."""

    counts: dict[str, int] = Field(
        default_factory=dict, description="Unsettled letters by 'tenant/source: stage/kind'. Empty compares with none."
    )
    compare: bool = Field(default=False, description="False takes what the last run of this asset found.")


@asset(
    deps=[CHANGE_LOG],
    check_specs=[GROWTH],
    group_name="health",
    kinds={"kafka"},
    owners=[OWNER],
    freshness_policy=FreshnessPolicy.time_window(fail_window=timedelta(days=2), warn_window=timedelta(hours=26)),
)
def dead_letters(context: AssetExecutionContext, config: Before, headwater: Headwater) -> MaterializeResult:  # type: ignore[type-arg]
    """Records that no consumer could process and nobody has settled yet, by source, stage and kind."""
    depth = headwater.letters()
    before = config.counts if config.compare else _last(context)
    counts = depth.by_kind()
    grown = {kind: count - before.get(kind, 0) for kind, count in counts.items() if count > before.get(kind, 0)}
    rows = [_row(group, depth.at) for group in depth.groups]
    columns = {
        "tenant": "string", "source": "string", "generation": "string", "stage": "string", "kind": "string",
        "letters": "int", "parked": "int", "oldest, hours": "float",
    }  # fmt: skip
    return MaterializeResult(
        metadata={"letters": depth.total, "kinds": table(columns, rows), "counts": counts},
        check_results=[
            AssetCheckResult(
                check_name=GROWTH.name,
                passed=not grown,
                severity=AssetCheckSeverity.ERROR,
                description="; ".join(f"{kind}: {more} more" for kind, more in grown.items()) or "Nothing grew.",
                metadata={"grown": table({"kind": "string", "more": "int"}, [[k, v] for k, v in grown.items()])},
            )
        ],
    )


def _row(group: LetterGroup, now: int) -> list[Cell]:
    hours = round((now - group.oldest_at) / 3_600_000_000, 2)
    where = [part or "-" for part in (group.tenant, group.source, group.generation, group.stage, group.kind)]
    return [*where, group.count, group.parked, hours]


def _last(context: AssetExecutionContext) -> dict[str, int]:
    """Counts that the last materialization recorded."""
    event = context.instance.get_latest_materialization_event(context.asset_key)
    made = event.asset_materialization if event is not None else None
    found = made.metadata.get("counts") if made is not None else None
    return {str(kind): int(count) for kind, count in found.value.items()} if found is not None else {}


dead_letters_job = define_asset_job("dead_letters_job", selection=[dead_letters])


@sensor(
    job=dead_letters_job,
    minimum_interval_seconds=EVERY_S,
    default_status=DefaultSensorStatus.RUNNING,
    description="Starts one run of dead_letters, whose check fails, when a kind of dead letter has grown.",
)
def dead_letter_growth(context: SensorEvaluationContext, headwater: Headwater) -> SensorResult | SkipReason:
    """The cursor holds the counts of the last tick. The run key names the growth: the same growth starts one run."""
    try:
        depth = headwater.letters()
    except Retry as error:
        return SkipReason(f"Kafka or the store does not answer; the next tick tries again: {error}")
    counts = depth.by_kind()
    before: dict[str, int] = json.loads(context.cursor) if context.cursor else {}
    if not any(count > before.get(kind, 0) for kind, count in counts.items()):
        return SensorResult(skip_reason="Nothing grew.", cursor=json.dumps(counts))
    # counts alone would repeat: letters that were settled and came again are another growth
    newest = max(group.newest_at for group in depth.groups)
    named = hashlib.sha256(json.dumps([counts, newest], sort_keys=True).encode()).hexdigest()[:24]
    config = RunConfig(ops={"dead_letters": Before(counts=before, compare=True)})
    return SensorResult([RunRequest(run_key=f"dead-letters-{named}", run_config=config)], cursor=json.dumps(counts))


defs = Definitions(assets=[dead_letters], jobs=[dead_letters_job], sensors=[dead_letter_growth])
