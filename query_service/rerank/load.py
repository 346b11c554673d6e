"""Settings to a reranker. Heavy imports happen inside the functions."""

from __future__ import annotations

from pipeline.observe import Metrics
from pipeline.settings import Settings
from query_service.inference.threads import rerank_threads
from query_service.rerank.interface import Reranker


def load_reranker(settings: Settings, metrics: Metrics) -> Reranker:
    """The configured reranker, ready to score. The default one's files are fetched where they are not here.

    Raises ConfigError where it cannot be used. Not to be called with the backend 'off'.
    """
    from query_service.rerank import files

    chosen, batch = settings.rerank, settings.inference.batch
    if chosen.backend == "endpoint":
        from query_service.rerank.endpoint import EndpointReranker

        return EndpointReranker(chosen, settings.inference, metrics)
    threads = rerank_threads(settings)
    if chosen.backend == "cross-encoder":
        from query_service.rerank.cross_encoder import CrossEncoderReranker

        folder = files.float_folder(settings)
        return CrossEncoderReranker(folder, chosen.model, max_tokens=chosen.max_tokens, threads=threads, batch=batch)
    from query_service.rerank.onnx import OnnxReranker

    folder = files.verified(settings)
    return OnnxReranker(folder, chosen.model, max_tokens=chosen.max_tokens, threads=threads, batch=batch)
