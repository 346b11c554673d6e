"""The parts of answering, wired together."""

from __future__ import annotations

from dataclasses import dataclass

from pipeline.clock import Clock
from pipeline.observe import Metrics
from pipeline.settings import Settings
from query_service.answer.cached import KeptAnswers
from query_service.answer.extractive import ExtractiveWriter
from query_service.answer.generated import GeneratedWriter
from query_service.answer.orders import WaryChecker
from query_service.answer.service import AnswerService, Parts
from query_service.answer.spending import MeteredGenerator, Spending
from query_service.encoders import Encoders
from query_service.generate.interface import Generator
from query_service.querylog.log import QueryLog
from query_service.querylog.service import LoggedService
from query_service.rerank.interface import Reranking
from query_service.state import ServiceState
from query_service.support.build import build_checker


def metered(
    generator: Generator | None, settings: Settings, querylog: QueryLog, clock: Clock, metrics: Metrics
) -> Generator | None:
    """The generator under the limits of requests and tenants, for whatever it is used."""
    if generator is None:
        return None

    def logged(tenant: str, since: int) -> tuple[float, int]:
        view = querylog.view
        return view.spent(tenant, since) if view is not None else (0.0, 0)

    return MeteredGenerator(generator, settings.generator, Spending(settings.limits, clock, logged, metrics))


@dataclass(frozen=True)
class Models:
    """What answering shares with searching."""

    encoders: Encoders
    state: ServiceState
    reranking: Reranking | None
    generator: Generator | None


def answering(
    settings: Settings, service: LoggedService, models: Models, kept: KeptAnswers | None, clock: Clock,
    metrics: Metrics,
) -> AnswerService:  # fmt: skip
    """Raises ConfigError for a checker that cannot be made."""
    generator, state = models.generator, models.state
    parts = Parts(
        checker=WaryChecker(
            build_checker(
                settings.support, encoders=models.encoders, generation=state.generation, reranking=models.reranking,
                generator=generator, metrics=metrics,
            )
        ),
        extractive=ExtractiveWriter(models.encoders, models.reranking, state.generation, settings.answer.sentences),
        generated=GeneratedWriter(generator, settings) if generator is not None else None,
        generator=generator,
        kept=kept,
    )  # fmt: skip
    return AnswerService(service, parts, settings.answer, settings.generator, clock, metrics)
