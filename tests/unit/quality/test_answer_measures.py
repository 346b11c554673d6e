"""Measures of one answer against figures worked out by hand."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pipeline.answer_judge import KAPPA, LABELS, agreement, kappa, load, load_labels, standing
from pipeline.answer_judge import store as store_judge
from pipeline.answer_quality import (
    FLOOR,
    answer_relevance,
    context_precision,
    context_recall,
    context_relevance,
    count_words,
    faithfulness,
    judge_answer,
    judge_score,
    lacking,
    plain_text,
    says,
    section_of,
    supported_by_words,
)
from pipeline.golden import GoldenError

pytestmark = pytest.mark.requirement("C2")

PAGE = """# Error code E17

## Meaning

E17 means transfer status is pending. Do not resubmit until the status check completes.

## Timing

Transfer status checks normally finish within ten minutes.

| Code | Remedy |
| --- | --- |
| E11 | Show a new code, the old one lived 20 minutes |
"""


def test_four_of_five_claims_are_the_floor() -> None:
    assert faithfulness([True, True, True, True, False]) == pytest.approx(0.8) == FLOOR
    assert faithfulness([]) is None, "nothing said is neither faithful nor unfaithful"


def test_two_of_five_passages_and_the_share_of_labels() -> None:
    assert context_precision([True, False, True, False, False]) == pytest.approx(0.4)
    assert context_recall([True, False, False, False]) == pytest.approx(0.25)
    assert context_recall([]) is None


def test_context_relevance_counts_sentences() -> None:
    assert context_relevance(3, 12) == pytest.approx(0.25)
    assert context_relevance(0, 0) is None
    with pytest.raises(ValueError, match="13 relevant sentences of 12"):
        context_relevance(13, 12)


def test_answer_relevance_is_the_mean_over_three_regenerated_questions() -> None:
    question = [1.0, 0.0]
    got = answer_relevance(question, regenerated=[[1.0, 0.0], [0.0, 2.0], [1.0, 1.0]], answer=[0.0, 1.0])
    assert got is not None
    assert got.value == pytest.approx((1 + 0 + 2**-0.5) / 3)
    assert got.by == "regenerated questions"
    with pytest.raises(ValueError, match="give 3"):
        answer_relevance(question, regenerated=[[1.0, 0.0]])


def test_without_a_generator_it_is_another_measure_and_says_so() -> None:
    got = answer_relevance([1.0, 0.0], answer=[3.0, 4.0])
    assert got is not None
    assert got.value == pytest.approx(0.6)
    assert got.by == "answer itself"
    assert answer_relevance([1.0, 0.0]) is None
    with pytest.raises(ValueError, match="zeros"):
        answer_relevance([1.0, 0.0], answer=[0.0, 0.0])


@pytest.mark.parametrize(("score", "share"), [(1, 0.2), (3, 0.6), (5, 1.0)])
def test_a_judge_scores_one_to_five(score: int, share: float) -> None:
    assert judge_score(score) == pytest.approx(share)


@pytest.mark.parametrize("score", [0, 6, True])
def test_another_score_is_an_error(score: int) -> None:
    with pytest.raises(ValueError, match="1 to 5"):
        judge_score(score)


CLAIMS = ["E17 means pending.", "Checks run by themselves.", "The clock is grey.", "The number begins with CT."]


def test_faithful_enough_and_still_wrong_where_the_asked_fact_is_the_fifth() -> None:
    judged = judge_answer([*((c, True) for c in CLAIMS), ("It takes ten minutes.", False)], [["10 minutes"]])
    assert judged.faithfulness == pytest.approx(0.8)
    assert judged.complete is False
    assert judged.missing == ("10 minutes",)
    assert [reason.split(":")[0] for reason in judged.reasons] == ["not complete"], "faithfulness alone would pass"
    assert not judged.ok


def test_with_the_asked_fact_among_the_four_it_passes() -> None:
    claims = [*((c, True) for c in CLAIMS[:3]), ("It takes ten minutes.", True), (CLAIMS[3], False)]
    judged = judge_answer(claims, [["10 minutes"]])
    assert judged.faithfulness == pytest.approx(0.8)
    assert judged.complete
    assert judged.ok


def test_three_of_five_fail_whatever_they_say() -> None:
    judged = judge_answer([(c, n < 3) for n, c in enumerate([*CLAIMS, "More."])], [["pending"]])
    assert judged.complete
    assert judged.reasons == ("faithfulness 0.60 is below 0.8",)


def test_an_answer_beside_the_question_fails_by_relevance() -> None:
    relevance = answer_relevance([1.0, 0.0], answer=[0.1, 1.0])
    assert judge_answer([(CLAIMS[0], True)], [], relevance).reasons[0].startswith("relevance by answer itself")


@pytest.mark.parametrize(
    ("fact", "text", "there"),
    [
        ("45 seconds", "You have forty-five or 45 seconds.", True),
        ("ten minutes", "Within 10 minutes.", True),
        ("44", "It costs 440 euros.", False),
        ("4", "v2.4.18", False),
        ("14:15", "Lunch is at 14:15.", True),
        ("ERR_TIMED_OUT", "See ERR_TIMED_OUT.", True),
        ("ammoniac", "car l'ammoniac attaque", True),
        ("橡胶护套", "先取下橡胶护套。", True),
        ("sand bucket", "Use the sand-filled bucket", False),
    ],
)
def test_a_fact_is_whole_words(fact: str, text: str, there: bool) -> None:
    assert says(text, fact) is there


def test_a_fact_has_spellings_and_all_facts_are_needed() -> None:
    assert lacking([["2027-08-14", "14 August 2027"], ["Trondheim"]], "On 14 August 2027.") == ("Trondheim",)


@pytest.mark.parametrize(
    ("sentence", "there"),
    [
        ("Do not resubmit until the status check completes.", True),
        ("Transfer status checks normally finish within 10 minutes.", True),
        ("Transfer status checks normally finish within 15 minutes.", False),
        ("Code: E11, Remedy: Show a new code, the old one lived 20 minutes", True),
        ("The transfer will be refunded by accounting on Monday.", False),
        ("", False),
        ("It is so.", False),
    ],
)
def test_support_by_words(sentence: str, there: bool) -> None:
    assert supported_by_words(sentence, PAGE) is there


def test_words_scattered_over_a_page_do_not_support() -> None:
    page = "\n".join(["finish early", *["filler"] * 9, "transfers within minutes", *["filler"] * 9, "normally checks"])
    assert not supported_by_words("transfers normally finish within minutes checks", page)


def test_tags_are_no_text() -> None:
    assert plain_text("<td>9 &lt; 10</td><style>x{}</style><!-- no -->").split() == ["9", "<", "10", "|"]


def test_words_are_counted_in_scripts_without_blanks_too() -> None:
    assert count_words("One two, v2.4.18.") == 3
    assert count_words("一メートル以上") == 4


# -- judge -------------------------------------------------------------------------------------------------------------


def test_kappa_by_hand() -> None:
    """Cohen's example: 20 yes-yes, 5 yes-no, 10 no-yes, 15 no-no: agreement 0.7, by chance 0.5."""
    one = [True] * 25 + [False] * 25
    other = [True] * 20 + [False] * 5 + [True] * 10 + [False] * 15
    assert kappa(one, other) == pytest.approx(0.4)
    assert kappa([True, True], [True, True]) == 1.0
    with pytest.raises(ValueError, match="one of each"):
        kappa([True], [])


