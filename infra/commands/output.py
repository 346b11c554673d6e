"""How commands talk: tables for people, JSON for programs, errors that name the remedy."""

from __future__ import annotations

import dataclasses
import json
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Annotated, Any

import typer
from pydantic import BaseModel
from rich.console import Console
from rich.table import Table

from pipeline.errors import ConfigError, HeadwaterError

if TYPE_CHECKING:
    from pipeline.ports import ProgressBar

JsonFlag = Annotated[bool, typer.Option("--json", help="Print JSON for programs.")]


def console() -> Console:
    """Where results go."""
    return Console()


def progress_console() -> Console:
    """Where progress goes: never into results."""
    return Console(stderr=True)


@contextmanager
def looking() -> Iterator[ProgressBar]:
    """One line that says what is being looked at, where somebody looks."""
    with progress_console().status("looking") as status:
        yield lambda step, done, total: status.update(f"{step} {done}/{total}" if total else step)


def emit_json(value: Any) -> None:
    """Print one JSON document on one line. Dataclasses and models are converted."""
    sys.stdout.write(json.dumps(value, default=_plain, ensure_ascii=False) + "\n")


def _plain(value: Any) -> Any:
    if isinstance(value, BaseModel):
        return value.model_dump(mode="json")
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return dataclasses.asdict(value)
    return str(value)


def table(*columns: str) -> Table:
    """An empty table in the one style that all commands use."""
    made = Table(box=None, header_style="bold", pad_edge=False)
    for column in columns:
        made.add_column(column, overflow="fold")
    return made


def report_error(error: HeadwaterError, as_json: bool) -> None:
    """Say what is wrong and what to do, on standard error; as JSON on standard output where that was asked for."""
    problem = getattr(error, "problem", str(error))
    remedy = getattr(error, "remedy", "")
    if isinstance(error, ConfigError):
        problem = f"{error.field}: {error.problem}"
    if as_json:
        emit_json({"ok": False, "error": problem, "remedy": remedy})
        return
    errors = Console(stderr=True)
    errors.print(f"[bold red]Error:[/] {_escape(problem)}", highlight=False, soft_wrap=True)
    if remedy:
        errors.print(f"[bold]Remedy:[/] {_escape(remedy)}", highlight=False, soft_wrap=True)


def _escape(text: str) -> str:
    return text.replace("[", "\\[")
