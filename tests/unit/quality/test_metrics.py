"""Retrieval metrics against figures worked out by hand."""

from __future__ import annotations

from collections.abc import Sequence
from math import log2
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pipeline.golden import Hit, Label, Question, Retrieved
from pipeline.quality import CUTS, abstention, bootstrap, evaluate, passes, rank, score, table

pytestmark = pytest.mark.requirement("C1")


def ask(*grades: int, **fields: Any) -> Question:
    """A question with one relevant passage a grade: spans `passage 0`, `passage 1`, … of `page.md`."""
    labels = tuple(Label(document="page.md", span=f"passage {n}", grade=grade) for n, grade in enumerate(grades))
    given_fields = {"id": "q", "question": "?", "user": "ann", "tenant": "acme", "kind": "plain"} | fields
    return Question(relevant=labels, **given_fields)


def show(*numbers: int, document: str = "page.md") -> Hit:
    """A hit that shows these passages; none means an irrelevant hit."""
    return Hit(document, " / ".join(f"passage {n}" for n in numbers) or "something else")


def test_two_of_three_returned_are_relevant_and_the_first_one_stands_second() -> None:
    got = rank(ask(1, 1, 1, 1), [show(), show(0), show(1)])
    for k in CUTS:
        assert got.precision[k] == pytest.approx(2 / 3), "the denominator is the returned count"
        assert got.recall[k] == pytest.approx(1 / 2)
        assert got.hit_rate[k] == 1
    assert got.mrr == pytest.approx(1 / 2)


def test_e17_at_two_dense_against_fused() -> None:
    """D1 and D2 are relevant. Dense gives D2, D3; fusion gives D2, D1."""
    d1 = Hit("support/error-e17.md", "E17 means transfer status is pending. Do not resubmit …", ("E17", "Meaning"))
    d2 = Hit("support/transfer-timing.md", "Transfer status checks normally finish within ten minutes.")
    d3 = Hit("support/network-timeouts.md", "After a network timeout, retry the read-only status lookup.")
    question = Question(
        id="e17", question="Can I retry a transfer with E17 immediately?", user="dan", tenant="acme", kind="plain",
        relevant=(
            Label(document="support/error-e17.md", heading="Meaning", grade=3),
            Label(document="support/transfer-timing.md", span="normally finish within ten minutes", grade=2),
        ),
    )  # fmt: skip
    dense, fused = rank(question, [d2, d3]), rank(question, [d2, d1])
    assert (dense.precision[5], dense.recall[5], dense.hit_rate[5]) == pytest.approx((1 / 2, 1 / 2, 1))
    assert (fused.precision[5], fused.recall[5], fused.hit_rate[5]) == pytest.approx((1, 1, 1))
    assert dense.mrr == fused.mrr == 1


def test_ndcg_takes_linear_gains_over_log2() -> None:
    got = rank(ask(3, 2, 1), [show(2), show(), show(0)])
    gained = 1 / log2(2) + 3 / log2(4)
    ideal = 3 / log2(2) + 2 / log2(3) + 1 / log2(4)
    assert got.ndcg[5] == pytest.approx(gained / ideal)


def test_each_cut_has_its_own_list_and_its_own_ideal() -> None:
    hits = [show()] * 5 + [show(0)]
    got = rank(ask(*[1] * 7), hits)
    assert (got.hit_rate[5], got.hit_rate[10], got.recall[10]) == pytest.approx((0, 1, 1 / 7))
    assert (got.precision[5], got.precision[10]) == pytest.approx((0, 1 / 6))
    assert got.mrr == pytest.approx(1 / 6), "cut at the largest k"
    perfect = rank(ask(*[1] * 7), [show(n) for n in range(5)])
    assert perfect.ndcg[5] == pytest.approx(1), "with five hits nothing better is possible at five"
    assert perfect.ndcg[10] < 1
    assert rank(ask(1), [show()] * 10 + [show(0)]).mrr == 0


def test_nothing_returned_is_zero_and_not_an_error() -> None:
    got = rank(ask(3, 1), [])
    figures = [*got.precision.values(), *got.recall.values(), *got.hit_rate.values(), *got.ndcg.values(), got.mrr]
    assert figures == [0] * 9


