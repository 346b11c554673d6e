"""Documents processed again from the log, without reading their source: after a fixed extractor, for instance."""

import threading
from typing import TYPE_CHECKING

from dagster import (
    AssetCheckResult,
    AssetCheckSpec,
    AssetExecutionContext,
    Config,
    Definitions,
    Failure,
    MaterializeResult,
    asset,
)
from pydantic import Field

from dagster_project.following import Followed, followed
from dagster_project.lineage import CHANGE_LOG, OWNER
from dagster_project.rendering import Cell, table
from dagster_project.resources import Headwater
from pipeline.clock import micros_of

if TYPE_CHECKING:
    from pipeline.operate.reprocess import Reprocessed

DONE = AssetCheckSpec(
    "all_done",
    asset="document_reprocessing",
    description=(
        "Every chosen document was processed again. To mend: see the failures, which are dead letters by then, and "
        "materialize again with the same choice."
    ),
)


class Chosen(Config):
    """Which documents; everything that is given must fit, and something must be given."""

    tenant: str = Field(default="", description="Empty: any.")
    source: str = Field(default="", description="Empty: any.")
    document: list[str] = Field(
        default_factory=list, description="One document: its key as four parts, tenant, source, kind and id."
    )
    updated_from: str = Field(default="", description="ISO 8601, for instance 2026-01-31 or 2026-01-31T12:00:00Z.")
    updated_until: str = Field(default="", description="First moment after the range, ISO 8601.")
    generations: list[str] = Field(default_factory=list, description="Empty: all that are kept up.")


@asset(
    deps=[CHANGE_LOG],
    check_specs=[DONE],
    group_name="generations",
    kinds={"weaviate"},
    owners=[OWNER],
    pool="document_reprocessing",
)
def document_reprocessing(context: AssetExecutionContext, config: Chosen, headwater: Headwater) -> MaterializeResult:  # type: ignore[type-arg]
    """Chosen documents, extracted, chunked and compared again by their owners in the index. Unchanged chunks stay.

    Cancelling sends nothing more and awaits what is under way.
    """
    window = moment("updated_from", config.updated_from), moment("updated_until", config.updated_until)

    def work(told: Followed, stop: threading.Event) -> "Reprocessed":
        return headwater.reprocess(
            config.tenant or None, config.source or None, config.document, window, config.generations or None,
            told.bar, stop,
        )  # fmt: skip

    found = followed(context, "reprocessing", work)
    outcomes: list[list[Cell]] = [[outcome, count] for outcome, count in sorted(found.outcomes.items())]
    failures: list[list[Cell]] = [list(failure) for failure in found.failures]
    left = found.failed + found.unanswered
    return MaterializeResult(
        metadata={
            "documents": found.documents,
            "generations": ", ".join(found.generations) or "none",
            "outcomes": table({"outcome": "string", "documents": "int"}, outcomes),
            "failures": table({"generation": "string", "document": "string", "reason": "string"}, failures),
        },
        check_results=[
            AssetCheckResult(
                check_name=DONE.name,
                passed=not left and not found.stopped,
                description=f"{left} documents failed or were not answered"
                if left
                else "Every document was processed.",
            )
        ],
    )


def moment(field: str, text: str) -> int | None:
    """A moment in µs; without a zone it is UTC. Raises Failure naming the field."""
    if not text:
        return None
    try:
        return micros_of(text)
    except ValueError:
        raise Failure(f"{field}: {text!r} is no moment. Write it as 2026-01-31 or 2026-01-31T12:00:00Z.") from None


defs = Definitions(assets=[document_reprocessing])
