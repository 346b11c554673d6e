"""Embedding endpoints over real HTTP: MiniLM's own vectors by both formats, and everything that can go wrong."""

from __future__ import annotations

import logging
import socket
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Literal

import numpy as np
import pytest

from pipeline.embed import load_encoder, load_faithful, reference_vectors
from pipeline.embed.catalogue import served
from pipeline.embed.endpoint import EndpointEncoder, load_endpoint, try_endpoint
from pipeline.embed.tokens import EncoderTokens, EstimatedTokens, token_counter
from pipeline.embed.weights import find_model
from pipeline.errors import ConfigError, DocumentError, EncoderUnavailable
from pipeline.observe import metrics
from pipeline.ports import Embedder, Vectors
from pipeline.settings import EndpointSettings, Settings
from schemas.generation import BackendChoice, EncoderSpec
from tests.integration.embed.embedding_server import KEY, POISON, Behaviour, EmbeddingServer

TEXTS = [
    "Meals are refunded against receipts.",
    "Rotate an access key under Settings, Security.",
    "The gateway answered 504.",
    "Die Kündigungsfrist beträgt drei Monate.",
    "a",
    "ERR_CONNECTION_TIMED_OUT is shown when no answer came within thirty seconds; check the proxy first. " * 4,
    "The cold room in Trondheim is booked.",
]
Provider = Literal["openai", "tei"]
WIRES: tuple[Provider, ...] = ("openai", "tei")
LOCAL = BackendChoice(name="openvino-fp32", agreement=1.0)
ENDPOINT = BackendChoice(name="endpoint", agreement=1.0)


@pytest.fixture(scope="module")
def local(cache_dir: Path) -> Embedder:
    settings = Settings(cache_dir=cache_dir)
    try:
        find_model(EncoderSpec(), settings)
    except ConfigError as error:
        pytest.skip(str(error))
    return load_encoder(EncoderSpec(), LOCAL, settings, threads=1)


@pytest.fixture(scope="module")
def one_server(local: Embedder) -> Iterator[EmbeddingServer]:
    with EmbeddingServer(local).running() as server:
        yield server


@pytest.fixture
def server(one_server: EmbeddingServer) -> EmbeddingServer:
    one_server.behaviour = Behaviour()
    return one_server


def settings_of(server: EmbeddingServer, cache_dir: Path, provider: Provider, **changes: object) -> Settings:
    url = f"{server.url}/v1" if provider == "openai" else server.url
    values = {"url": url, "api_key": KEY, "batch": 3, "timeout_s": 2.0, "price_per_million_tokens": 20.0, **changes}
    return Settings(cache_dir=cache_dir, endpoints={"here": EndpointSettings.model_validate(values)})


@pytest.fixture(params=WIRES)
def provider(request: pytest.FixtureRequest) -> Provider:
    found: Provider = request.param
    return found


@pytest.fixture
def encoder(server: EmbeddingServer, cache_dir: Path, provider: Provider) -> Iterator[EndpointEncoder]:
    made = load_endpoint(served("minilm", provider, "here"), settings_of(server, cache_dir, provider))
    server.behaviour.requests.clear()
    yield made
    made.close()


@pytest.mark.requirement("A10", "B12")
def test_vectors_are_the_model_s_in_the_order_of_the_texts_whatever_the_batches(
    encoder: EndpointEncoder, server: EmbeddingServer, local: Embedder
) -> None:
    vectors = encoder.embed_documents(TEXTS)
    np.testing.assert_allclose(vectors, local.embed_documents(TEXTS), atol=2e-3)
    assert [len(texts) for texts in server.behaviour.requests] == [3, 3, 1]
    np.testing.assert_allclose(encoder.embed_query(TEXTS[1]), local.embed_query(TEXTS[1]), atol=2e-3)
    assert encoder.embed_documents([]).shape == (0, 384)


