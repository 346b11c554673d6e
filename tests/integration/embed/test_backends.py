"""The real model on every backend: agreement with fp32, refusals, starts without torch."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Literal

import numpy as np
import pytest

from pipeline.embed import choose_backend, load_encoder
from pipeline.embed.convert import converted_model
from pipeline.embed.runtime import lacks
from pipeline.embed.trial import MIN_AGREEMENT, reference_sha256, reference_texts
from pipeline.embed.weights import find_model
from pipeline.errors import ConfigError
from pipeline.ports import Embedder, Vectors
from pipeline.settings import EncoderSettings, Settings
from schemas.generation import BackendChoice, EncoderSpec

ROOT = Path(__file__).parents[3]
SPEC = EncoderSpec()
Name = Literal["torch-fp32", "torch-bf16", "openvino-fp32", "openvino-bf16"]


@pytest.fixture(scope="module")
def encoder_settings(cache_dir: Path) -> Settings:
    """The machine's own cache of converted models: a conversion costs tens of seconds."""
    return Settings(cache_dir=cache_dir)


@pytest.fixture(scope="module")
def model(encoder_settings: Settings) -> Path:
    try:
        return find_model(SPEC, encoder_settings)
    except ConfigError as error:
        pytest.skip(str(error))


def load(name: Name, settings: Settings, threads: int = 2) -> Embedder:
    return load_encoder(SPEC, BackendChoice(name=name, agreement=1.0), settings, threads=threads)


@pytest.fixture(scope="module")
def reference(model: Path, encoder_settings: Settings) -> Vectors:
    return load("torch-fp32", encoder_settings).embed_documents(reference_texts())


@pytest.mark.requirement("A10", "A5")
@pytest.mark.parametrize("name", ["torch-bf16", "openvino-fp32", "openvino-bf16"])
def test_a_backend_agrees_with_fp32_whatever_the_batch(
    name: Name, reference: Vectors, encoder_settings: Settings
) -> None:
    if (why := lacks(name)) is not None:
        pytest.skip(why)  # emulated it takes minutes
    encoder = load(name, encoder_settings)
    texts = reference_texts()
    together = encoder.embed_documents(texts)
    alone = np.concatenate([encoder.embed_documents([text]) for text in texts])
    for vectors in (together, alone):
        assert np.einsum("ij,ij->i", vectors, reference).min() >= MIN_AGREEMENT
        np.testing.assert_allclose(np.linalg.norm(vectors, axis=1), 1, atol=1e-5)
    np.testing.assert_array_equal(encoder.embed_query(texts[0]), encoder.embed_documents([texts[0]]))


