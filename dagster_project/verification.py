"""Whether a generation may serve: coverage, access parity and retrieval parity, as a report that control demands."""

import threading
from typing import TYPE_CHECKING

from dagster import (
    AssetCheckResult,
    AssetCheckSpec,
    AssetExecutionContext,
    AutomationCondition,
    Config,
    Definitions,
    MaterializeResult,
    MetadataValue,
    asset,
)
from pydantic import Field

from dagster_project.following import Followed, followed
from dagster_project.generations import index_generation
from dagster_project.lineage import OWNER
from dagster_project.partitions import GENERATIONS
from dagster_project.rendering import Cell, bars, chart, table
from dagster_project.resources import Headwater

if TYPE_CHECKING:
    from schemas.verification import MeanChange, RetrievalParity, SourceCoverage, VerificationReport

PASSED = AssetCheckSpec(
    "passed",
    asset="generation_verification",
    description=(
        "The generation holds what the log says, shows everybody the same documents as the active one, and finds as "
        "well. activate_generation demands it, fresh. To mend: see the failures; build again, or mend what they name."
    ),
)
COVERAGE = {
    "tenant": "string", "source": "string", "documents": "int", "matched": "int", "deleted": "int", "chunks": "int",
    "pending": "int", "faults": "string",
}  # fmt: skip
SETS = {
    "queries of": "string", "queries": "int", "nDCG@10": "float", "active nDCG@10": "float", "recall@10": "float",
    "active recall@10": "float", "overlap@10": "float", "left out": "int",
}  # fmt: skip


class Verification(Config):
    """What to compare with."""

    against: str = Field(default="", description="A generation; empty means the active one.")


@asset(
    deps=[index_generation],
    partitions_def=GENERATIONS,
    check_specs=[PASSED],
    group_name="generations",
    kinds={"weaviate"},
    owners=[OWNER],
    pool="verification",
    automation_condition=AutomationCondition.eager() & AutomationCondition.all_deps_blocking_checks_passed(),
)
def generation_verification(
    context: AssetExecutionContext, config: Verification, headwater: Headwater
) -> MaterializeResult:  # type: ignore[type-arg]
    """Every document of the log, sampled people and the same searches, in this generation and in the active one.

    It starts by itself after a build. report.html, with all pictures and tables, lies where the metadata says.
    """
    name = context.partition_key

    def work(told: Followed, stop: threading.Event) -> "VerificationReport":
        return headwater.verify(name, config.against or None, told.bar)

    report = followed(context, "verification", work)
    folder = headwater.settings().state_dir.absolute() / report.path
    verdict, coverage = report.verdict, report.coverage
    metadata: dict[str, MetadataValue | int | float | str] = {
        "verdict": MetadataValue.md(_verdict(report)),
        "report": MetadataValue.path(folder / "report.html"),
        "report as JSON": MetadataValue.path(folder / "report.json"),
        "compared with": report.against or "nothing",
        "seconds": round((report.finished_at - report.started_at) / 1e6, 1),
        "documents": sum(source.documents for source in coverage.sources),
        "not as the log says": sum(sum(source.faults.values()) for source in coverage.sources),
        "behind": coverage.behind,
        "coverage": table(COVERAGE, [_covered(source) for source in coverage.sources]),
        "coverage by source": bars(
            "Documents at the log's version",
            [(_short(s), s.matched, s.documents, f"{s.matched} of {s.documents}") for s in coverage.sources],
        ),
    }
    if report.access is not None:
        metadata["decisions compared"] = report.access.decisions
        metadata["access differences"] = report.access.difference_count
    if report.retrieval is not None:
        metadata |= _retrieval(report.retrieval)
    return MaterializeResult(
        metadata=metadata,
        check_results=[
            AssetCheckResult(
                check_name=PASSED.name,
                passed=verdict.passed,
                description="; ".join(verdict.failures) or "The generation may be activated.",
                metadata={"report": MetadataValue.path(folder / "report.html"), "id": report.report_id},
            )
        ],
    )


def _verdict(report: "VerificationReport") -> str:
    words = "**passed**: it may be activated" if report.verdict.passed else "**failed**: it must not be activated"
    notes = [*report.verdict.failures, *(f"_{remark}_" for remark in report.verdict.remarks)]
    return "\n".join([f"{report.generation} has {words}.", "", *(f"- {note}" for note in notes)])


def _short(source: "SourceCoverage") -> str:
    return f"{source.tenant}/{source.source}"[:22]


def _covered(s: "SourceCoverage") -> list[Cell]:
    faults = ", ".join(f"{count} {fault.replace('_', ' ')}" for fault, count in s.faults.items())
    return [s.tenant, s.source, s.documents, s.matched, s.deleted, s.chunks, s.pending, faults or "none"]


def _retrieval(parity: "RetrievalParity") -> dict[str, MetadataValue | int | float | str]:
    """Figures, and the pictures of the report's own page."""
    from pipeline.operate.verification import charts
    from pipeline.operate.verification.style import STYLE

    rows: list[list[Cell]] = [
        [
            found.name.replace("_", " "),
            found.queries,
            *_pair(found.ndcg),
            *_pair(found.recall),
            _rounded(found.overlap),
            found.left_out,
        ]
        for found in parity.sets
    ]  # fmt: skip
    made: dict[str, MetadataValue | int | float | str] = {"retrieval": table(SETS, rows)}
    outcomes = [outcome for found in parity.sets for outcome in found.outcomes]
    points = [
        (o.ndcg_there, o.ndcg_here, o.query) for o in outcomes if o.ndcg_there is not None and o.ndcg_here is not None
    ]
    if overlaps := [outcome.overlap for outcome in outcomes if outcome.overlap is not None]:
        made["overlap@10"] = round(sum(overlaps) / len(overlaps), 4)
        made["overlap"] = chart(
            "Overlap of the first 10", charts.histogram(overlaps, "share of the first 10 in common", "Overlap"), STYLE
        )
    if points:
        made["nDCG, query by query"] = chart(
            "nDCG@10 of each query", charts.pairs(points, "active", "this generation", "nDCG@10 of each query"), STYLE
        )
    if (here := parity.latency_here) is not None:
        made["p95 ms"] = round(here.p95, 1)
    if (there := parity.latency_there) is not None:
        made["p95 ms of the active one"] = round(there.p95, 1)
    return made


def _pair(mean: "MeanChange | None") -> tuple[float | None, float | None]:
    return (round(mean.here, 4), _rounded(mean.there)) if mean is not None else (None, None)


def _rounded(value: float | None) -> float | None:
    return round(value, 4) if value is not None else None


defs = Definitions(assets=[generation_verification])
