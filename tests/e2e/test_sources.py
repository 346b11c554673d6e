"""Real source systems through the whole product: the life of documents, groups and rights, as searches show them."""

from __future__ import annotations

from pathlib import Path

import pytest

from infra.endpoints import Endpoints
from infra.progress import Quiet
from infra.sources_check.run import Outcome, check
from infra.sources_check.systems import systems

NAMES = ("mediawiki", "redmine", "git", "s3", "outbox", "topic")


@pytest.fixture(scope="module")
def outcomes(services: Endpoints, cache_dir: Path, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Outcome]:
    """All of them are played in one running product."""
    folder = tmp_path_factory.mktemp("sources")
    found = check(systems(cache_dir, services), services, folder, Quiet())
    return {outcome.source: outcome for outcome in found}


@pytest.mark.timeout(1500)
@pytest.mark.requirement("A1", "A7", "A8", "F01", "F02", "F03", "F04", "F08", "F09", "F23", "F25", "F26")
@pytest.mark.parametrize("name", NAMES)
def test_what_is_done_at_a_source_shows_in_searches(outcomes: dict[str, Outcome], name: str) -> None:
    outcome = outcomes[name]
    if outcome.skipped is not None:
        pytest.skip(f"not proven: {outcome.skipped}")
    assert outcome.failed == []
    assert outcome.passed == outcome.steps > 0


@pytest.mark.requirement("A8", "B1")
@pytest.mark.parametrize("name", ["mediawiki", "redmine"])
def test_everybody_reads_exactly_what_the_server_lets_them_read(outcomes: dict[str, Outcome], name: str) -> None:
    outcome = outcomes[name]
    if outcome.skipped is not None:
        pytest.skip(f"not proven: {outcome.skipped}")
    assert outcome.access_checked >= 30 and outcome.access_wrong == 0
