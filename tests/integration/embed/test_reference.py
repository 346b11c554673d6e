"""Every host compares its vectors with the record's before it serves: MiniLM, really loaded."""

from __future__ import annotations

import base64
from pathlib import Path

import numpy as np
import pytest

from pipeline.bootstrap import build_encoder
from pipeline.embed import load_faithful, reference, reference_vectors
from pipeline.embed.reference import MIN_COSINE, check
from pipeline.embed.weights import find_model
from pipeline.errors import ConfigError
from pipeline.settings import EncoderSettings, Settings
from schemas.generation import BackendChoice, EncoderSpec, Generation, ReferenceVectors

SPEC = EncoderSpec()
BACKEND = BackendChoice(name="openvino-fp32", agreement=1.0)


@pytest.fixture(scope="module")
def host(cache_dir: Path) -> Settings:
    settings = Settings(cache_dir=cache_dir)
    try:
        find_model(SPEC, settings)
    except ConfigError as error:
        pytest.skip(str(error))
    return settings


@pytest.fixture(scope="module")
def record(host: Settings) -> ReferenceVectors:
    return reference_vectors(SPEC, BACKEND, host)


def changed(record: ReferenceVectors, angle: float) -> ReferenceVectors:
    """The last vector turned by an angle whose cosine is given, in a direction of its own."""
    vectors = np.frombuffer(base64.b64decode(record.vectors), dtype="<f4").reshape(-1, record.dimension).copy()
    other = np.random.default_rng(1).standard_normal(record.dimension)
    other -= (other @ vectors[-1]) * vectors[-1]
    vectors[-1] = angle * vectors[-1] + np.sqrt(1 - angle**2) * other / np.linalg.norm(other)
    return record.model_copy(update={"vectors": base64.b64encode(vectors.astype("<f4").tobytes()).decode()})


@pytest.mark.requirement("A10", "F18")
def test_the_same_encoder_passes_and_a_tampered_record_is_refused(host: Settings, record: ReferenceVectors) -> None:
    encoder = load_faithful(SPEC, BACKEND, record, host)
    assert check(encoder, record, host) > 0.99999
    assert check(encoder, changed(record, MIN_COSINE + 0.0004), host) >= MIN_COSINE
    with pytest.raises(ConfigError, match=r"on this host openvino-fp32 does not make the vectors") as caught:
        check(encoder, changed(record, MIN_COSINE - 0.0004), host)
    assert caught.value.field == "encoder.backend"
    assert "HEADWATER_ENCODER__BACKEND" in caught.value.remedy
    generation = Generation(
        name="minilm", state="active", backend=BACKEND, created_at=1, reference=changed(record, MIN_COSINE - 0.01)
    )
    with pytest.raises(ConfigError, match="does not make the vectors"):
        build_encoder(host, generation, for_queries=True)


@pytest.mark.requirement("A10", "F18")
def test_another_pooling_or_instruction_of_one_dimension_is_told_by_the_vectors(
    host: Settings, record: ReferenceVectors
) -> None:
    for other in ({"pooling": "cls"}, {"document_instruction": "passage: "}):
        with pytest.raises(ConfigError, match="does not make the vectors"):
            load_faithful(SPEC.model_copy(update=other), BACKEND, record, host)


@pytest.mark.requirement("A10")
def test_a_host_without_the_backend_takes_another_that_agrees(
    host: Settings, record: ReferenceVectors, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(reference, "lacks", lambda name: None if name == "torch-fp32" else "not on this host")
    assert load_faithful(SPEC, BACKEND, record, host).backend.name == "torch-fp32"
    monkeypatch.setattr(reference, "lacks", lambda name: "not on this host")
    with pytest.raises(ConfigError, match=r"can run no backend.*openvino-fp32: not on this host"):
        load_faithful(SPEC, BACKEND, record, host)


@pytest.mark.requirement("A10")
def test_a_host_may_name_its_own_backend(host: Settings, record: ReferenceVectors) -> None:
    own = host.model_copy(update={"encoder": EncoderSettings(backend="torch-fp32")})
    assert load_faithful(SPEC, BACKEND, record, own).backend.name == "torch-fp32"


@pytest.mark.requirement("A10")
@pytest.mark.parametrize("change", [{"texts_sha256": "0" * 64}, {"vectors": "AAAA"}, {"vectors": "not base64"}])
def test_a_record_of_other_texts_or_unreadable_is_refused(
    change: dict[str, str], host: Settings, record: ReferenceVectors
) -> None:
    with pytest.raises(ConfigError) as caught:
        load_faithful(SPEC, BACKEND, record.model_copy(update=change), host)
    assert caught.value.field == "generation.reference"
