"""What can be chosen in a backfill dialog: generations, sources, and windows of time of a source."""

from __future__ import annotations

from datetime import UTC, datetime

from dagster import (
    DynamicPartitionsDefinition,
    MonthlyPartitionsDefinition,
    MultiPartitionKey,
    MultiPartitionsDefinition,
)

FIRST_MONTH = "2018-01-01"
GENERATIONS = DynamicPartitionsDefinition(name="generations")
SOURCES = DynamicPartitionsDefinition(name="sources")
MONTHS = MonthlyPartitionsDefinition(start_date=FIRST_MONTH, end_offset=1)
WINDOWS = MultiPartitionsDefinition({"month": MONTHS, "source": SOURCES})


def source_key(tenant: str, source: str) -> str:
    """Partition of a source."""
    return f"{tenant}/{source}"


def source_of(key: str) -> tuple[str, str]:
    """Tenant and source of a partition."""
    tenant, _, source = key.partition("/")
    return tenant, source


def window_of(key: MultiPartitionKey) -> tuple[str, str, int | None, int]:
    """Tenant, source, first moment and first moment after, in µs. The oldest month reaches back without end."""
    tenant, source = source_of(key.keys_by_dimension["source"])
    month = key.keys_by_dimension["month"]
    window = MONTHS.time_window_for_partition_key(month)
    begin = None if month == FIRST_MONTH else _micros(window.start)
    return tenant, source, begin, _micros(window.end)


def _micros(moment: datetime) -> int:
    return int(moment.astimezone(UTC).timestamp() * 1_000_000)
