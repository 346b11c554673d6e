"""Wrong settings are named, with a remedy that works."""

from __future__ import annotations

from pathlib import Path

import pytest

from pipeline.errors import ConfigError
from pipeline.settings import load


@pytest.mark.requirement("E5")
@pytest.mark.parametrize(
    ("variable", "value", "field", "words"),
    [
        ("HEADWATER_QUERY__PRT", "1", "query.prt", ("there is no such setting", "unset HEADWATER_QUERY__PRT")),
        ("HEADWATER_QUERY__PORT", "99999", "query.port", ("by HEADWATER_QUERY__PORT",)),
        (
            "HEADWATER_SOURCES", '[{"name": "", "path": "x"}]', "sources.0.name", ("as JSON in HEADWATER_SOURCES.",),
        ),
    ],
)  # fmt: skip
def test_the_remedy_names_what_to_change(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, variable: str, value: str, field: str, words: tuple[str, ...]
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv(variable, value)
    with pytest.raises(ConfigError) as caught:
        load()
    assert caught.value.field == field
    for word in words:
        assert word in str(caught.value)
