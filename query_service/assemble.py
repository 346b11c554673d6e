"""Admitted chunks and documents in the shape of the API."""

from __future__ import annotations

from typing import Any

from pipeline.ports import ChunkText
from query_service.retrieve import Ranked
from schemas.api import AccessSummary, Scores, SearchHit
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


def document_facts(manifest: Manifest, record: AccessRecord, now: int) -> dict[str, Any]:
    """Fields of ``schemas.api.DocumentFacts``."""
    document = manifest.document
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
        "updated_at": manifest.updated_at,
        "tier": manifest.tier,
        "access": access_summary(record),
        "age_s": age_s(manifest, now),
    }


def search_hit(ranked: Ranked, record: AccessRecord, text: ChunkText, now: int) -> SearchHit:
    """One hit, with the record that admitted it last."""
    facts = document_facts(ranked.manifest, record, now)
    facts["tier"] = ranked.candidate.tier
    return SearchHit(
        **facts,
        section_id=ranked.section_id,
        chunk_id=text.chunk_id,
        chunk_index=ranked.ordinal,
        chunk_total=max(ranked.manifest.chunk_total, ranked.ordinal + 1),
        heading_path=text.heading_path,
        text=text.text,
        scores=Scores(
            dense_distance=ranked.candidate.distance,
            dense_rank=ranked.dense_rank,
            sparse_score=ranked.sparse_score,
            sparse_rank=ranked.sparse_rank,
            fused=ranked.fused,
            exact=ranked.candidate.exact,
        ),
    )
