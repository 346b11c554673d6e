"""What the launcher is doing, for people (a rich display) or for logs (plain lines)."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Protocol

from rich.console import Console
from rich.progress import BarColumn, Progress, SpinnerColumn, TaskID, TextColumn, TimeElapsedColumn


class Reporter(Protocol):
    """Receives the steps of the launcher."""

    def step(self, name: str, detail: str = "", done: float | None = None) -> None:
        """A step goes on; ``done`` is its share 0–1, or None where it cannot be known."""

    def finish(self, name: str, detail: str = "") -> None:
        """A step is over."""


class Quiet:
    """Says nothing."""

    def step(self, name: str, detail: str = "", done: float | None = None) -> None:
        """Ignore."""

    def finish(self, name: str, detail: str = "") -> None:
        """Ignore."""


class Lines:
    """One line for each new stage of a step and one when it ends, for logs."""

    def __init__(self, console: Console) -> None:
        self._console = console
        self._started: dict[str, float] = {}
        self._said: dict[str, str] = {}

    def step(self, name: str, detail: str = "", done: float | None = None) -> None:
        """Print a stage when it begins; how far a download is, is not a stage."""
        begins = name not in self._started
        self._started.setdefault(name, time.monotonic())
        if begins or (done is None and self._said.get(name) != detail):
            self._said[name] = detail
            self._console.print(f"{name}: {detail or 'working'}", highlight=False, soft_wrap=True)

    def finish(self, name: str, detail: str = "") -> None:
        """Print how long the step took."""
        seconds = time.monotonic() - self._started.pop(name, time.monotonic())
        self._console.print(f"{name}: {detail or 'done'} ({seconds:.1f} s)", highlight=False, soft_wrap=True)


class Bars:
    """A bar per step on a terminal."""

    def __init__(self, progress: Progress) -> None:
        self._progress = progress
        self._tasks: dict[str, TaskID] = {}

    def step(self, name: str, detail: str = "", done: float | None = None) -> None:
        """Move the bar of the step; an unknown share shows as a moving bar."""
        if name not in self._tasks:
            self._tasks[name] = self._progress.add_task(name, total=None, detail="")
        total, completed = (1.0, done) if done is not None else (None, 0.0)
        self._progress.update(self._tasks[name], total=total, completed=completed, detail=detail)

    def finish(self, name: str, detail: str = "") -> None:
        """Fill the bar."""
        self.step(name, detail or "done", 1.0)


@contextmanager
def reporter(console: Console) -> Iterator[Reporter]:
    """Bars on a terminal, lines elsewhere."""
    if not console.is_terminal:
        yield Lines(console)
        return
    columns = (
        SpinnerColumn(),
        TextColumn("{task.description}"),
        BarColumn(),
        TextColumn("{task.fields[detail]}"),
    )
    with Progress(*columns, TimeElapsedColumn(), console=console) as progress:
        yield Bars(progress)