@pytest.mark.requirement("B12")
def test_batches_end_by_tokens_too(server: EmbeddingServer, cache_dir: Path, provider: Provider) -> None:
    settings = settings_of(server, cache_dir, provider, batch=32, batch_tokens=120)
    encoder = load_endpoint(served("minilm", provider, "here"), settings)
    server.behaviour.requests.clear()
    encoder.embed_documents(TEXTS)
    counter = token_counter(encoder.spec, settings)
    assert isinstance(counter, EncoderTokens)
    sums = [sum(counter.count(text) for text in texts) for texts in server.behaviour.requests]
    assert len(sums) > 1 and max(sums) <= 120


@pytest.mark.requirement("E6")
def test_tokens_and_money_are_counted(encoder: EndpointEncoder) -> None:
    before = metrics().value("headwater_embed_tokens_total", endpoint="here")
    money = metrics().value("headwater_embed_cost_total", endpoint="here", currency="EUR")
    asked = encoder.usage
    encoder.embed_documents(TEXTS)
    assert encoder.usage.requests - asked.requests == 3
    assert encoder.usage.texts - asked.texts == len(TEXTS)
    assert encoder.usage.tokens - asked.tokens == 7 * len(TEXTS)
    assert encoder.usage.cost - asked.cost == pytest.approx(7 * len(TEXTS) * 20 / 1e6)
    assert metrics().value("headwater_embed_tokens_total", endpoint="here") - before == 7 * len(TEXTS)
    spent = metrics().value("headwater_embed_cost_total", endpoint="here", currency="EUR") - money
    assert spent == pytest.approx(7 * len(TEXTS) * 20 / 1e6)


@pytest.mark.requirement("I8", "F18")
def test_what_passes_by_itself_is_asked_again(
    encoder: EndpointEncoder, server: EmbeddingServer, local: Embedder
) -> None:
    server.behaviour.next.extend(["503", "half", "429"])
    vectors = encoder.embed_documents(TEXTS[:3])
    np.testing.assert_allclose(vectors, local.embed_documents(TEXTS[:3]), atol=2e-3)
    assert encoder.usage.repeated == 3
    assert server.behaviour.times[-1] - server.behaviour.times[-2] >= 1.0  # Retry-After


@pytest.mark.requirement("I8")
@pytest.mark.parametrize("how", ["503", "half", "notjson", "slow"])
def test_an_outage_is_no_document_s_fault(
    how: str, server: EmbeddingServer, cache_dir: Path, provider: Provider
) -> None:
    settings = settings_of(server, cache_dir, provider, attempts=2, timeout_s=0.5 if how == "slow" else 2.0)
    encoder = load_endpoint(served("minilm", provider, "here"), settings)
    server.behaviour.always = how
    with pytest.raises(EncoderUnavailable, match="endpoint here"):
        encoder.embed_documents(TEXTS[:3])
    assert encoder.usage.repeated == 1


@pytest.mark.requirement("I8")
def test_nobody_there_is_an_outage(cache_dir: Path, server: EmbeddingServer, provider: Provider) -> None:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    settings = settings_of(server, cache_dir, provider, attempts=1, url=f"http://127.0.0.1:{port}")
    with pytest.raises(EncoderUnavailable, match="no answer"):
        load_endpoint(served("minilm", provider, "here"), settings)


@pytest.mark.requirement("A10", "I8")
def test_one_poisonous_text_is_named_and_its_neighbours_pass(
    encoder: EndpointEncoder, local: Embedder, caplog: pytest.LogCaptureFixture
) -> None:
    texts = [*TEXTS[:4], f"secret passage {POISON}", *TEXTS[5:]]
    with caplog.at_level(logging.DEBUG), pytest.raises(DocumentError, match="text 4: the endpoint refuses") as caught:
        encoder.embed_documents(texts)
    assert (caught.value.stage, caught.value.kind) == ("embed", "refused")
    assert "secret passage" not in caught.value.reason
    rest = [text for text in texts if POISON not in text]
    np.testing.assert_allclose(encoder.embed_documents(rest), local.embed_documents(rest), atol=2e-3)


@pytest.mark.requirement("I8")
def test_an_endpoint_that_refuses_every_text_blames_no_document(
    encoder: EndpointEncoder, server: EmbeddingServer
) -> None:
    server.behaviour.always = "422"
    with pytest.raises(ConfigError, match="refuses every text") as caught:
        encoder.embed_documents(TEXTS[:3])
    assert caught.value.field == "endpoints.here"


