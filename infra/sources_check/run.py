"""Starts the real servers and the product, plays, and says per source what came of it."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path

from infra.bench.world import World, remove_leftovers
from infra.endpoints import Endpoints
from infra.progress import Reporter
from infra.sources_check.play import TENANT, Play, Step, System
from infra.sources_check.stage import PATIENCE_S, Stage

PROCESSES = ("control", "access", "index", "query", "gateway", "owner")
SLOW_S = 180.0


@dataclass
class Outcome:
    """One source after its play. Times in ms: the longest of its steps."""

    source: str
    steps: int = 0
    passed: int = 0
    lag_push_ms: float | None = None
    lag_poll_ms: float | None = None
    access_checked: int = 0
    access_wrong: int = 0
    skipped: str | None = None
    slowest: dict[str, str] = field(default_factory=dict)  # by way: the step that took longest
    failed: list[str] = field(default_factory=list)

    @property
    def good(self) -> bool:
        """Nothing is missing and nobody sees too much or too little; a source that was not played proves nothing."""
        return self.skipped is None and self.passed == self.steps > 0 and self.access_wrong == 0

    def line(self) -> str:
        """As JSON."""
        shown = {k: v for k, v in vars(self).items() if not (k in ("skipped", "slowest", "failed") and not v)}
        return json.dumps(shown, ensure_ascii=False)


def check(
    systems: Sequence[System],
    endpoints: Endpoints,
    folder: Path,
    report: Reporter,
    told: Callable[[Outcome], None] = lambda outcome: None,
) -> list[Outcome]:
    """Play every system that can be started here; each outcome is told when it is there. Raises InfraError."""
    outcomes: list[Outcome] = []
    remove_leftovers(endpoints, folder)
    shutil.rmtree(folder / "servers", ignore_errors=True)
    with ExitStack() as stack:
        plays: list[tuple[System, Play]] = []
        for system in systems:
            why = system.available()
            if why is not None:
                outcomes.append(Outcome(system.name, skipped=why))
                told(outcomes[-1])
                continue
            report.step(system.name, "starting")
            stack.callback(system.stop)
            plays.append((system, system.start(folder / "servers" / system.name)))
            report.finish(system.name, "runs")
        if not plays:
            return outcomes
        settings = [source for _, play in plays for source in play.settings]
        world = World(endpoints, folder / "world", PROCESSES, sources=settings)
        world.open(report)
        stack.callback(world.close)
        stage = Stage(world, TENANT)
        stack.callback(stage.close)
        for system, play in plays:
            system.ready(stage)
            outcomes.append(_played(play, stage, report))
            told(outcomes[-1])
    return outcomes


def _played(play: Play, stage: Stage, report: Reporter) -> Outcome:
    outcome = Outcome(play.name)
    lags: dict[str, list[tuple[float, str]]] = {"push": [], "poll": []}
    first = Step("everything is listed", lambda: None, play.begins, slow=True)
    for step in (first, *play.steps(stage)):
        report.step(play.name, step.what)
        step.act()
        times = stage.until(step.sees, list(play.sources), SLOW_S if step.slow else PATIENCE_S)
        for source, seconds in times.items():
            outcome.steps += 1
            if seconds is None:
                wrong = stage.holds(step.sees, source)
                outcome.failed.append(f"{source}: {step.what}: {'; '.join(str(one) for one in wrong)}")
                continue
            outcome.passed += 1
            if not step.slow:
                lags[play.sources[source]].append((round(seconds * 1000), step.what))
    for way, found in lags.items():
        if found:
            longest, outcome.slowest[way] = max(found)
            setattr(outcome, f"lag_{way}_ms", longest)
    for one in play.allowed(stage):
        outcome.access_checked += 1
        if stage.may_read(one.person, one.document) != one.may:
            outcome.access_wrong += 1
            outcome.failed.append(f"{one.person} {'may' if one.may else 'may not'} read {one.document.key}")
    report.finish(play.name, f"{outcome.passed} of {outcome.steps} steps, {outcome.access_wrong} wrong rights")
    return outcome
