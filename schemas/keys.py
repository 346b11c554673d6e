"""Identities: document keys, their stable ids and their Kafka partitions.

A document key is the compact JSON array ``["tenant","source","kind","id"]`` in UTF-8, byte for byte; JSON quoting
makes it unambiguous for any tenant, source and id. Partition numbers follow Kafka's murmur2, computed from the
document key even for records under a derived key (holds), so that all lanes of a document share a partition number.
"""

from __future__ import annotations

import hashlib
import json
import re
import uuid
from typing import Annotated

from pydantic import AfterValidator, StringConstraints

from schemas.base import ClosedModel, name_fault

DOCUMENT_NAMESPACE = uuid.UUID("6f2d1c0e-5a53-5c1e-9f0c-6b1d4c8a7e01")
PRINCIPAL_NAMESPACE = uuid.UUID("6f2d1c0e-5a53-5c1e-9f0c-6b1d4c8a7e02")
CHUNK_NAMESPACE = uuid.UUID("6f2d1c0e-5a53-5c1e-9f0c-6b1d4c8a7e03")
SECTION_NAMESPACE = uuid.UUID("6f2d1c0e-5a53-5c1e-9f0c-6b1d4c8a7e04")
PROGRESS_NAMESPACE = uuid.UUID("6f2d1c0e-5a53-5c1e-9f0c-6b1d4c8a7e05")


def _encodable(value: str) -> str:
    try:
        value.encode("utf-8")
    except UnicodeEncodeError as error:
        raise ValueError("must be valid Unicode (a lone surrogate cannot be written as UTF-8)") from error
    if "\x00" in value:
        raise ValueError("must not contain the NUL character")
    return value


def _source(value: str) -> str:
    """A source's name opens the names of its groups and audiences (``audience:source/container``), so it has no '/'."""
    fault = name_fault(value)
    if fault is not None:
        raise ValueError(f"a source's name {fault}")
    if "/" in value or "#" in value:
        raise ValueError("a source's name must not hold '/' or '#': they end it inside group and audience names")
    return value


_TENANT = re.compile("[A-Za-z0-9_-]+")


def _tenant(value: str) -> str:
    if not _TENANT.fullmatch(value):
        raise ValueError("may hold ASCII letters, digits, '-' and '_' only")
    return value


KeyPart = Annotated[str, StringConstraints(min_length=1, max_length=2048), AfterValidator(_encodable)]
TenantName = Annotated[str, StringConstraints(min_length=1, max_length=64), AfterValidator(_tenant)]
SourceName = Annotated[str, StringConstraints(min_length=1, max_length=256), AfterValidator(_source)]


def canonical_json(parts: list[str]) -> str:
    """The one spelling of a key: compact, not ASCII-escaped."""
    return _encode(parts)


_encode = json.JSONEncoder(ensure_ascii=False, separators=(",", ":")).encode


def named(namespace: uuid.UUID, name: str) -> str:
    """``str(uuid.uuid5(namespace, name))`` at a fifth of its cost: a search makes hundreds."""
    digest = bytearray(hashlib.sha1(namespace.bytes + name.encode(), usedforsecurity=False).digest()[:16])
    digest[6] = digest[6] & 0x0F | 0x50
    digest[8] = digest[8] & 0x3F | 0x80
    text = digest.hex()
    return f"{text[:8]}-{text[8:12]}-{text[12:16]}-{text[16:20]}-{text[20:]}"


class DocumentRef(ClosedModel):
    """Names one document of one source instance of one tenant."""

    tenant: TenantName
    source: SourceName
    kind: KeyPart = "page"
    id: KeyPart

    @property
    def key(self) -> str:
        """Kafka key and canonical name."""
        return canonical_json([self.tenant, self.source, self.kind, self.id])

    @property
    def uid(self) -> str:
        """uuid5 of the key: the id of its records in the store."""
        return named(DOCUMENT_NAMESPACE, self.key)

    def hold_key(self, name: str) -> str:
        """Kafka key of a hold on this document."""
        return canonical_json([self.tenant, self.source, self.kind, self.id, "hold", name])

    def state_key(self) -> str:
        """Key of the owner's state of this document in ``cursors``."""
        return canonical_json([self.tenant, self.source, "document", self.kind, self.id])

    @staticmethod
    def from_key(key: str) -> DocumentRef:
        """Read a document key or a hold key. Raises ValueError when it is neither, or is spelt in another way.

        A second spelling of a key would be another Kafka key on another partition: two owners of one document.
        """
        try:
            parts = json.loads(key)
        except RecursionError as error:
            raise ValueError("a document key is a JSON array of strings") from error
        if not isinstance(parts, list) or not all(isinstance(p, str) for p in parts):
            raise ValueError("a document key is a JSON array of strings")
        if canonical_json(parts) != key:
            raise ValueError("a document key is compact JSON without escapes that are not needed")
        if len(parts) == 4 or (len(parts) == 6 and parts[4] == "hold"):
            return DocumentRef(tenant=parts[0], source=parts[1], kind=parts[2], id=parts[3])
        raise ValueError("a document key has the four parts tenant, source, kind, id")


def membership_key(tenant: str, principal: str, source: str | None = None) -> str:
    """Kafka key of what one source says of a principal; without a source the key that decides the partition.

    Several sources speak of the same people, and compaction keeps the last record of a key: each source has its own.
    """
    return canonical_json([tenant, principal] if source is None else [tenant, principal, source])


def cursor_key(tenant: str, source: str, stream: str) -> str:
    """Kafka key of a source's cursor for one of its streams."""
    return canonical_json([tenant, source, "cursor", stream])


def principal_uid(tenant: str, principal: str) -> str:
    """Id of a principal's record in the store."""
    return named(PRINCIPAL_NAMESPACE, membership_key(tenant, principal))


def progress_uid(lane: str, generation: str, topic: str, partition: int) -> str:
    """Id of a progress record in the store."""
    return str(uuid.uuid5(PROGRESS_NAMESPACE, canonical_json([lane, generation, topic, str(partition)])))


def murmur2(data: bytes) -> int:
    """Kafka's murmur2 (seed 0x9747b28c), as an unsigned 32-bit integer."""
    length = len(data)
    m, r, mask = 0x5BD1E995, 24, 0xFFFFFFFF
    h = (0x9747B28C ^ length) & mask
    body = length & ~3
    for i in range(0, body, 4):
        k = int.from_bytes(data[i : i + 4], "little")
        k = (k * m) & mask
        k ^= k >> r
        k = (k * m) & mask
        h = (h * m) & mask
        h ^= k
    tail = data[body:]
    if tail:
        h ^= int.from_bytes(tail, "little")
        h = (h * m) & mask
    h ^= h >> 13
    h = (h * m) & mask
    h ^= h >> 15
    return h


def partition_of(key: str, partitions: int) -> int:
    """Partition number of a document or membership key, equal to that of Kafka's default partitioner."""
    return (murmur2(key.encode("utf-8")) & 0x7FFFFFFF) % partitions
