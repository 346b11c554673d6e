"""Each configured source as an asset: how its owner says that it is, and checks that it lives and lists."""

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from dagster import (
    AssetCheckEvaluation,
    AssetCheckExecutionContext,
    AssetCheckResult,
    AssetChecksDefinition,
    AssetCheckSeverity,
    AssetCheckSpec,
    AssetKey,
    AssetObservation,
    AssetSpec,
    DefaultSensorStatus,
    Definitions,
    SensorDefinition,
    SensorEvaluationContext,
    SensorResult,
    SkipReason,
    multi_asset_check,
    sensor,
)

from dagster_project.lineage import OWNER
from dagster_project.rendering import Cell, table
from dagster_project.resources import Headwater
from pipeline.clock import SystemClock
from pipeline.errors import ConfigError, Retry
from pipeline.settings_sources import AnySource

if TYPE_CHECKING:
    from pipeline.operate.owned import SourceStatus

EVERY_S = 30
AGAIN_US = 600_000_000
"""How often a source is told of although nothing changed."""
GONE_US = 300_000_000
"""How long an owner may be dead, or its source unreachable."""
STARVED_US = 900_000_000
LATE_LISTINGS = 3
ALIVE, LISTED = "alive", "listed"
SHOWN = 20

WARN, ERROR = AssetCheckSeverity.WARN, AssetCheckSeverity.ERROR
Judged = tuple[bool, AssetCheckSeverity, str]
"""Whether a check passes, how bad it is if not, and why."""


def key_of(tenant: str, source: str) -> AssetKey:
    """The asset of a source."""
    return AssetKey(["source", tenant, source])


def spec_of(source: AnySource) -> AssetSpec:
    """A source as the graph shows it."""
    return AssetSpec(
        key_of(source.tenant, source.name),
        group_name="sources",
        kinds={source.type},
        owners=[OWNER],
        description=(
            f"What stands at {source.where() or source.name} ({source.type}). Its owner reads it without Dagster and "
            "says how it is; jobs pause_source, resume_source and reset_source ask it for more."
        ),
        metadata={"where": source.where(), "listed every, seconds": source.walk_s},
    )


def checks_of(source: AnySource) -> list[AssetCheckSpec]:
    """The checks of a source."""
    key = key_of(source.tenant, source.name)
    return [
        AssetCheckSpec(
            ALIVE,
            asset=key,
            description=(
                "Its owner lives and reaches it, the index keeps up, and nothing keeps readers out. To mend: see "
                "`headwater sources describe` for the reason, `headwater sources test` for credentials, "
                "`headwater logs owner` for a dead owner."
            ),
        ),
        AssetCheckSpec(
            LISTED,
            asset=key,
            description=(
                f"All of it was listed within {LATE_LISTINGS} times the seconds between listings: deletions that "
                "nobody tells are seen. To mend: materialize its partition of source_reconciliation, whose report says "
                "what could not be listed."
            ),
        ),
    ]


# -- judging -----------------------------------------------------------------------------------------------------------


def alive(status: "SourceStatus", now: int) -> Judged:
    """Whether its owner lives and does what it should."""
    told, state = status.told, status.state(now)
    if state == "dead":
        if status.seen_at is None:
            return False, WARN, "No owner of it was ever seen."
        silent = now - status.seen_at
        return silent <= GONE_US, ERROR, f"No sign of its owner for {silent / 1e6:.0f} s."
    if told is not None and state == "unreachable" and now - told.since > GONE_US:
        return False, ERROR, f"It cannot be reached for {(now - told.since) / 1e6:.0f} s: {told.why}"
    if told is not None and state == "starved" and now - told.since > STARVED_US:
        return (
            False,
            WARN,
            f"It waits for the index for {(now - told.since) / 1e6:.0f} s; {told.backlog} are not applied.",
        )
    if told is not None and told.alarms:
        return False, WARN, "; ".join(told.alarms[:5])
    return True, WARN, f"It is {state}."


def listed(status: "SourceStatus", walk_s: float, now: int) -> Judged:
    """Whether a complete listing is young enough."""
    told = status.told
    if told is None or told.listed_at is None:
        return False, WARN, "No complete listing since its owner began."
    age = (now - told.listed_at) / 1e6
    late = age > LATE_LISTINGS * walk_s
    paused = " It is paused." if status.paused else ""
    return not late, WARN, f"{told.listed} documents were listed {age:.0f} s ago.{paused}"


