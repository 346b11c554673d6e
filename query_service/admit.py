"""Admission (invariant 3) of a request's candidates: the decision of ``pipeline.admission`` and the filters. Pure.

A chunk is admitted only if the request's generation's manifest lists it and the access record allows the caller at
this moment. Ranks are given afterwards; nothing unadmitted reaches a ranking, a log, a cache or a response.
"""

from __future__ import annotations

from pipeline.admission import Refusal, refusal
from query_service.scope import Narrowing
from schemas.access import Closure
from schemas.documents import AccessRecord, Manifest


def admit_document(
    manifest: Manifest | None,
    record: AccessRecord | None,
    closure: Closure,
    narrowing: Narrowing,
    now: int,
) -> Refusal | None:
    """None when the caller may read the manifest's version of the document at ``now`` (µs), else why not."""
    refused = refusal(manifest, record, closure, narrowing.tenant, now)
    if refused is not None or manifest is None:
        return refused
    return None if passes(manifest, narrowing) else Refusal.FILTER


def admit_chunk(
    listed: bool,
    manifest: Manifest | None,
    record: AccessRecord | None,
    closure: Closure,
    narrowing: Narrowing,
    now: int,
) -> Refusal | None:
    """As ``admit_document``, and the manifest must list the chunk.

    NOT_LISTED comes last: it means that only the manifest moved on, so the document is worth another look.
    """
    refused = admit_document(manifest, record, closure, narrowing, now)
    if refused is not None:
        return refused
    return None if listed else Refusal.NOT_LISTED


def passes(manifest: Manifest, narrowing: Narrowing) -> bool:
    """Scope and filters once more, on the manifest: chunks may carry stale fields, and some live only here."""
    document = manifest.document
    return (
        _within(document.source, narrowing.sources)
        and _within(document.kind, narrowing.kinds)
        and _within(manifest.content_type.partition(";")[0].strip(), narrowing.content_types)
        and _within(manifest.language, narrowing.languages)
        and _within(manifest.product, narrowing.products)
        and _updated_within(manifest.updated_at, narrowing)
        and _in_effect(manifest, narrowing.as_of)
    )


def _within(value: str | None, allowed: frozenset[str] | None) -> bool:
    """A document that lacks the field is not within any set of values."""
    return allowed is None or (value is not None and value in allowed)


def _updated_within(updated_at: int | None, narrowing: Narrowing) -> bool:
    if narrowing.updated_after is None and narrowing.updated_before is None:
        return True
    if updated_at is None:
        return False
    if narrowing.updated_after is not None and updated_at < narrowing.updated_after:
        return False
    return narrowing.updated_before is None or updated_at < narrowing.updated_before


def _in_effect(manifest: Manifest, as_of: int | None) -> bool:
    """Effective from (inclusive) until (exclusive); an open end is open."""
    if as_of is None:
        return True
    if manifest.effective_from is not None and as_of < manifest.effective_from:
        return False
    return manifest.effective_until is None or as_of < manifest.effective_until
