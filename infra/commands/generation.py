"""``generation``: encoders and their indexes, replaced under live traffic with proof and a way back."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn

from infra.commands.generation_view import (
    answer_view,
    estimate_view,
    list_view,
    plain_estimate,
    plain_generation,
    show_view,
)
from infra.commands.opened import located, requester
from infra.commands.output import JsonFlag, console, emit_json, progress_console
from infra.commands.tokens import with_secret
from infra.errors import InfraError
from pipeline.errors import ConfigError
from pipeline.operate import control, declarations
from pipeline.ports import ProgressBar
from pipeline.settings import Settings

Name = Annotated[str, typer.Argument(help="The generation, as `headwater generation list` names it.")]
Override = Annotated[
    str | None, typer.Option("--override", help="Why to go on without what is demanded; kept in the record.")
]
Expected = Annotated[
    str | None,
    typer.Option("--expected-active", help="Refused where another one is active; by default the one seen now."),
]
Yes = Annotated[bool, typer.Option("--yes", "-y", help="Do not ask.")]


def register(app: typer.Typer) -> None:
    """Add this file's commands."""
    group = typer.Typer(help="Encoders and their indexes: make, build, verify, switch, go back.", no_args_is_help=True)
    group.command("list")(list_)
    for command in (show, template, create, build, verify, activate, rollback, retire, drop):
        group.command()(command)
    app.add_typer(group, name="generation")


def list_(json: JsonFlag = False) -> None:
    """All generations: which one serves, how far the others are."""
    settings = located()
    found = control.known(settings)
    behind = {name: _behind(settings, name) for name, g in found.generations.items() if g.state != "retired"}
    ordered = sorted(found.generations.values(), key=lambda g: (g.created_at, g.name))
    if json:
        rows = [plain_generation(g) | {"behind": behind.get(g.name)} for g in ordered]
        emit_json({"active": found.active, "generations": rows})
    else:
        list_view(console(), ordered, behind)


def show(name: Name, json: JsonFlag = False) -> None:
    """Everything about one generation: what it is, how far it is, its report, who has its encoder loaded."""
    from pipeline.bus.instances import living_instances

    settings = located()
    found = control.known(settings)
    generation = found.one(name)
    instances = living_instances(settings)
    behind = _behind(settings, name) if generation.state != "retired" else None
    if json:
        told = [
            {"instance": b.instance, "warm": name in b.warm, "in_flight": b.in_flight.get(name, 0), "active": b.active}
            for b in (i.beat for i in instances)
        ]
        emit_json(plain_generation(generation) | {"behind": behind, "query_services": told})
    else:
        show_view(console(), generation, behind, instances)


def template(
    name: Annotated[str, typer.Argument(help="An encoder of the catalogue, or endpoint.")] = "minilm",
    json: JsonFlag = False,
) -> None:
    """Print a declaration file with comments."""
    text = declarations.template(name)
    if json:
        emit_json({"name": name, "toml": text})
    else:
        typer.echo(text, nl=False)


def create(
    name: Name,
    file: Annotated[
        Path, typer.Option("--file", "-f", help="Declaration: `headwater generation template` prints one.")
    ],
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only say what it will take.")] = False,
    yes: Yes = False,
    json: JsonFlag = False,
) -> None:
    """Declare a generation: says what it will take, then makes collections and consumer group. It serves nobody yet."""
    from pipeline.operate.estimate import estimate

    wanted = declarations.load(file)
    settings = located()
    found = control.known(settings)
    with _progress() as report:
        expected = estimate(settings, wanted, progress=report)
    active = found.generations.get(found.active or "")
    changes = (
        declarations.differences(wanted, active.index, active.encoder, active.chunking) if active is not None else []
    )
    if not json:
        estimate_view(console(), name, wanted, expected, changes, settings.state_dir)
    if dry_run:
        if json:
            emit_json({"name": name, "created": False, "estimate": plain_estimate(expected), "changes": changes})
        return
    if not yes:
        _confirm(f"Create generation {name}?", json)
    receipt = control.send(
        settings, "create", name, requested_by=requester(), declaration=wanted.model_dump(mode="json")
    )  # fmt: skip
    if json:
        emit_json(
            {"name": name, "created": True, "estimate": plain_estimate(expected), "changes": changes,
             "details": receipt.details}
        )  # fmt: skip
    else:
        answer_view(console(), receipt, f"next: headwater generation build {name}")


