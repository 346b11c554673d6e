"""Admitted chunks and documents in the shape of the API."""

from __future__ import annotations

from typing import Any

from query_service.supply import Supplied
from schemas.api import AccessSummary, AlsoIn, Scores, SearchHit
from schemas.documents import AccessRecord, Manifest


def age_s(manifest: Manifest, now: int) -> float:
    """Seconds since the last update at the source; where it says nothing, since its owner observed the version."""
    since = manifest.updated_at if manifest.updated_at is not None else manifest.content_version
    return round(max(0, now - since) / 1_000_000, 3)


def access_summary(record: AccessRecord) -> AccessSummary:
    """The clauses' principals; denied principals are somebody else's business and only counted as present."""
    return AccessSummary(
        clauses=tuple(tuple(clause.names()) for clause in record.rule.clauses),
        has_deny=bool(record.rule.deny),
        version=record.version,
    )


def in_effect(begins: int | None, ends: int | None, at: int) -> bool:
    """Whether ``at`` lies within effective dates (all µs): from ``begins`` until before ``ends``; None is open."""
    return (begins is None or begins <= at) and (ends is None or at < ends)


def document_facts(manifest: Manifest, record: AccessRecord, now: int, as_of: int | None = None) -> dict[str, Any]:
    """Fields of ``schemas.api.DocumentFacts``; ``as_of`` (µs) is the moment asked for, where it is not ``now``."""
    document, at = manifest.document, now if as_of is None else as_of
    return {
        "document_uid": document.uid,
        "document_id": document.id,
        "source": document.source,
        "kind": document.kind,
        "tenant": document.tenant,
        "title": manifest.title,
        "url": manifest.url,
        "path": manifest.path,
        "version": manifest.content_version,
        "content_type": manifest.content_type,
        "language": manifest.language,
        "product": manifest.product,
        "effective_from": manifest.effective_from,
        "effective_until": manifest.effective_until,
        "in_effect": in_effect(manifest.effective_from, manifest.effective_until, at),
        "updated_at": manifest.updated_at,
        "warnings": manifest.warnings,
        "tier": manifest.tier,
        "access": access_summary(record),
        "age_s": age_s(manifest, now),
    }


def search_hit(supplied: Supplied, now: int, as_of: int | None = None) -> SearchHit:
    """One hit, with the record that admitted it last, and the other documents that hold its passage."""
    ranked, record, text = supplied.ranked, supplied.record, supplied.text
    entry = ranked.place.entry
    facts = document_facts(ranked.manifest, record, now, as_of)
    facts["tier"] = ranked.candidate.tier
    return SearchHit(
        **facts,
        section_id=ranked.section_id,
        chunk_id=text.chunk_id,
        chunk_index=ranked.place.ordinal,
        chunk_total=max(ranked.manifest.chunk_total, ranked.place.ordinal + 1),
        heading_path=text.heading_path,
        text=text.text,
        page=entry.page,
        start=entry.start if entry.start >= 0 else None,
        end=entry.end if entry.end >= 0 else None,
        summary=entry.summary,
        also=_also(supplied),
        scores=Scores(
            dense_distance=ranked.candidate.distance,
            dense_rank=ranked.dense_rank,
            sparse_score=ranked.sparse_score,
            sparse_rank=ranked.sparse_rank,
            fused=ranked.fused,
            rerank=supplied.rerank,
            final=round(min(1.0, max(0.0, supplied.final)), 6),
            exact=ranked.candidate.exact,
        ),
    )


def _also(supplied: Supplied) -> tuple[AlsoIn, ...]:
    """Each other document once, in the order in which the passages were ranked."""
    found: dict[str, AlsoIn] = {}
    for twin in supplied.also:
        document = twin.manifest.document
        if document.uid != supplied.ranked.candidate.document_uid:
            found.setdefault(
                document.uid,
                AlsoIn(
                    document_uid=document.uid, document_id=document.id, source=document.source, kind=document.kind,
                    title=twin.manifest.title, url=twin.manifest.url, path=twin.manifest.path,
                    chunk_id=twin.candidate.chunk_id,
                ),
            )  # fmt: skip
    return tuple(found.values())
