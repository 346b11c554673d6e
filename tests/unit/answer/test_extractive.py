"""Answers made of the sources' own sentences."""

from __future__ import annotations

import re

import pytest

from query_service.answer.extractive import ExtractiveWriter
from query_service.answer.units import units
from tests.unit.answer.extractive_parts import GENERATION, WordEncoder, WordReranking, ask, source, written

E17 = "## Meaning\n\nE17 means transfer status is pending. Do not resubmit until the status check completes."
TIMING = (
    "## Usual duration\n\nTransfer status checks normally finish within ten minutes. Most are done in four seconds.\n\n"
    "## Canteen\n\nSoup is served at noon."
)


@pytest.mark.requirement("B8")
def test_the_case_of_e17_says_what_must_not_be_done_with_what_the_code_means() -> None:
    question = ask(
        "Can I retry a transfer with E17 immediately?",
        source(1, E17, title="Error code E17"),
        source(2, TIMING, title="How long transfers take"),
    )
    said = written(question)
    assert "E17 means transfer status is pending.[^1] Do not resubmit until the status check completes.[^1]" in said
    assert "Soup" not in said
    # with a model that sees that a transfer's time matters, the second source is told as well
    told = written(question, ExtractiveWriter(None, WordReranking("ransfer"), lambda: None))
    assert "Transfer status checks normally finish within ten minutes.[^2]" in told


@pytest.mark.requirement("B8")
def test_every_sentence_is_the_sources_own_and_cites_the_passage_it_was_taken_from() -> None:
    texts = {1: E17, 2: TIMING}
    said = written(ask("How long does a transfer status check take?", *(source(n, t) for n, t in texts.items())))
    parts = re.findall(r"(.+?)\[\^(\d)\]\s*", said)
    assert parts
    for words, number in parts:
        assert words in texts[int(number)]


def test_a_heading_answers_for_a_sentence_that_shares_no_word_with_the_question() -> None:
    text = "## How long an export takes\n\nAbout two hours.\n\n## Colours\n\nThe button is green."
    assert written(ask("How long does an export take?", source(1, text))) == "About two hours.[^1]"


@pytest.mark.parametrize(
    ("question", "wanted"),
    [
        ("Who keeps the archive?", "Ann Solberg keeps the archive."),
        ("How many boxes does the archive keep?", "The archive keeps 400 boxes."),
        ("When was the archive moved?", "The archive was moved in 2019."),
        ("Why was the archive moved?", "The archive was moved because the cellar was wet."),
    ],
)
def test_what_is_asked_for_decides_between_sentences_on_one_subject(question: str, wanted: str) -> None:
    text = (
        "The archive was moved because the cellar was wet. The archive was moved in 2019. Ann Solberg keeps the "
        "archive. "
        "The archive keeps 400 boxes."
    )
    assert written(ask(question, source(1, text)), sentences=1) == f"{wanted}[^1]"


def test_a_row_is_told_with_its_columns() -> None:
    text = "| Code | Meaning |\n| --- | --- |\n| E20 | Consignor unknown |\n| E21 | Key reused |"
    assert written(ask("What does E21 mean?", source(1, text))) == "- Code: E21; Meaning: Key reused.[^1]"


def test_steps_are_told_whole_and_in_order() -> None:
    text = (
        "## Removing the training entry\n\n1. Start the editor.\n2. Open the hosts file.\n3. Delete the training "
        "line.\n"
        "4. Restart the browser.\n\n## Other\n\nThe port is 8417."
    )
    said = written(ask("How do I remove the training entry?", source(1, text)))
    assert said == (
        "1. Start the editor.[^1]\n2. Open the hosts file.[^1]\n3. Delete the training line.[^1]\n4. Restart the "
        "browser.[^1]"
    )


@pytest.mark.requirement("B8")
def test_steps_under_the_asked_heading_come_before_a_remark_that_shares_more_words() -> None:
    remark = source(1, "Whoever wants to renew the certificate of the plant asks a day before.", title="Safe")
    steps = source(2, "## Renewing the certificate\n\n1. Sign the request.\n2. Restart both gateways.", title="Plant")
    said = written(ask("How do I renew the certificate of the plant?", remark, steps), sentences=1)
    assert said == "1. Sign the request.[^2]\n2. Restart both gateways.[^2]"


@pytest.mark.requirement("B8")
@pytest.mark.parametrize(
    "second",
    ["Anything above is signed by the board.", "Above 900 euros the board signs.", "Above that, the board signs."],
)
def test_a_bound_is_told_from_both_sides(second: str) -> None:
    text = f"Orders up to 900 euros are signed by the team lead. {second} Tea is free."
    said = written(ask("Who signs an order of 2,000 euros?", source(1, text)))
    assert said == f"Orders up to 900 euros are signed by the team lead.[^1] {second}[^1]"


