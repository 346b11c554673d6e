"""Whether data written under one JSON Schema can be read under another: the check behind frozen contracts.

Two directions are asked for. Payloads and requests were written by older code, so the frozen schema is the writer's and
the current one the reader's. Responses are read by older clients, so it is the other way round, and there unknown
fields are ignored.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

Schema = Mapping[str, Any]

_LOWER = ("minimum", "exclusiveMinimum", "minLength", "minItems", "minProperties")
_UPPER = ("maximum", "exclusiveMaximum", "maxLength", "maxItems", "maxProperties")
_EXACT = ("pattern", "format", "multipleOf", "uniqueItems")
_ABSENT = object()


def breaks(written: Schema, read: Schema, *, unknown_ignored: bool = False) -> list[str]:
    """Why something valid under ``written`` may be refused, cut or misread under ``read``; empty when it cannot be.

    Each entry names the place as a path (``$.rule.clauses[]``). ``unknown_ignored``: fields that the reader does not
    know do no harm to it.
    """
    return list(_Comparison(written, read, unknown_ignored).compare(written, read, "$", frozenset()))


def _same(written: object, read: object) -> bool:
    """Whether a default still means the same: fields of its own may have joined it, which have defaults themselves."""
    if isinstance(written, dict) and isinstance(read, dict):
        return all(name in read and _same(value, read[name]) for name, value in written.items())
    return written == read


class _Comparison:
    def __init__(self, written: Schema, read: Schema, unknown_ignored: bool) -> None:
        self._written, self._read, self._unknown_ignored = written, read, unknown_ignored

    def compare(self, written: Schema, read: Schema, path: str, seen: frozenset[tuple[str, str]]) -> Iterator[str]:
        pair = (str(written.get("$ref", "")), str(read.get("$ref", "")))
        if pair[0] and pair in seen:
            return  # a recursive model: this pair is being compared already
        seen = seen | {pair} if pair[0] else seen
        if "default" in written and not _same(written["default"], read.get("default", _ABSENT)):
            yield f"{path}: the default changed, so that an absent field means something else"
        written, read = _resolve(written, self._written), _resolve(read, self._read)
        for alternative in _alternatives(written, self._written):
            yield from self._best(alternative, _alternatives(read, self._read), path, seen)

    def _best(self, written: Schema, readers: list[Schema], path: str, seen: frozenset[tuple[str, str]]) -> list[str]:
        """The complaints of the alternative that fits best."""
        alike = [reader for reader in readers if _same_type(written, reader)]
        found = [list(self._single(written, reader, path, seen)) for reader in alike or readers]
        return min(found, key=len)

    def _single(self, written: Schema, read: Schema, path: str, seen: frozenset[tuple[str, str]]) -> Iterator[str]:
        yield from _values(written, read, path)
        if not _same_type(written, read):
            yield f"{path}: was {written.get('type', 'anything')}, now {read['type']}"
            return
        yield from _bounds(written, read, path)
        if read.get("type") == "object":
            yield from self._object(written, read, path, seen)
        if read.get("type") == "array" and "items" in read:
            yield from self.compare(written.get("items", {}), read["items"], f"{path}[]", seen)

    def _object(self, written: Schema, read: Schema, path: str, seen: frozenset[tuple[str, str]]) -> Iterator[str]:
        ours, theirs = written.get("properties", {}), read.get("properties", {})
        extra = read.get("additionalProperties", True)
        for name, schema in ours.items():
            if name in theirs:
                yield from self.compare(schema, theirs[name], f"{path}.{name}", seen)
            elif not self._unknown_ignored:
                yield f"{path}.{name}: removed or renamed"
        for name in sorted(set(read.get("required", ())) - set(written.get("required", ()))):
            yield f"{path}.{name}: is now required" if name in ours else f"{path}.{name}: added as required"
        if extra is False and written.get("additionalProperties", True) is not False and not self._unknown_ignored:
            yield f"{path}: unknown fields were ignored, now they are refused"
        if isinstance(extra, Mapping):
            yield from self.compare(_as_schema(written.get("additionalProperties", {})), extra, f"{path}.*", seen)


def _resolve(schema: Schema, root: Schema) -> Schema:
    while "$ref" in schema:
        target: Any = root
        for part in schema["$ref"].removeprefix("#/").split("/"):
            target = target[part]
        schema = target
    return schema


def _alternatives(schema: Schema, root: Schema) -> list[Schema]:
    listed = schema.get("anyOf") or schema.get("oneOf")
    if not listed:
        return [schema]
    return [found for one in listed for found in _alternatives(_resolve(one, root), root)]


def _same_type(written: Schema, read: Schema) -> bool:
    types = (written.get("type"), read.get("type"))
    return "type" not in read or types[0] == types[1] or types == ("integer", "number")


def _as_schema(value: Any) -> Schema:
    return value if isinstance(value, Mapping) else {}


def _allowed(schema: Schema) -> list[Any] | None:
    return [schema["const"]] if "const" in schema else schema.get("enum")


def _values(written: Schema, read: Schema, path: str) -> Iterator[str]:
    allowed = _allowed(read)
    if allowed is None:
        return
    before = _allowed(written)
    if before is None:
        yield f"{path}: any value was allowed, now only {allowed}"
        return
    gone = [value for value in before if value not in allowed]
    if gone:
        yield f"{path}: no longer allows {gone}"


def _bounds(written: Schema, read: Schema, path: str) -> Iterator[str]:
    for key in _LOWER:
        if key in read and written.get(key, float("-inf")) < read[key]:
            yield f"{path}: {key} rose from {written.get(key, 'none')} to {read[key]}"
    for key in _UPPER:
        if key in read and written.get(key, float("inf")) > read[key]:
            yield f"{path}: {key} fell from {written.get(key, 'none')} to {read[key]}"
    for key in _EXACT:
        if key in read and written.get(key) != read[key]:
            yield f"{path}: {key} changed from {written.get(key, 'none')} to {read[key]}"