@pytest.mark.requirement("B12")
def test_a_server_that_takes_smaller_batches_is_given_smaller_ones(
    encoder: EndpointEncoder, server: EmbeddingServer, local: Embedder
) -> None:
    server.behaviour.max_batch = 1
    np.testing.assert_allclose(encoder.embed_documents(TEXTS), local.embed_documents(TEXTS), atol=2e-3)


@pytest.mark.requirement("F18", "A10")
@pytest.mark.parametrize(("how", "field"), [("dimension", "encoder.dimension"), ("long", "encoder.normalize")])
def test_vectors_of_another_kind_are_refused(
    how: str, field: str, encoder: EndpointEncoder, server: EmbeddingServer
) -> None:
    server.behaviour.always = how
    with pytest.raises(ConfigError) as caught:
        encoder.embed_documents(TEXTS[:2])
    assert caught.value.field == field and "here" in caught.value.problem


@pytest.mark.requirement("F18")
def test_a_text_without_a_finite_vector_is_to_blame_only_if_a_plain_one_has_one(
    encoder: EndpointEncoder, server: EmbeddingServer
) -> None:
    server.behaviour.next.extend(["nan", "nan", "well"])  # twice for the text, well for the plain one
    with pytest.raises(DocumentError, match=r"text 0: .*finite"):
        encoder.embed_documents(TEXTS[:1])
    server.behaviour.always = "nan"
    with pytest.raises(ConfigError, match="refuses every text"):
        encoder.embed_documents(TEXTS[:1])


@pytest.mark.requirement("F18")
def test_an_answer_whose_indexes_do_not_fit_is_not_used(server: EmbeddingServer, cache_dir: Path) -> None:
    encoder = load_endpoint(served("minilm", "openai", "here"), settings_of(server, cache_dir, "openai", attempts=1))
    server.behaviour.always = "index"
    with pytest.raises(EncoderUnavailable, match="or for others"):
        encoder.embed_documents(TEXTS[:2])


@pytest.mark.requirement("F18", "A10")
def test_another_model_is_refused_at_the_start_and_when_it_comes_later(
    encoder: EndpointEncoder, server: EmbeddingServer, cache_dir: Path, provider: Provider
) -> None:
    server.behaviour.model = "BAAI/bge-small-en-v1.5"
    server.behaviour.next.append("503")  # it was restarted with another model
    with pytest.raises(ConfigError, match=r"serves BAAI/bge-small-en-v1\.5") as caught:
        encoder.embed_documents(TEXTS[:1])
    assert caught.value.field == "encoder.model"
    with pytest.raises(ConfigError, match="serves BAAI"):
        load_endpoint(encoder.spec, settings_of(server, cache_dir, provider))


@pytest.mark.requirement("A4", "F18")
def test_a_server_that_reads_less_or_serves_another_revision_is_refused(
    server: EmbeddingServer, cache_dir: Path
) -> None:
    spec = served("minilm", "tei", "here")
    settings = settings_of(server, cache_dir, "tei")
    server.behaviour.max_input_length = 128
    with pytest.raises(ConfigError, match="reads 128 tokens, the generation says 256"):
        load_endpoint(spec, settings)
    server.behaviour.max_input_length = 512
    server.behaviour.revision = "aaaa"
    with pytest.raises(ConfigError, match="serves revision aaaa"):
        load_endpoint(spec.model_copy(update={"revision": "bbbb"}), settings)


@pytest.mark.requirement("A4")
def test_nothing_is_truncated_and_a_query_is_cut(encoder: EndpointEncoder, server: EmbeddingServer) -> None:
    long = "word " * 300
    with pytest.raises(DocumentError, match="text 1 has 302 tokens"):
        encoder.embed_documents(["fine", long])
    assert server.behaviour.requests == []
    assert encoder.embed_query(long).shape == (1, 384)
    assert len(server.behaviour.requests[0][0].split()) == 254


