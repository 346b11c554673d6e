"""Where an encoder's files are, and whether they are the pinned ones.

Order: a configured folder; the model hub's cache at the pinned revision; what ``headwater models fetch`` unpacked; an
installed package that carries the files, opened as data and never imported; the hub itself. Wherever they come from,
the weights' sha256 must be the pinned one, so trust never rests on who delivered them.
"""

from __future__ import annotations

import hashlib
import os
import socket
from pathlib import Path
from urllib.parse import urlsplit
from urllib.request import getproxies

from pipeline.embed.catalogue import short_name
from pipeline.embed.packages import fetched_folder, packaged_folder
from pipeline.errors import ConfigError
from pipeline.settings import Settings
from schemas.generation import EncoderSpec

HUB_TIMEOUT_S = 3.0


def files_of(spec: EncoderSpec) -> list[str]:
    """Names of the files that an encoder needs."""
    return [spec.weights_file, "config.json", "tokenizer.json"]


def find_model(spec: EncoderSpec, settings: Settings) -> Path:
    """Folder with the weights, config.json and tokenizer.json, not yet verified.

    Raises ConfigError when no place has them.
    """
    found = on_this_machine(spec, settings) or _hub_download(spec, files_of(spec))
    if found is None:
        name = short_name(spec)
        fetch = f"run `headwater models fetch {name}`" if name else "install a package that carries them"
        raise ConfigError(
            "encoder.weights",
            f"the files of {spec.model} ({spec.weights_file}, sha256 {spec.weights_sha256[:16]}…) are neither in the "
            "hub's cache nor in a package, and the hub is out of reach",
            f"Set HEADWATER_ENCODER__WEIGHTS to a downloaded model folder, or {fetch}.",
        )
    return found


def on_this_machine(spec: EncoderSpec, settings: Settings) -> Path | None:
    """The folder without asking the network; None where it is not. Raises ConfigError for an unfit configured one."""
    configured = settings.encoder.weights
    if configured is not None:
        return _configured(configured, spec)
    wanted = files_of(spec)
    return _hub_cache(spec, wanted) or fetched_folder(spec, wanted, settings) or packaged_folder(spec, wanted, settings)


def verify_weights(folder: Path, spec: EncoderSpec) -> None:
    """Raises ConfigError when weights or tokenizer are not the pinned ones. Reads them whole (tens of milliseconds)."""
    verify_tokenizer(folder / "tokenizer.json", spec, "encoder.weights")
    path = folder / spec.weights_file
    digest = sha256_of(path)
    if digest != spec.weights_sha256:
        raise ConfigError(
            "encoder.weights_sha256",
            f"{path} has sha256 {digest}, the generation pins {spec.weights_sha256}",
            f"Put the official weights of {spec.model} at revision {spec.revision} there.",
        )


def verify_tokenizer(path: Path, spec: EncoderSpec, field: str) -> None:
    """Raises ConfigError naming ``field`` when it is not the pinned one. Nothing is pinned by ''."""
    if spec.tokenizer_sha256 and sha256_of(path) != spec.tokenizer_sha256:
        raise ConfigError(
            field,
            f"{path} is not the tokenizer that the generation pins (sha256 {spec.tokenizer_sha256})",
            f"Put the official tokenizer.json of {spec.model} there.",
        )


def sha256_of(path: Path) -> str:
    """Hex sha256 of a file."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _configured(configured: Path, spec: EncoderSpec) -> Path:
    """The folder itself, or the one in it that is named like the model (generations of several encoders)."""
    wanted = files_of(spec)
    own = configured / spec.model.rsplit("/", 1)[-1]
    folder = own if own.is_dir() else configured
    missing = [name for name in wanted if not (folder / name).is_file()]
    if missing:
        raise ConfigError(
            "encoder.weights",
            f"{folder} lacks {', '.join(missing)}",
            f"Name a complete model folder, or one that holds a folder {own.name} for this encoder.",
        )
    return folder


def _hub_cache(spec: EncoderSpec, wanted: list[str]) -> Path | None:
    """Snapshot of the pinned revision in the hub's cache folder; looked up as files, so nothing heavy is loaded."""
    home = Path(os.environ.get("HF_HOME", "~/.cache/huggingface")).expanduser()
    cache = Path(os.environ.get("HF_HUB_CACHE", home / "hub"))
    folder = cache / f"models--{spec.model.replace('/', '--')}" / "snapshots" / spec.revision
    return folder if all((folder / name).is_file() for name in wanted) else None


def _hub_download(spec: EncoderSpec, wanted: list[str]) -> Path | None:
    """Fetch the files at the pinned revision; None when the hub does not answer in time or has no such revision."""
    if os.environ.get("HF_HUB_OFFLINE") == "1":
        return None
    try:
        from huggingface_hub import constants, snapshot_download
    except ImportError:
        return None
    if not _answers(constants.ENDPOINT):  # its client would retry for half a minute
        return None
    try:
        folder = Path(
            snapshot_download(spec.model, revision=spec.revision, allow_patterns=wanted, etag_timeout=HUB_TIMEOUT_S)
        )
    except Exception:  # the hub's client raises errors of several libraries; every one means "not from there"
        return None
    return folder if all((folder / name).is_file() for name in wanted) else None


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