@pytest.mark.requirement("B8")
def test_what_to_do_comes_with_what_is_the_matter_and_not_from_another_code() -> None:
    text = (
        "## ERR_A_10\n\nThe lease was lost. Restart it with `ctl restart`.\n\n## ERR_A_20\n\nThe queue is full. Do not "
        "purge the queue."
    )
    assert written(ask("How do I fix ERR_A_10?", source(1, text))) == (
        "The lease was lost.[^1] Restart it with `ctl restart`.[^1]"
    )
    one = "If the client shows ERR_B_1, its certificate has expired. Renew it with `ctl renew` and restart the client."
    assert written(ask("How do I fix ERR_B_1?", source(1, one))).endswith("restart the client.[^1]")


@pytest.mark.requirement("B8")
@pytest.mark.parametrize(
    ("question", "wanted"),
    [
        ("What is the default of poll.rate in 5.2.0?", "The setting poll.rate now is 15 seconds."),
        ("What is the default of poll.rate in 5.1.0?", "The setting poll.rate is 60 seconds."),
    ],
)
def test_of_two_versions_the_one_that_is_asked_for_is_told(question: str, wanted: str) -> None:
    text = (
        "## 5.2.0\n\nThe setting poll.rate now is 15 seconds.\n\n## 5.1.0\n\nThe setting poll.rate is 60 seconds. "
        "Tea is free."
    )
    said = written(ask(question, source(1, text)))
    assert wanted in said and said.count("seconds") == 1


def test_a_limit_comes_with_what_it_limits() -> None:
    text = "Refunds are paid within ten days. Unless the order was made abroad, no form is needed. Tea is free."
    said = written(ask("When are refunds paid?", source(1, text)))
    assert said == "Refunds are paid within ten days.[^1] Unless the order was made abroad, no form is needed.[^1]"


def test_a_sentence_that_points_back_comes_with_what_it_points_at() -> None:
    text = "The relay has a spare key. It is kept in the bank vault of Trondheim.\n\nLunch is at noon."
    said = written(ask("In which bank vault is it kept?", source(1, text)))
    assert said == "The relay has a spare key.[^1] It is kept in the bank vault of Trondheim.[^1]"


def test_code_comes_with_the_sentence_that_announces_it() -> None:
    text = "To test the address run:\n\n```text\nnslookup portal.example\n```\n\nPlants need water."
    said = written(ask("How do I test the address?", source(1, text)))
    assert said == "To test the address run:[^1] `nslookup portal.example`[^1]"


def test_the_same_is_not_said_twice_and_another_number_is_not_the_same() -> None:
    one = "The goodwill limit is 500 euros for each case."
    same = "For each case the goodwill limit is 500 euros."
    other = "The goodwill limit is 300 euros for each case."
    said = written(ask("What is the goodwill limit?", source(1, one), source(2, same), source(3, other)))
    assert said.count("500") == 1 and said.count("300") == 1


def test_what_is_not_in_effect_is_told_only_where_nothing_else_says_it() -> None:
    old = source(1, "The train is taken up to 900 km.", in_effect=False)
    new = source(2, "The train is taken up to 700 km.")
    assert "900" not in written(ask("Up to what distance is the train taken?", old, new))
    assert "900" in written(ask("Up to what distance is the train taken?", old, source(2, "Lunch is at noon.")))


@pytest.mark.parametrize(
    "text",
    [
        "Home > Products > Refunds > Limits",
        "See also: refunds",
        "https://wiki.example/refunds https://wiki.example/limits",
        "What is the limit of refunds?",
        "The limit of refunds.",
    ],
)
def test_navigation_and_the_question_itself_are_no_answer(text: str) -> None:
    assert written(ask("What is the limit of refunds?", source(1, text))) == ""


def test_nothing_is_said_where_no_source_has_to_do_with_the_question() -> None:
    assert written(ask("Which database does the shop use?", source(1, "Lunch is at noon. Tea is free."))) == ""
    assert written(ask("Which database does the shop use?")) == ""


def test_a_longer_answer_than_allowed_stops_between_sentences() -> None:
    text = "The archive has 400 boxes. The archive has 3 rooms of equal size. The archive has 12 keys in a drawer."
    said = written(ask("What does the archive have?", source(1, text), max_tokens=16))
    assert said.endswith("[^1]") and said.count("[^1]") < 3


def test_footnotes_and_links_of_a_source_do_not_become_ours() -> None:
    text = "The limit is 500 euros[^7] as [finance](https://evil.example/x) says."
    assert written(ask("What is the limit?", source(1, text))) == "The limit is 500 euros as finance says.[^1]"


def test_where_a_question_leans_on_the_history_what_was_searched_for_is_compared() -> None:
    text = "In Norway parental leave is 22 weeks. In Germany parental leave is 14 weeks."
    said = written(ask("and in Germany?", source(1, text), query="How long is parental leave in Germany?"), sentences=1)
    assert said == "In Germany parental leave is 14 weeks.[^1]"


# ---------------------------------------------------------------- models

PAGE = source(1, "The lid lifts when cells swell. The lid has four screws. Paint the lid green.")
QUESTION = "Why is the battery of my unit fat?"