@pytest.mark.requirement("I8")
def test_a_live_query_does_not_wait_like_a_document(
    server: EmbeddingServer, cache_dir: Path, provider: Provider
) -> None:
    settings = settings_of(server, cache_dir, provider, query_timeout_s=0.4, timeout_s=30)
    encoder = load_endpoint(served("minilm", provider, "here"), settings)
    server.behaviour.always = "slow"
    started = time.monotonic()
    with pytest.raises(EncoderUnavailable):
        encoder.embed_query("now")
    assert time.monotonic() - started < 2.5  # the server takes 3 s


@pytest.mark.requirement("B12")
def test_texts_follow_no_redirect(encoder: EndpointEncoder, server: EmbeddingServer) -> None:
    server.behaviour.next.append("307")
    with pytest.raises(ConfigError, match="307"):
        encoder.embed_documents(["a text of ours"])
    assert len(server.behaviour.requests) == 1, "nothing was sent again"


@pytest.mark.requirement("C3")
def test_the_key_is_never_shown(
    server: EmbeddingServer, cache_dir: Path, provider: Provider, caplog: pytest.LogCaptureFixture
) -> None:
    wrong = "sk-wrong-key-77aa"
    with caplog.at_level(logging.DEBUG), pytest.raises(ConfigError, match="status 401") as caught:
        load_endpoint(served("minilm", provider, "here"), settings_of(server, cache_dir, provider, api_key=wrong))
    shown = str(caught.value) + caplog.text + str(settings_of(server, cache_dir, provider, api_key=wrong))
    assert wrong not in shown and "***" in str(caught.value)


@pytest.mark.requirement("A10", "F18")
def test_the_record_tells_a_server_with_other_weights_under_the_same_name(
    server: EmbeddingServer, cache_dir: Path, local: Embedder, provider: Provider
) -> None:
    settings = settings_of(server, cache_dir, provider, batch=16)
    spec = served("minilm", provider, "here")
    choice = try_endpoint(spec, settings)
    assert choice.name == "endpoint" and choice.agreement >= 0.999 and choice.chunks_per_second > 0
    record = reference_vectors(spec, choice, settings)
    assert load_faithful(spec, choice, record, settings).spec == spec
    server.encoder = _Turned(local)
    try:
        with pytest.raises(ConfigError, match="endpoint does not make the vectors") as caught:
            load_faithful(spec, choice, record, settings)
    finally:
        server.encoder = local
    assert "here" in caught.value.remedy


class _Turned:
    """The same model in another basis: dimension and lengths are right, everything else is wrong."""

    def __init__(self, inner: Embedder) -> None:
        self.spec, self.backend, self._inner = inner.spec, inner.backend, inner

    def embed_documents(self, texts: Sequence[str]) -> Vectors:
        turned: Vectors = np.roll(self._inner.embed_documents(texts), 1, axis=1)
        return turned

    def embed_query(self, text: str) -> Vectors:
        return self.embed_documents([text])


@pytest.mark.requirement("A4")
def test_an_endpoint_s_tokens_are_counted_alike_on_every_host(
    server: EmbeddingServer, cache_dir: Path, tmp_path: Path
) -> None:
    plain = EncoderSpec(model="acme/unknown", provider="tei", endpoint="here")
    assert isinstance(token_counter(plain, settings_of(server, cache_dir, "tei")), EstimatedTokens)
    other = tmp_path / "tokenizer.json"
    other.write_text("{}")
    with pytest.raises(ConfigError, match="is not the tokenizer that the generation pins"):
        token_counter(served("minilm", "tei", "here"), settings_of(server, cache_dir, "tei", tokenizer=other))
    with pytest.raises(ConfigError, match="by an estimate"):
        token_counter(plain, settings_of(server, cache_dir, "tei", tokenizer=other))
    with pytest.raises(ConfigError, match="HEADWATER_ENDPOINTS__HERE__TOKENIZER"):
        token_counter(plain.model_copy(update={"tokenizer_sha256": "a" * 64}), settings_of(server, cache_dir, "tei"))


@pytest.mark.requirement("A10")
def test_an_endpoint_that_is_not_configured_is_named(cache_dir: Path) -> None:
    with pytest.raises(ConfigError, match="HEADWATER_ENDPOINTS__HERE__URL"):
        load_endpoint(served("minilm", "tei", "here"), Settings(cache_dir=cache_dir))
