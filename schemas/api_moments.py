"""Moments in requests: integer microseconds, or ISO 8601 as people and models write it. They leave as integers."""

from __future__ import annotations

from datetime import UTC, date, datetime
from typing import Annotated

from pydantic import BeforeValidator

from schemas.base import MAX_SAFE_INTEGER, Micros

EARLIEST = 10**14
"""1973-03-03 in microseconds. Smaller numbers are seconds or milliseconds of our time, save 0: 1970 in each of them."""
_REMEDY = "give microseconds since 1970 such as 1767225600000000, or ISO 8601 such as '2026-01-01T00:00:00Z'"
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


def micros_of(moment: datetime) -> int:
    """Microseconds since the epoch, exactly; a moment without an offset is UTC. Below 0 before 1970."""
    since = (moment if moment.tzinfo else moment.replace(tzinfo=UTC)) - _EPOCH
    return (since.days * 86_400 + since.seconds) * 1_000_000 + since.microseconds


def _moment(value: object) -> object:
    """As integer. Raises ValueError, which says nothing of the value, where the moment cannot have been meant."""
    if isinstance(value, str):
        value = _read(value)
    if isinstance(value, datetime):
        value = micros_of(value)
    elif isinstance(value, date):
        value = micros_of(datetime(value.year, value.month, value.day, tzinfo=UTC))
    elif isinstance(value, int) and not isinstance(value, bool) and 0 < value < EARLIEST:
        raise ValueError(f"is not in microseconds (seconds or milliseconds were given?): {_REMEDY}")
    else:
        return value  # for the integer's own checks
    if value != 0 and not EARLIEST <= value <= MAX_SAFE_INTEGER:
        raise ValueError("must lie between 1973-03-04 and 2255, or be 1970-01-01 for the beginning of time")
    return value


def _read(text: str) -> datetime:
    if text.isdigit():
        raise ValueError(f"a number stands in quotes: {_REMEDY}")
    try:
        return datetime.fromisoformat(text)  # a date alone is its midnight
    except ValueError:
        raise ValueError(f"is no date or time: {_REMEDY}") from None


Moment = Annotated[Micros, BeforeValidator(_moment, json_schema_input_type=Micros | datetime | date)]
"""A date is midnight UTC, an offset is honoured, a time without one is UTC."""
