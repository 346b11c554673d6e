"""Building a generation: its bulk workers are started, watched and stopped by a run; its index is the log's view.

A run can be cancelled or killed at any point. Building the partition again goes on where the index stands.
"""

import threading
import time
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from dagster import (
    AssetCheckResult,
    AssetCheckSpec,
    AssetExecutionContext,
    AssetObservation,
    Config,
    Definitions,
    Failure,
    MaterializeResult,
    asset,
)
from pydantic import Field

from dagster_project.building import History, outcome, sentence
from dagster_project.following import Followed, Work
from dagster_project.lineage import CHANGE_LOG, OWNER
from dagster_project.partitions import GENERATIONS
from dagster_project.resources import Headwater

if TYPE_CHECKING:
    from pipeline.operate.build import BuildProgress, BuildResult

SHOW_S = 30.0
COMPLETE = AssetCheckSpec(
    "complete",
    asset="index_generation",
    blocking=True,
    description=(
        "Everything that the log held when the build began is applied, and the generation is ready to be verified. To "
        "mend: build the partition again; it goes on where it is."
    ),
)


class Build(Config):
    """How to build."""

    workers: int = Field(
        default=0, ge=0, le=64, description="Bulk workers, each one process with its encoder. 0: generations.workers."
    )


@asset(
    deps=[CHANGE_LOG],
    partitions_def=GENERATIONS,
    check_specs=[COMPLETE],
    group_name="generations",
    kinds={"weaviate", "kafka"},
    owners=[OWNER],
    pool="builds",
)
def index_generation(context: AssetExecutionContext, config: Build, headwater: Headwater) -> Iterator[Any]:
    """One encoder's index over the whole log. Materializing a partition builds that generation until it is ready.

    Bulk workers join the generation's consumer group and read at idle priority, so that live changes do not wait.
    Cancelling the run stops them in order. A generation is created by the job create_generation before.
    """
    name, history = context.partition_key, History()
    shown = time.monotonic()

    def work(told: Followed, stop: threading.Event) -> "BuildResult":
        def look(now: "BuildProgress") -> None:
            history.add(now)
            told.say(sentence(now))

        return headwater.build(name, config.workers or None, look, stop)

    with Work(context, "build", work) as build:
        while build.goes_on():
            if time.monotonic() - shown >= SHOW_S:
                shown = time.monotonic()
                yield from _observed(context, history)
    try:
        result = build.result()
    except Failure:
        yield from _observed(context, history)  # where it stands: the next run goes on from there
        raise
    complete = result.progress.reached and result.state != "building"
    yield MaterializeResult(
        metadata={**outcome(result), **history.metadata()},
        check_results=[
            AssetCheckResult(
                check_name=COMPLETE.name,
                passed=complete,
                description=f"{name} is {result.state}; {sentence(result.progress)}",
                metadata={"left": result.progress.left, "behind now": result.progress.behind},
            )
        ],
    )


def _observed(context: AssetExecutionContext, history: History) -> Iterator[AssetObservation]:
    if metadata := history.metadata():
        yield AssetObservation(context.asset_key, partition=context.partition_key, metadata=metadata)


defs = Definitions(assets=[index_generation])
