"""Audits as asset checks: what is indexed against what should be, and a job that mends what each can find.

The deep ones walk the whole store every night; the pulse looks every ten minutes at what goes wrong quickly.
"""

import threading
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from dagster import (
    AssetCheckEvaluation,
    AssetCheckExecutionContext,
    AssetCheckResult,
    AssetChecksDefinition,
    AssetCheckSeverity,
    AssetCheckSpec,
    AssetKey,
    AssetSelection,
    Config,
    DefaultScheduleStatus,
    Definitions,
    Failure,
    JobDefinition,
    MetadataValue,
    OpExecutionContext,
    ScheduleDefinition,
    define_asset_job,
    job,
    multi_asset_check,
    op,
)
from pydantic import Field

from dagster_project.following import Followed, followed
from dagster_project.rendering import Cell, table
from dagster_project.resources import Headwater
from pipeline.operate.audit import CHECKS

if TYPE_CHECKING:
    from pipeline.operate.audit import AuditReport, CheckResult, Mended

NIGHTLY = "0 3 * * *"
PULSE = "*/10 * * * *"
SHOWN = 50


@dataclass(frozen=True)
class Place:
    """Where a check stands. ``mend``: what to do where no job can do it; empty means the job ``mend_NAME``."""

    asset: str
    severity: AssetCheckSeverity = AssetCheckSeverity.ERROR
    often: bool = False
    mend: str = ""


WARN = AssetCheckSeverity.WARN
PLACES: dict[str, Place] = {
    "orphan_chunks": Place("active_index", WARN),
    "orphan_sections": Place("active_index", WARN),
    "missing_chunks": Place("active_index"),
    "unsearchable_chunks": Place("active_index"),
    "prefilter_drift": Place("active_index", WARN),
    "manifests_without_access": Place("access_records"),
    "access_without_manifest": Place("access_records", WARN),
    "superseded_events": Place("change_log"),
    "tombstones_not_emptied": Place("active_index"),
    "recent_deletes": Place("active_index"),
    "lag": Place(
        "active_index", often=True,
        mend="look at `headwater lag` for the slow stage; start another index consumer where the backlog grows",
    ),
    "dead_letters": Place(
        "dead_letters", WARN, often=True, mend="job replay_dead_letters, or discard_dead_letters with a reason"
    ),
    "canary": Place("active_index", often=True, mend="see `headwater logs canary`: people notice what it names"),
    "store": Place("active_index", often=True, mend="free disk or add some; the store takes writes again by itself"),
    "churn": Place("active_index", WARN, mend="job cold_tier_job; a new generation where it stays large"),
}  # fmt: skip
FINDINGS = {
    "tenant": "string", "source": "string", "document": "string", "what": "string", "mend": "string",
}  # fmt: skip


def specs(often: bool) -> list[AssetCheckSpec]:
    """The checks of one cadence, described by what holds when they pass."""
    return [
        AssetCheckSpec(name, asset=place.asset, description=_described(name, place))
        for name, place in PLACES.items()
        if place.often == often
    ]


def _described(name: str, place: Place) -> str:
    title = CHECKS[name].title
    return f"{title[0].upper()}{title[1:]}. To mend: {place.mend or f'job mend_{name}'}."


def _evaluate(context: AssetCheckExecutionContext, headwater: Headwater) -> Iterator[AssetCheckResult]:
    """Look once for all that are selected."""
    chosen = {key.name: key for key in context.selected_asset_check_keys}
    names = [name for name in CHECKS if name in chosen]

    def work(told: Followed, stop: threading.Event) -> "AuditReport":
        return headwater.audit(names, progress=told.bar)

    report = followed(context.op_execution_context, "audit", work)
    for found in report.results:
        key, place = chosen[found.name], PLACES[found.name]
        yield AssetCheckResult(
            asset_key=key.asset_key,
            check_name=found.name,
            passed=found.passed,
            severity=place.severity,
            description=_said(found),
            metadata=_shown(found, place),
        )


def _said(found: "CheckResult") -> str:
    if found.passed:
        return found.note or f"{found.examined} examined, nothing found."
    where = ", ".join(f"{count} in {name}" for name, count in found.by.items())
    return f"{found.count} of {found.examined}: {where}" + (f" ({found.note})" if found.note else "")


