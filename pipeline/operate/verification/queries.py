"""Queries to ask in the shadow: golden questions where a tenant has them, else known items of its own documents.

The query log keeps no text of queries, so nothing can be drawn from it. Known-item queries are made from titles,
headings and sentences of documents that the asker may read in both generations; the document is the right answer.
"""

from __future__ import annotations

import random
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, time
from pathlib import Path

from pipeline.errors import ConfigError
from pipeline.golden import GoldenError, Question, load_questions
from pipeline.operate.verification.heads import Head
from pipeline.operate.verification.visibility import Seen
from pipeline.ports import IndexStore
from schemas.api import SearchFilters

KNOWN_ITEMS = 60
"""Documents of a tenant that are asked for by known-item queries."""
FORBIDDEN = 20
"""Of these, how many are asked for again by somebody who must not see them."""
MAX_CHARACTERS = 300
MIN_WORDS = 3
_KINDS = ("sentence", "heading", "title")


@dataclass(frozen=True)
class Query:
    """One query. ``wanted`` is the known item's uid; ``question`` the golden one; neither: only exposure is judged."""

    name: str
    tenant: str
    seen_as: str
    text: str
    filters: SearchFilters = field(default_factory=SearchFilters)
    wanted: str | None = None
    question: Question | None = None


def golden(path: Path | None, tenant: str, heads: Mapping[str, Head]) -> tuple[list[Query], int]:
    """Questions whose documents are all indexed here, and how many were left out for want of them.

    Raises ConfigError for a file that cannot be used.
    """
    if path is None:
        return [], 0
    try:
        questions = [q for q in load_questions(path) if q.tenant == tenant]
    except GoldenError as error:
        raise ConfigError("generations.golden", str(error), "Correct the file or name another one.") from error
    known = {head.manifest.path or head.manifest.document.id for head in heads.values() if head.live}
    asked = [q for q in questions if all(label.document in known for label in q.relevant)]
    return [_golden(q) for q in asked], len(questions) - len(asked)


def _golden(question: Question) -> Query:
    as_of = None
    if question.as_of is not None:
        as_of = int(datetime.combine(question.as_of, time(), UTC).timestamp()) * 1_000_000
    return Query(
        name=question.id, tenant=question.tenant, seen_as=question.user, text=question.question,
        filters=SearchFilters(as_of=as_of), question=question,
    )  # fmt: skip


def known_items(
    store: IndexStore, generation: str, tenant: str, heads: Mapping[str, Head], seen: Seen, seed: int
) -> list[Query]:
    """One query a document, documents and askers in a seeded order. Raises StoreUnavailable."""
    rng = random.Random(f"{seed} {tenant} items")
    readers: dict[str, list[str]] = {}
    for principal, uids in sorted(seen.visible.items()):
        for uid in uids:
            readers.setdefault(uid, []).append(principal)
    chosen = sorted(uid for uid in readers if uid in heads)
    rng.shuffle(chosen)
    made: list[Query] = []
    for uid in chosen:
        if len(made) >= KNOWN_ITEMS:
            break
        principal = rng.choice(readers[uid])
        kind = _KINDS[len(made) % len(_KINDS)]
        found = _text(store, generation, heads[uid], kind, rng)
        if found:
            made.append(_item(kind, tenant, principal, found, heads[uid]))
    return made


def forbidden_items(items: Sequence[Query], heads: Mapping[str, Head], seen: Seen, seed: int) -> list[Query]:
    """Some known items once more, asked by people who see the document in neither generation."""
    rng = random.Random(f"{seed} {'' if not items else items[0].tenant} forbidden")
    made: list[Query] = []
    for item in items:
        others = sorted(p for p, uids in seen.visible.items() if item.wanted not in uids)
        if others and item.wanted in heads and len(made) < FORBIDDEN:
            principal = rng.choice(others)
            made.append(Query(f"{item.name}, forbidden", item.tenant, principal.removeprefix("user:"), item.text))
    return made


def _item(kind: str, tenant: str, principal: str, text: str, head: Head) -> Query:
    document = head.manifest.document
    return Query(
        name=f"{kind} of {document.source}/{document.kind}/{document.id}", tenant=tenant,
        seen_as=principal.removeprefix("user:"), text=text[:MAX_CHARACTERS], wanted=head.uid,
    )  # fmt: skip


def _text(store: IndexStore, generation: str, head: Head, kind: str, rng: random.Random) -> str:
    """Words to search for; the title where the document has nothing of the kind, '' where there are none at all."""
    if kind != "title":
        manifest = store.read_manifests(generation, head.manifest.document.tenant, [head.uid]).get(head.uid)
        ids = list(manifest.sections) if manifest is not None else []
        rng.shuffle(ids)
        sections = store.read_sections(generation, head.manifest.document.tenant, ids[:3])
        for section in sections.values():
            if kind == "heading" and section.heading_path:
                return f"{head.manifest.title} {section.heading_path[-1]}".strip()
            usable = [text for text in _sentences(section.text) if len(text.split()) >= MIN_WORDS]
            if kind == "sentence" and usable:
                return rng.choice(usable)
    return head.manifest.title.strip()


def _sentences(text: str) -> Iterator[str]:
    from pipeline.chunk.sentences import sentence_spans

    yield from (text[start:end] for start, end in sentence_spans(text))
