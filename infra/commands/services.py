"""``up``, ``down``, ``status``, ``fetch``, ``logs``."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated

import typer

from infra import docker
from infra.commands.output import JsonFlag, console, emit_json, progress_console, table
from infra.errors import InfraError
from infra.launcher import NAMES, Services, ServiceStatus
from infra.process import tail
from infra.progress import reporter
from infra.state import Store
from infra.supervisor import TABLE, Supervisor
from pipeline import settings as config
from pipeline.errors import ConfigError

ServicesOnly = Annotated[bool, typer.Option("--services-only", help="Only Kafka and Weaviate.")]
COLOURS = {"up": "green", "external": "green", "starting": "yellow", "down": "red", "unreachable": "red"}


def register(app: typer.Typer) -> None:
    """Add this file's commands."""
    app.command()(up)
    app.command()(down)
    app.command()(status)
    app.command()(fetch)
    app.command()(logs)


def up(services_only: ServicesOnly = False, json: JsonFlag = False) -> None:
    """Start Kafka, Weaviate and Headwater's processes; safe to repeat."""
    settings = config.load()
    services, supervisor = Services.of(settings), Supervisor(settings)
    with reporter(progress_console()) as report:
        endpoints = services.up(report)
        if not services_only:
            supervisor.up(endpoints, report)
    _show(services.status() + ([] if services_only else supervisor.status()), json)


def down(json: JsonFlag = False) -> None:
    """Stop everything that was started here; data stays."""
    settings = config.load()
    services, supervisor = Services.of(settings), Supervisor(settings)
    supervisor.down()
    services.down()
    _show(services.status() + supervisor.status(), json)


def status(services_only: ServicesOnly = False, json: JsonFlag = False) -> None:
    """Show what runs. Exit status 1 unless everything is up."""
    settings = config.load()
    lines = Services.of(settings).status()
    if not services_only:
        lines += Supervisor(settings).status()
    _show(lines, json)
    if any(line.state not in ("up", "external") for line in lines):
        raise typer.Exit(1)


def fetch(json: JsonFlag = False) -> None:
    """Bring Kafka, Weaviate and the reranker's files into the cache without starting anything."""
    from query_service.rerank import files

    settings = config.load()
    services = Services.of(settings)
    with reporter(progress_console()) as report:
        services.obtain(report)
    if files.needed(settings):
        try:
            files.fetch(settings)
        except ConfigError as error:  # searches work without it, and the query service tries again
            progress_console().print(f"reranker: {error}", highlight=False, soft_wrap=True)
    if json:
        emit_json({"ok": True, "cache_dir": str(services.cache_dir)})
    else:
        console().print(f"Everything is in {services.cache_dir}.", highlight=False, soft_wrap=True)


def logs(
    name: Annotated[str, typer.Argument(help="A service or process, as `headwater status` names it.")],
    follow: Annotated[bool, typer.Option("-f", "--follow", help="Keep printing new lines.")] = False,
    lines: Annotated[int, typer.Option("-n", "--lines", min=1, help="How many lines from the end.")] = 50,
    json: JsonFlag = False,
) -> None:
    """Print the log of one service or process."""
    settings = config.load()
    known = (*NAMES, *(spec.name for spec in TABLE))  # what `run` started beyond the settings too
    if name not in known:
        raise InfraError(f"There is no service or process named {name}.", f"Known: {', '.join(known)}.")
    store = Store(settings.state_dir.absolute())
    if name in NAMES and store.state().mode == "docker":
        state_dir = settings.state_dir.absolute()
        raise typer.Exit(docker.logs(state_dir, store.state(), store.secrets(), name, lines, follow))
    path = settings.state_dir.absolute() / "logs" / f"{name}.log"
    if not path.exists():
        raise InfraError(f"{name} has no log yet.", "Run `headwater up`.")
    for line in _lines(path, lines, follow):
        if json:
            emit_json({"name": name, "line": line})
        else:
            typer.echo(line)


def _lines(path: Path, count: int, follow: bool) -> Iterator[str]:
    """The last ``count`` lines, then new ones as they come where ``follow`` is set."""
    size = path.stat().st_size
    yield from tail(path, count).splitlines()
    if not follow:
        return
    with path.open("r", encoding="utf-8", errors="replace") as stream:
        stream.seek(size)
        partial = ""
        while True:
            partial += stream.readline()
            if partial.endswith("\n"):
                yield partial.rstrip("\n")
                partial = ""
            else:
                time.sleep(0.2)


def _show(lines: list[ServiceStatus], as_json: bool) -> None:
    if as_json:
        emit_json({"processes": lines})
        return
    shown = table("name", "state", "address", "pid", "MiB")
    for line in lines:
        state = f"[{COLOURS[line.state]}]{line.state}[/]"
        shown.add_row(line.name, state, line.address, str(line.pid or ""), str(line.memory_mib or ""))
    console().print(shown)
