"""The Weaviate server: from the cache, the vendor's release, or built by Go from its module."""

from __future__ import annotations

import json
import mmap
import os
import platform
import shutil
import sys
import tarfile
from pathlib import Path

from infra import pins
from infra.errors import InfraError, ObtainError
from infra.files import disk_errors, exclusive, require_space, write_atomic
from infra.obtain.download import fetch_checked
from infra.obtain.tools import obtain_go, run
from infra.progress import Reporter

STEP = f"weaviate {pins.WEAVIATE_VERSION}"
BUILD_MIB = 3000  # module cache, build cache and binary
BUILD_SECONDS = 3600.0


def binary(cache: Path) -> Path:
    """Where the server is kept."""
    return cache / "bin" / "weaviate-server"


def present(cache: Path) -> bool:
    """Whether a server of the pinned version is there."""
    try:
        return is_pinned(binary(cache))
    except ObtainError:
        return False


def is_pinned(path: Path) -> bool:
    """Whether the binary is of the pinned version; remembered beside it, because reading it all takes a moment.

    A binary built from the module carries the module's checksum; one unpacked from a checked release has a note.
    Raises ObtainError where the file is missing.
    """
    try:
        stat = path.stat()
    except OSError as error:
        raise ObtainError(f"{path} is missing.", "") from error
    note = path.with_name(f"{path.name}.json")
    identity = {"version": pins.WEAVIATE_VERSION, "size": stat.st_size, "mtime_ns": stat.st_mtime_ns}
    try:
        if json.loads(note.read_text(encoding="utf-8")) == identity:
            return True
    except (OSError, ValueError):
        pass
    if not _carries_checksum(path):
        return False
    write_atomic(note, json.dumps(identity).encode(), 0o644)
    return True


def obtain(cache: Path, report: Reporter) -> Path:
    """Path of the checked server. Raises InfraError naming each way that was tried."""
    target = binary(cache)
    with exclusive(cache / "locks" / "weaviate.lock", STEP):
        if present(cache):
            return target
        failures: list[str] = []
        for way in (_from_release, _from_module):
            try:
                with disk_errors(target):
                    way(cache, target, report)
            except ObtainError as error:
                failures.append(error.problem)
                continue
            report.finish(STEP, "ready")
            return target
    raise InfraError(
        f"Weaviate {pins.WEAVIATE_VERSION} could not be obtained.\n  " + "\n  ".join(failures),
        "Connect to the internet or a Go module mirror, or set HEADWATER_WEAVIATE__URL to a running Weaviate.",
    )


def _carries_checksum(path: Path) -> bool:
    line = f"mod\t{pins.WEAVIATE_MODULE}\tv{pins.WEAVIATE_VERSION}\t{pins.WEAVIATE_MODULE_SUM}\n".encode()
    with path.open("rb") as stream:
        if not os.fstat(stream.fileno()).st_size:
            return False
        with mmap.mmap(stream.fileno(), 0, access=mmap.ACCESS_READ) as content:
            return content.find(line) >= 0


def _from_release(cache: Path, target: Path, report: Reporter) -> None:
    arch = {"x86_64": "amd64", "aarch64": "arm64"}.get(platform.machine())
    if sys.platform != "linux" or arch is None:
        raise ObtainError(f"The vendor has no server for {sys.platform} {platform.machine()}.", "")
    url = pins.WEAVIATE_ARCHIVE.format(arch=arch)
    archive = cache / "downloads" / Path(url).name
    report.step(STEP, "asking the vendor")
    fetch_checked(url, f"{url}.sha256", "sha256", archive, report)
    partial = _partial(target)
    with tarfile.open(archive) as tar:
        source = next(
            (tar.extractfile(m) for m in tar if m.isfile() and Path(m.name).name.startswith("weaviate")), None
        )
        if source is None:
            raise ObtainError(f"{archive.name} holds no server.", "")
        with source, partial.open("wb") as out:
            shutil.copyfileobj(source, out)
    partial.chmod(0o755)
    os.replace(partial, target)
    stat = target.stat()
    identity = {"version": pins.WEAVIATE_VERSION, "size": stat.st_size, "mtime_ns": stat.st_mtime_ns}
    write_atomic(target.with_name(f"{target.name}.json"), json.dumps(identity).encode(), 0o644)
    archive.unlink()


def _from_module(cache: Path, target: Path, report: Reporter) -> None:
    require_space(cache, BUILD_MIB, "building Weaviate", "HEADWATER_CACHE_DIR")
    go = obtain_go(cache, report)
    report.step(STEP, "building from source, about 3 minutes of CPU time")
    work = target.parent / ".build"
    shutil.rmtree(work, ignore_errors=True)
    work.mkdir(parents=True)
    env = {**os.environ, "GOBIN": str(work), "GOTOOLCHAIN": "local"}
    module = f"{pins.WEAVIATE_MODULE}/cmd/weaviate-server@v{pins.WEAVIATE_VERSION}"
    run([go, "install", module], env=env, timeout=BUILD_SECONDS, what="building Weaviate")
    built = work / "weaviate-server"
    if not _carries_checksum(built):
        raise ObtainError("The server built by Go does not carry the pinned module checksum.", "Report this.")
    os.replace(built, target)
    shutil.rmtree(work)
    present(cache)


def _partial(target: Path) -> Path:
    target.parent.mkdir(parents=True, exist_ok=True)
    return target.with_name(f".{target.name}.partial")
