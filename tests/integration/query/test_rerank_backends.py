"""One suite for every backend of reranking, on the real model: onnxruntime, sentence-transformers, a server."""

from __future__ import annotations

import importlib.util
import logging
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest
from pydantic import SecretStr

from pipeline.errors import ConfigError
from pipeline.observe import Metrics
from pipeline.settings import Settings
from pipeline.settings_query import InferenceSettings, RerankSettings
from query_service.rerank import files
from query_service.rerank.endpoint import EndpointReranker
from query_service.rerank.interface import Reranker, RerankerUnavailable
from query_service.rerank.load import load_reranker
from tests.integration.query.rerank_server import KEY, RerankServer

QUERY = "How many people live in Berlin?"
PASSAGES = [
    "Berlin had a population of 3,520,031 registered inhabitants in an area of 891.82 square kilometers.",
    "New York City is famous for the Metropolitan Museum of Art.",
    "Berlin is well known for its museums.",
]
LOGITS = [9.4, -11.2, -4.5]  # of the published model
CALM = InferenceSettings(failures=1000)
_MADE: list[EndpointReranker] = []  # closed with the server's fixtures


@pytest.fixture(scope="module")
def host(cache_dir: Path) -> Settings:
    settings = Settings(cache_dir=cache_dir)
    try:
        files.verified(settings)
    except ConfigError as error:
        pytest.skip(str(error))
    return settings


@pytest.fixture(scope="module")
def onnx(host: Settings) -> Reranker:
    return load_reranker(host, Metrics())


@pytest.fixture(scope="module")
def one_server(onnx: Reranker) -> Iterator[RerankServer]:
    with RerankServer(onnx).running() as server:
        yield server
        for made in _MADE:
            made.close()


@pytest.fixture
def server(one_server: RerankServer) -> Iterator[RerankServer]:
    one_server.reset()
    before = len(_MADE)
    yield one_server
    for made in _MADE[before:]:
        made.close()


def endpoint(server: RerankServer, inference: InferenceSettings = CALM, **changed: object) -> EndpointReranker:
    settings = RerankSettings.model_validate(
        {"backend": "endpoint", "url": server.url, "api_key": SecretStr(KEY), "timeout_s": 2.0, **changed}
    )
    _MADE.append(EndpointReranker(settings, inference, Metrics()))
    return _MADE[-1]


@pytest.fixture(scope="module", params=["onnx", "cross-encoder", "tei", "cohere"])
def backend(request: pytest.FixtureRequest, host: Settings, onnx: Reranker, one_server: RerankServer) -> Reranker:
    one_server.reset()
    if request.param == "onnx":
        return onnx
    if request.param == "tei":
        return endpoint(one_server)
    if request.param == "cohere":
        return endpoint(one_server, url=f"{one_server.url}/v1", style="cohere")
    if importlib.util.find_spec("sentence_transformers") is None:
        pytest.skip("sentence-transformers is not installed (extra 'rerankers')")
    rerank = RerankSettings(backend="cross-encoder")
    return load_reranker(host.model_copy(update={"rerank": rerank}), Metrics())


@pytest.mark.requirement("B4", "B12")
def test_the_published_example_has_the_published_scores(backend: Reranker) -> None:
    found = backend.score(QUERY, PASSAGES)
    assert found.shape == (3,) and found.dtype == np.float32
    assert found[0] > found[2] > found[1]
    if found.max() > 1:  # that server answers with shares of 1
        np.testing.assert_allclose(found, LOGITS, atol=0.6)


@pytest.mark.requirement("B4", "B12")
def test_scores_belong_to_their_passages_in_any_order(backend: Reranker) -> None:
    found = backend.score(QUERY, PASSAGES)
    np.testing.assert_allclose(backend.score(QUERY, PASSAGES[::-1]), found[::-1], atol=1e-3)
    assert backend.score(QUERY, []).shape == (0,)


@pytest.mark.requirement("B4")
def test_long_texts_are_cut_and_the_passage_alone_is(backend: Reranker) -> None:
    long = backend.score(QUERY, [PASSAGES[0] + " Then it rained." * 500, PASSAGES[1]])
    assert np.isfinite(long).all() and long[0] > long[1], "the passage's beginning was read, and the query"
    vast = backend.score("How many people live in Berlin? " * 300, PASSAGES[:2])
    assert np.isfinite(vast).all() and vast[0] > vast[1], "a query longer than a pair leaves room for the passage"


@pytest.mark.requirement("B4", "D1")
def test_threads_share_a_backend(backend: Reranker) -> None:
    expected = backend.score(QUERY, PASSAGES)
    with ThreadPoolExecutor(4) as pool:
        for found in pool.map(lambda _: backend.score(QUERY, PASSAGES), range(8)):
            np.testing.assert_allclose(found, expected, atol=1e-3)


