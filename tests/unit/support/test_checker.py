"""What a sentence may change of its source, and what it may not; citations; what never leaves; models that fail."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence

import numpy as np
import pytest

from pipeline.ports import Vectors
from query_service.answer.interface import Source
from query_service.rerank.interface import Reranked
from query_service.support.candidates import Case
from query_service.support.checker import MeasuredChecker
from query_service.support.forbidden import forbidden
from tests.unit.support.conftest import source, verdict, verdicts


@pytest.mark.requirement("B8")
@pytest.mark.parametrize(
    ("sentence", "text", "supported", "reason"),
    [
        ("The fee is 10.000 euros.", "The fee is 10,000 euros.", True, None),
        ("The fee is ten percent.", "The fee is 10 %.", True, None),
        ("The fee is 12 percent.", "The fee is 10 %.", False, "number"),
        ("The key expires after 90 hours.", "The key expires after 90 days.", False, "number"),
        ("Install version 2.4.17.", "Install version 2.4.18.", False, "number"),
        ("Call fs.readFileSync here.", "Call fs.readFile here.", False, "number"),
        ("The office opens on Tuesday.", "The office opens on Monday.", False, "number"),
        ("The report is sent in March 2026.", "The report is sent in May 2026.", False, "number"),
        ("The door is locked at night.", "The door is not locked at night.", False, "negation"),
        ("Debug logging is disabled.", "Debug logging is enabled.", False, "negation"),
        ("Stop the worker after the upgrade.", "Stop the worker before the upgrade.", False, "negation"),
        ("The check finishes in an hour.", "The check usually finishes in an hour.", False, "stronger"),
        ("The cache holds 50 pages.", "The cache holds up to 50 pages.", False, "stronger"),
        ("Guests get a key.", "Guests get a key if the host asks for it.", False, "stronger"),
        ("Every printer takes A3.", "The printer takes A3.", False, "stronger"),
        ("Das Tor ist nachts offen.", "Das Tor ist nachts nicht offen.", False, "negation"),
        ("Der Lauf dauert eine Stunde.", "Der Lauf dauert in der Regel eine Stunde.", False, "stronger"),
        ("Der Beitrag beträgt 5 Prozent.", "Der Beitrag beträgt 5 %.", True, None),
    ],
)
def test_numbers_negations_and_hedges(sentence: str, text: str, supported: bool, reason: str | None) -> None:
    found = verdict(sentence, text)
    assert (found.supported, found.reason) == (supported, reason)
    assert (found.score >= 0.5) == supported


@pytest.mark.requirement("B8")
@pytest.mark.parametrize("end", ["?", "?**", '?"', "？"])
def test_a_question_says_nothing_also_where_a_source_asks_the_same(end: str) -> None:
    asked = f"For how many months are minute readings kept{end}"
    assert not verdict(asked, "| Readings | Kept |\n| --- | --- |\n| Minute readings | 13 months |").supported
    assert not verdict(asked, f"{asked} Minute readings are kept for 13 months.").supported


@pytest.mark.requirement("B8")
def test_a_dropped_condition_may_stand_in_the_question() -> None:
    text = "Guests get a key if the host asks for it."
    assert verdict("Guests get a key.", text, question="What do guests get if the host asks?").supported
    assert not verdict("Guests get a key.", text, question="What do guests get?").supported


@pytest.mark.requirement("B8")
def test_the_row_of_a_table_is_read_with_its_header() -> None:
    table = (
        "| Kind | Repair | Exchange |\n| --- | --- | --- |\n| Gateway | 12 days | 3 days |\n| Probe | 8 days | 2 days |"
    )
    assert verdict("The repair of a gateway takes 12 days.", table).supported
    assert not verdict("The repair of a gateway takes 8 days.", table).supported
    assert not verdict("The repair of a gateway takes 3 days.", table).supported


@pytest.mark.requirement("B8")
def test_citations_are_verified_and_repaired() -> None:
    sources = [source(1, "The archive opens at nine."), source(2, "Copies are free of charge.")]
    sentences: list[tuple[str, tuple[int, ...]]] = [
        ("Copies are free of charge.", (2,)),
        ("Copies are free of charge.", (1,)),
        ("Copies are free of charge.", (1, 2)),
        ("Copies are free of charge.", ()),
        ("Copies are free of charge.", (9,)),
        ("Copies are always bound.", ()),
        ("Copies are always bound.", (9,)),
    ]
    found = verdicts(sentences, sources)
    assert [one.cited for one in found] == [(2,)] * 5 + [()] * 2
    assert [one.reason for one in found] == [None] * 5 + ["no_citation", "wrong_citation"]
    assert found[0].quotes == {2: "Copies are free of charge."}


@pytest.mark.requirement("B8")
def test_each_part_of_a_joined_sentence_needs_a_source() -> None:
    sources = [source(1, "The archive opens at nine."), source(2, "Copies are free of charge.")]
    joined, mixed = verdicts(
        [
            ("The archive opens at nine and copies are free of charge.", (1,)),
            ("The archive opens at nine and originals are free of charge.", (1, 2)),
        ],
        sources,
    )
    assert joined.supported and joined.cited == (1, 2) and set(joined.quotes) == {1, 2}
    assert not mixed.supported


@pytest.mark.requirement("B8")
def test_other_languages_need_the_same_words() -> None:
    text = "温度が八度を超えた場合は担当者に連絡してください。毎朝九時に記録します。"
    assert verdict("毎朝九時に記録します。", text).supported
    assert not verdict("毎朝九時に記録しません。", text).supported
    assert not verdict("担当者に連絡してください。", text).supported


@pytest.mark.requirement("B8", "C4")
@pytest.mark.parametrize(
    "held",
    [
        "https://evil.example/?q=secret", "![x](//evil.example/p.png)", "[docs](evil.example/a)", "<img src=x>",
        "`rm -rf /`", "someone@evil.example", "+49 30 1234567", '{"name": "send_mail"', "data:text/html;base64,AAAA",
        "\u202eevil", "a\u200bb", "QUJDREVGR0hJSktMTU5PUFFSU1RVVldYWVphYmNkZWZnaGlqa2xtbm9w", "10.0.0.7/x",
    ],
)  # fmt: skip
def test_what_no_source_holds_never_leaves(held: str) -> None:
    sentence = f"Copies are free of charge {held}."
    found = verdict(sentence, "Copies are free of charge.")
    assert (found.supported, found.reason, found.cited, found.quotes) == (False, "forbidden", (), {})
    visible = not any(char in held for char in "\u202e\u200b")
    assert forbidden(sentence, ["Copies.", f"See {held} there."]) != visible


def test_a_longer_address_than_the_source_has_is_another() -> None:
    assert not forbidden("See https://wiki.example/a.", ["It is at https://wiki.example/a."])
    assert forbidden("See https://wiki.example/a?q=secret.", ["It is at https://wiki.example/a."])
    assert forbidden("See https://wiki.example/a.", ["It is at https://wiki.example/abc."])


async def _failing(text: str) -> Vectors:
    raise RuntimeError(text)


class _Stuck:
    """A reranker that does not answer in time."""

    async def rank(
        self, query: str, passages: Sequence[str], mode: str, *, wanted: int | None, deadline: float
    ) -> Reranked:
        await asyncio.sleep(30)
        return Reranked((), 0.0)


class _Denying:
    """A judge that supports nothing, or everything."""

    def __init__(self, probability: float) -> None:
        self.probability = probability

    async def judge(
        self, question: str, cases: Sequence[Case], sources: Sequence[Source], *, deadline: float
    ) -> list[Mapping[int, float] | None]:
        return [{one.number: self.probability for one in sources} for _ in cases]


@pytest.mark.requirement("B8")
def test_a_model_that_fails_leaves_the_decision_to_the_measures() -> None:
    sources = [source(1, "The archive on the second floor opens at nine in the morning.")]
    sentence = ("At nine in the morning the archive on the second floor opens.", (1,))
    alone = verdicts([sentence], sources)[0]
    assert alone.supported and verdicts([sentence], sources, checker=MeasuredChecker(0.5, embed=_failing))[0] == alone


@pytest.mark.requirement("B8")
def test_past_the_deadline_the_measures_decide_strictly() -> None:
    sources = [source(1, "Transfer status checks normally finish within ten minutes.")]
    sentences = [(sources[0].text, (1,)), ("Checks normally finish within ten minutes", (1,))]
    stuck = MeasuredChecker(0.5, reranking=_Stuck())
    assert [one.supported for one in verdicts(sentences, sources)] == [True, True]
    assert [one.supported for one in verdicts(sentences, sources, checker=stuck, left_s=0.2)] == [True, False]
    assert [one.supported for one in verdicts(sentences, sources, checker=stuck, left_s=-1.0)] == [True, False]


@pytest.mark.requirement("B8")
def test_a_judge_decides_and_overrules_no_veto() -> None:
    sources = [source(1, "Transfer status checks normally finish within ten minutes.")]
    sentences = [(f"Checks normally finish within {number} minutes", (1,)) for number in ("ten", "two")]
    denied, granted = (MeasuredChecker(0.5, judge=_Denying(probability)) for probability in (0.01, 0.99))
    assert [one.supported for one in verdicts(sentences, sources, checker=denied)] == [False, False]
    assert [one.reason for one in verdicts(sentences, sources, checker=granted)] == [None, "number"]


def test_scores_of_models_count() -> None:
    """A model that finds a relation raises the probability, one that finds none lowers it."""

    async def near(text: str) -> Vectors:
        return np.asarray([[1.0, 0.0]], dtype=np.float32)

    async def far(text: str) -> Vectors:
        return np.asarray([[1.0, 0.0] if text.startswith("At nine") else [0.0, 1.0]], dtype=np.float32)

    sources = [source(1, "The archive on the second floor opens at nine in the morning.")]
    sentence = ("At nine in the morning the archive opens.", (1,))
    scores = [verdicts([sentence], sources, checker=MeasuredChecker(0.5, embed=one))[0].score for one in (near, far)]
    assert scores[0] > scores[1]


def test_nothing_to_check_and_nothing_to_check_against() -> None:
    assert verdicts([], [source(1, "Text.")]) == []
    assert [one.supported for one in verdicts([("Text.", (1,)), ("", ()), ("…", (1,))], [])] == [False] * 3
    assert not verdict("…", "Text.").supported


@pytest.mark.requirement("B8")
def test_a_line_without_words_says_nothing_and_breaks_nothing() -> None:
    rule = "Everything else waits until the event loop turns."
    code = f"{rule}\n\n```js\nconst identity = JSON.parse(readFileSync('/factory/identity.json', 'utf8'));\n```\n"
    assert not verdict("const { readFileSync } = require('node:fs');", code).supported
    assert verdict(rule, code).supported


@pytest.mark.requirement("B8")
def test_no_model_reads_what_a_cited_source_says_word_for_word() -> None:
    read: list[str] = []

    async def embed(text: str) -> Vectors | None:
        read.append(text)
        return np.ones((1, 2), dtype=np.float32)

    checker = MeasuredChecker(0.5, embed=embed)
    sources = [source(1, "The gate opens at six. The bell rings."), source(2, "The gate is green.")]
    assert verdicts([("The gate opens at six.", (1,))], sources, checker=checker)[0].supported
    assert read == []
    verdicts([("At six the gate is opened.", (1,))], sources, checker=checker)
    assert read, "other words are for models too"