@pytest.mark.requirement("A10")
def test_fp32_is_the_published_model(reference: Vectors, model: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Our tokenising, pooling and normalising against the model's own library."""
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    from sentence_transformers import SentenceTransformer

    published = SentenceTransformer(str(model), device="cpu").encode(list(reference_texts()), normalize_embeddings=True)
    assert np.einsum("ij,ij->i", published, reference).min() >= 0.99999


@pytest.mark.requirement("A10")
def test_meaning_is_near(encoder_settings: Settings, model: Path) -> None:
    encoder = load("openvino-fp32", encoder_settings)
    query = encoder.embed_query("how do I rotate an access key?")[0]
    scores = encoder.embed_documents(reference_texts()[:12]) @ query
    assert int(scores.argmax()) == 1


@pytest.mark.requirement("A10")
def test_the_trial_chooses_a_faithful_backend_and_says_how_fast(encoder_settings: Settings, model: Path) -> None:
    choice = choose_backend(SPEC, encoder_settings)
    assert choice.agreement >= MIN_AGREEMENT
    assert choice.chunks_per_second > 0
    assert choice.reference_sha256 == reference_sha256()
    only = encoder_settings.model_copy(update={"encoder": EncoderSettings(backend="torch-fp32")})
    assert choose_backend(SPEC, only).name == "torch-fp32"


@pytest.mark.requirement("A10")
@pytest.mark.parametrize("name", ["torch-fp32", "openvino-fp32"])
def test_other_weights_are_refused_even_with_a_converted_model_in_the_cache(
    name: Name, model: Path, encoder_settings: Settings, tmp_path: Path
) -> None:
    converted_model(model, SPEC, encoder_settings)
    forged = tmp_path / "forged"
    shutil.copytree(model, forged)
    weights = bytearray((forged / "model.safetensors").read_bytes())
    weights[-1] ^= 1
    (forged / "model.safetensors").write_bytes(weights)
    settings = encoder_settings.model_copy(update={"encoder": EncoderSettings(weights=forged)})
    with pytest.raises(ConfigError, match="the generation pins") as caught:
        load(name, settings)
    assert caught.value.field == "encoder.weights_sha256"


@pytest.mark.requirement("A10")
def test_a_failed_conversion_leaves_nothing_and_says_why(tmp_path: Path, model: Path) -> None:
    broken = tmp_path / "broken"
    broken.mkdir()
    (broken / "config.json").write_text(json.dumps({"model_type": "no-such-model"}))
    settings = Settings(cache_dir=tmp_path / "cache")
    with pytest.raises(ConfigError, match="converting the model for OpenVINO failed") as caught:
        converted_model(broken, SPEC, settings)
    assert caught.value.field == "encoder.backend"
    assert list((tmp_path / "cache" / "models").iterdir()) == []


START = """
import json, sys, time
started = time.perf_counter()
from pipeline.embed import load_encoder, token_counter
from pipeline.settings import Settings
from schemas.generation import BackendChoice, EncoderSpec
settings = Settings(cache_dir=sys.argv[1])
encoder = load_encoder(EncoderSpec(), BackendChoice(name="openvino-fp32", agreement=1.0), settings, for_queries=True)
token_counter(EncoderSpec(), settings).count("a text")
vector = encoder.embed_query("ready?")
heavy = sorted({name.split(".")[0] for name in sys.modules} & {"torch", "transformers", "sentence_transformers"})
print(json.dumps({"seconds": time.perf_counter() - started, "heavy": heavy, "shape": list(vector.shape)}))
"""


@pytest.mark.requirement("A10", "D1")
def test_a_later_start_needs_no_torch(model: Path, encoder_settings: Settings) -> None:
    converted_model(model, SPEC, encoder_settings)
    done = subprocess.run(
        [sys.executable, "-c", START, str(encoder_settings.cache_dir)],
        cwd=ROOT, env={**os.environ, "PYTHONPATH": str(ROOT)}, capture_output=True, text=True, timeout=120, check=True,
    )  # fmt: skip
    told = json.loads(done.stdout.splitlines()[-1])
    assert told["heavy"] == []
    assert told["shape"] == [1, 384]
    assert told["seconds"] < 30  # a start takes about a second; the bound is for a crowded machine


@pytest.mark.requirement("A10")
def test_counting_tokens_loads_neither_model_nor_runtime(model: Path, encoder_settings: Settings) -> None:
    script = (
        "import sys\nfrom pipeline.embed import token_counter\nfrom pipeline.settings import Settings\n"
        "from schemas.generation import EncoderSpec\n"
        "assert token_counter(EncoderSpec(), Settings()).count('two words') == 4\n"
        "assert not {'torch', 'openvino', 'transformers'} & set(sys.modules)\n"
    )
    subprocess.run(
        [sys.executable, "-c", script], cwd=ROOT, env={**os.environ, "PYTHONPATH": str(ROOT)}, check=True, timeout=120
    )


TOGETHER = """
import sys, threading
from pathlib import Path
import numpy as np
from pipeline.embed.runtime import OpenVinoRuntime
sys.setswitchinterval(1e-6)
gate, one = threading.Barrier(4), np.ones((1, 8), dtype=np.int64)
def load():
    runtime = OpenVinoRuntime(Path(sys.argv[1]), bf16=False, threads=1)
    gate.wait()
    runtime.states(one, one)
threads = [threading.Thread(target=load) for _ in range(4)]
for thread in threads: thread.start()
for thread in threads: thread.join()
print("loaded")
"""


@pytest.mark.requirement("A10", "I7")
def test_encoders_that_are_loaded_side_by_side_do_not_wait_for_each_other_for_ever(
    encoder_settings: Settings, model: Path
) -> None:
    """As a query service does that begins with two generations: in a fresh process."""
    converted = converted_model(model, SPEC, encoder_settings)
    done = subprocess.run(
        [sys.executable, "-c", TOGETHER, str(converted)],
        cwd=ROOT, capture_output=True, text=True, timeout=60, check=False,
    )  # fmt: skip
    assert done.stdout.strip() == "loaded", done.stderr[-500:]
