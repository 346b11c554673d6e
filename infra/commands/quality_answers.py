"""The part of ``quality`` that is about answers: one table, what stands beside it, and where failed ones were lost."""

from __future__ import annotations

from typing import Any

from rich.console import Console

from infra.answer_run import AnswerRun
from infra.commands.output import table
from pipeline.answer_report import Answered, AnswerReport, Figures

SHOWN = 3  # sentences that the measure of words does not find, at most


def plain_answers(made: AnswerRun) -> dict[str, Any]:
    """The run for programs. It holds texts of answers: they are of the sample wiki."""
    return {
        "ok": made.ok,
        "reasons": list(made.reasons),
        "style": made.style,
        "report": made.report.model_dump(mode="json"),
        "comparison": made.comparison.model_dump(mode="json") if made.comparison is not None else None,
        "diagnoses": [{"id": d.question, "stage": d.stage, "said": d.said} for d in made.diagnoses],
        "answers": [_answer(one) for one in made.answers],
    }


def _answer(one: Answered) -> dict[str, Any]:
    return {
        "id": one.question.id,
        "kind": one.question.kind,
        "answerable": one.question.answerable,
        "answered": one.answered,
        "right": one.right,
        "refused": one.refused,
        "missing": list(one.missing) if one.question.answerable else [],
        "needs_review": one.needs_review,
        "sentences": [{"text": c.text, "support": c.support, "by_words": c.by_words} for c in one.claims],
        "documents": list(dict.fromkeys(hit.document for hit in one.citations)),
        "withheld": one.withheld,
        "words": one.words,
        "ms": one.ms,
        "fallback": one.fallback,
    }


def rows(made: AnswerRun) -> list[dict[str, str]]:
    """One for each kind, the last one over all."""
    report = made.report
    return [*(_row(kind, found) for kind, found in report.kinds.items()), _row("all", report.overall)]


def _row(name: str, found: Figures) -> dict[str, str]:
    return {
        "kind": name,
        "questions": str(found.questions),
        "answered": str(found.answered),
        "right": _three(found.right),
        "complete": _three(found.complete),
        "if answered": _three(found.complete_answered),
        "faithful": _three(found.faithful_words),
        "cites label": _three(found.citations_right),
        "labels cited": _three(found.labels_cited),
        "review": _three(found.reviewed),
        "words": "–" if found.words is None else f"{found.words:.0f}",
        "p50 ms": "–" if found.p50_ms is None else f"{found.p50_ms:.0f}",
    }


def show_answers(out: Console, made: AnswerRun) -> None:
    """The table and what stands beside it."""
    report, abstention = made.report, made.report.abstention
    listed = rows(made)
    shown = table(*listed[0])
    for row in listed:
        shown.add_row(*row.values())
    out.print(shown)
    lines = [
        f"answers, {made.style}: {report.interval.mean:.3f} of the questions come out right, 95 % interval"
        f" {report.interval.low:.3f} to {report.interval.high:.3f}",
        "right: all asked facts are said, or nothing can be answered and nothing is",
        f"faithful: a cited page holds the sentence's words, {len(report.unsupported_by_words)} of {report.claims}"
        " do not; it is no measure of meaning",
        f"support as the service's own checker estimates it: lowest released {_three(report.checker_lowest)},"
        f" {report.withheld} sentences withheld",
        f"refusals: {abstention.right} of {abstention.expected} where nothing can be answered,"
        f" {abstention.abstained} in all; precision {_three(abstention.precision)}, recall"
        f" {_three(abstention.recall)}, F1 {_three(abstention.f1)}",
        f"exposures: {len(report.exposures)}, wrong editions: {len(report.wrong_editions)}",
    ]
    if report.relevance is not None:
        lines.append(
            f"relevance by {report.relevance_by}: {report.relevance:.3f}, mean of {report.relevance_of} answers"
        )
    if report.judge is not None:
        lines.append(_judged(report))
    if report.fallbacks:
        lines.append(f"{report.fallbacks} answers were taken from the sources although a generator was wanted")
    if made.comparison is not None:
        change = made.comparison.change
        lines.append(
            f"baseline {made.comparison.baseline:.3f}: change {change.mean:+.3f}, interval {change.low:+.3f} to"
            f" {change.high:+.3f}{', dropped' if made.comparison.dropped else ''}"
        )
    lines.append("stored as the baseline of this style" if made.stored else "")
    for line in filter(None, lines):
        out.print(line, highlight=False, markup=False)
    for said in report.unsupported_by_words[:SHOWN]:
        out.print(f"not found by words: {said}", highlight=False, markup=False)
    _show_diagnoses(out, made)
    for reason in made.reasons:
        out.print(f"fails: {reason}", style="red", highlight=False, markup=False)


def _judged(report: AnswerReport) -> str:
    """A judge that does not count is named without a figure: people would take it for one."""
    if not report.judge_counts:
        return f"judge: its scores are left out, {report.judge}"
    return f"judge: {_three(report.judged)} of 1, mean of {report.judged_claims} sentences; {report.judge}"


def _show_diagnoses(out: Console, made: AnswerRun) -> None:
    if not made.diagnoses:
        return
    counted: dict[str, list[str]] = {}
    for diagnosis in made.diagnoses:
        counted.setdefault(f"{diagnosis.stage}: {diagnosis.said}", []).append(diagnosis.question)
    out.print(f"{len(made.diagnoses)} questions are not right, lost at:", highlight=False, markup=False)
    for said, names in sorted(counted.items(), key=lambda item: -len(item[1])):
        out.print(f"  {len(names):>3}  {said}", highlight=False, markup=False)
        out.print(f"       {' '.join(names)}", highlight=False, markup=False)


def _three(value: float | None) -> str:
    return "–" if value is None else f"{value:.3f}"
