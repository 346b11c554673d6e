"""Comparing access rules: when are two the same, and does a new one take something away or give something."""

from __future__ import annotations

import hashlib
import json

from schemas.access import NOBODY, AccessRule, Clause

Readers = dict[str, int | None]  # principal -> until (µs), None for ever


def _readers(clause: Clause) -> Readers:
    """Each principal with its longest grant; ``nobody`` reaches nobody."""
    readers: Readers = {}
    for grant in clause.any_of:
        if grant.principal == NOBODY:
            continue
        known = readers.get(grant.principal, 0)
        readers[grant.principal] = None if known is None or grant.until is None else max(known, grant.until)
    return readers


def _within(inner: Readers, outer: Readers) -> bool:
    """Whether every live grant of ``inner`` is one of ``outer`` for at least as long."""
    for principal, until in inner.items():
        if principal not in outer:
            return False
        limit = outer[principal]
        if limit is not None and (until is None or until > limit):
            return False
    return True


def rule_hash(rule: AccessRule) -> str:
    """32 hex digits over what the rule decides; order, repeats, ``size_hint`` and ``reason`` do not count."""
    clauses = sorted({json.dumps(sorted(_readers(c).items()), ensure_ascii=False) for c in rule.clauses})
    text = json.dumps([clauses, sorted(set(rule.deny))], ensure_ascii=False)
    return hashlib.sha256(text.encode("utf-8")).hexdigest()[:32]


def reaches_nobody(rule: AccessRule) -> bool:
    """Whether one of the clauses has no reader at all."""
    return any(not _readers(c) for c in rule.clauses)


def is_within(new: AccessRule, old: AccessRule) -> bool:
    """Whether whoever satisfies ``new`` surely satisfies ``old``, whatever groups they are in.

    Sufficient, not necessary: judged by the names in the rules alone. False is the careful answer.
    """
    if reaches_nobody(new):
        return True
    if not set(old.deny) <= set(new.deny):
        return False
    return all(any(_within(_readers(n), _readers(o)) for n in new.clauses) for o in old.clauses)
