"""The freshness token of what a request wrote."""

from __future__ import annotations

from collections.abc import Mapping

from consumers.gateway_writer import Written
from schemas.tokens import MAX_DOCUMENTS, MAX_TOKEN, FreshnessToken, TokenDocument, TokenPosition
from schemas.topics import Topic


def token_of(tenant: str, written: Mapping[str, Written]) -> FreshnessToken:
    """Documents and versions for few, positions on the log for many; memberships always as positions."""
    token = _token(tenant, written, few=sum(len(part.documents) for part in written.values()) <= MAX_DOCUMENTS)
    return token if len(token.encode()) <= MAX_TOKEN else _token(tenant, written, few=False)  # their ids are long


def _token(tenant: str, written: Mapping[str, Written], *, few: bool) -> FreshnessToken:
    documents = {d: v for part in written.values() for d, v in part.documents.items()}
    last: dict[tuple[str, int], int] = {}
    for part in written.values():
        for place in part.places:
            if few and place.topic != Topic.MEMBERSHIP:
                continue
            at = (str(place.topic), place.partition)
            last[at] = max(last.get(at, -1), place.offset)
    named = [
        TokenDocument(source=d.source, kind=d.kind, id=d.id, content=content, access=access)
        for d, (content, access) in documents.items()
        if few
    ]
    positions = [TokenPosition(topic=Topic(t), partition=p, offset=o) for (t, p), o in sorted(last.items())]
    return FreshnessToken(tenant=tenant, documents=tuple(named), positions=tuple(positions))
