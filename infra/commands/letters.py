"""``letters``: what could not be processed: look, have it tried again, release a parked source, discard."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated

import typer

from infra.commands.opened import opened, requester
from infra.commands.output import JsonFlag, console, emit_json, progress_console, table
from infra.errors import InfraError
from pipeline.settings import Settings

if TYPE_CHECKING:
    from pipeline.operate.letters import Letter
    from pipeline.operate.replay import Replayed
    from pipeline.ports import IndexStore, ProgressBar

Names = Annotated[list[str] | None, typer.Argument(help="Coordinates as shown: content/3/1042. Several may follow.")]
Tenant = Annotated[str | None, typer.Option("--tenant", help="Only of this tenant.")]
Source = Annotated[str | None, typer.Option("--source", help="Only of this source.")]
Kind = Annotated[str | None, typer.Option("--kind", help="Only of this kind of error.")]
Stage = Annotated[str | None, typer.Option("--stage", help="Only of this stage.")]
Name = Annotated[str | None, typer.Option("--generation", help="Only of this generation.")]


def register(app: typer.Typer) -> None:
    """Add this file's group."""
    group = typer.Typer(help="Dead letters: what could not be processed, and what to do with it.", no_args_is_help=True)
    group.command("list")(list_)
    group.command()(show)
    group.command()(replay)
    group.command()(discard)
    group.command()(parked)
    group.command()(release)
    app.add_typer(group, name="letters")


@dataclass(frozen=True)
class _World:
    settings: Settings
    store: IndexStore

    def letters(self) -> list[Letter]:
        from pipeline.operate.letters import read

        return read(self.settings, self.store)


@contextmanager
def _opened() -> Iterator[_World]:
    with opened() as (settings, store):
        yield _World(settings, store)


def age(at: int) -> str:
    """How long ago a moment (µs) was, in the largest unit that fits."""
    seconds = max(0.0, time.time() - at / 1e6)
    for unit, size in (("d", 86_400), ("h", 3_600), ("min", 60)):
        if seconds >= size:
            return f"{seconds / size:.0f} {unit}"
    return f"{seconds:.0f} s"


def list_(json: JsonFlag = False) -> None:
    """Unsettled letters, those that fail alike together."""
    from pipeline.operate.letters import grouped

    with _opened() as world:
        letters = world.letters()
    groups = grouped(letters)
    if json:
        emit_json({"total": len(letters), "groups": groups})
        return
    if not groups:
        console().print("No dead letter: everything that was read could be processed.", highlight=False)
        return
    shown = table("letters", "parked", "tenant", "source", "stage", "kind", "generation", "oldest", "newest")
    for g in groups:
        shown.add_row(
            str(g.count), str(g.parked or ""), g.tenant or "-", g.source or "-", g.stage, g.kind,
            g.generation or g.lane, age(g.oldest_at), age(g.newest_at),
        )  # fmt: skip
    console().print(shown)


def show(
    names: Names = None,
    tenant: Tenant = None,
    source: Source = None,
    kind: Kind = None,
    stage: Stage = None,
    generation: Name = None,
    body: Annotated[bool, typer.Option("--body", help="Print the event's body too (of named letters).")] = False,
    json: JsonFlag = False,
) -> None:
    """Single letters; of those that are named also the event behind them, without its body."""
    from pipeline.operate.replay import look, select

    with _opened() as world:
        letters = select(
            world.letters(), names or (), tenant=tenant, source=source, kind=kind, stage=stage, generation=generation
        )
        events = {id(x): look(world.settings, x, body=body) for x in letters if names}
    if json:
        emit_json([_plain(x) | {"event": events.get(id(x))} for x in letters])
        return
    out = console()
    for letter in letters:
        newest = letter.newest
        out.print(f"[bold]{letter.name}[/]  {newest.lane} {newest.generation or ''}", highlight=False)
        facts = {
            "document": newest.document.key if newest.document is not None else newest.key or "(none named)",
            "failed": f"{newest.stage} / {newest.error_kind}{', source parked' if newest.parked else ''}",
            "reason": newest.reason,
            "attempts": f"{letter.attempts}, first {age(letter.first_failed_at)} ago, last {age(newest.failed_at)} ago",
        }
        event = events.get(id(letter))
        if names:
            facts["event"] = str(event.head) if event is not None else "no longer on the log"
        for label, value in facts.items():
            out.print(f"  {label:<9} {value}", highlight=False, markup=False, soft_wrap=True)
        if event is not None and event.body is not None:
            out.print(event.body, highlight=False, markup=False, soft_wrap=True)
    if not letters:
        out.print("No such letter.", highlight=False)