@dataclass(frozen=True)
class Looked:
    """One source at one moment: its metadata and its checks."""

    source: AnySource
    status: "SourceStatus"
    now: int

    @property
    def judged(self) -> dict[str, Judged]:
        """By the name of the check."""
        return {ALIVE: alive(self.status, self.now), LISTED: listed(self.status, self.source.walk_s, self.now)}

    @property
    def essence(self) -> str:
        """Differs where something happened that is worth telling; figures that always move are left out."""
        told = self.status.told
        passed = {name: judged[0] for name, judged in self.judged.items()}
        said: list[object] = []
        if told is not None:
            said = [told.why, told.alarms, told.problems, told.notes, told.limited > 0, told.backlog > 0]
        return json.dumps([self.status.state(self.now), self.status.documents, passed, said])

    @property
    def metadata(self) -> dict[str, Any]:
        """For the page."""
        told, lag = self.status.told, self.status.lag_s(self.now)
        shown: dict[str, Any] = {
            "state": self.status.state(self.now),
            "documents": self.status.documents,
            "in quarantine": self.status.held,
            "lag, seconds": round(lag, 1) if lag is not None else -1.0,
        }
        if told is None:
            return shown
        shown |= {
            "not applied by the index": told.backlog,
            "last complete listing": (
                f"{told.listed} documents, {(self.now - told.listed_at) / 1e6:.0f} s ago" if told.listed_at else "none"
            ),
            "rate limit": (
                f"asked for patience {told.limited} times, for {told.limited_s:.0f} s" if told.limited else "none"
            ),
            "why": told.why or "none",
        }
        for name, rows in (("alarms", told.alarms), ("problems", told.problems)):
            if rows:
                lines: list[list[Cell]] = [[row] for row in rows[:SHOWN]]
                shown[name] = table({name: "string"}, lines)
        if told.notes:
            shown["system"] = table({"what": "string", "is": "string"}, [[k, v] for k, v in told.notes.items()])
        return shown


def look(sources: Sequence[AnySource], headwater: Headwater) -> list[Looked]:
    """All of them now. Raises BusUnavailable or ConfigError."""
    now = SystemClock().now()
    found = {(s.tenant, s.source): s for s in headwater.source_states()}
    return [
        Looked(source, status, now)
        for source in sources
        if (status := found.get((source.tenant, source.name))) is not None and status.configured
    ]


# -- definitions -------------------------------------------------------------------------------------------------------


def states_sensor(sources: Sequence[AnySource]) -> SensorDefinition:
    """One for all sources."""

    @sensor(
        name="source_states",
        minimum_interval_seconds=EVERY_S,
        default_status=DefaultSensorStatus.RUNNING,
        description="Tells how each source's owner is, when that changes and every ten minutes. Starts no run.",
    )
    def source_states(context: SensorEvaluationContext, headwater: Headwater) -> SensorResult | SkipReason:
        try:
            looked = look(sources, headwater)
        except (Retry, ConfigError) as error:
            return SkipReason(f"The owners' word cannot be read; the next tick tries again: {error}")
        before: dict[str, tuple[str, int]] = json.loads(context.cursor) if context.cursor else {}
        after: dict[str, tuple[str, int]] = {}
        events: list[AssetObservation | AssetCheckEvaluation] = []
        for one in looked:
            key = key_of(one.source.tenant, one.source.name)
            name, said = key.to_user_string(), one.essence
            last, at = before.get(name, ("", 0))
            if said == last and one.now - at < AGAIN_US:
                after[name] = (last, at)
                continue
            after[name] = (said, one.now)
            events.append(AssetObservation(key, metadata=one.metadata))
            for check, (passed, severity, why) in one.judged.items():
                events.append(
                    AssetCheckEvaluation(
                        asset_key=key, check_name=check, passed=passed, severity=severity, description=why, metadata={}
                    )
                )
        skip = None if events else "Nothing changed."
        return SensorResult(skip_reason=skip, asset_events=events, cursor=json.dumps(after))

    return source_states


def owner_checks(sources: Sequence[AnySource]) -> AssetChecksDefinition:
    """The same checks by hand."""

    @multi_asset_check(name="owners", specs=[spec for source in sources for spec in checks_of(source)], can_subset=True)
    def owners(context: AssetCheckExecutionContext, headwater: Headwater) -> Iterator[AssetCheckResult]:
        """Reads what the owners last said."""
        for one in look(sources, headwater):
            key = key_of(one.source.tenant, one.source.name)
            chosen = {spec.name for spec in context.selected_asset_check_keys if spec.asset_key == key}
            for check, (passed, severity, why) in one.judged.items():
                if check in chosen:
                    yield AssetCheckResult(
                        asset_key=key, check_name=check, passed=passed, severity=severity, description=why
                    )

    return owners


def defs_of(sources: Sequence[AnySource]) -> Definitions:
    """Assets, checks and the sensor of these sources."""
    return Definitions(
        assets=[spec_of(source) for source in sources],
        asset_checks=[owner_checks(sources)] if sources else [],
        sensors=[states_sensor(sources)],
    )
