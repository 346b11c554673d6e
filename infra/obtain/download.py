"""Downloads that are whole and checked, or absent."""

from __future__ import annotations

import hashlib
import os
import re
from pathlib import Path

import httpx

from infra.errors import DiskFullError, ObtainError
from infra.files import MIB, disk_errors, require_space
from infra.progress import Reporter

# A site that does not answer quickly is treated as out of reach: the next way is tried.
CONNECT_SECONDS = 4.0
READ_SECONDS = 30.0


def fetch_checked(url: str, checksum_url: str, algorithm: str, target: Path, report: Reporter) -> Path:
    """Download ``url`` to ``target`` and compare it with the vendor's published checksum.

    The file gets its name only when it is whole and right; a half-finished one is continued by nobody and
    overwritten by the next try. Raises ObtainError, DiskFullError.
    """
    name = target.name
    with httpx.Client(timeout=httpx.Timeout(READ_SECONDS, connect=CONNECT_SECONDS), follow_redirects=True) as client:
        try:
            published = client.get(checksum_url)
            published.raise_for_status()
            expected = _hex(published.text, algorithm)
            got = _stream(client, url, target, algorithm, report)
        except httpx.HTTPError as error:
            raise ObtainError(f"{name} cannot be downloaded: {error}.", "Check the network.") from error
    if got != expected:
        _partial(target).unlink(missing_ok=True)
        raise ObtainError(
            f"{name} does not match its published {algorithm}: expected {expected[:16]}…, got {got[:16]}….",
            "Run the command again; if it stays so, do not use this download.",
        )
    os.replace(_partial(target), target)
    report.finish(name, "downloaded and checked")
    return target


def _partial(target: Path) -> Path:
    return target.with_name(f"{target.name}.partial")


def _stream(client: httpx.Client, url: str, target: Path, algorithm: str, report: Reporter) -> str:
    digest = hashlib.new(algorithm)
    target.parent.mkdir(parents=True, exist_ok=True)
    with client.stream("GET", url) as answer:
        answer.raise_for_status()
        size = int(answer.headers.get("content-length", 0))
        require_space(target, 2 * size // MIB + 50, target.name, "HEADWATER_CACHE_DIR")
        done = 0
        try:
            with disk_errors(target), _partial(target).open("wb") as stream:
                for block in answer.iter_bytes(256 * 1024):
                    stream.write(block)
                    digest.update(block)
                    done += len(block)
                    share = (f"{done // MIB} of {size // MIB} MiB", done / size) if size else ("downloading", None)
                    report.step(target.name, *share)
        except DiskFullError:
            _partial(target).unlink(missing_ok=True)
            raise
    if size and done != size:
        raise ObtainError(f"{target.name} ended after {done} of {size} bytes.", "Run the command again.")
    return digest.hexdigest()


def _hex(text: str, algorithm: str) -> str:
    """The digest in a published checksum file, whatever its layout (one line, or groups over several lines)."""
    length = hashlib.new(algorithm).digest_size * 2
    found = re.search(rf"\b[0-9a-fA-F]{{{length}}}\b", text)
    if found:
        return found.group(0).lower()
    joined = re.sub(r"[^0-9a-fA-F]", "", text.split(":", 1)[-1])
    if len(joined) != length:
        raise ObtainError(f"The published {algorithm} cannot be read.", "Report this: the vendor's format changed.")
    return joined.lower()
