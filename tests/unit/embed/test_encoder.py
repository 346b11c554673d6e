"""The encoder around a runtime: order, batches, pooling, norms, refusals. Runtime faked, tokenizer real."""

from __future__ import annotations

import math
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pipeline.chunk import chunker_for
from pipeline.embed import StubEncoder, token_counter
from pipeline.embed.encoder import BATCH_TOKENS, LocalEncoder, _batches, load_encoder
from pipeline.embed.runtime import Ids, States
from pipeline.embed.tokens import EncoderTokens, load_tokenizer
from pipeline.embed.weights import find_model, verify_weights
from pipeline.errors import ConfigError, DocumentError, EncoderUnavailable
from pipeline.settings import EncoderSettings, Settings
from schemas.documents import Block, ExtractedDocument
from schemas.generation import BackendChoice, ChunkingSpec, EncoderSpec
from schemas.keys import DocumentRef

SPEC = EncoderSpec()
FP32 = BackendChoice(name="torch-fp32", agreement=1.0)


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    try:
        return find_model(SPEC, Settings(cache_dir=tmp_path_factory.mktemp("cache")))
    except ConfigError as error:
        pytest.skip(str(error))


class OneHot:
    """Hidden states that depend on the token alone, so that pooling can be told; records the shapes it was given."""

    def __init__(self, dimension: int = SPEC.dimension, scale: float = 1.0) -> None:
        self.dimension = dimension
        self.scale = scale
        self.shapes: list[tuple[int, int]] = []
        self.lengths: list[list[int]] = []

    def states(self, ids: Ids, mask: Ids) -> States:
        self.shapes.append((ids.shape[0], ids.shape[1]))
        self.lengths.append([int(n) for n in mask.sum(axis=1)])
        out = np.zeros((*ids.shape, self.dimension), dtype=np.float32)
        rows, columns = np.indices(ids.shape)
        out[rows, columns, ids % self.dimension] = self.scale
        return out


def encoder(model: Path, runtime: OneHot, spec: EncoderSpec = SPEC) -> LocalEncoder:
    return LocalEncoder(spec, FP32, load_tokenizer(model), runtime)


def expected(model: Path, text: str) -> np.ndarray[tuple[int], np.dtype[np.float32]]:
    out = np.zeros(SPEC.dimension, dtype=np.float32)
    for token in load_tokenizer(model).encode(text).ids:
        out[token % SPEC.dimension] += 1
    return out / np.linalg.norm(out)


@pytest.mark.requirement("A5")
def test_rows_come_in_the_order_of_the_texts_pooled_over_their_own_tokens(model: Path) -> None:
    texts = ["a much longer text about the cold room in Trondheim", "short", "", "of middle length", "short"]
    runtime = OneHot()
    vectors = encoder(model, runtime).embed_documents(texts)
    assert vectors.shape == (5, SPEC.dimension) and vectors.dtype == np.float32
    for text, vector in zip(texts, vectors, strict=True):
        np.testing.assert_allclose(vector, expected(model, text), atol=1e-6)
    assert encoder(model, runtime).embed_documents([]).shape == (0, SPEC.dimension)


@pytest.mark.requirement("A5")
@settings(max_examples=100, deadline=None)
@given(st.lists(st.integers(2, 512), max_size=120))
def test_batches_hold_every_row_once_within_the_token_budget(lengths: list[int]) -> None:
    batches = list(_batches(lengths))
    assert sorted(row for batch in batches for row in batch) == list(range(len(lengths)))
    for batch in batches:
        padded = len(batch) * max(lengths[row] for row in batch)
        assert padded <= BATCH_TOKENS or len(batch) == 1
    ordered = [lengths[row] for batch in batches for row in batch]
    assert ordered == sorted(ordered)


@pytest.mark.requirement("A4")
def test_a_document_text_is_never_truncated_and_a_query_is_cut(model: Path) -> None:
    runtime = OneHot()
    made = encoder(model, runtime)
    long = "word " * 300
    with pytest.raises(DocumentError, match="text 1 has 302 tokens") as caught:
        made.embed_documents(["fine", long])
    assert (caught.value.stage, caught.value.kind) == ("embed", "too-long")
    assert runtime.shapes == []
    assert made.embed_query(long).shape == (1, SPEC.dimension)
    assert runtime.lengths == [[256]]


@pytest.mark.requirement("A10")
def test_instructions_and_cls_pooling(model: Path) -> None:
    spec = SPEC.model_copy(update={"query_instruction": "query: ", "document_instruction": "passage: "})
    made = encoder(model, OneHot(), spec)
    np.testing.assert_allclose(made.embed_query("x")[0], expected(model, "query: x"), atol=1e-6)
    np.testing.assert_allclose(made.embed_documents(["x"])[0], expected(model, "passage: x"), atol=1e-6)
    first = encoder(model, OneHot(), SPEC.model_copy(update={"pooling": "cls"})).embed_query("anything")
    assert math.isclose(first[0].max(), 1.0) and np.count_nonzero(first) == 1


@pytest.mark.requirement("A5", "F18")
@pytest.mark.parametrize("scale", [0.0, math.nan, math.inf])
def test_a_vector_without_a_proper_norm_is_refused(model: Path, scale: float) -> None:
    with pytest.raises(EncoderUnavailable, match="norm"):
        encoder(model, OneHot(scale=scale)).embed_documents(["x"])


