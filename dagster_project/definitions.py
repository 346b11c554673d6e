"""Everything that Dagster knows of Headwater: what each slice defines, and the resources that they share.

Sources are assets by the settings as they are when the definitions are loaded. Settings that cannot be read leave those
assets out and everything else as it is.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence

from dagster import (
    AssetSelection,
    AutomationConditionSensorDefinition,
    DefaultSensorStatus,
    Definitions,
    definitions,
    in_process_executor,
)

from dagster_project import (
    asking,
    checks,
    generations,
    letter_jobs,
    letters,
    lineage,
    owners,
    quality,
    registration,
    reprocessing,
    sources,
    tiers,
    transitions,
    verification,
)
from dagster_project.resources import Headwater
from pipeline import settings as config
from pipeline.errors import ConfigError
from pipeline.settings_sources import AnySource

log = logging.getLogger("headwater.dagster")

SLICES = (
    registration, sources, asking, generations, verification, transitions, reprocessing, tiers, letters, letter_jobs,
    quality, checks,
)  # fmt: skip

# verification follows a build by itself
automation = AutomationConditionSensorDefinition(
    "automation",
    target=AssetSelection.all(),
    default_status=DefaultSensorStatus.RUNNING,
    minimum_interval_seconds=30,
    description="Starts what automation conditions ask for: the verification of a generation after its build.",
)


def build(configured: Sequence[AnySource], problem: str | None = None) -> Definitions:
    """With these sources. ``problem``: why the settings do not say which there are."""
    return Definitions.merge(
        lineage.defs_of([owners.key_of(s.tenant, s.name) for s in configured], problem),
        owners.defs_of(configured),
        *(piece.defs for piece in SLICES),
        # a run is one process: its steps are few and mostly wait for consumers
        Definitions(sensors=[automation], resources={"headwater": Headwater()}, executor=in_process_executor),
    )


@definitions
def defs() -> Definitions:
    """By the settings now."""
    try:
        return build(config.load().sources)
    except ConfigError as error:
        log.warning("the settings cannot be read, so sources are not shown: %s", error)
        return build((), problem=str(error))
