"""``tenant``: list tenants, close one to its readers, write out what it holds, erase it with proof."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from infra.commands.deletion import show
from infra.commands.opened import opened
from infra.commands.output import JsonFlag, console, emit_json, progress_console, table
from infra.errors import InfraError

if TYPE_CHECKING:
    from pipeline.ports import ProgressBar

Name = Annotated[str, typer.Argument(help="The tenant.")]


def register(app: typer.Typer) -> None:
    """Add this file's group."""
    group = typer.Typer(help="Tenants: list, suspend, resume, export, erase.", no_args_is_help=True)
    group.command("list")(list_)
    group.command()(suspend)
    group.command()(resume)
    group.command()(export)
    group.command()(erase)
    app.add_typer(group, name="tenant")


def list_(json: JsonFlag = False) -> None:
    """Every tenant with its live documents by source and its chunks by generation."""
    from pipeline.operate.tenants import tenants

    with opened() as (settings, store):
        found = tenants(settings, store)
    if json:
        emit_json([asdict(t) for t in found])
        return
    shown = table("tenant", "state", "sources", "documents", "chunks, hot + cold")
    for t in found:
        state = "being erased" if t.erasing else "suspended" if t.suspended else ""
        sources = ", ".join(f"{name} {count:,}" for name, count in sorted(t.sources.items()))
        chunks = ", ".join(f"{g} {c.get('hot', 0):,} + {c.get('cold', 0):,}" for g, c in sorted(t.chunks.items()))
        shown.add_row(t.tenant, state, sources, f"{sum(t.sources.values()):,}", chunks)
    console().print(shown if found else "No tenant yet.")


def suspend(tenant: Name, json: JsonFlag = False) -> None:
    """Close a tenant: from now on nobody finds or reads anything in it. Its sources go on being indexed."""
    from pipeline.operate.tenants import suspend as close

    with opened() as (settings, store):
        close(settings, store, tenant)
    _say(json, {"tenant": tenant, "suspended": True}, f"{tenant} is closed to all its readers.")


def resume(tenant: Name, json: JsonFlag = False) -> None:
    """Open a suspended tenant again."""
    from pipeline.operate.tenants import resume as open_

    with opened() as (settings, store):
        open_(settings, store, tenant)
    _say(json, {"tenant": tenant, "suspended": False}, f"{tenant} is open.")


def export(
    tenant: Name,
    to: Annotated[Path, typer.Option("--to", help="File to write, one line of JSON a document or principal.")],
    bodies: Annotated[bool, typer.Option(help="Write the documents' bodies too.")] = True,
    json: JsonFlag = False,
) -> None:
    """Write out a tenant's documents with their readers, and who belongs to what, from the log."""
    from pipeline.operate.tenants import export as write

    if to.exists():
        raise InfraError(f"{to} exists.", "Name another file, or remove it.")
    with opened() as (settings, _), to.open("w", encoding="utf-8") as out:
        done = write(settings, tenant, out, with_bodies=bodies, progress=_progress())
    missing = f"; the bodies of {len(done.missing)} are gone" if done.missing else ""
    said = f"{done.documents} documents and {done.principals} principals written to {to}{missing}."
    _say(json, {"file": str(to), **asdict(done)}, said)


def erase(
    tenant: Name,
    yes: Annotated[bool, typer.Option("--yes", help="Do not ask for the tenant's name.")] = False,
    proof: Annotated[bool, typer.Option("--proof", help="Erase nothing: count again what is left.")] = False,
    timeout: Annotated[float, typer.Option("--timeout", min=1, help="Seconds to wait for the consumers.")] = 600,
    json: JsonFlag = False,
) -> None:
    """Erase a tenant for good, in every generation, and prove it. What was interrupted is run again."""
    from pipeline.operate.erasure import Eraser
    from pipeline.operate.erasure_proof import ErasureProof

    if not proof and not yes:
        typed = typer.prompt(f"Type the tenant's name to erase it for good ({tenant})")
        if typed != tenant:
            raise InfraError("The name differs: nothing was erased.", "Type the name, or give --yes.")
    with opened() as (settings, store):
        if proof:
            found = ErasureProof(settings, store, tenant).prove()
        else:
            found = Eraser(settings, store, tenant, progress=_progress(), timeout_s=timeout).erase()
    if json:
        emit_json(found)
    else:
        show(console(), found.places, found.standing, found.clean_by)
    if found.standing == "left":
        raise typer.Exit(1)


def _say(as_json: bool, value: dict[str, object], text: str) -> None:
    if as_json:
        emit_json(value)
    else:
        console().print(text, highlight=False, markup=False)


def _progress() -> ProgressBar:
    """A line for each step, where somebody looks."""
    out, last = progress_console(), [""]

    def tell(step: str, done: int, total: int | None) -> None:
        if out.is_terminal and step != last[0]:
            last[0] = step
            out.print(f"{step} …", highlight=False, markup=False)

    return tell