def test_a_passage_found_twice_is_precise_twice_but_gains_once() -> None:
    twice = rank(ask(3, 3), [show(0), show(0)])
    assert (twice.precision[5], twice.recall[5]) == pytest.approx((1, 1 / 2))
    assert twice.ndcg[5] == pytest.approx(1 / (1 + 1 / log2(3)))


def test_one_hit_that_shows_two_labels_finds_both() -> None:
    got = rank(ask(3, 2), [show(0, 1)])
    assert (got.precision[5], got.recall[5], got.ndcg[5]) == pytest.approx((1, 1, 1))
    apart = rank(ask(3, 2), [show(0), show(), show(0, 1)])
    assert apart.ndcg[5] == pytest.approx((3 + 2 / log2(4)) / (3 + 2 / log2(3)))
    later = rank(ask(3, 2), [show(0), show(0, 1)])
    assert (later.recall[5], later.ndcg[5]) == pytest.approx((1, 1)), "the second label is new in the second hit"


@given(
    grades=st.lists(st.integers(1, 3), min_size=1, max_size=6),
    shown=st.lists(st.sets(st.integers(0, 5), max_size=3), max_size=14),
)
def test_figures_stay_in_range_and_deeper_never_finds_less(grades: list[int], shown: list[set[int]]) -> None:
    hits = [show(*(n for n in sorted(numbers) if n < len(grades))) for numbers in shown]
    got = rank(ask(*grades), hits)
    for figures in (got.precision, got.recall, got.hit_rate, got.ndcg):
        assert all(0 <= value <= 1 + 1e-9 for value in figures.values())
    assert got.recall[5] <= got.recall[10]
    assert got.hit_rate[5] <= got.hit_rate[10]
    assert (got.mrr > 0) == (got.hit_rate[10] == 1) == (got.recall[10] > 0) == (got.ndcg[10] > 0)


@given(st.lists(st.booleans(), min_size=1, max_size=10).filter(any))
def test_moving_relevant_hits_up_never_hurts(relevant: list[bool]) -> None:
    hits = [show(place) if one else show() for place, one in enumerate(relevant)]
    best = sorted(hits, key=lambda hit: hit.text == "something else")
    question = ask(*[1] * len(relevant))
    before, after = rank(question, hits), rank(question, best)
    assert after.mrr == 1
    assert all(after.ndcg[k] >= before.ndcg[k] - 1e-9 for k in CUTS)


def test_a_hit_matches_by_document_heading_or_span_whatever_the_markup() -> None:
    heading = Label(document="a.md", heading="Known faults", grade=3)
    assert heading.matches(Hit("a.md", "leaks", ("Lantern", "Known faults", "Details")))
    assert heading.matches(Hit("a.md", "Intro\n\n## Known  Faults\nleaks")), "merged sections keep it as a line"
    assert not heading.matches(Hit("b.md", "leaks", ("Known faults",)))
    assert not heading.matches(Hit("a.md", "the known faults are", ("Faults",)))
    span = Label(document="a.md", span="Use fs.readFile for everything", grade=3)
    assert span.matches(Hit("a.md", "First. Use `fs.readFile`\nfor everything that happens."))
    assert not span.matches(Hit("a.md", "Use fs.readFileSync for everything"))


# -- a whole set ------------------------------------------------------------------------------------------------------


def answered(*ids: str) -> Retrieved:
    return Retrieved(hits=tuple(show(int(name)) for name in ids))


def test_abstention_counts_every_question_and_ranking_only_those_with_evidence() -> None:
    questions = [ask(1, id="a"), ask(1, id="b"), ask(id="c", kind="unanswerable"), ask(id="d", kind="unanswerable"),
                 ask(id="e", kind="permission", forbidden=("x.md",))]  # fmt: skip
    results = [
        answered("0"),
        Retrieved(hits=(show(),), abstained=True),
        Retrieved(),
        Retrieved(hits=(show(),)),
        Retrieved(hits=(show(),), abstained=True),
    ]
    got = abstention(questions, results)
    assert (got.expected, got.abstained, got.right) == (3, 3, 2)
    assert (got.precision, got.recall, got.f1) == pytest.approx((2 / 3, 2 / 3, 2 / 3))
    report = score(questions, results)
    assert report.overall.recall[5] == pytest.approx(1 / 2), "three questions without evidence are left out"
    assert report.kinds["unanswerable"].ranking is None
    assert report.kinds["plain"].answerable == 2


