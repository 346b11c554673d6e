"""Questions that mean the same, and questions that only look alike."""

from __future__ import annotations

import numpy as np
import pytest

from infra.bench.cache_pairs import Pair, measured, pairs
from pipeline.ports import Vectors
from query_service.cache.signature import Signature


def same(a: str, b: str) -> bool:
    return Signature.of(a) == Signature.of(b)


@pytest.mark.requirement("B10")
@pytest.mark.parametrize(
    ("a", "b"),
    [
        ("How do I reset my password?", "how can I reset the passwords"),
        ("What is the deadline?", "What's the deadline?"),
        ("Could you please tell me who approves travel?", "Who approves travel?"),
        ("What are the steps to restore a backup?", "How do I restore backups?"),
        ("Wie kann ich mein Passwort ändern?", "Wie kann man das Passwort ändern"),
    ],
)
def test_other_words_of_the_same_question(a: str, b: str) -> None:
    assert same(a, b)


@pytest.mark.requirement("B10")
@pytest.mark.parametrize(
    ("a", "b"),
    [
        ("Is port 8080 open?", "Is port 8443 open?"),
        ("export with headers", "export without headers"),
        ("Which rate applies in the EU?", "Which rate applies in the US?"),
        ("Which rate applies to us?", "Which rate applies to the US?"),
        ("move from A to B", "move from B to A"),
        ("Is it paid?", "Why is it paid?"),
        ("When does it start?", "When did it start?"),
        ("Can I read it?", "Can't I read it?"),
        ("limit of -5 degrees", "limit of 5 degrees"),
        ('what is "warm standby"', "what is warm standby"),
        ("restart the web server", "restart the mail server"),
        ("May I leave?", "Must I leave?"),
        ("set fs.readFile", "set fs.readFileSync"),
        ("什么是港口", "什么是机场"),
    ],
)
def test_another_question(a: str, b: str) -> None:
    assert not same(a, b)


@pytest.mark.requirement("B10")
def test_no_pair_of_different_questions_has_one_signature() -> None:
    """Whatever an encoder says: with every cosine at 1 the signature alone decides."""

    def alike(text: str) -> Vectors:
        return np.ones((1, 1), dtype=np.float32)

    found = pairs()
    assert len(found) >= 60 and {pair.half for pair in found} == {"tune", "held"}
    shares, wrong = measured(found, alike, 0.95)
    assert wrong == [] and shares.hits > shares.same / 2
    _, blind = measured(found, alike, 0.95, signature=False)
    assert len(blind) == shares.different, "without it they would all be hits"
    assert measured([Pair("men bite dogs", "dogs bite men", True, "held")], alike, 0.95)[0].hits == 0
