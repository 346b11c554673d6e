"""Sentences of the source's own words that say something else, by kind; and true ones beside them."""

from __future__ import annotations

import pytest

from tests.unit.support.conftest import verdict

SAID = "Fane keeps the log. "  # so that the sentence in question is not the only one
CASES = [
    # kind, source, what is not said, what is
    ("range", "The drum is heated to between 60 and 75 degrees.", "The drum is heated to 60 degrees.", None),
    ("by, to", "The rent rose by 8 percent.", "The rent rose to 8 percent.", "The rent rose by 8 %."),
    ("points", "Turnout fell by 3 percent.", "Turnout fell by 3 percentage points.", None),
    ("cents", "A copy costs 30 cents, at most 4 euros.", "A copy costs 30 euros.", None),
    ("date before", "The mast was painted in April 2023.", "The mast was painted before April 2023.", None),
    ("pairs", "Sales fell from 9 tonnes in May to 7 tonnes in July.",
     "Sales fell from 9 tonnes in July to 7 tonnes in May.", "Sales fell from 9 tonnes in May to 7 tonnes in July."),
    ("comparison", "The ferry is slower than the train.", "The train is slower than the ferry.",
     "The ferry is slower than the train."),
    ("superlative", "The ferry is slower than the train.", "The ferry is the slowest.", None),
    ("roles", "The broker sends orders to the bank.", "The bank sends orders to the broker.",
     "The broker sends orders to the bank."),
    ("passive", "The leak was caused by a loose cap.", "A loose cap was caused by the leak.",
     "A loose cap caused the leak."),
    ("denied", "The tenant denies that the door was forced.", "The door was forced.",
     "The tenant denies that the door was forced."),
    ("attributed", "According to Ann Vik, the move will take a week.", "The move will take a week.",
     "According to Ann Vik, the move will take a week."),
    ("advised", "Doctor Lund advised the crew to rest for two days.", "The crew rested for two days.", None),
    ("refused", "The board rejected the proposal to sell the mill.", "The board sold the mill.", None),
    ("tense", "The annex was closed in 2022.", "The annex will be closed in 2022.", "The annex was closed in 2022."),
    ("exception", "All guests except children sign the book.", "All guests sign the book.",
     "All guests except children sign the book."),
    ("including", "All guests except children sign the book.", "All guests including children sign the book.", None),
    ("narrowed", "The gate opens for vans of the Holm company.", "The gate opens for vans.", None),
    ("narrowed subject", "Clients in Spain were not charged.", "Clients were not charged.", None),
    ("only", "The cook may enter it only after the guard has left.",
     "Only the cook may enter it after the guard has left.", None),
    ("neither", "Neither the scan nor the print erases the file.", "The print erases the file.",
     "The print does not erase the file."),
    ("switched", "The pump was switched off on 3 May.", "The pump was switched on on 3 May.", None),
    ("with", "Parcels without a seal are returned with form 12.", "Parcels with a seal are returned with form 12.",
     None),
    ("invented end", "Some riders reported cramps after the race.",
     "Some riders reported cramps after the race and called lawyers.", None),
    ("order", "Press the green key twice.", "Press the green key before the red key.", None),
    ("borrowed", "Before a key is drawn, its lamp is dimmed. Keys without a lamp are void.",
     "After a key is drawn, its lamp is dimmed.", None),
    ("month of May", "The fair moves to the harbour in May.", "The fair moves to the harbour in June.",
     "The fair moves to the harbour in May."),
    ("past event", "Power returned at 16:40.", "Power returned at 16:50.", "Power returned at 16:40."),
    ("once", "The dam was opened at 16:40 after the rain was measured.", "The dam was opened at 16:50.",
     "The dam was opened at 16:40."),
    ("behind the number", "Output grew by 6 percent over the same weeks.", "Output grew by 9 percent.",
     "Output grew by 6 percent."),
    ("no, per", "Pump B moves 40 litres per minute.", "Pump B moves 40 gallons per minute.",
     "Pump B moves 40 litres per minute."),
    ("and, or", "Divers need a mask and a rope to enter the well.", "Divers need a mask or a rope to enter the well.",
     "Divers need a mask and a rope to enter the well."),
    ("manner", "The horn cannot be silenced remotely.", "The horn cannot be silenced.",
     "The horn can't be silenced remotely."),
    ("agents", "It is tuned every year by the maker of the organ.", "The maker is tuned by the organ.", None),
    ("complained", "The nurse complained that the lift was slow.", "The lift was slow.", None),
    ("narrowed lead", "Friends of the zoo pay nothing.", "Friends pay nothing.", None),
    ("one couple", "The club lost 3 kg in 2021 and won 2 kg in 2022.", "The club lost 3 kg in 2022.", None),
]  # fmt: skip


@pytest.mark.requirement("B8")
@pytest.mark.parametrize(("text", "lie"), [case[1:3] for case in CASES], ids=[case[0] for case in CASES])
def test_the_words_of_a_source_otherwise_related_are_no_support(text: str, lie: str) -> None:
    found = verdict(lie, SAID + text)
    assert not found.supported and found.score <= 0.5


@pytest.mark.requirement("B8")
@pytest.mark.parametrize(("text", "true"), [(c[1], c[3]) for c in CASES if c[3]], ids=[c[0] for c in CASES if c[3]])
def test_what_is_said_with_its_relations_is_supported(text: str, true: str | None) -> None:
    assert true is not None
    assert verdict(true, SAID + text).supported


def test_an_overhead_line_says_nothing_of_what_stands_below() -> None:
    from tests.unit.support.conftest import source, verdicts

    below = source(1, "The hatch is oiled every week.", title="Crane C-2 is out of order")
    assert not verdicts([("The hatch is out of order.", (1,))], [below])[0].supported
