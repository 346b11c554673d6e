"""What a question insists on, and pieces that are about a sibling of it."""

from __future__ import annotations

import pytest

from query_service.answer.extractive import pieces_of
from query_service.answer.insisted import ABSENT, OTHER, About, Specific, insisted, specifics
from tests.unit.answer.extractive_parts import source

PAGE = (
    "## Sweden\n\nParents share 480 days.\n\n## Germany\n\nEach parent may take three years.\n\n"
    "## K3\n\nIt holds 60 litres.\n\n## K4\n\nIt holds 80 litres."
)


def about(question: str, text: str = PAGE, title: str = "Page", language: str | None = None) -> list[float]:
    """What is left of each piece's score."""
    pieces = pieces_of([source(1, text, title=title)])
    found = About(insisted(question, language), pieces)
    return [found.factor(n) for n in range(len(pieces))]


@pytest.mark.parametrize(
    ("text", "wanted"),
    [
        ("What is new in 5.2.0?", Specific("5.2.0", "version")),
        ("What is new in v5.2.0-rc1?", Specific("5.2.0-rc1", "version")),
        ("How do I fix ERR_Q_1010?", Specific("err_q_1010", "err_q_#")),
        ("How many litres does the K4 hold?", Specific("k4", "k#")),
        ("Who reported ticket 4610?", Specific("ticket 4610", "ticket #")),
        ("Does it run on Windows 8?", Specific("windows 8", "windows #")),
        ("What was the allowance in 2019?", Specific("2019", "year")),
    ],
)
def test_versions_codes_numbered_things_and_years_are_insisted_on(text: str, wanted: Specific) -> None:
    assert wanted in specifics(text)


@pytest.mark.parametrize("text", ["Who signs 400,000 kronor?", "Is 1.5 enough of it?,", "Within 45 seconds or 2,000?"])
def test_amounts_are_not(text: str) -> None:
    assert [one for one in specifics(text) if one.shape != "version"] == []


@pytest.mark.requirement("B8")
def test_a_sibling_keeps_little_of_its_score() -> None:
    assert about("How many litres does the K4 hold?")[2:] == [OTHER, 1.0]
    assert about("How many litres does the K5 hold?")[2:] == [OTHER, OTHER]
    assert about("How long may leave last in Germany?")[:2] == [OTHER, 1.0]
    versions = "## 5.2.0\n\nIt is 15 seconds.\n\n## 5.1.0\n\nIt is 60 seconds."
    assert about("What is the default in 5.2?", versions) == [1.0, OTHER]


def test_two_of_a_kind_are_both_asked_for_and_what_speaks_of_several_is_told_by_its_own_words() -> None:
    assert about("Does the K3 or the K4 hold more?")[2:] == [1.0, 1.0]
    text = "The K4 replaces the K3. The K3 holds 60 litres. The K4 holds 80 litres."
    assert about("How many litres does the K4 hold?", text, "K3 and K4") == [1.0, 1.0, 1.0]


def test_a_name_that_only_some_pieces_have_is_missed_in_the_others() -> None:
    text = "The room in Hamburg is open. The room is closed."
    assert about("When is the room in Hamburg open?", text) == [1.0, ABSENT]
    assert about("Wann ist der Raum in Hamburg offen?", text, language="de") == [1.0, ABSENT]
    assert about("Wann ist der Raum offen?", text, language="de") == [1.0, 1.0]


@pytest.mark.requirement("B8")
def test_signals_are_of_one_piece_that_is_about_no_sibling() -> None:
    pieces = pieces_of([source(1, PAGE, title="Leave and kilns")])
    asked = About(insisted("How many litres does the K4 hold?"), pieces)
    assert asked.signals([2, 3]) == {"specific": 1.0, "meant": 1.0}
    assert asked.signals([2]) == {"specific": 0.0, "meant": 0.0}
    cost = About(insisted("What does the K4 cost?"), pieces)
    assert cost.signals([3])["meant"] == 0.0
    words, said = cost.unsaid([3])
    assert words == ["cost"] and "litres" in said
    near = {"cost": dict.fromkeys(said, 0.2) | {"litres": 0.8}}
    assert cost.signals([3], near)["meant"] > 0.5
