"""``sources list``, ``describe`` and ``test``: what only looks."""

from __future__ import annotations

import dataclasses
import sys
from typing import TYPE_CHECKING, Annotated, Any

import typer

from infra.commands.opened import located
from infra.commands.output import JsonFlag, console, emit_json
from infra.commands.sources_view import described, listed, overview, plain, tried
from infra.errors import InfraError
from pipeline import settings as config
from pipeline.clock import SystemClock
from pipeline.settings import Settings

if TYPE_CHECKING:
    from pipeline.operate.owned import SourceStatus
    from pipeline.settings_sources import AnySource

Name = Annotated[str, typer.Argument(help="Name of the source, as in `headwater sources list`.")]
Names = Annotated[list[str] | None, typer.Argument(help="Names of sources; all where none is named.")]
Tenant = Annotated[str, typer.Option("--tenant", help="Tenant of the source.")]
OneTenant = Annotated[str | None, typer.Option("--tenant", help="Only sources of this tenant.")]
RHYTHM = ("poll_s", "access_s", "sweep_s", "walk_s")


def list_(json: JsonFlag = False) -> None:
    """All sources that the settings or the log know: how each stands, and what it was asked for."""
    from pipeline.operate.owned import sources

    found, now = sources(located()), SystemClock().now()
    if json:
        emit_json([plain(status, now) for status in found])
    elif found:
        overview(console(), found, now)
    else:
        console().print("No source yet: name one under [[sources]] in the settings.", highlight=False, markup=False)


def describe(name: Name, tenant: Tenant = "acme", json: JsonFlag = False) -> None:
    """One source: where it is, how it is watched, what its system can tell, its settings, state, alarms, problems."""
    settings = located()
    status = one(settings, tenant, name)
    configured = {(s.tenant, s.name): s for s in settings.sources}.get((tenant, name))
    facts = _facts(settings, status, configured)
    if json:
        emit_json(facts)
    else:
        described(console(), facts)


def test(names: Names = None, tenant: OneTenant = None, json: JsonFlag = False) -> None:
    """Ask the systems behind sources what our credentials can see there. Nothing is written, no owner is disturbed."""
    from consumers.connectors import findings_of
    from pipeline.operate.testing import tested

    settings = config.load()
    chosen = choose([(s.tenant, s.name) for s in settings.sources], names, tenant)
    if any(s.type == "topic" and s.bootstrap is None for s in settings.sources if (s.tenant, s.name) in chosen):
        settings = located()  # only these need a service of ours
    found = tested(settings, chosen, lambda source: findings_of(settings, source, SystemClock()))
    if json:
        emit_json([dataclasses.asdict(source) | {"good": source.good} for source in found])
    else:
        tried(console(), found)
    if not all(source.good for source in found):
        raise typer.Exit(1)


def outbox_ddl(name: Name, tenant: Tenant = "acme", json: JsonFlag = False) -> None:
    """The statements that make the table of an outbox, its publication and its slot. Run them at its database."""
    from pipeline.settings_sources import OutboxSettings
    from pipeline.sources.outbox.ddl import ddl

    outboxes = {(s.tenant, s.name): s for s in config.load().sources if isinstance(s, OutboxSettings)}
    others = {(s.tenant, s.name): s.type for s in config.load().sources}
    if (tenant, name) in others and (tenant, name) not in outboxes:
        raise InfraError(f"Source {name} is of type {others[tenant, name]}, not outbox.", "Name an outbox.")
    choose(list(outboxes), [name], tenant)
    source = outboxes[tenant, name]
    sql = ddl(source.table, source.publication, source.slot)
    if json:
        emit_json({"source": name, "tenant": tenant, "sql": sql})
    else:
        sys.stdout.write(sql)


# -- which sources -----------------------------------------------------------------------------------------------------


def one(settings: Settings, tenant: str, name: str) -> SourceStatus:
    """A source that the settings or the log know. Raises InfraError naming those that are, or BusUnavailable."""
    from pipeline.operate.owned import sources

    found = {(s.tenant, s.source): s for s in sources(settings)}
    choose(list(found), [name], tenant)
    return found[tenant, name]


def choose(known: list[tuple[str, str]], names: list[str] | None, tenant: str | None) -> list[tuple[str, str]]:
    """Those of ``known`` (tenant and name) that are named, or all. Raises InfraError naming the known ones."""
    chosen = [k for k in known if (not names or k[1] in names) and tenant in (None, k[0])]
    unknown = set(names or ()) - {source for _, source in chosen}
    if unknown:
        there = ", ".join(f"{source} ({of})" for of, source in sorted(known)) or "none"
        of = f" of {tenant}" if tenant is not None else ""
        raise InfraError(
            f"No source {', '.join(sorted(unknown))}{of}.", f"Known: {there}. See `headwater sources list`."
        )
    return chosen


# -- one source --------------------------------------------------------------------------------------------------------


def _facts(settings: Settings, status: SourceStatus, source: AnySource | None) -> dict[str, Any]:
    now, told = SystemClock().now(), status.told
    facts: dict[str, Any] = {"source": status.source, "tenant": status.tenant, "type": status.type or "gateway"}
    if source is not None:
        facts["where"] = source.where()
        facts["rhythm"] = {field: getattr(source, field) for field in RHYTHM if hasattr(source, field)}
        facts["system"] = _system(settings, source)
        facts["settings"] = source.model_dump(mode="json")  # secrets are masked by their type
    lag = status.lag_s(now)
    facts["state"] = {
        "state": status.state(now),
        "why": told.why if told is not None else None,
        "documents": status.documents,
        "held": status.held,
        "kept": status.kept,
        "lag_s": round(lag, 1) if lag is not None else None,
        "listed": listed(told),
        "requests": [f"{r.type} {r.state}" for r in status.requests],
    }
    if told is not None:
        facts["state"] |= {
            "backlog": told.backlog, "asked": told.requests, "failures": told.failures, "limited": told.limited,
            "limited_s": round(told.limited_s, 1),
        }  # fmt: skip
        facts |= {"notes": told.notes, "alarms": list(told.alarms), "problems": list(told.problems)}
    return facts


def _system(settings: Settings, source: AnySource) -> dict[str, Any]:
    """What the system can tell by itself."""
    from consumers.connectors import capabilities_of
    from pipeline.errors import ConfigError

    try:
        can = capabilities_of(settings, source, SystemClock())
    except ConfigError as error:
        return {"problem": str(error)}
    return dataclasses.asdict(can)
