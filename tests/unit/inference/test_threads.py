"""The reranker takes the cores that encoders leave."""

from __future__ import annotations

import pytest

from pipeline.settings import EncoderSettings, Settings
from pipeline.settings_query import RerankSettings
from query_service.inference.threads import cores, rerank_threads


@pytest.mark.requirement("D1")
@pytest.mark.parametrize(("available", "expected"), [(1, 1), (2, 1), (4, 1), (6, 3), (8, 5), (64, 8)])
def test_encoders_and_reranker_fit_into_the_cores(available: int, expected: int) -> None:
    assert rerank_threads(Settings(), available) == expected


@pytest.mark.requirement("D1")
def test_a_number_in_the_settings_stands() -> None:
    assert rerank_threads(Settings(rerank=RerankSettings(threads=7)), 2) == 7
    assert rerank_threads(Settings(encoder=EncoderSettings(threads=1)), 4) == 2
    assert cores() >= 1
