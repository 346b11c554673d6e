"""``duplicates``: what is indexed more than once."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import Console

from infra.commands.opened import opened
from infra.commands.output import JsonFlag, console, emit_json, looking, table
from infra.errors import InfraError

if TYPE_CHECKING:
    from pipeline.operate.duplicates import DuplicateReport, Holder

SHOWN = 20


def register(app: typer.Typer) -> None:
    """Add this file's command."""
    app.command()(duplicates)


def duplicates(
    tenant: Annotated[str, typer.Option("--tenant", help="The tenant that is looked through.")] = "acme",
    generation: Annotated[str | None, typer.Option("--generation", help="Another one than the active.")] = None,
    least: Annotated[
        float, typer.Option("--least", min=0.1, max=1.0, help="Share of passages from which two documents are copies.")
    ] = 0.8,
    repeated: Annotated[
        int, typer.Option("--repeated", min=2, help="Documents that hold a passage before it is shown as repeated.")
    ] = 5,
    json: JsonFlag = False,
) -> None:
    """Show passages that many documents repeat, and documents that are copies of one another."""
    from pipeline.operate.duplicates import find_duplicates

    with opened() as (_, store), looking() as progress:
        name = generation or store.active_generation()
        if name is None:
            raise InfraError("No generation is active yet.", "Name one with --generation, or wait for the first.")
        if name not in store.read_generations():
            raise InfraError(f"There is no generation {name}.", "`headwater generation show` lists them.")
        report = find_duplicates(
            store, name, tenant, least=least, repeated=repeated,
            progress=lambda count: progress("manifests", count, 0),
        )  # fmt: skip
    if json:
        emit_json(report)
    else:
        show(console(), report)


def show(out: Console, report: DuplicateReport) -> None:
    """Both lists, the first rows of each."""
    out.print(
        f"{report.documents:,} documents of {report.tenant} hold {report.passages:,} different passages "
        f"(generation {report.generation})",
        highlight=False, markup=False,
    )  # fmt: skip
    if report.copies:
        shown = table("alike", "document", "copy")
        for pair in report.copies[:SHOWN]:
            shown.add_row(f"{pair.share:.0%}", _named(pair.first), _named(pair.second))
        out.print(shown)
    if report.repeated:
        shown = table("documents", "passage", "among others in")
        for one in report.repeated[:SHOWN]:
            shown.add_row(f"{one.count:,}", one.chunk_id, ", ".join(_named(h) for h in one.holders[:3]))
        out.print(shown)
    if not report.copies and not report.repeated:
        out.print("Nothing is there twice.", highlight=False, markup=False)


def _named(holder: Holder) -> str:
    return f"{holder.source}:{holder.document_id}".replace("[", "\\[")
