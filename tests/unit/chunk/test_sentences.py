"""Sentence ends."""

from __future__ import annotations

from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pipeline.chunk.sentences import is_limiting, sentence_spans


def sentences(text: str) -> list[str]:
    return [text[a:b] for a, b in sentence_spans(text)]


@pytest.mark.requirement("A4")
@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("One. Two! Three?", ["One.", "Two!", "Three?"]),
        ("Use v2.4.18, e.g. on Dr. Weiß's desk. Then stop.", ["Use v2.4.18, e.g. on Dr. Weiß's desk.", "Then stop."]),
        ('He said "stop." Then he left.', ['He said "stop."', "Then he left."]),
        ("Wait... and go on. Done.", ["Wait... and go on.", "Done."]),
        ("障害です。連絡してください。", ["障害です。", "連絡してください。"]),
        ("line one\nline two", ["line one", "line two"]),
        ("z. B. am 3. Mai. Nr. 5 gilt.", ["z. B. am 3. Mai.", "Nr. 5 gilt."]),
        ("   ", []),
    ],
)
def test_sentences(text: str, expected: list[str]) -> None:
    assert sentences(text) == expected


@pytest.mark.requirement("A4")
@settings(max_examples=100, deadline=None)
@given(st.text("ab .!?\n\"'A。", max_size=80))
def test_no_character_is_lost(text: str) -> None:
    spans = sentence_spans(text)
    assert "".join(text[a:b] for a, b in spans).replace(" ", "").replace("\n", "") == text.replace(" ", "").replace(
        "\n", ""
    )
    assert all(b <= c for (_, b), (c, _) in pairwise(spans))


@pytest.mark.requirement("A4")
def test_limiting_words() -> None:
    assert all(
        map(is_limiting, ["Unless asked.", "except on Sundays", "- Only if paid", "“However, no", "außer montags"])
    )
    assert not any(map(is_limiting, ["Only a test", "Exceptional work", "The butler", "Butter is sold"]))