@pytest.mark.requirement("F18")
def test_another_dimension_than_the_generation_s_is_refused(model: Path) -> None:
    with pytest.raises(ConfigError, match="dimension 385"):
        encoder(model, OneHot(dimension=385)).embed_query("x")


# ---------------------------------------------------------------- tokens


@pytest.mark.requirement("A4")
def test_tokens_are_counted_untruncated_with_special_tokens_and_offsets_true_to_the_text(model: Path) -> None:
    counter = EncoderTokens(load_tokenizer(model))
    assert counter.count("") == 2
    assert counter.count("hello world") == 4
    assert counter.count("word " * 1000) == 1002
    text = "Größe der Fs.readFile 漢字"
    spans = counter.offsets(text)
    assert len(spans) == counter.count(text) - 2
    assert "".join(text[a:b] for a, b in spans).replace(" ", "") == text.replace(" ", "")


@pytest.mark.requirement("A4")
def test_real_tokens_bound_real_chunks(model: Path) -> None:
    counter = token_counter(SPEC, Settings(encoder=EncoderSettings(weights=model)))
    make = chunker_for(ChunkingSpec(), counter, SPEC)
    blocks = [Block(type="heading", text="Wartung der Anlage", level=1)]
    for i in range(40):
        blocks.append(Block(type="paragraph", text=f"Überlaufventil {i} prüfen; 漢字 и текст, 𝔘𝔫𝔦𝔠𝔬𝔡𝔢 🙂. " * 6))
    blocks.append(Block(type="code", text="\n".join("x" * 90 + f"_{i} = 'é'" for i in range(100))))
    blocks.append(Block(type="paragraph", text="Q" * 5000))
    result = make.chunk(
        DocumentRef(tenant="a", source="b", id="c"),
        ExtractedDocument(blocks=tuple(blocks), media_type="text/plain"),
        title="t",
        facets="",
    )
    assert max(chunk.tokens for chunk in result.chunks) <= SPEC.max_tokens
    made = encoder(model, OneHot())
    made.embed_documents([chunk.embed_text for chunk in result.chunks])
    joined = "\n".join(chunk.text for chunk in result.chunks)
    assert all(f"_{i} = 'é'" in joined for i in range(100)) and joined.count("Q") == 5000


# ---------------------------------------------------------------- weights


def folder(path: Path, weights: bytes = b"weights") -> Path:
    path.mkdir(parents=True)
    for name in ("config.json", "tokenizer.json"):
        (path / name).write_text("{}")
    (path / "model.safetensors").write_bytes(weights)
    return path


@pytest.mark.requirement("A10")
def test_weights_that_are_not_the_pinned_ones_are_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=SPEC.weights_sha256) as caught:
        verify_weights(folder(tmp_path / "m"), SPEC)
    assert caught.value.field == "encoder.weights_sha256"
    assert SPEC.revision in caught.value.remedy


@pytest.mark.requirement("A10")
def test_a_configured_folder_goes_first_and_must_be_complete(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HF_HUB_CACHE", str(tmp_path / "hub"))
    cached = folder(tmp_path / "hub" / f"models--{SPEC.model.replace('/', '--')}" / "snapshots" / SPEC.revision)
    assert find_model(SPEC, Settings()) == cached
    named = folder(tmp_path / "named")
    assert find_model(SPEC, Settings(encoder=EncoderSettings(weights=named))) == named
    (named / "tokenizer.json").unlink()
    with pytest.raises(ConfigError, match=r"lacks tokenizer\.json") as caught:
        find_model(SPEC, Settings(encoder=EncoderSettings(weights=named)))
    assert caught.value.field == "encoder.weights"


@pytest.mark.requirement("A10")
def test_a_model_that_is_nowhere_is_an_error_that_names_the_remedy(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HF_HUB_CACHE", str(tmp_path))
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    with pytest.raises(ConfigError, match="HEADWATER_ENCODER__WEIGHTS"):
        find_model(SPEC.model_copy(update={"model": "nobody/nothing"}), Settings())


# ---------------------------------------------------------------- stub


@pytest.mark.requirement("A6")
def test_the_stub_is_deterministic_unit_and_bounded(model: Path) -> None:
    stub = load_encoder(SPEC, BackendChoice(name="stub", agreement=1.0), Settings())
    vectors = stub.embed_documents(["a", "b", "a"])
    assert vectors.shape == (3, SPEC.dimension) and vectors.dtype == np.float32
    np.testing.assert_allclose(np.linalg.norm(vectors, axis=1), 1, atol=1e-6)
    np.testing.assert_array_equal(vectors[0], vectors[2])
    assert abs(float(vectors[0] @ vectors[1])) < 0.3
    np.testing.assert_array_equal(stub.embed_query("a")[0], vectors[0])
    assert stub.embed_documents([]).shape == (0, SPEC.dimension)
    counting = StubEncoder(SPEC, EncoderTokens(load_tokenizer(model)))
    with pytest.raises(DocumentError, match="text 0 has 302"):
        counting.embed_documents(["word " * 300])
