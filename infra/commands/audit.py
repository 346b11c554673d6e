"""``audit``: is what is indexed what should be? Each check with its findings, and their mend."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import Console

from infra.commands.opened import located
from infra.commands.output import JsonFlag, console, emit_json, looking, table

if TYPE_CHECKING:
    from pipeline.operate.audit import AuditReport, Mended

SAMPLES = 5


def register(app: typer.Typer) -> None:
    """Add this file's command."""
    app.command()(audit)


def audit(
    names: Annotated[list[str] | None, typer.Argument(help="Checks by name; all without one.")] = None,
    mend: Annotated[bool, typer.Option("--mend", help="Have the owners mend what was found, then look again.")] = False,
    generation: Annotated[str | None, typer.Option("--generation", help="Another one than the active.")] = None,
    tenant: Annotated[list[str] | None, typer.Option("--tenant", help="Only these tenants.")] = None,
    json: JsonFlag = False,
) -> None:
    """Compare manifests, chunks, sections, access records and the log; exit status 1 where something is wrong."""
    from pipeline.operate.audit import audit as run_checks
    from pipeline.operate.audit import mend_all

    settings = located()
    with looking() as progress:
        report = run_checks(settings, names, generation=generation, tenants=tenant, progress=progress)
        mended: list[Mended] = []
        if mend:
            mended = mend_all(settings, report, requested_by="command line", progress=progress)
            if mended:
                report = run_checks(settings, names, generation=generation, tenants=tenant, progress=progress)
    if json:
        results = [found.shortened().model_dump(mode="json") for found in report.results]
        emit_json(
            {
                "passed": report.passed,
                "generation": report.generation,
                "results": results,
                "mended": [one.model_dump(mode="json") for one in mended],
            }
        )
    else:
        show(console(), report, mended)
    if not report.passed:
        raise typer.Exit(1)


def show(out: Console, report: AuditReport, mended: list[Mended]) -> None:
    """One line a check, then samples of what was found, then what was mended."""
    out.print(f"Generation {report.generation or 'none yet'}", highlight=False)
    shown = table("check", "", "examined", "found", "seconds", "")
    for found in report.results:
        state = "[green]ok[/]" if found.passed else "[red]wrong[/]"
        shown.add_row(
            found.name, state, f"{found.examined:,}", f"{found.count:,}", f"{found.seconds:.1f}",
            found.note or found.title,
        )  # fmt: skip
    out.print(shown)
    for found in report.results:
        if found.passed:
            continue
        out.print(f"\n{found.name}: {found.title}?", style="bold", highlight=False, markup=False)
        for place, count in found.by.items():
            out.print(f"  {place}: {count:,}", highlight=False, markup=False)
        for finding in found.findings[:SAMPLES]:
            who = finding.document.key if finding.document is not None else finding.document_uid or ""
            how = f" (mend: {finding.mend})" if finding.mend is not None else ""
            out.print(f"  {who} {finding.detail}{how}", highlight=False, markup=False, soft_wrap=True)
    for one in mended:
        out.print(
            f"\n{one.check}: {one.mended} mended, {one.asked} asked of their sources' owners, {one.failed} failed, "
            f"{one.left} left to you",
            highlight=False,
        )
        for reason, count in one.reasons.items():
            out.print(f"  {count} × {reason}", style="red", highlight=False, markup=False)
