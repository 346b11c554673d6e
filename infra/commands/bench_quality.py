"""``bench quality``: extraction and chunking compared, in this process and without services."""

from __future__ import annotations

import json
from pathlib import Path

from rich.console import Console

from infra.commands.output import console, emit_json, progress_console
from infra.errors import InfraError
from infra.progress import Quiet, Reporter, reporter
from pipeline import settings as config

NAME = "quality"
WIDTH = 140  # columns that the tables need


def quality(
    *, baseline_python: Path | None, as_json: bool, quiet: bool, quick: bool, picture: Path | None, source: Path | None
) -> None:
    """Measure and print; with ``source`` the JSON of an earlier run is shown or drawn instead.

    Raises InfraError where the corpora are missing, ConfigError where the encoder cannot be loaded.
    """
    from infra.bench.quality import figures

    if source is not None:
        try:
            result = json.loads(source.read_text(encoding="utf-8"))
        except (OSError, ValueError) as error:
            remedy = "Name what `headwater bench quality --json` printed."
            raise InfraError(f"--from: {source} cannot be read: {error}", remedy) from error
    elif quiet:
        result = _measured(Quiet(), baseline_python, quick)
    else:
        with reporter(progress_console()) as report:
            result = _measured(report, baseline_python, quick)
    if picture is not None:
        picture.write_text(figures.picture(result), encoding="utf-8")
    if as_json:
        emit_json(result)
    else:
        # In a log file a console is 80 columns wide, which would fold the tables.
        figures.show(Console(width=max(WIDTH, console().width)), result)


def _measured(report: Reporter, baseline_python: Path | None, quick: bool) -> dict[str, object]:
    from infra.bench.quality.run import Places, run

    made = run(config.load(), Places.of_checkout(), report, baseline_python=baseline_python, quick=quick)
    return made.plain()
