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
        (
            "HEADWATER_SOURCES", '[{"name": "a", "paht": "x"}]', "sources.0.paht",
            ("there is no such setting", "sources.0.path: Field required", "Did you mean path?"),
        ),
        (
            "HEADWATER_SOURCES", '[{"name": "gateway", "path": "x"}]', "sources.0.name",
            ("the change gateway's own source", "Correct it in"),
        ),
        (
            "HEADWATER_SOURCES", '[{"name": "a", "path": "x"}, {"name": "a", "path": "y"}]', "sources.1.name",
            ("named twice in tenant acme",),
        ),
        ("HEADWATER_SOURCES", '{"name": "a", "path": "x"}', "sources", ("Write [[sources]]",)),
        (
            "HEADWATER_SOURCES", '[{"type": "git", "name": "a", "url": "htp:/x y"}]', "sources.0.url",
            ("must be an address", "Correct it in"),
        ),
        ("HEADWATER_SOURCES", '[{"type": "wiki", "name": "a"}]', "sources.0", ("one of folder, mediawiki",)),
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
