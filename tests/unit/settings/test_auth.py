"""Settings of callers as people write them: in the environment, with mistakes."""

from __future__ import annotations

from pathlib import Path

import pytest

from pipeline.errors import ConfigError
from pipeline.settings import load


@pytest.mark.requirement("E5")
def test_one_audience_or_several(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.chdir(tmp_path)
    assert load().auth.first_audience == "headwater"
    monkeypatch.setenv("HEADWATER_AUTH__AUDIENCE", "search")
    assert load().auth.audience == "search"
    monkeypatch.setenv("HEADWATER_AUTH__AUDIENCE", '["a", "b"]')
    assert load().auth.audience == ("a", "b") and load().auth.first_audience == "a"


@pytest.mark.requirement("E5")
@pytest.mark.parametrize(
    ("variable", "value", "field"),
    [
        ("HEADWATER_AUTH__AUDIENCE", "", "auth.audience"), ("HEADWATER_AUTH__AUDIENCE", '["a", ""]', "auth.audience"),
        ("HEADWATER_AUTH__CORS_ORIGINS", '["*"]', "auth.cors_origins"),
        ("HEADWATER_AUTH__CORS_ORIGINS", '["https://a.example/"]', "auth.cors_origins"),
        ("HEADWATER_AUTH__SERVICE_SECRET", "short", "auth.service_secret"),
        ("HEADWATER_AUTH__LEEWAY_S", "301", "auth.leeway_s"), ("HEADWATER_LIMITS__BURST", "0", "limits.burst"),
    ],
)  # fmt: skip
def test_mistakes_are_named(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, variable: str, value: str, field: str
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv(variable, value)
    with pytest.raises(ConfigError) as caught:
        load()
    assert caught.value.field.startswith(field) and (value == "" or len(value) < 4 or value not in str(caught.value))
