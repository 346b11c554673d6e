"""A search's narrowing as a filter of the store.

The messages are built here: the client's own builders check every argument, which takes longer than a small search.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from typing import Any

from weaviate.proto.v1 import base_pb2

from pipeline.ports import SearchFilter

_ANY_OF = (
    ("documents", "document"),
    ("sources", "source"),
    ("kinds", "kind"),
    ("content_types", "content_type"),
    ("languages", "language"),
    ("products", "product"),
)
_FILTERS = base_pb2.Filters


def nothing_matches(where: SearchFilter) -> bool:
    """Whether an any-of set is empty: no query is asked then, and nobody's principals find nothing."""
    return where.allow == () or any(getattr(where, field) == () for field, _ in _ANY_OF)


@lru_cache(maxsize=32)  # every list of a search asks with the same one, which may name a thousand principals
def build(where: SearchFilter) -> Any | None:
    """The filter, or None where the search is not narrowed. Empty any-of sets are the caller's to catch. The message
    is shared: copy it, change nothing."""
    parts: list[Any] = []
    if where.allow is not None:
        parts += [any_of(name, where.allow) for name in ("allow", "allow2")]
    for field, name in _ANY_OF:
        values = getattr(where, field)
        if values is not None:
            parts.append(any_of(name, values))
    if where.identifiers:
        parts.append(_texts(_FILTERS.OPERATOR_CONTAINS_ALL, "identifiers", where.identifiers))
    if where.words:
        parts.append(_texts(_FILTERS.OPERATOR_CONTAINS_ALL, "lexical", where.words))
    if where.as_of is not None:
        parts.append(_number(_FILTERS.OPERATOR_LESS_THAN_EQUAL, "effective_from", where.as_of))
        parts.append(_number(_FILTERS.OPERATOR_GREATER_THAN, "effective_until", where.as_of))
    if len(parts) <= 1:
        return parts[0] if parts else None
    return _FILTERS(operator=_FILTERS.OPERATOR_AND, filters=parts)


def any_of(name: str, values: Sequence[str]) -> Any:
    """Objects whose property holds one of the values at least."""
    return _texts(_FILTERS.OPERATOR_CONTAINS_ANY, name, values)


def _texts(operator: Any, name: str, values: Sequence[str]) -> Any:
    return _FILTERS(operator=operator, target=_target(name), value_text_array=base_pb2.TextArray(values=values))


def _number(operator: Any, name: str, value: int) -> Any:
    return _FILTERS(operator=operator, target=_target(name), value_int=value)


def _target(name: str) -> Any:
    return base_pb2.FilterTarget(property=name)
