"""The gate on retrieval: the golden set on the product as it is, against the stored baseline."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from infra.asking import QueryApi
from infra.endpoints import Endpoints
from infra.golden_run import Run, checkout, questions_of, run
from infra.golden_world import golden_world
from infra.progress import Quiet


@pytest.fixture(scope="module")
def golden(services: Endpoints, cache_dir: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Run]:
    """One run over all questions, on the session's services."""
    paths = checkout()
    _, tenant = questions_of(paths)
    folder = tmp_path_factory.mktemp("golden")
    settings = folder / "empty.toml"
    settings.touch()
    with pytest.MonkeyPatch.context() as patch:
        for name in [name for name in os.environ if name.startswith("HEADWATER_")]:
            patch.delenv(name)
        patch.setenv("HEADWATER_CONFIG", str(settings))
        patch.setenv("HEADWATER_CACHE_DIR", str(cache_dir))
        world = golden_world(services, folder / "world", paths.wiki, tenant=tenant, report=Quiet())
        with world as made, QueryApi(made) as api:
            yield run(api, paths, "hybrid", lambda done, total: None)


@pytest.mark.requirement("C3")
def test_the_gate_passes(golden: Run) -> None:
    assert golden.ok, golden.reasons


@pytest.mark.requirement("C3", "B1")
def test_nobody_sees_what_they_may_not_read(golden: Run) -> None:
    assert golden.report.exposures == ()


@pytest.mark.requirement("C3", "B1")
def test_no_edition_that_was_not_in_effect_is_returned(golden: Run) -> None:
    assert golden.report.wrong_editions == ()


@pytest.mark.requirement("C3")
def test_there_is_a_baseline_to_compare_with(golden: Run) -> None:
    assert golden.comparison is not None
    assert golden.comparison.missing == ()


@pytest.mark.requirement("B2", "C3")
def test_exact_identifiers_come_before_their_twins(golden: Run) -> None:
    assert golden.report.identifier_first == 1.0
