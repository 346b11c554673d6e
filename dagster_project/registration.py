"""New generations and sources become partitions by themselves, so that they can be chosen in dialogs."""

from dagster import (
    AddDynamicPartitionsRequest,
    DefaultSensorStatus,
    Definitions,
    SensorEvaluationContext,
    SensorResult,
    SkipReason,
    sensor,
)

from dagster_project.partitions import GENERATIONS, SOURCES, source_key
from dagster_project.resources import Headwater
from pipeline.errors import Retry

EVERY_S = 20


@sensor(
    name="registration",
    minimum_interval_seconds=EVERY_S,
    default_status=DefaultSensorStatus.RUNNING,
    description="Adds a partition for each generation in the store and each source in the settings. Starts no run.",
)
def registration(context: SensorEvaluationContext, headwater: Headwater) -> SensorResult | SkipReason:
    """Adds what is missing; a partition whose generation or source is gone stays with its history."""
    try:
        wanted = {
            GENERATIONS: set(headwater.known().generations),
            SOURCES: {source_key(tenant, source) for tenant, source in headwater.sources()},
        }
    except Retry as error:
        return SkipReason(f"The store does not answer; the next tick tries again: {error}")
    requests: list[AddDynamicPartitionsRequest] = []
    for definition, names in wanted.items():
        known = context.instance.get_dynamic_partitions(str(definition.name))
        if new := sorted(names.difference(known)):
            requests.append(definition.build_add_request(new))
    if not requests:
        return SkipReason("Every generation and source has its partition.")
    return SensorResult(dynamic_partitions_requests=requests)


defs = Definitions(sensors=[registration])
