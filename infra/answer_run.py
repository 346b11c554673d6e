"""The golden questions at ``/v1/answer``: each as its own person, scored, compared with the stored run, judged."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, time
from pathlib import Path
from typing import Literal

from infra.answer_judging import Assessor, Embed
from infra.asking import QueryApi
from infra.corpus import pages
from infra.errors import InfraError
from infra.golden_run import Paths, questions_of
from pipeline.answer_diagnosis import Diagnosis, Looked, diagnose, held, in_corpus
from pipeline.answer_quality import answer_relevance, count_words, lacking, plain_text, supported_by_words
from pipeline.answer_report import (
    Answered,
    AnswerReport,
    Claim,
    Facts,
    compare_answers,
    load,
    load_facts,
    passes,
    points_at,
    score_answers,
    store,
)
from pipeline.golden import FolderReaders, GoldenError, Hit, Question
from pipeline.quality import Comparison
from schemas.api import SearchFilters
from schemas.api_answer import AnswerRequest, AnswerResponse
from schemas.api_ranking import EvidencePassage

Style = Literal["auto", "extractive", "generated"]
CONTEXT = 5  # the default of answer.context; what a diagnosis looks at
POOL = 100
EVERYTHING = 32_000  # tokens; what the service gives at most
Oracle = Callable[[Question, Sequence[EvidencePassage]], str]
"""What the answerer says of these passages alone, the sentences that pass their check."""


@dataclass(frozen=True)
class AnswerRun:
    """A scored run. ``reasons`` say why it does not pass."""

    style: Style
    answers: tuple[Answered, ...]
    report: AnswerReport
    comparison: Comparison | None
    ok: bool
    reasons: tuple[str, ...]
    diagnoses: tuple[Diagnosis, ...] = ()
    stored: bool = False


@dataclass
class Corpus:
    """The pages as they lie in their files, by path: what answers are held against."""

    root: Path
    texts: Mapping[str, str] = field(default_factory=dict)

    @classmethod
    def of(cls, root: Path) -> Corpus:
        """All pages of a folder."""
        texts = {str(p.relative_to(root)): _text(p) for p in pages(root)}
        return cls(root, texts)

    def says(self, sentence: str, documents: Sequence[str]) -> bool:
        """By words, one of these pages; a sentence of two clauses may rest on two pages."""
        if any(supported_by_words(sentence, self.texts.get(document, "")) for document in documents):
            return True
        clauses = [part for part in sentence.replace(";", ",").split(",") if part.strip()]
        return len(clauses) > 1 and all(
            any(supported_by_words(part, self.texts.get(document, "")) for document in documents) for part in clauses
        )


def _text(page: Path) -> str:
    text = page.read_text(encoding="utf-8")
    return plain_text(text) if page.suffix in (".html", ".htm") else text


def run_answers(
    api: QueryApi,
    paths: Paths,
    style: Style,
    progress: Callable[[int, int], None],
    *,
    store_run: bool = False,
    oracle: Oracle | None = None,
    every: int = 1,
    assessor: Assessor | None = None,
    embed: Embed | None = None,
) -> AnswerRun:
    """Ask all questions and judge what came; each that is not right is diagnosed.

    Args:
        api: asks the running product.
        paths: the golden set.
        style: who writes.
        progress: receives (done, all).
        store_run: the run becomes the baseline of its style, if nothing else fails.
        oracle: the answerer alone, for diagnoses.
        every: each so many-th question alone, for a look that takes a minute.
        assessor: a generator that reads the answers; relevance is then by questions that it makes from them.
        embed: of question and answer, for relevance where there is no assessor.

    Raises:
        InfraError: the service does not answer, or a file of the golden set cannot be used.
    """
    questions = questions_of(paths)[0][::every]
    corpus, readers = Corpus.of(paths.wiki), FolderReaders(paths.wiki)
    try:
        facts = load_facts(paths.facts, questions)
        answers = []
        for number, question in enumerate(questions, 1):
            response = api.answer(question.user, question.tenant, request_of(question, style))
            one = answered(question, facts.get(question.id, ()), response, corpus)
            answers.append(_assessed(one, response, assessor, embed))
            progress(number, len(questions))
        diagnoses = tuple(
            found
            for one in answers
            if not one.right and (found := _diagnosed(api, one, corpus, readers, oracle)) is not None
        )
        judge = assessor.standing if assessor is not None else None
        report = score_answers(answers, style, may_read=readers.may_read, judge=judge)
        baseline = load(paths.baseline, style)
        if baseline is not None and every > 1:  # what was not asked is not missing
            asked = {one.id: value for one in questions if (value := baseline.per_question.get(one.id)) is not None}
            mean = sum(asked.values()) / max(1, len(asked))
            baseline = baseline.model_copy(update={"ndcg": mean, "per_question": asked})
        comparison = compare_answers(report, baseline) if baseline is not None and not store_run else None
        ok, reasons = passes(report, comparison)
        if store_run and ok:
            store(paths.baseline, report)
    except GoldenError as error:
        raise InfraError(f"{error}.", "See samples/golden/RUBRIC.md.") from error
    return AnswerRun(style, tuple(answers), report, comparison, ok, reasons, diagnoses, store_run and ok)


def filters_of(question: Question) -> SearchFilters:
    """The question's own day."""
    if question.as_of is None:
        return SearchFilters()
    return SearchFilters(as_of=int(datetime.combine(question.as_of, time(), UTC).timestamp()) * 1_000_000)


