"""Fixtures of the tests of query expansion."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from pydantic import SecretStr

from pipeline.observe import Metrics
from pipeline.settings_query import GeneratorSettings, InferenceSettings
from query_service.app import Dependencies
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


class ThinkingWorld(World):
    """A world whose service has a generator."""

    thinks: Any = None

    def dependencies(self) -> Dependencies:
        return replace(super().dependencies(), generator=self.thinks)


@pytest.fixture
def thinking(tmp_path: Path, generator: Callable[[ScriptedModel], OpenAiGenerator]) -> Callable[..., ThinkingWorld]:
    """A world on a script; without one, without a generator. Two people: ann, and bob who may read more."""

    def make(model: ScriptedModel | None = None, **settings: Any) -> ThinkingWorld:
        made = ThinkingWorld(tmp_path)
        made.settings = made.settings.model_copy(
            update={"expansion": made.settings.expansion.model_copy(update=settings)}
        )
        made.thinks = generator(model) if model is not None else None
        made.principal("user:ann", "group:wiki/eng")
        made.principal("group:wiki/eng")
        made.principal("user:bob")
        return made

    return make
