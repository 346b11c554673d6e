"""``lag``: how long a change takes to become searchable, and a revocation to take effect."""

from __future__ import annotations

import json as json_module
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Annotated, Any

import httpx
import typer
from rich.console import Console
from rich.text import Text

from infra.asking import QueryApi
from infra.commands.output import JsonFlag, console, emit_json, table
from infra.commands.search import complete
from infra.errors import InfraError
from infra.launcher import Services
from infra.ports import LOOPBACK
from infra.state import Store
from pipeline import settings as config
from pipeline.settings import Settings
from schemas.api import FreshnessResponse, Percentiles, SourceFreshness
from schemas.keys import canonical_json
from schemas.topics import Topic

# As the query service names them: what an event passes, in order.
STEPS = (
    ("observe", "source → observed"),
    ("append", "observed → appended"),
    ("receive", "appended → received"),
    ("wait", "received → started"),
    ("extract", "started → extracted"),
    ("embed", "extracted → embedded"),
    ("write", "embedded → visible"),
)
INSIDE = STEPS[1:]  # what lies between observed and visible
TOTALS = (("total", "observed → visible"), ("source", "source → visible"))
WIDTH = 48
ASKED = 10  # people for whom figures are asked, until some are shown
COLOURS = ("blue", "cyan", "magenta", "yellow", "green", "red")
SHADES = "█▓▒░▚▞"  # tell the stages apart where there is no colour


@dataclass(frozen=True)
class Canary:
    """The canary's last round, in seconds by step; ``state`` as its page says, or why there is no page."""

    state: str
    seconds: dict[str, float | None]
    failures: tuple[str, ...] = ()


def register(app: typer.Typer) -> None:
    """Add this file's command."""
    app.command()(lag)


def lag(
    tenant: Annotated[str, typer.Option("--tenant", help="The tenant whose sources are shown.")] = "acme",
    window: Annotated[int, typer.Option("--window", min=1, max=43_200, help="Minutes looked back.")] = 60,
    user: Annotated[str | None, typer.Option("--user", help="Ask as this person; else as one that is known.")] = None,
    json: JsonFlag = False,
) -> None:
    """Percentiles of the lag per source and stage, of revocations, and what the canary saw."""
    settings = config.load()
    askers = [user] if user is not None else known_users(Services.of(settings).endpoints().apply(settings), tenant)
    with QueryApi(settings) as api:
        found = figures(api, askers, tenant, window * 60)
    canary = look(settings)
    if json:
        emit_json({"freshness": found.model_dump(mode="json"), "canary": asdict(canary)})
    else:
        show(console(), found, canary)


def figures(api: QueryApi, askers: Sequence[str], tenant: str, window_s: int) -> FreshnessResponse:
    """What the first of ``askers`` (at least one) is shown; of the next where it is nothing: who is on the log may have
    left since."""
    shown = (api.freshness(asker, tenant, window_s) for asker in askers[:ASKED])
    found = next(shown)
    while not found.sources and (another := next(shown, None)) is not None:
        found = another
    return found


def known_users(settings: Settings, tenant: str) -> list[str]:
    """People with a live record in the tenant, read from the log. Raises InfraError where there is none.

    Figures of sources are shown to nobody else.
    """
    from pipeline.bus.tail import read_compacted

    prefix = canonical_json([tenant, "user:"])[:-2]  # ["tenant","user:
    alive: dict[str, set[str]] = {}
    for record in read_compacted(settings, Topic.MEMBERSHIP, wanted=lambda k: k is not None and k.startswith(prefix)):
        _, principal, *source = json_module.loads(record.key or "[]")
        said = json_module.loads(record.value) if record.value else {"removed": True}
        sources = alive.setdefault(principal, set())
        (sources.discard if said.get("removed") else sources.add)(str(source))
    found = [principal for principal, sources in alive.items() if sources]
    if not found:
        raise InfraError(
            f"Tenant {tenant} has no person yet, so there is nobody to show figures to.",
            "Ingest a source first, or name a person by --user.",
        )
    return found