@given(st.lists(st.booleans(), min_size=2, max_size=60))
def test_kappa_is_symmetric_and_bounded(labels: list[bool]) -> None:
    other = [bool(np.random.default_rng(n).integers(2)) for n in range(len(labels))]
    assert kappa(labels, other) == pytest.approx(kappa(other, labels))
    assert -1 <= kappa(labels, other) <= 1


def test_a_judge_counts_only_with_enough_labels_that_it_agrees_with() -> None:
    labels = [n % 2 == 0 for n in range(LABELS)]
    right = agreement("m", "judge this", labels, labels)
    assert standing(right, "m", "judge this").counts
    assert not standing(right, "m", "judge that").counts, "another prompt is another judge"
    assert not standing(right, "other", "judge this").counts
    assert not standing(None, "m", "judge this").counts
    few = agreement("m", "p", labels[:199], labels[:199])
    assert not standing(few, "m", "p").counts
    noise = agreement("m", "p", [n % 3 == 0 for n in range(LABELS)], labels)
    assert noise.kappa < KAPPA
    assert not standing(noise, "m", "p").counts
    assert (noise.false_accepts, noise.false_rejects) == (33, 66)


def test_the_record_is_kept(tmp_path: Path) -> None:
    path = tmp_path / "judge.json"
    assert load(path) is None
    record = agreement("m", "p", [True, False], [True, True])
    store_judge(path, record)
    assert load(path) == record
    path.write_text("{}")
    with pytest.raises(GoldenError, match="no record of a judge"):
        load(path)


def test_labels_are_read_from_all_files(tmp_path: Path) -> None:
    folder = tmp_path
    (folder / "a.jsonl").write_text('{"id": "1", "label": "supported"}\n\n{"id": "2", "label": "contradicted"}\n')
    assert load_labels(folder) == [("1", True), ("2", False)]
    (folder / "b.jsonl").write_text('{"id": "3", "label": "perhaps"}\n')
    with pytest.raises(GoldenError, match=r"b.jsonl line 1, label"):
        load_labels(folder)


# -- pages -------------------------------------------------------------------------------------------------------------

TABLE = "# Models\n\n| Property | X-500-G2 | X-500-G3 |\n| --- | --- | --- |\n" + "".join(
    f"| Property {n} | {n} | {n + 1} |\n" for n in range(10, 20)
)


def test_a_row_is_said_with_the_header_of_its_table_however_far_above() -> None:
    assert supported_by_words("Property: Property 19; X-500-G2: 19; X-500-G3: 20.", TABLE)
    assert not supported_by_words("Property: Property 19; X-500-G2: 19; X-500-G3: 21.", TABLE.replace("| 21 |", "|"))


def test_a_page_of_tags_keeps_headings_and_rows() -> None:
    rows = "<tr><th>Day</th><th>Room</th></tr><tr><td>Monday</td><td>4</td></tr>"
    page = f"<h2>Dates</h2><table>{rows}</table><h2>No</h2>"
    text = plain_text(page)
    assert "## Dates" in text
    assert supported_by_words("Day: Monday; Room: 4", text)
    assert "Monday" in section_of(text, "Dates")
    assert "No" not in section_of(text, "Dates")


def test_a_section_ends_at_a_heading_of_its_level() -> None:
    assert section_of(PAGE, "meaning").strip().startswith("E17 means transfer status is pending.")
    assert "Timing" not in section_of(PAGE, "Meaning")
    assert "Timing" in section_of(PAGE, "Error code E17")
    assert section_of(PAGE, "Absent") == ""
