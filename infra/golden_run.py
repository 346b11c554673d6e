"""One run over the golden set: every question through the query API as its own person, scored, compared, judged."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, time
from pathlib import Path

from infra.asking import QueryApi
from infra.errors import InfraError
from pipeline.golden import FolderReaders, GoldenError, Hit, Question, Retrieved, load_questions
from pipeline.quality import Comparison, Report, compare, load_baseline, passes, score, store_baseline
from schemas.api import Mode, SearchFilters, SearchResponse

K = 10
# Silent retrieval collapse: the passages are far away and share little more with the question than common words.
#
# Chosen by looking at the golden set of 179 questions (34 of them cannot be answered) with all-MiniLM-L6-v2. The two
# kinds overlap widely: the nearest passage lies at 0.43 (median; 5-95 %: 0.22-0.62) where an answer exists and at 0.58
# (0.36-0.71) where none does, the best BM25 score is 7.7 (3.7-16.2) and 4.3 (2.8-7.7). Of all pairs of thresholds
# these lie on the plateau of the best F1, 0.65: 25 of the 34 are noticed, and 18 of 145 answerable questions are
# declined wrongly. That is measured on the questions that the pair was chosen by; chosen on one half and measured on
# the other (200 random splits) F1 is 0.57. Both scores depend on encoder and corpus, so the pair says how well these
# signals can tell on this corpus, not what another corpus should use.
NEAREST = 0.40
"""Cosine distance of the nearest passage above which the dense list counts as weak."""
SPARSE = 5.5
"""BM25 score of the best passage below which the sparse list counts as weak."""


@dataclass(frozen=True)
class Paths:
    """Where the golden set lies, under a checkout's ``samples``."""

    samples: Path

    @property
    def wiki(self) -> Path:
        """The corpus."""
        return self.samples / "wiki"

    @property
    def questions(self) -> Path:
        """The questions with their labels."""
        return self.samples / "golden" / "questions.jsonl"

    @property
    def facts(self) -> Path:
        """What an answer to each of them has to say."""
        return self.samples / "golden" / "facts.jsonl"

    @property
    def baseline(self) -> Path:
        """The stored runs."""
        return self.samples / "golden" / "baseline.json"


@dataclass(frozen=True)
class Answer:
    """What one question got: the hits, and how close they are."""

    question: Question
    retrieved: Retrieved
    nearest: float | None  # smallest cosine distance of a dense hit
    sparse: float | None  # largest BM25 score
    exact: bool
    ms: float | None


@dataclass(frozen=True)
class Run:
    """A scored run. ``reasons`` say why it does not pass."""

    mode: Mode
    answers: tuple[Answer, ...]
    report: Report
    comparison: Comparison | None
    ok: bool
    reasons: tuple[str, ...]


def checkout() -> Paths:
    """The golden set of this checkout. Raises InfraError where the package was installed without it."""
    paths = Paths(Path(__file__).parents[1] / "samples")
    if not paths.questions.is_file():
        raise InfraError("There is no golden set beside this installation.", "Run it from a checkout of the project.")
    return paths


def questions_of(paths: Paths) -> tuple[tuple[Question, ...], str]:
    """The questions, and the one tenant that they are asked in. Raises InfraError."""
    try:
        questions = load_questions(paths.questions)
    except GoldenError as error:
        raise InfraError(f"{error}.", f"Correct {paths.questions}.") from error
    tenants = {question.tenant for question in questions}
    if len(tenants) != 1:
        raise InfraError(f"The questions name the tenants {sorted(tenants)}.", "The wiki is loaded into one tenant.")
    return questions, tenants.pop()


def run(api: QueryApi, paths: Paths, mode: Mode, progress: Callable[[int, int], None], *, store: bool = False) -> Run:
    """Ask all questions and judge the answers; with ``store`` the run becomes the baseline of its mode.

    Raises InfraError: the service does not answer, or a file of the golden set cannot be used.
    """
    questions, _ = questions_of(paths)
    answers = []
    for number, question in enumerate(questions, 1):
        answers.append(ask(api, question, mode))
        progress(number, len(questions))
    try:
        return _judge(answers, paths, mode, store)
    except GoldenError as error:
        raise InfraError(f"{error}.", "See samples/golden/RUBRIC.md.") from error
    except ImportError as error:
        raise InfraError(f"{error}.", "Install the extra `quality`: pip install 'headwater[quality]'.") from error


def _judge(answers: Sequence[Answer], paths: Paths, mode: Mode, store: bool) -> Run:
    readers = FolderReaders(paths.wiki)
    report = score([a.question for a in answers], [a.retrieved for a in answers], may_read=readers.may_read)
    baseline = load_baseline(paths.baseline, mode)
    comparison = compare(report, baseline) if baseline is not None and not store else None
    ok, reasons = passes(report, comparison)
    if store and ok:
        store_baseline(paths.baseline, mode, report)
    return Run(mode, tuple(answers), report, comparison, ok, reasons)


def ask(api: QueryApi, question: Question, mode: Mode) -> Answer:
    """One question, on its own day, as its own person."""
    as_of = None
    if question.as_of is not None:
        as_of = int(datetime.combine(question.as_of, time(), UTC).timestamp()) * 1_000_000
    filters = SearchFilters(as_of=as_of)
    # Without the reranker: how many passages it scores in its time depends on the machine.
    response = api.search(
        question.user, question.tenant, question.question, k=K, mode=mode, filters=filters, rerank="off"
    )
    return answer(question, response, mode)


def answer(question: Question, response: SearchResponse, mode: Mode) -> Answer:
    """The reply as the metrics read it. With one list alone only an empty reply counts as abstaining."""
    hits = tuple(Hit(h.path or h.document_id, h.text, h.heading_path) for h in response.hits)
    distances = [h.scores.dense_distance for h in response.hits if h.scores.dense_distance is not None]
    sparse = [h.scores.sparse_score for h in response.hits if h.scores.sparse_score is not None]
    nearest, best = min(distances, default=None), max(sparse, default=None)
    exact = any(h.scores.exact for h in response.hits)
    abstained = mode == "hybrid" and collapsed(nearest, best, exact=exact)
    ms = response.timings_ms.get("total")
    return Answer(question, Retrieved(hits, abstained), nearest, best, exact, ms)


def collapsed(nearest: float | None, sparse: float | None, *, exact: bool) -> bool:
    """Whether nothing sufficiently relevant was found: no exact identifier, and both lists weak or empty."""
    return not exact and (nearest is None or nearest > NEAREST) and (sparse is None or sparse < SPARSE)
