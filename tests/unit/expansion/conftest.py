"""Fixtures of the tests of query expansion."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from pydantic import SecretStr

from pipeline.observe import Metrics
from pipeline.settings_query import GeneratorSettings, InferenceSettings
from query_service.generate.openai_server import OpenAiGenerator
from tests.fakes.llm import KEY, ScriptedModel
from tests.unit.query.world import World


@pytest.fixture
def anyio_backend() -> str:
    """Coroutine tests run on asyncio."""
    return "asyncio"


@pytest.fixture
def generator() -> Callable[[ScriptedModel], OpenAiGenerator]:
    """The real generator on a script."""

    def make(model: ScriptedModel) -> OpenAiGenerator:
        settings = GeneratorSettings(url="http://llm.test/v1", api_key=SecretStr(KEY), attempts=1)
        return OpenAiGenerator(settings, InferenceSettings(), Metrics(), http_client=model.client())

    return make


@pytest.fixture
def world(tmp_path: Path) -> World:
    """An empty world with one active generation."""
    return World(tmp_path)