def request_of(
    question: Question, style: Style, *, context: int | None = None, budget: int | None = None
) -> AnswerRequest:
    """As its person would ask, without the cache."""
    return AnswerRequest(
        question=question.question, style=style, filters=filters_of(question), cache=False, explain=True,
        context=context, token_budget=budget,
    )  # fmt: skip


def answered(question: Question, facts: Facts, response: AnswerResponse, corpus: Corpus) -> Answered:
    """The reply as the measures read it."""
    of = {c.number: c.document_id for c in response.citations}
    claims = tuple(
        Claim(
            sentence.text,
            sentence.support,
            corpus.says(sentence.text, list(dict.fromkeys(of[n] for n in sentence.citations if n in of))),
        )
        for sentence in response.sentences
    )
    return Answered(
        question=question,
        facts=facts,
        answered=response.answered,
        text=response.text,
        claims=claims,
        citations=tuple(Hit(c.document_id, c.quote, c.heading_path) for c in response.citations),
        refused=response.refusal.reason if response.refusal is not None else None,
        needs_review=response.needs_review,
        withheld=response.withheld,
        words=count_words(" ".join(sentence.text for sentence in response.sentences)),
        ms=response.timings_ms.get("total"),
        tokens=response.usage.prompt_tokens + response.usage.completion_tokens,
        fallback=response.fallback,
        pages=corpus.texts,
    )


def _assessed(one: Answered, response: AnswerResponse, assessor: Assessor | None, embed: Embed | None) -> Answered:
    """With its relevance, and a score for each sentence where somebody gives one."""
    if not one.answered:
        return one
    said = " ".join(claim.text for claim in one.claims)
    if assessor is None:
        if embed is None:
            return one
        return replace(one, relevance=answer_relevance(embed(one.question.question), answer=embed(said)))
    asked, quotes = one.question.question, {c.number: c.quote for c in response.citations}
    claims = tuple(
        replace(claim, judged=assessor.score(asked, claim.text, [quotes[n] for n in sentence.citations]))
        for claim, sentence in zip(one.claims, response.sentences, strict=True)
    )
    return replace(one, claims=claims, relevance=assessor.relevance(asked, said))


# -- diagnosis ---------------------------------------------------------------------------------------------------------


def _diagnosed(
    api: QueryApi, one: Answered, corpus: Corpus, readers: FolderReaders, oracle: Oracle | None
) -> Diagnosis | None:
    return diagnose(one.question, look(api, one, corpus, readers, oracle) if one.question.answerable else None)


def look(api: QueryApi, one: Answered, corpus: Corpus, readers: FolderReaders, oracle: Oracle | None) -> Looked:
    """What corpus, candidates, context, the answerer with oracle context, and the citations hold of one question."""
    question = one.question
    pool = passages(api, question, POOL)
    context = passages(api, question, CONTEXT)
    best = [p for p in pool if any(points_at(_hit(p), label) for label in question.relevant)]
    said = oracle(question, best) if oracle is not None and best else None
    return Looked(
        corpus=in_corpus(question, dict(corpus.texts), readers.may_read),
        pool=held(question, [_hit(p) for p in pool]),
        context=held(question, [_hit(p) for p in context]),
        oracle=None if said is None else not lacking(one.facts, said),
        cited=any(one.cited(hit) for hit in one.citations),
        complete=one.answered and not one.missing,
    )


def passages(api: QueryApi, question: Question, k: int) -> tuple[EvidencePassage, ...]:
    """The passages of the first ``k`` hits, whole, best first."""
    response = api.search(
        question.user, question.tenant, question.question, k=k, filters=filters_of(question), rerank="off",
        evidence="sections", token_budget=EVERYTHING,
    )  # fmt: skip
    found = response.evidence.passages if response.evidence is not None else ()
    return tuple(sorted(found, key=lambda passage: passage.rank))


def _hit(passage: EvidencePassage) -> Hit:
    return Hit(passage.document_id, passage.text, passage.heading_path)