def test_meaning_finds_what_shares_no_word_where_the_encoder_is_loaded() -> None:
    encoder = WordEncoder("battery cells", "fat swell", "green paint", "screws four")
    writer = ExtractiveWriter(encoder, None, lambda: GENERATION, 1)
    assert written(ask(QUESTION, PAGE), writer) == "The lid lifts when cells swell.[^1]"
    cold = ExtractiveWriter(WordEncoder("battery cells", loaded=False), None, lambda: GENERATION, 1)
    assert written(ask(QUESTION, PAGE), cold) == ""


def test_a_slow_encoder_is_not_waited_for() -> None:
    encoder = WordEncoder("archive", wait_s=5.0)
    writer = ExtractiveWriter(encoder, None, lambda: GENERATION, 1)
    text = source(1, "The archive has 400 boxes. Tea is free.")
    said = written(ask("How many boxes has the archive?", text, seconds=0.2), writer)
    assert said == "The archive has 400 boxes.[^1]"
    assert encoder.asked


def test_the_cross_encoder_decides_between_equals_and_reads_headings() -> None:
    text = source(1, "## Rooms\n\nThe archive has 4 rooms.\n\n## Staff\n\nThe archive has 9 people.")
    reranking = WordReranking("people")
    writer = ExtractiveWriter(None, reranking, lambda: None, 1)
    assert written(ask("What does the archive have?", text), writer) == "The archive has 9 people.[^1]"
    assert "Staff. The archive has 9 people." in reranking.passages


def test_a_cross_encoder_that_scored_nothing_changes_nothing() -> None:
    text = source(1, "The archive has 400 boxes. Tea is free.")
    question = ask("How many boxes has the archive?", text)
    silent = ExtractiveWriter(None, WordReranking("tea", most=0), lambda: None, 1)
    assert written(question, silent) == written(question, sentences=1) == "The archive has 400 boxes.[^1]"


# ---------------------------------------------------------------- pieces


def test_pieces_know_their_headings_lists_and_code() -> None:
    text = (
        "Opening.\n\n## First\n\n- One. It has two sentences.\n- Two\n\n### Deep\n\n```js\na();\n\nb();\n```\n\n## "
        "Second\n\nEnd."
    )
    found = units(text, 3, ("Page",))
    assert [(u.kind, u.text, u.opens) for u in found] == [
        ("sentence", "Opening.", False),
        ("item", "One.", True),
        ("item", "It has two sentences.", False),
        ("item", "Two", True),
        ("code", "a();\n\nb();", False),
        ("sentence", "End.", False),
    ]
    assert [u.headings for u in found][3:] == [("Page", "First"), ("Page", "First", "Deep"), ("Page", "Second")]
    assert found[4].language == "js" and {u.source for u in found} == {3}
    assert [u.at for u in found] == list(range(6))


def test_a_long_block_of_code_is_left_out_whole() -> None:
    assert units("```\n" + "x = 1\n" * 200 + "```\n\nEnd.", 1)[0].text == "End."


@pytest.mark.requirement("B8")
def test_a_list_answers_for_the_line_that_it_stands_under() -> None:
    page = (
        "Before the first day a laptop is ordered.\n\nOn the first day:\n\n- Collect the badge.\n- Set a password.\n\n"
        "In the first week:\n\n- Complete the training.\n- Meet the mentor.\n"
    )
    day = written(ask("What do I have to do on my first day?", source(1, page)))
    week = written(ask("What do I have to do in the first week?", source(1, page)))
    assert "badge" in day and "password" in day and "training" not in day and "mentor" not in day
    assert "training" in week and "mentor" in week and "badge" not in week


@pytest.mark.requirement("B8")
@pytest.mark.parametrize(
    ("question", "text", "wanted"),
    [
        ("When does the plan begin?", "The plan begins in May. The plan costs 40 euros.", "The plan begins in May."),
        ("Is the sauna open?", "The sauna is open. Towels are free.", "The sauna is open."),
        ("Is the shop closed?", "The shop is not closed. Tea is free.", "The shop is not closed."),
        ("May I park here?", "You may not park here. The garage has 40 places.", "You may not park here."),
    ],
)
def test_a_sentence_of_the_questions_words_that_answers_it_is_no_repetition(
    question: str, text: str, wanted: str
) -> None:
    assert written(ask(question, source(1, text)), sentences=1) == f"{wanted}[^1]"


def test_a_month_that_is_a_word_elsewhere_tells_two_reports_apart() -> None:
    text = "The May report is due on 4 June. The March report is due on 5 April."
    assert written(ask("When is the May report due?", source(1, text)), sentences=1).startswith("The May report")


@pytest.mark.requirement("B8")
def test_a_prohibition_comes_along_from_the_next_paragraph_and_from_below_a_list() -> None:
    apart = source(1, "E17 means transfer status is pending.\n\nDo not resubmit until the status check completes.")
    other = source(2, "After a network timeout, retry the read-only status lookup.")
    said = written(ask("Can I retry a transfer with E17 immediately?", apart, other))
    assert "Do not resubmit until the status check completes.[^1]" in said
    steps = source(1, "To reset the badge:\n\n1. Hold the badge.\n2. Enter the PIN.\n\nDo not remove the battery.")
    assert "Do not remove the battery.[^1]" in written(ask("How do I reset the badge?", steps))
