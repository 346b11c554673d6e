"""What is written: chunk and record objects, their checks, and the cutting of batches."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, TypeVar

import numpy as np
from pydantic import BaseModel, ValidationError
from pydantic_core import PydanticSerializationError
from weaviate.classes.data import DataObject

from pipeline.errors import DocumentError, Reject
from pipeline.index.schema import ALWAYS_FROM, ALWAYS_UNTIL, VECTOR
from pipeline.ports import ChunkText, ChunkWrite

BATCH_OBJECTS = 200
BATCH_BYTES = 4_000_000
NORM_TOLERANCE = 1e-3
STORE_NAMESPACE = uuid.UUID("6f2d1c0e-5a53-5c1e-9f0c-6b1d4c8a7e07")
ACTIVE_UID = str(uuid.uuid5(STORE_NAMESPACE, "active"))

Object = DataObject[Any, Any]
M = TypeVar("M", bound=BaseModel)


def generation_uid(name: str) -> str:
    """Id of a generation's record."""
    return str(uuid.uuid5(STORE_NAMESPACE, f"generation:{name}"))


def record_object(
    uid: str, kind: str, record: BaseModel | str, version: int, document: str | None = None
) -> Object:  # fmt: skip
    """A record without a vector; ``document`` is the uid of the document that a section belongs to.

    Raises DocumentError (stage 'index', kind 'encoding') for text that is not Unicode.
    """
    try:
        text = record if isinstance(record, str) else record.model_dump_json()
    except PydanticSerializationError as error:
        raise _unencodable(f"{kind} {uid}") from error
    encodable(text, f"{kind} {uid}")
    properties: dict[str, object] = {"record": text, "type": kind, "version": version}
    if document is not None:
        properties["document"] = document
    return DataObject(properties=properties, uuid=uid)


def parse(model: type[M], record: str, what: str) -> M:
    """Read a record back. Raises Reject (stage 'store') when it is not what this release understands."""
    try:
        return model.model_validate_json(record)
    except ValidationError as error:
        first = error.errors(include_input=False, include_url=False)[0]
        raise Reject(
            f"{what}: {'.'.join(str(p) for p in first['loc'])}: {first['msg']}; "
            "written by another release? Upgrade this process or write the record again",
            stage="store",
            kind="record",
        ) from None  # the cause would print the record itself


def encodable(text: str, what: str) -> None:
    """Refuse text that cannot be sent. Raises DocumentError (stage 'index', kind 'encoding')."""
    try:
        text.encode("utf-8")
    except UnicodeEncodeError as error:
        raise _unencodable(what) from error


def _unencodable(what: str) -> DocumentError:
    return DocumentError(
        f"{what}: holds a lone surrogate, which cannot be written as UTF-8; correct the text at its source",
        stage="index",
        kind="encoding",
    )


def check_vector(chunk_id: str, vector: np.ndarray[Any, Any], dimension: int) -> None:
    """Refuse a vector that the index would store wrongly. Raises DocumentError naming what was given and expected."""
    if vector.shape != (dimension,):
        raise DocumentError(
            f"chunk {chunk_id}: the vector has shape {vector.shape}, the generation's encoder has dimension "
            f"{dimension}; write it with that encoder or build a generation for the other one",
            stage="index",
            kind="vector_dimension",
        )
    norm = float(np.linalg.norm(vector))
    if not abs(norm - 1.0) <= NORM_TOLERANCE:
        raise DocumentError(
            f"chunk {chunk_id}: the vector has length {norm:.6f}, expected 1 ± {NORM_TOLERANCE}; normalise it",
            stage="index",
            kind="vector_norm",
        )


def chunk_object(write: ChunkWrite) -> Object:
    """A chunk as it is stored."""
    chunk, document = write.chunk, write.document
    properties: dict[str, Any] = {
        "document": document.uid,
        "section": write.section_id,
        "source": document.source,
        "kind": document.kind,
        "content_type": write.content_type,
        "allow": list(write.allow),
        "allow2": list(write.allow2),
        "identifiers": list(chunk.identifiers),
        "effective_from": ALWAYS_FROM if write.effective_from is None else write.effective_from,
        "effective_until": ALWAYS_UNTIL if write.effective_until is None else write.effective_until,
        "lexical": chunk.lexical,
        "length": len(chunk.lexical.split()),
        "text": chunk.text,
        "heading_path": list(chunk.heading_path),
    }
    if write.language is not None:
        properties["language"] = write.language
    if write.product is not None:
        properties["product"] = write.product
    for name, value in properties.items():
        for text in value if isinstance(value, list) else [value]:
            if isinstance(text, str):
                encodable(text, f"chunk {chunk.chunk_id}, {name}")
    return DataObject(properties=properties, uuid=chunk.chunk_id, vector={VECTOR: write.vector.tolist()})


def chunk_text(uid: str, p: Mapping[str, Any]) -> ChunkText:
    """A chunk as it is read for display and re-scoring."""
    return ChunkText(
        chunk_id=uid,
        document_uid=str(p["document"]),
        section_id=str(p["section"]),
        heading_path=tuple(p.get("heading_path") or ()),
        text=str(p.get("text") or ""),
        lexical=str(p.get("lexical") or ""),
        identifiers=tuple(p.get("identifiers") or ()),
        source=str(p["source"]),
        kind=str(p["kind"]),
        content_type=str(p["content_type"]),
        language=p.get("language"),
    )


def size_of(item: Object) -> int:
    """About how many bytes an object takes in a message."""
    total = 200
    for value in item.properties.values():
        texts = value if isinstance(value, list) else [value]
        total += sum(len(t.encode()) + 8 if isinstance(t, str) else 12 for t in texts)
    vector = item.vector[VECTOR] if isinstance(item.vector, dict) else ()
    return total + 4 * len(vector)


def batches(objects: Sequence[Object], count: Callable[[], int] | None = None) -> Iterator[list[Object]]:
    """Cut by bytes and by count, order kept; an object larger than the limit travels alone. ``count`` may lower the
    limit of BATCH_OBJECTS from one batch to the next."""
    batch: list[Object] = []
    size = 0
    limit = min(BATCH_OBJECTS, count()) if count else BATCH_OBJECTS
    for item in objects:
        bytes_ = size_of(item)
        if batch and (len(batch) >= limit or size + bytes_ > BATCH_BYTES):
            yield batch
            batch, size = [], 0
            limit = min(BATCH_OBJECTS, count()) if count else BATCH_OBJECTS
        batch.append(item)
        size += bytes_
    if batch:
        yield batch


def pages_of(ids: Sequence[str]) -> Iterator[list[str]]:
    """Distinct ids in pages of at most BATCH_OBJECTS."""
    distinct = list(dict.fromkeys(ids))
    for start in range(0, len(distinct), BATCH_OBJECTS):
        yield distinct[start : start + BATCH_OBJECTS]
