"""Where the reranker's files come from, and that only the pinned ones are used."""

from __future__ import annotations

from pathlib import Path

import pytest

from pipeline.errors import ConfigError
from pipeline.observe import Metrics
from pipeline.settings import Settings
from pipeline.settings_query import RerankSettings
from query_service.rerank import files
from query_service.rerank.load import load_reranker
from query_service.wiring import reranker


def host(tmp_path: Path, **rerank: object) -> Settings:
    return Settings(cache_dir=tmp_path, rerank=RerankSettings.model_validate(rerank))


@pytest.mark.requirement("B4", "A10")
def test_a_file_that_is_not_the_pinned_one_is_refused(tmp_path: Path) -> None:
    settings = host(tmp_path)
    folder = files.cache_folder(settings)
    folder.mkdir(parents=True)
    for name in files.CARRIER.files:
        (folder / name).write_bytes(b"another model")
    with pytest.raises(ConfigError, match=r"rerank\.weights: .*model\.onnx has sha256 .* pinned is 1225ccd6afd0f1b4"):
        load_reranker(settings, Metrics())


@pytest.mark.requirement("B4")
def test_settings_that_cannot_work_name_field_and_remedy(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"rerank\.model: mine is carried by no package\. Set rerank\.weights"):
        files.verified(host(tmp_path, model="mine"))
    with pytest.raises(ConfigError, match=r"rerank\.weights: .* is no folder"):
        files.verified(host(tmp_path, weights=tmp_path / "nowhere"))
    for url in (None, "host:8080", "ftp://host"):
        with pytest.raises(ConfigError, match=r"rerank\.url: .* needs the address"):
            load_reranker(host(tmp_path, backend="endpoint", url=url), Metrics())


@pytest.mark.requirement("B12")
def test_what_is_off_or_behind_a_server_fetches_nothing(tmp_path: Path) -> None:
    assert reranker(host(tmp_path, backend="off"), Metrics()) is None
    assert not any(files.needed(host(tmp_path, backend=backend)) for backend in ("off", "endpoint"))
    assert not files.needed(host(tmp_path, weights=tmp_path))
    load = reranker(host(tmp_path, backend="endpoint", url="http://host:8080", model="m"), Metrics())
    assert load is not None
    made = load()
    assert made.name == "m" and list(tmp_path.iterdir()) == []
    made.close()


def test_a_folder_of_your_own_is_taken_as_it_is(tmp_path: Path) -> None:
    assert files.verified(host(tmp_path, model="mine", weights=tmp_path)) == tmp_path
