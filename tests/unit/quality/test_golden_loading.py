"""Reading the golden set, the readers of the wiki and the baseline; perfect and useless searches over them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from pipeline.golden import FolderReaders, GoldenError, Hit, Label, Question, Retrieved, load_questions
from pipeline.quality import Baseline, Report, compare, evaluate, load_baseline, passes, store_baseline

SAMPLES = Path(__file__).parents[3] / "samples"
WIKI = SAMPLES / "wiki"

pytestmark = pytest.mark.requirement("C1", "C3")

LINE: dict[str, Any] = {
    "id": "a",
    "question": "?",
    "user": "ann",
    "tenant": "acme",
    "kind": "plain",
    "as_of": None,
    "relevant": [{"document": "a.md", "heading": "A", "grade": 3}],
    "forbidden": [],
}


@pytest.fixture(scope="module")
def questions() -> tuple[Question, ...]:
    return load_questions(SAMPLES / "golden" / "questions.jsonl")


@pytest.fixture(scope="module")
def readers() -> FolderReaders:
    return FolderReaders(WIKI)


def hit(label: Label) -> Hit:
    return Hit(label.document, label.span or "…", (label.heading,) if label.heading else ())


def oracle(question: Question) -> Retrieved:
    return Retrieved(tuple(hit(label) for label in sorted(question.relevant, key=lambda label: -label.grade)))


def write(path: Path, *lines: Any) -> Path:
    path.write_text("\n".join(line if isinstance(line, str) else json.dumps(line) for line in lines), encoding="utf-8")
    return path


# -- whole runs over the real set -------------------------------------------------------------------------------------


def test_a_perfect_search_scores_one_everywhere(questions: tuple[Question, ...], readers: FolderReaders) -> None:
    report = evaluate(oracle, questions, may_read=readers.may_read)
    assert report.questions == len(questions) >= 120
    for figures in (report.overall.precision, report.overall.recall, report.overall.hit_rate, report.overall.ndcg):
        assert list(figures.values()) == pytest.approx([1, 1])
    assert report.overall.mrr == report.identifier_first == 1
    assert (report.abstention.precision, report.abstention.recall, report.abstention.f1) == (1, 1, 1)
    assert (report.forbidden, report.wrong_editions) == (0, ())
    assert passes(report, None) == (True, ())


def test_a_search_that_ignores_readers_and_days_is_caught(
    questions: tuple[Question, ...], readers: FolderReaders
) -> None:
    def careless(question: Question) -> Retrieved:
        return Retrieved(tuple(Hit(document, "…") for document in (*question.forbidden, *question.excluded)))

    report = evaluate(careless, questions, may_read=readers.may_read)
    assert report.forbidden == sum(len(question.forbidden) for question in questions) >= 15
    assert len(report.wrong_editions) == sum(len(question.excluded) for question in questions) >= 10
    assert report.overall.mrr == 0
    assert len(passes(report, None)[1]) == 2


def test_results_must_fit_the_questions(questions: tuple[Question, ...]) -> None:
    from pipeline.quality import score

    with pytest.raises(GoldenError, match="1 results for"):
        score(questions, [Retrieved()])
    nobody_can_answer = [question for question in questions if not question.answerable]
    with pytest.raises(GoldenError, match="nothing to rank"):
        evaluate(oracle, nobody_can_answer)


# -- readers ----------------------------------------------------------------------------------------------------------


def test_readers_follow_groups_intersections_and_denies(readers: FolderReaders) -> None:
    assert {"everyone", "group:sre", "group:eng", "group:staff"} <= readers.principals("ann")
    for user, page, may in [
        ("ann", "engineering/runbooks/portal-slow.md", True),
        ("bob", "engineering/runbooks/portal-slow.md", False),
        ("gita", "finance/payroll/payroll-calendar.md", False),
        ("eve", "finance/payroll/payroll-calendar.md", True),
        ("liam", "legal/contract-rules.md", True),
        ("liam", "legal/matters/conduct-review.md", False),
        ("kira", "security/password-rules.md", False),
        ("zed", "company/about.md", False),
        ("omar", "intl/ru-sklad.md", True),
    ]:
        assert readers.may_read(user, page) is may, (user, page)


def test_folder_without_access_file_takes_over_and_group_cycles_end(tmp_path: Path) -> None:
    (tmp_path / "deep" / "er").mkdir(parents=True)
    write(tmp_path / "groups.yaml", "users: [ann, bob]", "groups: {a: ['group:b'], b: ['group:a', ann]}")
    write(tmp_path / "deep" / ".access.yaml", "allow: ['group:a']")
    readers = FolderReaders(tmp_path)
    assert readers.may_read("ann", "deep/er/page.md") and not readers.may_read("bob", "deep/er/page.md")
    assert readers.may_read("bob", "page.md")


@pytest.mark.parametrize("text", ["allow: everyone", "allow: [everyone]\nalow: []", "- a", "allow: [", "allow: [1]"])
def test_an_unusable_access_file_is_an_error_and_not_open(tmp_path: Path, text: str) -> None:
    write(tmp_path / "groups.yaml", "users: [ann]")
    write(tmp_path / ".access.yaml", text)
    with pytest.raises(GoldenError, match=r"\.access\.yaml"):
        FolderReaders(tmp_path).may_read("ann", "page.md")


# -- loading ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"kind": "odd"}, "line 2, kind"),
        ({"relevant": [{"document": "a.md", "grade": 3}]}, "either 'heading' or 'span'"),
        ({"relevant": [{"document": "a.md", "heading": "A", "span": "b", "grade": 3}]}, "either 'heading' or 'span'"),
        ({"relevant": [{"document": "a.md", "heading": "A", "grade": 4}]}, "line 2, relevant.0.grade"),
        ({"as_of": "2025-13-01"}, "line 2, as_of"),
        ({"unknown": 1}, "line 2, unknown"),
        ({"id": "a"}, "id a is used twice"),
    ],
)
def test_a_wrong_line_is_named(tmp_path: Path, change: dict[str, Any], message: str) -> None:
    path = write(tmp_path / "q.jsonl", LINE, LINE | {"id": "b"} | change)
    with pytest.raises(GoldenError, match=message.replace(".", r"\.")):
        load_questions(path)


def test_missing_empty_and_broken_files_are_named(tmp_path: Path) -> None:
    with pytest.raises(GoldenError, match="cannot be read"):
        load_questions(tmp_path / "absent.jsonl")
    with pytest.raises(GoldenError, match="holds no question"):
        load_questions(write(tmp_path / "q.jsonl", "", ""))
    with pytest.raises(GoldenError, match="line 1"):
        load_questions(write(tmp_path / "q.jsonl", "{"))


# -- baseline ---------------------------------------------------------------------------------------------------------


def losing(share: int) -> Any:
    """A search that is perfect except that every `share`-th answerable question gets its hits behind five others."""
    asked = iter(range(10_000))

    def search(question: Question) -> Retrieved:
        found = oracle(question)
        if question.answerable and next(asked) % share == 0:
            return Retrieved((*[Hit("index.md", "…")] * 5, *found.hits))
        return found

    return search


def report_of(questions: tuple[Question, ...], share: int | None) -> Report:
    return evaluate(oracle if share is None else losing(share), questions)


def test_a_real_drop_fails_and_no_change_or_a_tiny_one_passes(questions: tuple[Question, ...], tmp_path: Path) -> None:
    path = tmp_path / "baseline.json"
    assert load_baseline(path, "hybrid") is None
    perfect = report_of(questions, None)
    store_baseline(path, "hybrid", perfect)
    baseline = load_baseline(path, "hybrid")
    assert baseline is not None and baseline.ndcg == pytest.approx(1)

    same = compare(perfect, baseline)
    assert not same.dropped and same.change.mean == pytest.approx(0, abs=1e-4)
    one_question = compare(report_of(questions, 1000), baseline)
    assert one_question.change.mean < 0 and not one_question.dropped
    unlucky = [question.id for question in questions if question.answerable][:2]
    two_lost = evaluate(lambda question: Retrieved() if question.id in unlucky else oracle(question), questions)
    chance = compare(two_lost, baseline)
    assert chance.change.mean < -0.01 and not chance.dropped, "two questions may be chance: the interval reaches 0"
    hair = Baseline(ndcg=1.0, per_question={name: value + 0.005 for name, value in perfect.per_question.items()})
    rounding = compare(perfect, hair)
    assert rounding.change.high < 0 and not rounding.dropped, "all a hair worse: another machine, not another ranking"
    worse = compare(report_of(questions, 10), baseline)
    assert worse.dropped and worse.change.high < 0 and worse.current < worse.baseline
    ok, reasons = passes(report_of(questions, 10), worse)
    assert not ok and reasons[0].startswith("nDCG@10 fell from 1.000 to 0.9")


def test_a_gain_is_never_a_drop_and_other_baselines_stay(questions: tuple[Question, ...], tmp_path: Path) -> None:
    path = tmp_path / "baseline.json"
    store_baseline(path, "dense", report_of(questions, None))
    store_baseline(path, "hybrid", report_of(questions, 2))
    hybrid, dense = load_baseline(path, "hybrid"), load_baseline(path, "dense")
    assert hybrid is not None and dense is not None and hybrid.ndcg < dense.ndcg
    better = compare(report_of(questions, None), hybrid)
    assert better.change.low > 0 and not better.dropped
    assert list(tmp_path.iterdir()) == [path]


def test_questions_that_came_or_went_are_left_out_of_the_comparison(
    questions: tuple[Question, ...], tmp_path: Path
) -> None:
    path = tmp_path / "baseline.json"
    answerable = tuple(question for question in questions if question.answerable)
    store_baseline(path, "hybrid", report_of(answerable[:100], None))
    baseline = load_baseline(path, "hybrid")
    assert baseline is not None
    fewer = compare(report_of(answerable[10:], None), baseline)
    assert (fewer.compared, len(fewer.missing), fewer.dropped) == (90, 10, False)
    with pytest.raises(GoldenError, match="store a new baseline"):
        compare(report_of(answerable[60:], None), baseline)


@pytest.mark.parametrize("text", ["{", "[]", '{"hybrid": {"ndcg": 1}}', '{"hybrid": {"ndcg": 1, "per_question": {}}}'])
def test_a_damaged_baseline_is_an_error_and_not_a_pass(tmp_path: Path, text: str) -> None:
    with pytest.raises(GoldenError, match=r"baseline\.json"):
        load_baseline(write(tmp_path / "baseline.json", text), "hybrid")
