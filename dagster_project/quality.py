"""Retrieval quality on the golden set, on demand: the same gate as ``headwater quality``."""

import threading
from typing import Any

from dagster import (
    AssetCheckResult,
    AssetCheckSpec,
    AssetExecutionContext,
    Config,
    Definitions,
    MaterializeResult,
    MetadataValue,
    asset,
)
from pydantic import Field

from dagster_project.following import Followed, followed
from dagster_project.lineage import ACTIVE_INDEX, OWNER
from dagster_project.rendering import bars
from dagster_project.resources import Headwater

GATE = AssetCheckSpec(
    "gate",
    asset="retrieval_quality",
    description=(
        "Nothing forbidden was shown, and nDCG@10 has not dropped below the stored baseline outside its interval. To "
        "mend: see the reasons; a wanted change is kept by `headwater quality --store-baseline`."
    ),
)


class Asking(Config):
    """How to search."""

    mode: str = Field(default="hybrid", pattern="^(hybrid|dense|sparse)$", description="hybrid, dense or sparse.")


@asset(
    deps=[ACTIVE_INDEX],
    check_specs=[GATE],
    group_name="quality",
    kinds={"python"},
    owners=[OWNER],
    pool="quality",
)
def retrieval_quality(context: AssetExecutionContext, config: Asking, headwater: Headwater) -> MaterializeResult:  # type: ignore[type-arg]
    """The golden questions, each asked as its own person in a world made for them, against the stored baseline."""

    def work(told: Followed, stop: threading.Event) -> dict[str, Any]:
        return headwater.quality(config.mode, stop)

    found = followed(context, "golden run", work)
    mean = float(found["report"]["interval"]["mean"])
    comparison = found["comparison"]
    baseline = float(comparison["baseline"]) if comparison is not None else mean
    drawn = [("now", mean, 1.0, f"{mean:.3f}"), ("baseline", baseline, 1.0, f"{baseline:.3f}")]
    return MaterializeResult(
        metadata={
            "nDCG@10": round(mean, 4),
            "questions": int(found["report"]["questions"]),
            "forbidden hits": int(found["report"]["forbidden"]),
            "change": MetadataValue.json(comparison or {}),
            "figures": MetadataValue.json(found["table"]),
            "nDCG": bars(f"nDCG@10, {config.mode}", drawn),
        },
        check_results=[
            AssetCheckResult(
                check_name=GATE.name,
                passed=bool(found["ok"]),
                description="; ".join(found["reasons"]) or "The gate is passed.",
            )
        ],
    )


defs = Definitions(assets=[retrieval_quality])
