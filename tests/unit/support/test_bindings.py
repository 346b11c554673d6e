"""Sentences that take their words from the source and tie them together anew, by kind; and true ones beside them."""

from __future__ import annotations

import pytest

from query_service.support.text import read
from tests.unit.support.conftest import source, verdict, verdicts

CASES = [
    # kind, source, what is not said, what is
    ("two doers", "Bram sealed the tank, and Nora opened it again at dawn with a crowbar.",
     "Nora sealed the tank, and Bram opened it again at dawn with a crowbar.",
     "Bram sealed the tank, and Nora opened it again at dawn with a crowbar."),
    ("behind by", "The plan is drawn by Bram and signed by Nora.", "Bram signed the plan.", None),
    ("subject shared", "Heron beat Stork by 9 points and was given the cup.", "Stork was given the cup.", None),
    ("beside the doer", "Heron flew 5 percent higher than Stork but needed twice the fuel.",
     "Stork needed twice the fuel of Heron.", None),
    ("in its place", "Für den Druck der Karten sorgt die Werkstatt, für den Versand das Lager selbst.",
     "Für den Versand sorgt die Werkstatt.", None),
    ("our", "The fee for a lost key goes to the tenant.", "A lost key is at our cost.", None),
    ("rival number", "Fares are 4 euros for adults, children 2 euros.", "Fares are 4 euros for children.", None),
    ("number of another noun", "The pass covers 30 marked trails and may be lent once a month.",
     "The pass may be lent 30 times a month.", None),
    ("unknown unit", "The lift is stopped at winds above 60 km/h.", "The lift is stopped at winds above 60 mph.",
     "The lift is stopped at winds above 60 km/h."),
    ("unless", "The boiler stops at 90 degrees unless the fan is running.",
     "The boiler stops at 90 degrees if the fan is running.", None),
    ("even if", "Guests may swap rooms if both agree.", "Guests may swap rooms even if both disagree.", None),
    ("supposed", "We replace the rope only when the hook is worn.", "The hook is worn.", None),
    ("limit", "Loans up to 300 euros a year are paid in cash.", "Loans are paid in cash.",
     "Loans up to 300 euros a year are paid in cash."),
    ("until", "We keep the old boat until the new engines come.", "We keep the old boat after the new engines come.",
     "We keep the old boat until the new engines come."),
    ("other side", "In weight the oak lies below the ash with 9 kg.", "In weight the ash lies below the oak with 9 kg.",
     None),
    ("two words exchanged", "If the pump reports fault 7, the filter is full.",
     "If the filter reports fault 7, the pump is full.", "If the pump reports fault 7, the filter is full."),
    ("word of the next sentence", "The nurse files the chart every evening. The porter moves the bed.",
     "The porter files the chart every evening.", "The nurse files the chart every evening."),
    ("adjective gone", "Faulty valves are changed within a day. Valves are blue.", "Valves are changed within a day.",
     "Faulty valves are changed within a day."),
    ("compared with nothing", "Nora pays for soup.", "Nora pays more for soup than Bram.", None),
    ("alternative", "The claim lapses on 2 June.", "The claim lapses or is refunded on 2 June.", None),
    ("other way round", "The Dutch text is typed by Bram and read by Nora. For Danish it is the other way round.",
     "The Danish text is typed by Bram and read by Nora.", None),
    ("letters", "Rafts A to F carry a lamp. G and H carry a horn as well.", "Rafts A to F carry a horn as well.",
     None),
    ("one word in common", "Deposits over 500 euros are refunded by the branch.", "Deposits are over.", None),
    ("noun of another sentence", "Smiths need a mask and a pass to enter the forge. Clerks need only a pass.",
     "Clerks need a mask and a pass to enter the forge.", "Clerks need only a pass."),
]  # fmt: skip
TRUE = [
    ("list of places", "A form is needed from the second day in Malta, from the sixth day in Cyprus.",
     "In Cyprus a form is needed from the sixth day."),
    ("only behind", "Ferns were put on the south wall only.", "Only the south wall has ferns."),
    ("per cent", "Only jars with less than 6 per cent sugar are sold.", "Only jars with less than 6 % sugar are sold."),
    ("plural in -ens", "Blue tokens can be renewed.", "A blue token can be renewed."),
]  # fmt: skip
SAID = "Fane keeps the log. "


@pytest.mark.requirement("B8")
@pytest.mark.parametrize(("text", "lie"), [case[1:3] for case in CASES], ids=[case[0] for case in CASES])
def test_words_of_the_source_tied_together_anew_are_no_support(text: str, lie: str) -> None:
    assert not verdict(lie, SAID + text).supported


@pytest.mark.requirement("B8")
@pytest.mark.parametrize(
    ("text", "true"),
    [(c[1], c[3]) for c in CASES if c[3]] + [c[1:] for c in TRUE],
    ids=[c[0] for c in CASES if c[3]] + [c[0] for c in TRUE],
)
def test_what_is_tied_as_in_the_source_is_supported(text: str, true: str) -> None:
    assert verdict(true, SAID + text).supported


def test_a_part_without_subject_is_said_of_the_subject_of_the_first() -> None:
    text = "Guests wear a red badge and are escorted. Clerks wear a white badge and may use the lift."
    assert not verdict("Clerks wear a white badge and are escorted.", text).supported


def test_half_of_a_sentence_that_stands_elsewhere_is_missed_in_a_short_window() -> None:
    sources = [source(1, "Clerks need a pass."), source(2, "Smiths need a mask and gloves to enter the forge.")]
    assert not verdicts([("Clerks need a pass, a mask and gloves to enter the forge.", (1,))], sources)[0].supported


@pytest.mark.parametrize(
    ("text", "labels"), [("Buoys A to F", 2), ("A buoy", 0), ("I saw it", 0), ("12 V and 5 A", 0), ("Door C", 1)]
)
def test_a_single_capital_is_a_name_where_it_is_no_article_or_unit(text: str, labels: int) -> None:
    assert sum(word.text.endswith(" letter") for word in read(text).words) == labels