def replay(
    names: Names = None,
    tenant: Tenant = None,
    source: Source = None,
    kind: Kind = None,
    stage: Stage = None,
    generation: Name = None,
    everything: Annotated[bool, typer.Option("--all", help="All letters.")] = False,
    timeout: Annotated[float, typer.Option("--timeout", min=1, help="Seconds to wait for what becomes of them.")] = 120,
    json: JsonFlag = False,
) -> None:
    """Have letters processed again, by the consumer that they failed in; nothing is appended to the content."""
    from pipeline.operate.replay import replay as again
    from pipeline.operate.replay import select

    narrowed = any(value is not None for value in (tenant, source, kind, stage, generation))
    if not (names or narrowed or everything):
        raise InfraError("No letter is named.", "Give coordinates, narrow by --source or --kind, or say --all.")
    with _opened() as world:
        letters = select(
            world.letters(), names or (), tenant=tenant, source=source, kind=kind, stage=stage, generation=generation
        )
        done = again(world.settings, letters, requested_by=requester(), timeout_s=timeout, progress=_progress())
    _results(done, json)


def discard(
    names: Annotated[list[str], typer.Argument(help="Coordinates as shown: content/3/1042.")],
    reason: Annotated[str, typer.Option("--reason", help="Why they need not be processed; kept with the letters.")],
    json: JsonFlag = False,
) -> None:
    """Settle letters without processing them."""
    from pipeline.operate.replay import discard as settle
    from pipeline.operate.replay import select

    if not reason.strip():
        raise InfraError("--reason is empty.", "Say why they need not be processed.")
    with _opened() as world:
        letters = select(world.letters(), names)
        settle(world.settings, letters, by=requester(), reason=reason)
    if json:
        emit_json({"discarded": [letter.name for letter in letters]})
    else:
        console().print(f"{len(letters)} discarded.", highlight=False)


def parked(json: JsonFlag = False) -> None:
    """Sources whose content mostly failed, with the events that were set aside untried."""
    from pipeline.operate.letters import parked as of

    with _opened() as world:
        sources = of(world.letters())
    if json:
        emit_json(sources)
        return
    if not sources:
        console().print("No source is parked.", highlight=False)
        return
    shown = table("tenant", "source", "generation", "set aside", "since", "newest")
    for s in sources:
        shown.add_row(s.tenant, s.source, s.generation or "", str(s.letters), age(s.since), age(s.newest_at))
    console().print(shown)
    console().print("`headwater letters release SOURCE` tries them again", style="dim", highlight=False)


def release(
    source: Annotated[str, typer.Argument(help="The parked source.")],
    tenant: Annotated[str, typer.Option("--tenant", help="Its tenant.")] = "acme",
    timeout: Annotated[float, typer.Option("--timeout", min=1, help="Seconds to wait altogether.")] = 600,
    json: JsonFlag = False,
) -> None:
    """Try everything again that was set aside; the first success takes the source up again."""
    from pipeline.operate.letters import parked as of
    from pipeline.operate.replay import release as again

    done: list[Replayed] = []
    with _opened() as world:
        found = [s for s in of(world.letters()) if (s.tenant, s.source) == (tenant, source)]
        if not found:
            raise InfraError(f"Source {source} of {tenant} is not parked.", "See `headwater letters parked`.")
        for each in found:
            done += again(
                world.settings, each, world.letters, requested_by=requester(), timeout_s=timeout,
                progress=_progress(),
            )  # fmt: skip
    _results(done, json)


def _progress() -> ProgressBar:
    """One line, rewritten, where somebody looks."""
    out = progress_console()

    def tell(step: str, done: int, total: int | None) -> None:
        if out.is_terminal:
            out.print(f"{step}: {done} of {total}", end="\r", highlight=False)

    return tell


def _results(done: Sequence[Replayed], as_json: bool) -> None:
    """What became of each. Ends with status 1 where one did not succeed."""
    fine = all(r.result in ("processed", "superseded") for r in done)
    if as_json:
        emit_json([{"letter": r.letter.name, "result": r.result, "reason": r.reason} for r in done])
    elif not done:
        console().print("No such letter.", highlight=False)
    else:
        shown = table("letter", "document", "result", "reason")
        for r in done:
            document = r.letter.newest.document
            shown.add_row(r.letter.name, document.key if document is not None else "", r.result, r.reason or "")
        console().print(shown)
    if not fine:
        raise typer.Exit(1)


def _plain(letter: Letter) -> dict[str, object]:
    return {
        "letter": letter.name,
        "attempts": letter.attempts,
        "first_failed_at": letter.first_failed_at,
        **letter.newest.model_dump(mode="json", exclude_none=True, exclude={"attempts", "schema_version"}),
    }
