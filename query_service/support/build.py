"""Settings to a ``Checker``. Heavy imports happen inside the functions."""

from __future__ import annotations

from collections.abc import Callable

from pipeline.errors import ConfigError, HeadwaterError
from pipeline.observe import Metrics
from pipeline.ports import Vectors
from pipeline.settings_query import SupportSettings
from query_service.encoders import Encoders
from query_service.generate.interface import Generator
from query_service.rerank.interface import Reranking
from query_service.support.checker import Embed, Judge, MeasuredChecker
from schemas.generation import Generation


def build_checker(
    settings: SupportSettings,
    *,
    encoders: Encoders | None = None,
    generation: Callable[[], Generation | None] = lambda: None,
    reranking: Reranking | None = None,
    generator: Generator | None = None,
    metrics: Metrics | None = None,
) -> MeasuredChecker:
    """The configured checker. ``generation`` gives the one that answers now, None while there is none.

    Raises ConfigError where the backend lacks what it needs. With 'nli' the model is loaded here.
    """
    embed = _embedding(encoders, generation) if encoders is not None else None
    return MeasuredChecker(
        settings.threshold, embed=embed, reranking=reranking, judge=_judge(settings, generator), metrics=metrics
    )


def _judge(settings: SupportSettings, generator: Generator | None) -> Judge | None:
    from query_service.support.judges import EntailmentJudge, GeneratorJudge

    if settings.backend == "nli":
        from query_service.rerank.entailment import EntailmentModel

        if settings.weights is None:
            raise ConfigError("support.weights", "is not set", "Name the folder of an NLI cross-encoder.")
        return EntailmentJudge(EntailmentModel(settings.weights))
    if settings.backend == "generator":
        if generator is None:
            raise ConfigError(
                "support.backend", "'generator' without a generator", "Set generator.url, or the backend to 'measures'."
            )
        return GeneratorJudge(generator)
    return None


def _embedding(encoders: Encoders, generation: Callable[[], Generation | None]) -> Embed:
    async def embed(text: str) -> Vectors | None:
        serving = generation()
        # An encoder that is not loaded yet would hold the answer up.
        if serving is None or not encoders.warm(serving):
            return None
        try:
            return await encoders.embed_passage(serving, text)
        except HeadwaterError:
            return None

    return embed
