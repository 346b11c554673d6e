"""``bench answers`` and ``bench context``: options and tables of the benchmarks of answers."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rich.console import Console

from infra.commands.output import progress_console
from infra.errors import InfraError

if TYPE_CHECKING:
    from infra.bench.registry import Bench

NAME = "answers"
CONTEXT = "context"
WIDTH = 150  # columns that the tables need


def bench(
    model_path: Path | None, server_url: str | None, sentences: Path | None, minutes: float | None = None
) -> Bench:
    """The benchmark with a model. Raises InfraError where none is named."""
    from infra.bench.answering import model
    from infra.bench.registry import Bench

    if (model_path is None) == (server_url is None):
        raise InfraError("answers needs one model.", "Give --model-path FILE.gguf or --server-url ADDRESS.")
    chosen = model.Model(server=server_url, path=model_path, sentences=sentences, minutes=minutes)
    return Bench(NAME, lambda session: model.answers(session, chosen), "C2", "a small model, raw and checked")


def labelled(path: Path) -> Mapping[str, Any]:
    """The line made of sentences that people labelled. Raises InfraError."""
    from infra.bench.answering import model

    return model.labelled(path).line(0.0)


def read(source: Path) -> list[Mapping[str, Any]]:
    """The JSON lines of an earlier run of context. Raises InfraError."""
    remedy = "Name what `headwater bench context` printed."
    try:
        lines = [json.loads(line) for line in source.read_text(encoding="utf-8").splitlines() if line.startswith("{")]
    except (OSError, ValueError) as error:
        raise InfraError(f"--from: {source} cannot be read: {error}", remedy) from error
    if not any(str(line.get("bench", "")).startswith(CONTEXT) for line in lines):
        raise InfraError(f"--from: {source} holds no line of context.", remedy)
    return lines


def show(lines: Sequence[Mapping[str, Any]], picture: Path | None) -> None:
    """Tables on standard error, since the lines are on standard output; a picture where one is wanted."""
    from infra.bench.answering import figures

    figures.show(Console(stderr=True, width=max(WIDTH, progress_console().width)), lines)
    if picture is not None:
        picture.write_text(figures.picture(lines), encoding="utf-8")