def _shown(found: "CheckResult", place: Place) -> dict[str, MetadataValue | int | float | str]:
    made: dict[str, MetadataValue | int | float | str] = {
        "found": found.count,
        "examined": found.examined,
        "seconds": found.seconds,
        "generation": found.generation or "-",
    }
    if found.findings:
        rows: list[list[Cell]] = [
            [
                finding.tenant or "-",
                finding.source or "-",
                finding.document.id if finding.document is not None else finding.document_uid or "-",
                finding.detail,
                (finding.mend or "by a person").replace("_", " "),
            ]
            for finding in found.findings[:SHOWN]
        ]
        made["findings"] = table(FINDINGS, rows)
        made["to mend"] = place.mend or f"job mend_{found.name}"
    if found.figures:
        made["figures"] = table({"figure": "string", "value": "float"}, [[k, v] for k, v in found.figures.items()])
    return made


@multi_asset_check(name="audit", specs=specs(often=False), can_subset=True, pool="audit")
def audit(context: AssetCheckExecutionContext, headwater: Headwater) -> Iterator[AssetCheckResult]:
    """Walks the store and the log; about 10,000 objects a second."""
    yield from _evaluate(context, headwater)


@multi_asset_check(name="pulse", specs=specs(often=True), can_subset=True)
def pulse(context: AssetCheckExecutionContext, headwater: Headwater) -> Iterator[AssetCheckResult]:
    """Lag by source, dead letters, the canary and the store."""
    yield from _evaluate(context, headwater)


class Scope(Config):
    """Where to mend."""

    generation: str = Field(default="", description="Empty: the active one.")
    tenants: list[str] = Field(default_factory=list, description="These tenants; empty means all.")


def mending(name: str) -> JobDefinition:
    """A job that looks with one check, has mended what it finds, looks again and tells the check what stands."""
    title = f"Mends what the check {name} finds: {CHECKS[name].title}. Asks the documents' owners and waits for them."

    @op(name=name, description=title)
    def mend(context: OpExecutionContext, config: Scope, headwater: Headwater) -> None:
        def look(told: Followed) -> "AuditReport":
            return headwater.audit([name], config.generation or None, config.tenants or None, told.bar)

        def work(told: Followed, stop: threading.Event) -> "tuple[AuditReport, list[Mended], AuditReport]":
            before = look(told)
            mended = headwater.mend(before, told.bar, stop)
            return before, mended, look(told)

        before, mended, after = followed(context, f"mend of {name}", work)
        (found,), (left,) = before.results, after.results
        context.add_output_metadata(
            {
                "found before": found.count,
                "mended": sum(one.mended for one in mended),
                "asked of the source's owner": sum(one.asked for one in mended),
                "found after": left.count,
                "reasons": table({"reason": "string", "times": "int"}, _reasons(mended)),
            }
        )
        if not config.generation and not config.tenants:  # the check speaks of the whole active generation
            place = PLACES[name]
            context.instance.report_runless_asset_event(
                AssetCheckEvaluation(
                    asset_key=AssetKey(place.asset),
                    check_name=name,
                    passed=left.passed,
                    severity=place.severity,
                    description=_said(left),
                    metadata=dict(_shown(left, place)),
                )
            )
        if failed := sum(one.failed for one in mended):
            raise Failure(f"{failed} of {found.count} findings were not mended: {_reasons(mended)}")

    @job(name=f"mend_{name}", description=title)
    def made() -> None:
        mend()

    return made


def _reasons(mended: "Sequence[Mended]") -> list[list[Cell]]:
    return [[reason, times] for one in mended for reason, times in one.reasons.items()]


def _of(checks: AssetChecksDefinition) -> AssetSelection:
    return AssetSelection.checks(*(spec.key for spec in checks.check_specs))


audit_job = define_asset_job("audit_job", selection=_of(audit), description="Every deep check, once.")
pulse_job = define_asset_job("pulse_job", selection=_of(pulse), description="Every quick check, once.")
nightly = ScheduleDefinition(
    name="audit_nightly",
    job=audit_job,
    cron_schedule=NIGHTLY,
    default_status=DefaultScheduleStatus.RUNNING,
    description="Every night at 03:00 UTC, after reconciliation.",
)
often = ScheduleDefinition(
    name="pulse",
    job=pulse_job,
    cron_schedule=PULSE,
    default_status=DefaultScheduleStatus.RUNNING,
    description="Every ten minutes.",
)

defs = Definitions(
    asset_checks=[audit, pulse],
    jobs=[audit_job, pulse_job, *(mending(name) for name, place in PLACES.items() if not place.mend)],
    schedules=[nightly, often],
)
