"""``tiers``: what lies in hot and cold, what would move, and having it moved now."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import Console

from infra.commands.opened import located
from infra.commands.output import JsonFlag, console, emit_json, looking, table
from infra.errors import InfraError

if TYPE_CHECKING:
    from pipeline.operate.tiers import TierPlan, TierRun

SAMPLES = 20


def register(app: typer.Typer) -> None:
    """Add this file's command."""
    app.command()(tiers)


def tiers(
    now: Annotated[bool, typer.Option("--now", help="Move now what is due.")] = False,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Name the documents that would move.")] = False,
    generation: Annotated[str | None, typer.Option("--generation", help="One generation; all without it.")] = None,
    tenant: Annotated[list[str] | None, typer.Option("--tenant", help="Only these tenants.")] = None,
    json: JsonFlag = False,
) -> None:
    """Chunks in hot and cold per tenant; documents unchanged for tiers.hot_days, or above tiers.hot_chunks, move.

    Their owners move them, with their vectors: nothing is embedded and no search misses them meanwhile.
    """
    from pipeline.operate.tiers import compact, plans

    settings = located()
    with looking() as progress:
        if now and not dry_run:
            runs = compact(settings, generation=generation, tenants=tenant, progress=progress)
            found = [run.plan for run in runs]
        else:
            runs = []
            found = plans(settings, generation=generation, tenants=tenant, progress=progress)
    if json:
        emit_json({"plans": [one.model_dump(mode="json") for one in found], "runs": [_brief(run) for run in runs]})
    else:
        show(console(), found, runs, named=dry_run)
    if any(not run.whole for run in runs):
        reasons = {reason for run in runs for reason in run.reasons}
        raise InfraError(
            "Not every document was moved: " + ("; ".join(sorted(reasons)) or "the run was cancelled"),
            "Run `headwater tiers --now` again; a run goes on where the last one ended.",
        )


def _brief(run: TierRun) -> dict[str, object]:
    return {"generation": run.plan.generation, "whole": run.whole, **run.model_dump(mode="json", exclude={"plan"})}


def show(out: Console, found: list[TierPlan], runs: list[TierRun], *, named: bool) -> None:
    """A line a tenant; with ``named`` the documents too."""
    if not found:
        out.print("No generation yet: `headwater up` makes the first one.", highlight=False)
        return
    shown = table("generation", "tenant", "hot", "limit", "cold", "to move", "chunks", "hot then", "postponed")
    for one in found:
        for t in one.tenants:
            chunks = sum(move.chunks for move in t.moves)
            numbers = (t.hot, t.hot_limit, t.cold, len(t.moves), chunks, t.hot_planned, t.postponed)
            shown.add_row(one.generation, t.tenant, *(f"{number:,}" for number in numbers))
    out.print(shown)
    if named:
        for one in found:
            for t in one.tenants:
                for move in t.moves[:SAMPLES]:
                    out.print(f"  {move.document.key}  {move.chunks} chunks, {move.why}", highlight=False, markup=False)
                if len(t.moves) > SAMPLES:
                    out.print(f"  and {len(t.moves) - SAMPLES:,} more of {t.tenant}", style="dim", highlight=False)
    for run in runs:
        out.print(
            f"{run.plan.generation}: {run.moved:,} documents moved ({run.chunks_copied:,} chunks copied), "
            f"{run.unchanged:,} had nothing to move, {run.refused:,} rechecked instead, {run.unanswered:,} unanswered",
            highlight=False,
        )
