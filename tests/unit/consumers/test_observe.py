"""The closed list of metrics, logging, and the health pages."""

from __future__ import annotations

import io
import json
import logging
import re
from pathlib import Path

import pytest

from pipeline.observe import METRICS, JsonFormatter, Metrics

ROOT = Path(__file__).parents[3]


@pytest.mark.requirement("A11")
def test_every_name_is_told_with_its_meaning_and_can_be_recorded() -> None:
    observed = Metrics()
    for name, metric in METRICS.items():
        labels = dict.fromkeys(metric.labels, "x")
        record = {"counter": observed.count, "gauge": observed.set, "histogram": observed.observe}[metric.kind]
        record(name, 1, **labels)
        assert metric.meaning.endswith(".") and name.startswith("headwater_")
        assert metric.kind != "counter" or name.endswith("_total")
    text = observed.render().decode()
    assert all(f"# HELP {name}" in text for name in METRICS)


def test_an_unknown_name_or_kind_is_an_error() -> None:
    observed = Metrics()
    with pytest.raises(KeyError, match="METRICS"):
        observed.count("headwater_made_up_total")
    with pytest.raises(KeyError):
        observed.set("headwater_retries_total", 1, lane="a", kind="b")
    with pytest.raises(ValueError, match="label"):
        observed.count("headwater_retries_total", lane="a")


def test_names_used_in_the_code_are_on_the_list() -> None:
    used: dict[str, str] = {}
    for package in ("pipeline", "consumers", "query_service", "dagster_project", "infra"):
        for path in (ROOT / package).rglob("*.py"):
            for name in re.findall(r'\.(?:count|observe|set|value)\(\s*"(headwater_\w+)"', path.read_text()):
                used.setdefault(name, str(path.relative_to(ROOT)))
    assert "headwater_retries_total" in used
    assert {name: where for name, where in used.items() if name not in METRICS} == {}


def test_a_log_line_is_one_line_of_json_with_its_fields() -> None:
    stream = io.StringIO()
    handler = logging.StreamHandler(stream)
    handler.setFormatter(JsonFormatter("access"))
    logger = logging.Logger("test")
    logger.addHandler(handler)
    try:
        raise ValueError("two\nlines")
    except ValueError:
        logger.error("broken: %s", "é\n", exc_info=True, extra={"fields": {"offset": 7, "level": "forged"}})
    (line,) = stream.getvalue().splitlines()
    found = json.loads(line)
    assert found["level"] == "error" and found["offset"] == 7 and found["process"] == "access"
    assert "ValueError" in found["exception"] and found["message"] == "broken: é\n"
