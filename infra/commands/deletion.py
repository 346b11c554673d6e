"""``deletion``: what is left of a deleted document, place by place."""

from __future__ import annotations

import time
from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Annotated

import typer
from rich.console import Console

from infra.asking import QueryApi
from infra.commands.opened import uid_of
from infra.commands.output import JsonFlag, console, emit_json, table
from pipeline import settings as config
from schemas.deletion import DeletionPlace, DeletionResponse, Standing

SAID: dict[Standing, str] = {
    "clean": "[green]clean[/]: nothing is left anywhere",
    "bounded": "[green]gone[/]: nothing can be found; what is left empties by itself",
    "left": "[bold red]not clean[/]: something is left where nothing should be",
}


def register(app: typer.Typer) -> None:
    """Add this file's command."""
    app.command()(deletion)


def deletion(
    document: Annotated[str, typer.Argument(help="The document's uid, or its id together with --source.")],
    tenant: Annotated[str, typer.Option("--tenant", help="Its tenant.")] = "acme",
    source: Annotated[str | None, typer.Option("--source", help="Its source, where an id is given.")] = None,
    kind: Annotated[str, typer.Option("--kind", help="Its kind, where an id is given.")] = "page",
    thorough: Annotated[bool, typer.Option("--thorough", help="Also read every object of the tenant.")] = False,
    json: JsonFlag = False,
) -> None:
    """Prove a deletion: look for the document in every place, now. Ends with status 1 where something is left."""
    uid = document
    if source is not None:
        uid = uid_of(tenant, source, kind, document)
    with QueryApi(config.load()) as api:
        found = api.deletion(tenant, uid, thorough=thorough)
    if json:
        emit_json(found)
    else:
        _print(console(), found)
    if found.standing == "left":
        raise typer.Exit(1)


def _print(out: Console, found: DeletionResponse) -> None:
    out.print(f"{found.kind} {found.document_id} of {found.tenant}/{found.source}", highlight=False, markup=False)
    out.print(f"deleted {moment(found.deleted_at)}, hidden {moment(found.hidden_at)}", highlight=False)
    show(out, found.places, found.standing, found.clean_by)
    out.print(f"its id is remembered until {moment(found.tombstone_until)}, so that nothing late brings it back",
              style="dim", highlight=False)  # fmt: skip


def show(out: Console, places: Sequence[DeletionPlace], standing: Standing, clean_by: int | None) -> None:
    """The table of places and the verdict."""
    shown = table("place", "looked at", "found", "clean", "note")
    for p in places:
        if p.clean:
            clean = "[green]yes[/]"
        elif not p.empties_itself:
            clean = "[bold red]no[/]"
        else:
            clean = f"by {moment(p.clean_by)}" if p.clean_by is not None else "[red]unbounded[/]"
        shown.add_row(p.place, p.method, str(p.found), clean, p.note or "")
    out.print(shown)
    until = f", the last by {moment(clean_by)}" if clean_by is not None and clean_by / 1e6 > time.time() else ""
    out.print(f"{SAID[standing]}{until}", highlight=False)


def moment(at: int) -> str:
    """A moment (µs) to the second, UTC."""
    return datetime.fromtimestamp(at / 1e6, UTC).strftime("%Y-%m-%d %H:%M:%S UTC")
