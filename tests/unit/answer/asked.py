"""What a writer is asked in the tests of prompts."""

from __future__ import annotations

import time
from typing import Any

from pipeline.settings import Settings
from pipeline.settings_query import AnswerSettings, GeneratorSettings
from query_service.answer.interface import Ask, Source
from schemas.api_answer import Turn
from schemas.api_ranking import EvidencePassage


def passage(text: str, number: int = 1, **given: Any) -> EvidencePassage:
    """A section, whole and in effect unless said otherwise."""
    fields: dict[str, Any] = {
        "section_id": f"section-{number}", "document_uid": f"uid-{number}", "document_id": f"doc-{number}",
        "source": "wiki", "title": f"Page {number}", "url": None, "version": 1, "updated_at": 1_700_000_000_000_000,
        "effective_from": None, "effective_until": None, "in_effect": True, "heading_path": (), "text": text,
        "tokens": len(text.split()), "cut": False, "rank": number, "chunk_ids": (f"chunk-{number}",), **given,
    }  # fmt: skip
    return EvidencePassage(**fields)


def source(text: str, number: int = 1, **given: Any) -> Source:
    """With its number, which is its rank as well."""
    return Source(number, passage(text, number, **given))


def ask(question: str, *sources: Source, history: tuple[Turn, ...] = (), **given: Any) -> Ask:
    """With a minute to answer."""
    fields: dict[str, Any] = {"max_tokens": 256, "deadline": time.monotonic() + 60, "language": "en", **given}
    return Ask(question, history, sources, **fields)


def settings(history_tokens: int = 1000, **generator: Any) -> Settings:
    """Those of an answer by a generator."""
    return Settings(
        answer=AnswerSettings(history_tokens=history_tokens),
        generator=GeneratorSettings(url="http://llm.test/v1", **generator),
    )
