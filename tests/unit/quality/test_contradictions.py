"""Labelled pairs of passages: what is a contradiction on the question, and what only looks like one."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from query_service.answer.contradiction import Dispute, contradictions, one_sided, stated
from query_service.answer.interface import Draft, Source
from schemas.api_ranking import EvidencePassage

PAIRS = Path(__file__).parents[3] / "samples" / "contradictions" / "pairs.jsonl"
FOUND_AT_LEAST, FALSE_AT_MOST = 31, 2  # as measured; a change may not make either worse


def source(number: int, given: dict[str, Any]) -> Source:
    heading = given.get("heading", "")
    return Source(
        number,
        EvidencePassage(
            section_id=f"s{number}", document_uid=f"d{number}", document_id=f"d{number}", source="wiki",
            title=given.get("title", ""), url=None, version=1, updated_at=None,
            in_effect=given.get("in_effect", True), heading_path=(heading,) if heading else (), text=given["text"],
            tokens=len(given["text"].split()), rank=number, chunk_ids=(f"c{number}",),
        ),
    )  # fmt: skip


def between(question: str, one: str, other: str) -> list[Dispute]:
    return contradictions(question, [source(1, {"text": one}), source(2, {"text": other})])


def pairs() -> list[dict[str, Any]]:
    return [json.loads(line) for line in PAIRS.read_text(encoding="utf-8").splitlines()]


@pytest.mark.unit
@pytest.mark.requirement("B8")
def test_labelled_pairs_are_told_apart_as_well_as_before() -> None:
    found: list[str] = []
    false: list[str] = []
    for pair in pairs():
        told = contradictions(pair["question"], [source(n, p) for n, p in enumerate(pair["passages"], 1)])
        if told:
            (found if pair["label"] == "contradiction" else false).append(pair["id"])
    assert len(pairs()) >= 60
    assert len(found) >= FOUND_AT_LEAST, found
    assert len(false) <= FALSE_AT_MOST, false


@pytest.mark.unit
@pytest.mark.requirement("B8")
def test_both_sides_are_told_word_for_word_with_their_citations() -> None:
    (dispute,) = between(
        "How long are backups kept?", "Backups are kept for 35 days. Restoring takes an hour.",
        "We keep backups for 14 days.",
    )  # fmt: skip
    assert dispute.kind == "number" and dispute.essential
    assert stated(dispute) == [
        Draft("Backups are kept for 35 days.", (1,)),
        Draft("We keep backups for 14 days.", (2,)),
    ]


@pytest.mark.unit
@pytest.mark.requirement("B8")
def test_an_answer_that_tells_one_side_alone_is_one_sided() -> None:
    (dispute,) = between("How long are backups kept?", "Backups are kept for 35 days.", "We keep backups for 14 days.")
    one = Draft("Backups are kept for 35 days.", (1,))
    assert one_sided([one], dispute)
    assert one_sided([Draft("Backups stay 35 days, then they are removed; backups are kept so long.", (1,))], dispute)
    assert not one_sided([one, Draft("Others keep backups for 14 days.", (2,))], dispute)
    assert not one_sided([Draft("Restoring takes an hour.", (1,))], dispute)


@pytest.mark.unit
@pytest.mark.requirement("B8")
def test_what_is_not_in_effect_loses_and_is_no_contradiction() -> None:
    old = {"text": "For meals you may spend 60 euros a day.", "in_effect": False}
    new = {"text": "For meals you may spend 75 euros a day."}
    question = "How much may I spend on meals?"
    assert contradictions(question, [source(1, old), source(2, new)]) == []
    assert contradictions(question, [source(1, {"text": old["text"]}), source(2, new)]) != []


@pytest.mark.unit
@pytest.mark.requirement("B8")
def test_one_document_does_not_contradict_itself() -> None:
    given = [source(1, {"text": "Backups are kept for 35 days."}), source(2, {"text": "Backups are kept for 14 days."})]
    same = [Source(s.number, s.passage.model_copy(update={"document_uid": "d"})) for s in given]
    assert contradictions("How long are backups kept?", given) != []
    assert contradictions("How long are backups kept?", same) == []
