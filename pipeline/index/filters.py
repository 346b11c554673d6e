"""A search's narrowing as a filter of the store."""

from __future__ import annotations

from typing import Any

from weaviate.classes.query import Filter

from pipeline.ports import SearchFilter

_ANY_OF = (
    ("documents", "document"),
    ("sources", "source"),
    ("kinds", "kind"),
    ("content_types", "content_type"),
    ("languages", "language"),
    ("products", "product"),
)


def nothing_matches(where: SearchFilter) -> bool:
    """Whether an any-of set is empty: no query is asked then, and nobody's principals find nothing."""
    return where.allow == () or any(getattr(where, field) == () for field, _ in _ANY_OF)


def build(where: SearchFilter) -> Any | None:
    """The filter, or None where the search is not narrowed. Empty any-of sets are the caller's to catch."""
    parts: list[Any] = []
    if where.allow is not None:
        principals = list(where.allow)
        parts += [Filter.by_property(name).contains_any(principals) for name in ("allow", "allow2")]
    for field, name in _ANY_OF:
        values = getattr(where, field)
        if values is not None:
            parts.append(Filter.by_property(name).contains_any(list(values)))
    if where.identifiers:
        parts.append(Filter.by_property("identifiers").contains_all(list(where.identifiers)))
    if where.words:
        parts.append(Filter.by_property("lexical").contains_all(list(where.words)))
    if where.as_of is not None:
        parts.append(Filter.by_property("effective_from").less_or_equal(where.as_of))
        parts.append(Filter.by_property("effective_until").greater_than(where.as_of))
    return Filter.all_of(parts) if parts else None
