"""Moments in requests: what is taken, what is refused, and that they leave as integers."""

from __future__ import annotations

from datetime import UTC, date, datetime, timedelta, timezone
from typing import Any

import jsonschema
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from schemas.api import SearchFilters, SearchRequest
from schemas.api_moments import EARLIEST
from schemas.base import MAX_SAFE_INTEGER

pytestmark = pytest.mark.requirement("B1")
NEW_YEAR = 1_767_225_600_000_000


@pytest.mark.parametrize(
    ("value", "micros"),
    [
        ("2026-01-01", NEW_YEAR), ("2026-01-01T00:00:00Z", NEW_YEAR), ("2026-01-01T02:00:00+02:00", NEW_YEAR),
        ("2026-01-01T00:00:00", NEW_YEAR), ("2026-01-01T00:00:00.000001Z", NEW_YEAR + 1), (NEW_YEAR, NEW_YEAR),
        (date(2026, 1, 1), NEW_YEAR), (datetime(2026, 1, 1), NEW_YEAR), (0, 0), ("1970-01-01", 0),
        (EARLIEST, EARLIEST), (MAX_SAFE_INTEGER, MAX_SAFE_INTEGER), (None, None),
    ],
)  # fmt: skip
def test_moments_are_read(value: Any, micros: int | None) -> None:
    for name in ("updated_after", "updated_before", "as_of"):
        found = SearchFilters.model_validate({name: value})
        assert getattr(found, name) == micros
        assert SearchRequest(query="x", filters=found).model_dump(mode="json")["filters"][name] == micros


@pytest.mark.parametrize(
    ("value", "said"),
    [
        (1_767_225_600, "not in microseconds"), (1_767_225_600_000, "not in microseconds"), (1, "not in microseconds"),
        ("1767225600000000", "in quotes"), ("yesterday", "no date or time"), ("2026-13-01", "no date or time"),
        ("", "no date or time"), ("1969-12-31", "between"), ("1973-01-01", "between"), ("9999-12-31", "between"),
        (-1, "greater than or equal to 0"), (MAX_SAFE_INTEGER + 1, "less than or equal to"), (True, "integer"),
        (1.7e15, "integer"), ([], "integer"),
    ],
)  # fmt: skip
def test_what_cannot_have_been_meant_is_refused_with_the_remedy(value: Any, said: str) -> None:
    with pytest.raises(ValidationError) as caught:
        SearchFilters.model_validate({"as_of": value})
    (error,) = caught.value.errors()
    assert error["loc"] == ("as_of",) and said in error["msg"]
    if said in ("not in microseconds", "in quotes", "no date or time"):
        assert "microseconds since 1970 such as 1767225600000000" in error["msg"]


def test_an_interval_is_checked_across_forms() -> None:
    with pytest.raises(ValidationError, match="updated_before must be later"):
        SearchFilters.model_validate({"updated_after": "2026-01-01T01:00:00+01:00", "updated_before": NEW_YEAR})


def test_the_schema_shows_each_form() -> None:
    schema = SearchFilters.model_json_schema()["properties"]["as_of"]
    forms = [(form["type"], form.get("format")) for form in schema["anyOf"]]
    assert forms == [("integer", None), ("string", "date-time"), ("string", "date"), ("null", None)]
    for value in (NEW_YEAR, "2026-01-01", "2026-01-01T00:00:00Z", None):
        jsonschema.validate(value, schema)


@given(
    st.datetimes(datetime(1974, 1, 1), datetime(2250, 1, 1)),
    st.integers(-14 * 60, 14 * 60).map(lambda minutes: timezone(timedelta(minutes=minutes))),
)
def test_every_offset_means_the_same_moment(moment: datetime, zone: timezone) -> None:
    read = {
        SearchFilters.model_validate({"as_of": text}).as_of
        for text in (
            moment.replace(tzinfo=UTC).isoformat(),
            moment.replace(tzinfo=UTC).astimezone(zone).isoformat(),
            moment.isoformat(),
        )
    }
    assert len(read) == 1
    again = SearchFilters.model_validate({"as_of": read.pop()}).as_of
    assert again is not None
    assert datetime(1970, 1, 1) + timedelta(microseconds=again) == moment
