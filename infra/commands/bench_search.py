"""``bench search``: ranking's quality by part and times by stage; tables from the lines of a run."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from enum import StrEnum
from pathlib import Path
from typing import Any

from rich.console import Console

from infra.commands.output import progress_console
from infra.errors import InfraError

NAME = "search"
WIDTH = 170  # columns that the tables need


class Size(StrEnum):
    """Of the synthetic corpora."""

    small = "small"
    large = "large"


def benches(size: Size) -> list[str]:
    """Names of the benchmarks."""
    return ["ranking_quality", "ranking_10k", *(["ranking_100k"] if size is Size.large else [])]


def read(source: Path) -> list[Mapping[str, Any]]:
    """The JSON lines of an earlier run. Raises InfraError."""
    remedy = "Name what `headwater bench search` printed."
    try:
        lines = [json.loads(line) for line in source.read_text(encoding="utf-8").splitlines() if line.startswith("{")]
    except (OSError, ValueError) as error:
        raise InfraError(f"--from: {source} cannot be read: {error}", remedy) from error
    if not any(isinstance(line, dict) and str(line.get("bench", "")).startswith("ranking_") for line in lines):
        raise InfraError(f"--from: {source} holds no line of ranking.", remedy)
    return lines


def show(lines: Sequence[Mapping[str, Any]], picture: Path | None) -> None:
    """Tables on standard error, since the lines are on standard output; a picture where one is wanted."""
    from infra.bench.ranking import figures

    figures.show(Console(stderr=True, width=max(WIDTH, progress_console().width)), lines)
    if picture is not None:
        picture.write_text(figures.picture(lines), encoding="utf-8")
