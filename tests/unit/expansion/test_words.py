"""What of a generator's text may become a query, and the parts of a question by rules."""

from __future__ import annotations

import json
import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pipeline import analysis
from query_service.expansion.decompose import parts
from query_service.expansion.words import LONGEST, content, distinct, queries_of, query_of

pytestmark = pytest.mark.requirement("B11")


@pytest.mark.parametrize(
    ("question", "expected"),
    [
        (
            "Which pack belongs in the gateway whose sale ended on 31 March 2025, and how long does it last?",
            ["Which pack belongs in the gateway whose sale ended on 31 March 2025", "how long does it last",
             "pack belongs", "gateway sale ended on 31 March 2025", "Which pack belongs in gateway"],
        ),
        ("Who looks after the app in which I upload receipts for courses?",
         ["app I upload receipts for courses", "Who looks after app"]),
        ("How do I reset the probe? Who pays for a new one?", ["How do I reset the probe", "Who pays for a new one"]),
        ("Which is faster, REST or gRPC?", ["REST", "gRPC"]),
        ("What is the difference between the X-500-G2 and the X-500-G3 in winter?",
         ["the X-500-G2 in winter", "the X-500-G3 in winter"]),
        ("Is Kafka faster than Pulsar?", ["Is Kafka faster", "Is Pulsar faster"]),
        ("compare hot storage with cold storage", ["hot storage", "cold storage"]),
        ("limits for guests and for employees", ["limits guests", "limits employees"]),
        ("Wie lange gilt die Garantie, und wer bezahlt den Versand?",
         ["Wie lange gilt die Garantie", "wer bezahlt den Versand"]),
        ("Was kostet das Gerät, das den Fehler E17 anzeigt, und wie lange hält es?",
         ["Was kostet das Gerät, das den Fehler E17 anzeigt", "wie lange hält es", "Gerät den Fehler E17 anzeigt"]),
        ("Was ist der Unterschied zwischen Kafka und Pulsar?", ["Kafka", "Pulsar"]),
        ("Ist der X-500-G2 schneller als der X-500-G3?", ["Ist der X-500-G2 schneller", "Ist der X-500-G3 schneller"]),
        ("Wer betreut die Anwendung, in der ich Belege für Kurse hochlade?",
         ["Anwendung ich Belege für Kurse hochlade"]),
    ],
)  # fmt: skip
def test_a_question_in_parts(question: str, expected: list[str]) -> None:
    found = parts(question, 10)
    for part in expected:
        assert any(part in other for other in found), f"{part!r} in {found}"


@pytest.mark.parametrize(
    "question",
    ["travel policy", "Who knows that the pump fails?", "ERR_CONNECTION_TIMED_OUT", "Fisch und Brot", "?", "and"],
)
def test_what_has_no_parts_is_left_alone(question: str) -> None:
    assert parts(question, 10) == []


@pytest.mark.parametrize("question", ["a{}b", "Who writes seals,{}and who reads them?", "{}", "is a{}than"])
def test_a_question_cannot_keep_the_rules_busy(question: str) -> None:
    """4,000 blanks in a row took them minutes."""
    began = time.process_time()
    assert parts(question.format(" " * 4000), 10) == parts(question.format(" "), 10)
    for filling in ("a", "plan ", '" ', '"a" ', "x, ", "for a or "):
        assert parts(question.format(filling * 4000)[:4096], 10) == []
    assert time.process_time() - began < 1.0


def test_quoted_words_are_never_torn() -> None:
    for part in parts('Where is "stop, and who goes" written, and who owns the page "a or b"?', 10):
        assert part.count('"') % 2 == 0
        assert "stop" not in part or '"stop, and who goes"' in part


_ASKED = st.lists(
    st.sampled_from(
        ["who", "owns", "the", "pump", "and", "or", "which", "that", ",", "?", "wer", "und", "die", "Anlage",
         "X-500-G2", "between", "than", "faster", "vs", "it", '"', "whose", "seal", ";", "zwischen", "both", "for"]
    ),
    max_size=30,
).map(" ".join)  # fmt: skip


@given(st.one_of(_ASKED, st.text(max_size=120)), st.integers(1, 6))
def test_parts_are_few_distinct_and_made_of_the_question_alone(question: str, limit: int) -> None:
    found = parts(question, limit)
    words = set(analysis.tokens(question))
    assert len(found) <= limit and found == distinct(found, question)
    for part in found:
        assert set(analysis.tokens(part)) <= words and content(part)
    assert found == parts(question, limit)


@pytest.mark.parametrize(
    ("reply", "expected"),
    [
        ('["first query", "second query"]', ["first query", "second query"]),
        ('```json\n["first query"]\n```', ["first query"]),
        ('{"queries": ["first query", 7, null, "second query"]}', ["first query", "second query"]),
        ("1. first query\n2) second query\n- third query", ["first query", "second query", "third query"]),
        ('Here are two:\nQuery 1: "first query"\n\nsecond query\n', ["first query", "second query"]),
        ("I'm sorry, I cannot help with that.", []),
        ("", []), ("[", []), ('["unclosed', []), ("{}", []), ("[[]]", []), ("\n \n", []), ("???", []),
        ("the of and", []),
        ("<script>alert(1)</script>", []), ("word " * 60, []), ("w" * (LONGEST + 1), []),
        ('["a\\u0000b\\u202e query"]', ["a b query"]),
        (json.dumps([["nested query"]]), []),
    ],
)  # fmt: skip
def test_only_what_can_be_a_query_becomes_one(reply: str, expected: list[str]) -> None:
    assert queries_of(reply) == expected


@given(st.text(max_size=400))
def test_any_reply_gives_bounded_plain_lines(reply: str) -> None:
    for query in [*queries_of(reply), *([query_of(reply)] if query_of(reply) else [])]:
        assert query is not None and 0 < len(query) <= LONGEST
        assert "\n" not in query and '"' not in query and content(query)


def test_the_same_words_are_the_same_query() -> None:
    assert distinct(["Reset the PROBE", "probe reset the", "reset a pump"], "the probe: reset!") == ["reset a pump"]