@pytest.mark.requirement("B4", "I1")
def test_what_others_ask_in_the_same_call_moves_no_score(onnx: Reranker) -> None:
    alone = onnx.score(QUERY, PASSAGES[2:])
    beside = onnx.score(QUERY, [PASSAGES[2], "zebra !!! 8829 $$$ " * 60])
    assert beside[0] == alone[0]


# ---------------------------------------------------------------- servers


@pytest.mark.requirement("B12")
def test_what_is_sent(server: RerankServer) -> None:
    endpoint(server).score(QUERY, PASSAGES)
    endpoint(server, url=f"{server.url}/v1/", style="cohere", model="m").score(QUERY, PASSAGES)
    tei, cohere = server.requests
    bearer = {"authorization": f"Bearer {KEY}"}
    assert tei == {"query": QUERY, "texts": PASSAGES, "truncate": True, "raw_scores": True, **bearer}
    assert cohere == {"model": "m", "query": QUERY, "documents": PASSAGES, "top_n": 3, **bearer}


@pytest.mark.requirement("B12")
def test_many_passages_are_sent_in_requests_that_a_server_takes(server: RerankServer) -> None:
    reranker = endpoint(server, InferenceSettings(batch=2))
    assert reranker.score(QUERY, PASSAGES).argmax() == 0
    assert sorted(len(request["texts"]) for request in server.requests) == [1, 2]
    assert len(server.connections) == 1, "the connection is kept"


@pytest.mark.requirement("B12")
@pytest.mark.parametrize("fault", ["503", "429", "500", "garbage", "missing", "twice", "nan"])
def test_a_passing_failure_is_repeated_once(server: RerankServer, fault: str) -> None:
    server.faults.append(fault)
    np.testing.assert_allclose(endpoint(server).score(QUERY, PASSAGES), LOGITS, atol=0.6)
    assert len(server.requests) == 2


@pytest.mark.requirement("B12")
@pytest.mark.parametrize(
    ("fault", "requests"),
    [
        ("503", 2), ("garbage", 2), ("missing", 2), ("twice", 2), ("beyond", 2), ("nan", 2), ("vast", 2), ("words", 2),
        ("object", 2), ("huge", 1), ("401", 1), ("404", 1), ("422", 1), ("302", 1),
    ],
)  # fmt: skip
def test_no_answer_that_is_not_whole_becomes_scores(
    server: RerankServer, fault: str, requests: int, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    server.always = fault
    with pytest.raises(RerankerUnavailable) as caught:
        endpoint(server).score(QUERY, PASSAGES)
    assert len(server.requests) == requests
    told = f"{caught.value} {caplog.text}"
    assert KEY not in told and "Berlin" not in told


@pytest.mark.requirement("B12")
def test_a_server_that_hangs_costs_the_timeout_once(server: RerankServer) -> None:
    server.always = "hang"
    began = time.monotonic()
    with pytest.raises(RerankerUnavailable, match="no answer"):
        endpoint(server, timeout_s=0.3).score(QUERY, PASSAGES)
    assert time.monotonic() - began < 1.5


@pytest.mark.requirement("B12")
def test_a_failing_server_is_left_alone_then_asked_by_one(server: RerankServer) -> None:
    reranker = endpoint(server, InferenceSettings(failures=2, cool_s=0.2))
    server.always = "401"
    for _ in range(2):
        with pytest.raises(RerankerUnavailable, match="status 401"):
            reranker.score(QUERY, PASSAGES)
    with pytest.raises(RerankerUnavailable, match="left alone"):
        reranker.score(QUERY, PASSAGES)
    assert len(server.requests) == 2
    server.always = ""
    bound = time.monotonic() + 5
    while True:
        try:
            assert reranker.score(QUERY, PASSAGES).argmax() == 0
            break
        except RerankerUnavailable:
            assert time.monotonic() < bound
            threading.Event().wait(0.02)
    assert len(server.requests) == 3


@pytest.mark.requirement("B12")
def test_input_that_a_server_refuses_shuts_it_for_nobody(server: RerankServer) -> None:
    reranker = endpoint(server, InferenceSettings(failures=1, cool_s=60))
    server.faults.extend(["422", "413"])
    for _ in range(2):
        with pytest.raises(RerankerUnavailable, match="refuses the request"):
            reranker.score(QUERY, PASSAGES)
    assert reranker.score(QUERY, PASSAGES).argmax() == 0


@pytest.mark.requirement("B12")
def test_nobody_listens(server: RerankServer) -> None:
    with pytest.raises(RerankerUnavailable, match="no answer"):
        endpoint(server, url="http://127.0.0.1:9").score(QUERY, PASSAGES)