def look(settings: Settings) -> Canary:
    """The canary's page, at the port that the launcher remembers."""
    port = Store(settings.state_dir.absolute()).state().ports.get("health_canary")
    if port is None:
        return Canary("never started here", {})
    try:
        return read(httpx.get(f"http://{LOOPBACK}:{port}/healthz", timeout=2.0, trust_env=False).json())
    except (httpx.HTTPError, ValueError):
        return Canary("not running", {})


def read(page: dict[str, Any]) -> Canary:
    """A page of the canary's process."""
    last = page.get("last") or {}
    waiting = page.get("waiting_for")
    state = f"{page.get('state', 'unknown')}" + (f" ({waiting})" if waiting else "")
    return Canary(state, dict(last.get("seconds") or {}), tuple(last.get("failures") or ()))


# -- showing -----------------------------------------------------------------------------------------------------------


def show(out: Console, found: FreshnessResponse, canary: Canary) -> None:
    """Tables and bars."""
    minutes = found.window_s // 60
    out.print(
        f"Tenant {found.tenant}, generation {found.generation or 'none'}, last {minutes} minutes; milliseconds",
        highlight=False,
        markup=False,
    )
    if not found.sources:
        out.print("No source of this tenant is known to the person who asks.", highlight=False)
    for name, source in found.sources.items():
        _source(out, name, source)
    for line in complete({name: s.complete_until for name, s in found.sources.items()}, found.now / 1e6):
        out.print(line, style="dim", highlight=False, markup=False)
    _canary(out, canary)


def _source(out: Console, name: str, source: SourceFreshness) -> None:
    out.print(
        Text.assemble("\n", (name, "bold"), f"  {source.pending} pending, {source.failed} failed"), highlight=False
    )
    shown = table("stage", "events", "p50", "p95", "p99")
    for stage, meaning in (*STEPS, *TOTALS):
        if stage in source.lag_ms:
            _row(shown, meaning, source.lag_ms[stage])
    if source.revocation_ms.count:
        _row(shown, "revocation: appended → applied", source.revocation_ms)
    if shown.row_count:
        out.print(shown)
    else:
        out.print("no event in this window", style="dim")
    for at, label in (("p50", "median"), ("p95", "p95")):
        bar = bars(source.lag_ms, at)
        if bar is not None:
            out.print(Text.assemble(f"{label:<7} ", bar), highlight=False)
    if bars(source.lag_ms, "p50") is not None:
        legend = Text("        ")
        for (_, meaning), colour, shade in zip(INSIDE, COLOURS, SHADES, strict=True):
            legend.append(f"{shade} ", style=colour).append(f"{meaning.split(' → ')[1]}  ", style="dim")
        out.print(legend)


def _row(shown: Any, name: str, values: Percentiles) -> None:
    cells = ("" if v is None else f"{v:.1f}" for v in (values.p50, values.p95, values.p99))
    shown.add_row(name, str(values.count), *cells)


def bars(lags: dict[str, Percentiles], at: str) -> Text | None:
    """The stages from observed to visible as one bar, in proportion; None without a measurement.

    Percentiles of parts do not add up to that of the whole, so the bar shows shares and the sum is not printed.
    """
    values = [getattr(lags[stage], at) or 0.0 if stage in lags else 0.0 for stage, _ in INSIDE]
    whole = sum(values)
    if whole <= 0:
        return None
    bar, done, drawn = Text(), 0.0, 0
    for value, colour, shade in zip(values, COLOURS, SHADES, strict=True):
        done += value
        upto = round(WIDTH * done / whole)
        bar.append(shade * (upto - drawn), style=colour)
        drawn = upto
    return bar


def _canary(out: Console, canary: Canary) -> None:
    steps = "  ".join(
        f"{step} {'late' if seconds is None else f'{1000 * seconds:.0f} ms'}"
        for step, seconds in canary.seconds.items()
    )
    style = "red" if canary.failures else ""
    out.print(Text.assemble("\n", ("canary", "bold"), f"  {canary.state}  ", steps), style=style, highlight=False)
    for failure in canary.failures:
        out.print(f"  {failure}", style="red", highlight=False, markup=False)
