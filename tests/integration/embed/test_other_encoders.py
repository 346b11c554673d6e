"""bge-small and mpnet, really loaded: other spaces, the right vectors, and nothing shared with MiniLM."""

from __future__ import annotations

import asyncio
import importlib.metadata
from pathlib import Path

import numpy as np
import pytest

from pipeline.embed import known_encoder, load_encoder, load_faithful, reference_vectors
from pipeline.embed.convert import converted_model, float_model
from pipeline.embed.packages import fetch
from pipeline.embed.remembered import machine_key
from pipeline.embed.weights import find_model, on_this_machine
from pipeline.errors import ConfigError
from pipeline.ports import Embedder
from pipeline.settings import Settings
from query_service.encoders import Encoders
from schemas.generation import BackendChoice, EncoderSpec, Generation

MINILM = EncoderSpec()
BGE = known_encoder("bge-small")
MPNET = known_encoder("mpnet")
OPENVINO = BackendChoice(name="openvino-fp32", agreement=1.0)
TORCH = BackendChoice(name="torch-fp32", agreement=1.0)

PASSAGES = (
    "Meals are refunded against receipts up to sixty euros a day.",
    "To rotate an access key, open Settings, choose Security and press Rotate.",
    "The gateway answered 504 because the upstream pool had no healthy member.",
    "Leave is granted by the team lead, above ten days by the director.",
    "The cold room in Trondheim is booked for the whole of Thursday.",
    "Firmware 2.4.18 lets the X-500-G2 read cards above 32 GB.",
)
QUESTIONS = (
    ("how do I get my lunch expenses back?", 0),
    ("replace an expired API key", 1),
    ("why does the gateway answer with an error?", 2),
    ("who approves two weeks of leave?", 3),
    ("device does not recognise a 64 GB memory card", 5),
)


@pytest.fixture(scope="module")
def host(cache_dir: Path) -> Settings:
    return Settings(cache_dir=cache_dir)


@pytest.fixture(scope="module")
def bge_folder(host: Settings) -> Path:
    try:
        found = on_this_machine(BGE.spec, host)
        return found or fetch(BGE, host, lambda said: None)
    except ConfigError as error:
        pytest.skip(str(error))


@pytest.fixture(scope="module")
def bge(bge_folder: Path, host: Settings) -> Embedder:
    return load_encoder(BGE.spec, OPENVINO, host)


@pytest.fixture(scope="module")
def minilm(host: Settings) -> Embedder:
    try:
        find_model(MINILM, host)
    except ConfigError as error:
        pytest.skip(str(error))
    return load_encoder(MINILM, OPENVINO, host)


@pytest.mark.requirement("A10", "F18")
def test_equal_dimension_is_not_an_equal_space(bge: Embedder, minilm: Embedder) -> None:
    own, other = bge.embed_documents(PASSAGES), minilm.embed_documents(PASSAGES)
    assert own.shape == other.shape
    across = np.einsum("ij,ij->i", own, other)
    assert across.max() < 0.5  # the same text: near 1 in one space


@pytest.mark.requirement("A10")
def test_bge_ranks_with_and_without_its_instruction(bge: Embedder, host: Settings) -> None:
    passages = bge.embed_documents(PASSAGES)
    bare = load_encoder(BGE.spec.model_copy(update={"query_instruction": ""}), OPENVINO, host)
    for encoder in (bge, bare):
        for question, place in QUESTIONS:
            assert int(np.argmax(passages @ encoder.embed_query(question)[0])) == place, question
    assert float(bge.embed_query("a key")[0] @ bare.embed_query("a key")[0]) < 0.99  # the instruction does something


@pytest.mark.requirement("A10")
def test_float_weights_are_those_of_the_rounded_file(bge: Embedder, bge_folder: Path) -> None:
    """Against the file's own graph, run by OpenVINO: it rounds activations too, hence not quite the same."""
    import openvino

    from pipeline.embed.tokens import load_tokenizer

    graph = openvino.Core().compile_model(str(bge_folder / "model.onnx"), "CPU")
    tokenizer = load_tokenizer(bge_folder)
    for text in PASSAGES:
        ids = np.array([tokenizer.encode(text).ids], dtype=np.int64)
        mask = np.ones_like(ids)
        states = graph({"input_ids": ids, "attention_mask": mask, "token_type_ids": np.zeros_like(ids)})[0]
        expected = states[0, 0] / np.linalg.norm(states[0, 0])
        assert float(bge.embed_documents([text])[0] @ expected) > 0.99


@pytest.mark.requirement("A10", "F18")
def test_no_cache_trial_or_conversion_is_shared_between_encoders_of_one_dimension(
    bge_folder: Path, minilm: Embedder, bge: Embedder, host: Settings
) -> None:
    minilm_folder = find_model(MINILM, host)
    models = {converted_model(bge_folder, BGE.spec, host), converted_model(minilm_folder, MINILM, host)}
    assert len(models) == 2
    assert float_model(bge_folder, BGE.spec, host) not in (bge_folder, minilm_folder)
    keys = {machine_key(spec, host) for spec in (MINILM, BGE.spec, known_encoder("bge-small-hub").spec)}
    assert len(keys) == 3
    record = reference_vectors(BGE.spec, OPENVINO, host)
    with pytest.raises(ConfigError, match="does not make the vectors"):
        load_faithful(MINILM, OPENVINO, record, host)


@pytest.mark.requirement("A10", "I7")
def test_queries_of_two_generations_never_share_a_vector(bge: Embedder, minilm: Embedder) -> None:
    loaded = {BGE.spec: bge, MINILM: minilm}
    encoders = Encoders(lambda generation: loaded[generation.encoder])
    old = Generation(name="old", state="standby", backend=OPENVINO, created_at=1)
    new = Generation(name="new", state="active", backend=OPENVINO, created_at=1, encoder=BGE.spec)

    async def ask() -> None:
        for _ in range(2):  # from the encoder, then from the memory
            np.testing.assert_array_equal(await encoders.embed(old, "a key"), minilm.embed_query("a key"))
            np.testing.assert_array_equal(await encoders.embed(new, "a key"), bge.embed_query("a key"))

    try:
        asyncio.run(ask())
    finally:
        encoders.close()


@pytest.mark.requirement("A10")
def test_mpnet_is_the_published_model(host: Settings, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = on_this_machine(MPNET.spec, host)
    if folder is None:
        pytest.skip("mpnet is not on this machine: headwater models fetch mpnet")
    encoder = load_encoder(MPNET.spec, TORCH, host)
    vectors = encoder.embed_documents([*PASSAGES, "ä" * 40])
    assert vectors.shape == (7, 768)
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    try:
        importlib.metadata.version("sentence-transformers")
    except importlib.metadata.PackageNotFoundError:
        pytest.skip("sentence-transformers is not installed")
    from sentence_transformers import SentenceTransformer
    from sentence_transformers.sentence_transformer.modules import Pooling, Transformer

    published = SentenceTransformer(modules=[Transformer(str(folder)), Pooling(768, pooling_mode="mean")], device="cpu")
    expected = published.encode([*PASSAGES, "ä" * 40], normalize_embeddings=True)
    assert np.einsum("ij,ij->i", vectors, expected).min() >= 0.99999