def test_abstention_without_a_denominator_is_absent() -> None:
    got = abstention([ask(1)], [answered("0")])
    assert (got.precision, got.recall, got.f1) == (None, None, None)


def test_exposures_are_counted_even_where_the_reply_abstains() -> None:
    questions = [ask(1, id="a"), ask(id="b", kind="permission", forbidden=("secret.md",), user="bob")]
    secret = Hit("secret.md", "…")
    results = [Retrieved((show(0), secret)), Retrieved((secret, secret), abstained=True)]
    named = score(questions, results)
    assert (named.forbidden, set(named.exposures)) == (2, {"b: secret.md"})
    checked = score(questions, results, may_read=lambda user, document: document != "secret.md")
    assert checked.forbidden == 3, "every hit is checked, not only the documents that a question names"
    ok, reasons = passes(checked, None)
    assert not ok and "3 hits" in reasons[0]


def test_an_edition_that_was_not_in_effect_fails_the_gate() -> None:
    question = ask(1, kind="as_of", as_of="2025-05-01", excluded=("policy-2024.md",))
    report = score([question], [Retrieved((show(0), Hit("policy-2024.md", "old")))])
    assert report.wrong_editions == ("q: policy-2024.md",)
    assert not passes(report, None)[0]


def test_identifier_first_compares_the_page_with_its_twin() -> None:
    question = ask(1, kind="identifier", twins=("twin.md",))
    twin, other = Hit("twin.md", "near"), Hit("other.md", "far")
    orders: list[tuple[Sequence[Hit], float]] = [
        ([other, show(0), twin], 1),
        ([twin, show(0)], 0),
        ([other], 0),
        ([show(), twin], 1),
    ]
    for hits, share in orders:
        assert score([question], [Retrieved(tuple(hits))]).identifier_first == share
    assert score([ask(1)], [answered("0")]).identifier_first is None


def test_evaluate_asks_in_order_and_scores_by_kind() -> None:
    asked: list[str] = []

    def search(question: Question) -> Retrieved:
        asked.append(question.id)
        return answered("0") if question.kind == "plain" else Retrieved((show(),))

    questions = [ask(1, id="a"), ask(2, id="b", kind="identifier"), ask(1, 1, id="c")]
    report = evaluate(search, questions)
    assert asked == ["a", "b", "c"]
    assert report.kinds["identifier"].ranking is not None and report.kinds["identifier"].ranking.mrr == 0
    assert report.kinds["plain"].ranking is not None
    assert report.kinds["plain"].ranking.recall[10] == pytest.approx((1 + 1 / 2) / 2)
    assert report.overall.mrr == pytest.approx(2 / 3)
    rows = table(report)
    assert [row["kind"] for row in rows] == ["plain", "identifier", "all"]
    assert rows[-1]["MRR"] == "0.667" and rows[1]["P@5"] == "0.000"


def test_bootstrap_is_seeded_and_narrows_with_more_questions() -> None:
    values = [place / 40 for place in range(41)]
    first, again, other = bootstrap(values, seed=1), bootstrap(values, seed=1), bootstrap(values, seed=2)
    assert first == again != other
    assert first.low < first.mean == 0.5 < first.high
    for count in (100, 900):
        evenly = [place / (count - 1) for place in range(count)]
        half = 1.96 * (1 / 12) ** 0.5 / count**0.5
        got = bootstrap(evenly)
        assert got.high - got.low == pytest.approx(2 * half, rel=0.07), "95 %, by the normal approximation"
    certain = bootstrap([0.7] * 9)
    assert (certain.low, certain.mean, certain.high) == pytest.approx((0.7, 0.7, 0.7))
