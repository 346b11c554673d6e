"""``dagster``: Dagster's page, started where it does not run."""

from __future__ import annotations

from typing import Annotated

import typer

from infra.commands.output import JsonFlag, console, emit_json, progress_console
from infra.errors import InfraError
from infra.launcher import Services
from infra.progress import reporter
from infra.supervisor import Supervisor
from pipeline import settings as config


def register(app: typer.Typer) -> None:
    """Add this file's command."""
    app.command()(dagster)


def dagster(
    browser: Annotated[bool, typer.Option(help="Open the page in a browser, where there is one.")] = True,
    json: JsonFlag = False,
) -> None:
    """Start everything that does not run, Dagster included, and open Dagster's page."""
    settings = config.load()
    if not settings.dagster.enabled:
        raise InfraError(
            "Dagster is switched off by the settings.", "Set HEADWATER_DAGSTER__ENABLED=true, or enabled in [dagster]."
        )
    with reporter(progress_console()) as report:
        endpoints = Services.of(settings).up(report)
        Supervisor(settings).up(endpoints, report)
    url = f"http://{settings.dagster.host}:{settings.dagster.port}"
    if json:
        emit_json({"url": url})
    else:
        console().print(url, highlight=False, soft_wrap=True)
    if browser and not json:
        typer.launch(url)
