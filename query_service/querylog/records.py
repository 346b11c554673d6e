"""From what was noted of a query to its record, and to the line of the process's own log."""

from __future__ import annotations

from pydantic import JsonValue

from pipeline.settings_query import QueryLogSettings
from query_service.querylog.entry import Entry
from query_service.querylog.redact import keep
from query_service.querylog.references import References
from schemas.querylog import FeedbackRecord, QueryRecord


def record_of(entry: Entry, references: References, settings: QueryLogSettings) -> QueryRecord:
    """The record, with texts as the settings allow them."""
    text, mode = keep(entry.text, "full", settings.text, settings.redact_words)
    closure = entry.closure
    return QueryRecord(
        query_id=entry.query_id,
        at=entry.at,
        tenant=entry.scope.tenant,
        kind=entry.kind,
        outcome=entry.outcome,
        status=entry.status,
        refusal=entry.refusal,
        scope=references.scope(entry.scope),
        scope_key=references.key_id,
        operator=None if entry.operator is None else references.scope(entry.operator),
        principals=0 if closure is None else len(closure.principals),
        principals_hash=None if closure is None else references.principals(closure),
        generation=entry.generation,
        document_uid=entry.document_uid,
        request={**entry.request, **_words(entry, settings)},
        text=text,
        text_mode=mode,
        counts=entry.counts,
        hits=entry.hits,
        evidence=entry.evidence,
        timings_ms=entry.timings_ms,
        total_ms=entry.total_ms,
        tokens=entry.tokens,
        cost=entry.cost,
        cached=entry.cached,
        withheld=entry.withheld,
        cited=entry.cited,
        support=entry.support,
        fallback=entry.fallback,
        rerank=entry.rerank,
        steps=entry.steps,
        starved=entry.starved,
        fresh=entry.fresh,
        refills=entry.refills,
        repaired=entry.repaired,
        suggestion=entry.suggestion,
    )


def _words(entry: Entry, settings: QueryLogSettings) -> dict[str, JsonValue]:
    """Filters that hold words of the caller, like the query's own; without them their number stands there."""
    shown: dict[str, JsonValue] = {}
    for name, values in entry.words.items():
        kept = [keep(value, "full", settings.text, settings.redact_words)[0] for value in values]
        if all(value is not None for value in kept):
            shown[name] = list(kept)
    filters = entry.request.get("filters")
    return {"filters": {**filters, **shown}} if shown and isinstance(filters, dict) else {}


def feedback_kept(record: FeedbackRecord, settings: QueryLogSettings) -> FeedbackRecord:
    """Feedback whose comment is kept as the settings allow it."""
    comment, mode = keep(record.comment, record.text_mode, settings.text, settings.redact_words)
    return record.model_copy(update={"comment": comment, "text_mode": mode})


def line_of(entry: Entry, references: References) -> dict[str, object]:
    """Fields of the line in the process's log: no text of the query or of a passage."""
    return {
        "query_id": entry.query_id,
        "tenant": entry.scope.tenant,
        "kind": entry.kind,
        "outcome": entry.outcome,
        "refusal": entry.refusal,
        "scope": references.scope(entry.scope),
        "seen_by_operator": None if entry.operator is None else references.scope(entry.operator),
        "principals": 0 if entry.closure is None else len(entry.closure.principals),
        "principals_hash": None if entry.closure is None else references.principals(entry.closure),
        "hits": [[h.chunk_id, h.document_uid, round(h.fused or 0.0, 6)] for h in entry.hits],
        "generation": entry.generation,
        "mode": entry.request.get("mode"),
        "k": entry.request.get("k"),
        "candidates": entry.counts.found,
        "admitted": entry.counts.model_dump(include={"dense", "sparse", "exact", "admitted"}),
        "refused": entry.counts.refused,
        "refills": entry.refills,
        "repaired": entry.repaired,
        "starved": entry.starved,
        "fresh": entry.fresh,
        "timings_ms": entry.timings_ms,
        "total_ms": entry.total_ms,
        **({"cost": entry.cost} if entry.cost else {}),
    }
