"""One trial per machine: its outcome is kept, and a damaged or foreign one is not used."""

from __future__ import annotations

from pathlib import Path

import pytest

from pipeline.embed import remembered
from pipeline.settings import EncoderSettings, Settings
from schemas.generation import BackendChoice, EncoderSpec


@pytest.mark.requirement("D3")
def test_a_trial_is_made_once_and_again_when_its_ground_changes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made: list[str] = []

    def trial(spec: EncoderSpec, settings: Settings) -> BackendChoice:
        made.append(settings.encoder.backend)
        return BackendChoice(name="torch-fp32", agreement=1.0, chunks_per_second=10)

    monkeypatch.setattr(remembered, "tried_apart", trial)
    settings = Settings(cache_dir=tmp_path)
    first = remembered.remembered_backend(EncoderSpec(), settings)
    assert remembered.remembered_backend(EncoderSpec(), settings) == first
    assert made == ["auto"]
    other = settings.model_copy(update={"encoder": EncoderSettings(backend="torch-bf16")})
    remembered.remembered_backend(EncoderSpec(), other)
    remembered.remembered_backend(EncoderSpec(pooling="cls"), settings)
    assert made == ["auto", "torch-bf16", "auto"]
    for file in (tmp_path / "models").glob("trial-*.json"):
        file.write_text("{broken")
    remembered.remembered_backend(EncoderSpec(), settings)
    assert len(made) == 4