def build(
    name: Name,
    workers: Annotated[
        int | None, typer.Option("--workers", min=1, max=64, help="Bulk workers on this machine.")
    ] = None,
    json: JsonFlag = False,
) -> None:
    """Index everything that is on the log; Ctrl-C stops in order, and building again goes on where it was."""
    from pipeline.operate.build import bar
    from pipeline.operate.build import build as run

    settings = located()
    stop = threading.Event()
    with _progress() as report, _until_interrupted(stop):
        result = run(settings, name, workers=workers, on_progress=bar(report), stop=stop, requested_by=requester())
    if json:
        emit_json(result)
    else:
        out = console()
        how = "stopped; build again to go on" if result.stopped else f"{result.state}"
        out.print(
            f"{name}: {how}. {result.documents} documents, {result.chunks_written} chunks written, "
            f"{result.chunks_embedded} embedded in {result.seconds:.0f} s, {result.dead_letters} dead letters.",
            highlight=False,
        )
        if not result.stopped:
            out.print(f"next: headwater generation verify {name}", style="dim", highlight=False)
    if result.stopped:
        raise typer.Exit(130)


def verify(
    name: Name,
    against: Annotated[
        str | None, typer.Option("--against", help="Compare with this one; else the active one.")
    ] = None,
    json: JsonFlag = False,
) -> None:
    """Prove it: every document, the same permissions, retrieval as good. Exit status 1 where something fails."""
    from pipeline.operate.verification import verify as run

    settings = with_secret(located())  # searches in the shadow are signed
    with _progress() as report:
        found = run(settings, name, against=against, progress=report, requested_by=requester())
    if json:
        emit_json(found)
    else:
        out = console()
        out.print("[green]passed[/]" if found.verdict.passed else "[red]failed[/]", highlight=False)
        for failure in found.verdict.failures:
            out.print(f"  {failure}", highlight=False, markup=False)
        place = settings.state_dir.absolute() / found.path / "report.html"
        out.print(f"report: {place}", highlight=False, markup=False, soft_wrap=True)
    if not found.verdict.passed:
        raise typer.Exit(1)


def activate(name: Name, override: Override = None, expected_active: Expected = None, json: JsonFlag = False) -> None:
    """Let a ready or standby generation serve: demands a fresh passing report, no lag, warm query services."""
    settings = located()
    expected = expected_active if expected_active is not None else control.known(settings).active
    _send(settings, "activate", name, json, expected_active=expected, override=override)


def rollback(
    name: Annotated[
        str | None, typer.Argument(help="A standby generation; by default the one that served last.")
    ] = None,
    json: JsonFlag = False,
) -> None:
    """Go back to the standby generation: one write, no report. Warns if it lags."""
    settings = located()
    found = control.known(settings)
    wanted = name if name is not None else control.standby(found).name
    _send(settings, "rollback", wanted, json, expected_active=found.active)


def retire(name: Name, yes: Yes = False, json: JsonFlag = False) -> None:
    """Stop keeping a generation up; its collections go after the retention time. There is no way back."""
    settings = located()
    generation = control.known(settings).one(name)
    if not yes:
        _confirm(f"Retire generation {name} ({generation.state})? It cannot serve again.", json)
    _send(settings, "retire", name, json)


def drop(name: Name, override: Override = None, json: JsonFlag = False) -> None:
    """Drop a retired generation's collections and say what that freed; with --override before the time is over."""
    _send(located(), "drop", name, json, override=override)


# ---------------------------------------------------------------- inside


def _send(settings: Settings, type: control.CommandType, name: str, json: bool, **fields: Any) -> None:
    receipt = control.send(settings, type, name, requested_by=requester(), **fields)
    if json:
        emit_json(
            {"ok": True, "command": type, "generation": name, "reason": receipt.reason, "details": receipt.details}
        )
    else:
        answer_view(console(), receipt)


def _behind(settings: Settings, name: str) -> int | None:
    from pipeline.operate.build import progress

    return progress(settings, name).left


def _confirm(question: str, as_json: bool) -> None:
    if as_json or not console().is_terminal:
        raise ConfigError("--yes", "nobody can be asked here", "Repeat the command with --yes.")
    if not typer.confirm(question):
        raise InfraError("Nothing was done.", "Repeat the command to change your mind.")


@contextmanager
def _progress() -> Iterator[ProgressBar]:
    """One bar a step, on standard error."""
    columns = (TextColumn("{task.description}"), BarColumn(), TextColumn("{task.fields[count]}"), TimeElapsedColumn())
    with Progress(*columns, console=progress_console(), transient=True) as bars:
        tasks: dict[str, Any] = {}

        def report(step: str, done: int, total: int | None) -> None:
            key = step.split(",")[0]
            if key not in tasks:
                tasks[key] = bars.add_task(step, total=total, count="")
            count = f"{done}/{total}" if total is not None else ""
            bars.update(tasks[key], description=step, completed=done, total=total, count=count)

        yield report


@contextmanager
def _until_interrupted(stop: threading.Event) -> Iterator[None]:
    """Ctrl-C and SIGTERM ask for an end in order instead of breaking off."""
    import signal

    before = {n: signal.signal(n, lambda number, frame: stop.set()) for n in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
