"""Claim checks: bodies too large for a record, in any store that fsspec can open.

Path: tenant / source / document uid / version, never shared between documents or versions, so that erasing one
document removes exactly its bodies.
"""

from __future__ import annotations

import hashlib
import os
import urllib.parse
import uuid
from typing import Any

from pipeline.errors import BodyGone, BusUnavailable, ConfigError, DocumentError, Retry
from pipeline.settings import Settings
from schemas.keys import DocumentRef


class FsspecBodyStore:
    """``pipeline.ports.BodyStore`` on fsspec. ``url`` is e.g. ``file:///var/lib/headwater/bodies`` or ``s3://b/p``."""

    def __init__(self, url: str, max_bytes: int = 50_000_000) -> None:
        import fsspec

        try:
            self._fs: Any
            self._fs, root = fsspec.core.url_to_fs(url)
        except (ValueError, ImportError) as error:
            raise ConfigError("bodies.store", str(error), "Name a store that fsspec can open.") from error
        self._root = str(root).rstrip("/")
        self._max = max_bytes
        self._local = "file" in _protocols(self._fs)

    @staticmethod
    def of(settings: Settings) -> FsspecBodyStore:
        """The configured store; where none is named, a folder beside the other state."""
        named = "store" in settings.bodies.model_fields_set
        store = settings.bodies.store if named else f"file://{settings.state_dir / 'bodies'}"
        return FsspecBodyStore(store, settings.bodies.max_bytes)

    def put(self, document: DocumentRef, version: int, body: bytes) -> tuple[str, str]:
        """Path and sha256 of the written body. Raises DocumentError above the limit, BusUnavailable otherwise."""
        if len(body) > self._max:
            raise DocumentError(
                f"the body has {len(body)} bytes, the limit is {self._max} (bodies.max_bytes)",
                stage="body",
                kind="too_large",
            )
        path = path_of(document, version)
        try:
            self._write(self._full(path), body)
        except OSError as error:
            raise BusUnavailable(f"body store: writing {path}: {error}") from error
        return path, hashlib.sha256(body).hexdigest()

    def _write(self, full: str, body: bytes) -> None:
        self._fs.makedirs(full.rsplit("/", 1)[0], exist_ok=True)
        if not self._local:  # object stores show an object whole or not at all
            self._fs.pipe_file(full, body)
            return
        temporary = f"{full}.{uuid.uuid4().hex}.part"
        try:
            with open(temporary, "wb") as file:
                file.write(body)
                file.flush()
                os.fsync(file.fileno())
            os.replace(temporary, full)
        finally:
            if os.path.exists(temporary):
                os.unlink(temporary)

    def get(self, path: str, sha256: str) -> bytes:
        """The body. Raises BodyGone when missing, DocumentError on another hash, Retry when unreachable."""
        try:
            body = bytes(self._fs.cat_file(self._full(path)))
        except FileNotFoundError as error:
            raise BodyGone(f"no body at {path}") from error
        except OSError as error:
            raise Retry(f"body store: reading {path}: {error}") from error
        if hashlib.sha256(body).hexdigest() != sha256:
            raise DocumentError(f"the body at {path} has another hash", stage="body", kind="hash")
        return body

    def delete(self, path: str) -> None:
        """Remove one body; a missing one is fine. Raises BusUnavailable."""
        try:
            self._fs.rm_file(self._full(path))
        except FileNotFoundError:
            return
        except OSError as error:
            raise BusUnavailable(f"body store: deleting {path}: {error}") from error

    def versions(self, document: DocumentRef) -> list[str]:
        """Paths of all bodies of a document, oldest version first."""
        folder = path_of(document, 0).rsplit("/", 1)[0]
        try:
            names = self._fs.ls(self._full(folder), detail=False)
        except FileNotFoundError:
            return []
        except OSError as error:
            raise BusUnavailable(f"body store: listing {folder}: {error}") from error
        versions = [name.rsplit("/", 1)[-1] for name in names]
        return [f"{folder}/{v}" for v in sorted((v for v in versions if v.isdigit()), key=int)]

    def of_document(self, document: DocumentRef) -> list[str]:
        """Paths of everything below a document's folder, unfinished writes included. Raises BusUnavailable."""
        return self._under(_folder(document.tenant, document.source, document.uid))

    def of_source(self, tenant: str, source: str) -> list[str]:
        """The same of all documents of a source."""
        return self._under(_folder(tenant, source))

    def of_tenant(self, tenant: str) -> list[str]:
        """The same of all sources of a tenant."""
        return self._under(tenant)

    def erase_tenant(self, tenant: str) -> None:
        """Remove everything of a tenant, its folders too. Raises BusUnavailable."""
        try:
            self._fs.rm(self._full(tenant), recursive=True)
        except FileNotFoundError:
            return
        except OSError as error:
            raise BusUnavailable(f"body store: erasing {tenant}: {error}") from error

    def _under(self, folder: str) -> list[str]:
        try:
            names = self._fs.find(self._full(folder))
        except FileNotFoundError:
            return []
        except OSError as error:
            raise BusUnavailable(f"body store: listing {folder}: {error}") from error
        return sorted(str(name).removeprefix(f"{self._root}/") for name in names)

    def _full(self, path: str) -> str:
        parts = path.split("/")
        if path.startswith("/") or any(p in ("", ".", "..") for p in parts):
            raise DocumentError(f"{path!r} is no path inside the body store", stage="body", kind="path")
        return f"{self._root}/{path}"


def path_of(document: DocumentRef, version: int) -> str:
    """Relative path of a body."""
    return f"{_folder(document.tenant, document.source, document.uid)}/{version}"


def _folder(tenant: str, source: str, *uid: str) -> str:
    """Relative folder of a source, or of a document of it. The source's name is escaped, so that it cannot leave it."""
    return "/".join((tenant, urllib.parse.quote(source, safe="").replace(".", "%2E"), *uid))


def _protocols(fs: Any) -> tuple[str, ...]:
    protocol = fs.protocol
    return (protocol,) if isinstance(protocol, str) else tuple(protocol)
