"""Quality of answers: measures of one answer, each a pure function. ``answer_report`` joins them over a golden set.

Conventions, the same everywhere:

* a claim is a released sentence; faithfulness = supported claims / claims (RAGAS, Es et al. 2023), 0.8 is the floor;
* context precision = relevant passages supplied / passages supplied; context recall = labels found / labels;
* context relevance = relevant sentences retrieved / sentences retrieved (RAGAS);
* answer relevance = mean cosine of the question with questions regenerated from the answer. That needs a generator;
  without one it is the cosine of question and answer, another measure, and is named so;
* completeness: every fact that was asked for stands in the answer;
* a share of nothing is None, never 0 or 1.
"""

from __future__ import annotations

import html
import re
import unicodedata
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from pipeline.golden import level

FLOOR = 0.8
"""Faithfulness below which an answer fails."""
RELEVANCE_FLOOR = 0.3
"""Cosine of question and answer below which an answer is beside the question."""
REGENERATED = 3
WORDS_FLOOR = 0.8
"""Share of a sentence's words that a passage must hold to support it by words."""
JUDGE_SCALE = 5
RelevanceBy = Literal["regenerated questions", "answer itself"]
Vector = NDArray[np.float32] | Sequence[float]

_WORD = re.compile(r"[^\W_]+(?:[.,:/-][^\W_]+)*")
_FIGURE = re.compile(r"\d")
_TAG = re.compile(r"<(?:script|style)\b.*?</(?:script|style)>|<!--.*?-->|<[^>]+>", re.DOTALL | re.IGNORECASE)
_MARKUP = (
    *((re.compile(rf"<h{n}[^>]*>(.*?)</h{n}>", re.DOTALL | re.IGNORECASE), f"\n{'#' * n} \\1\n") for n in range(1, 7)),
    (re.compile(r"<tr[^>]*>(?=\s*<th)", re.IGNORECASE), "\n#| "),
    (re.compile(r"<tr[^>]*>|</?(?:p|li|pre|div|dd|dt)\b[^>]*>", re.IGNORECASE), "\n"),
    (re.compile(r"\s*</t[dh]>\s*", re.IGNORECASE), " | "),
)
_HEADING = re.compile(r"\s*(#{1,6})\s+(.*)")
_RULE = re.compile(r"\s*\|?\s*:?-{3,}")
_UNSPACED = re.compile(r"[぀-ヿ㐀-鿿가-힯]")
_SMALL = (
    "zero one two three four five six seven eight nine ten eleven twelve thirteen fourteen fifteen sixteen seventeen "
    "eighteen nineteen twenty"
)
_TENS = {"thirty": "30", "forty": "40", "fifty": "50", "sixty": "60", "seventy": "70", "eighty": "80", "ninety": "90"}
_NUMBERS = {word: str(n) for n, word in enumerate(_SMALL.split())} | _TENS
_SHORT = 3  # letters of words that say little by themselves; no word lists, so that languages are measured alike


def share(part: int, whole: int) -> float | None:
    """``part / whole``, None of nothing."""
    return part / whole if whole else None


def faithfulness(supported: Sequence[bool]) -> float | None:
    """Supported claims / claims: four of five is 0.8. None without claims."""
    return share(sum(supported), len(supported))


def context_precision(relevant: Sequence[bool]) -> float | None:
    """Relevant passages / passages supplied: two of five is 0.4."""
    return share(sum(relevant), len(relevant))


def context_recall(found: Sequence[bool]) -> float | None:
    """Labelled passages that were supplied / labelled passages."""
    return share(sum(found), len(found))


def context_relevance(relevant: int, sentences: int) -> float | None:
    """Relevant sentences / sentences retrieved. Raises ValueError where more are relevant than there are."""
    if relevant > sentences:
        raise ValueError(f"{relevant} relevant sentences of {sentences}: count each once")
    return share(relevant, sentences)


def judge_score(score: int) -> float:
    """A judge's score of 1 to 5 as 0.2 to 1. Raises ValueError for another one."""
    if isinstance(score, bool) or not 1 <= score <= JUDGE_SCALE:
        raise ValueError(f"a judge's score is 1 to {JUDGE_SCALE}, not {score}")
    return score / JUDGE_SCALE


@dataclass(frozen=True)
class Relevance:
    """Answer relevance and how it was measured; the two ways are not comparable."""

    value: float
    by: RelevanceBy


def answer_relevance(
    question: Vector, *, regenerated: Sequence[Vector] = (), answer: Vector | None = None
) -> Relevance | None:
    """Mean cosine of the question with the regenerated questions, else its cosine with the answer; None of neither.

    Raises ValueError: other than three regenerated questions, or a vector of zeros.
    """
    if regenerated:
        if len(regenerated) != REGENERATED:
            raise ValueError(f"{len(regenerated)} regenerated questions: give {REGENERATED}, or none")
        mean = float(np.mean([cosine(question, one) for one in regenerated]))
        return Relevance(mean, "regenerated questions")
    return None if answer is None else Relevance(cosine(question, answer), "answer itself")


def cosine(one: Vector, other: Vector) -> float:
    """Of two vectors of equal length. Raises ValueError for zeros."""
    a, b = np.asarray(one, dtype=np.float64), np.asarray(other, dtype=np.float64)
    norm = float(np.linalg.norm(a) * np.linalg.norm(b))
    if not norm:
        raise ValueError("a vector of zeros has no direction")
    return float(a @ b) / norm


@dataclass(frozen=True)
class Judged:
    """Whether an answer is good enough, and if not, why. ``missing`` are the asked facts that it lacks."""

    faithfulness: float | None
    complete: bool | None
    relevance: Relevance | None
    missing: tuple[str, ...]
    reasons: tuple[str, ...]

    @property
    def ok(self) -> bool:
        """Nothing fails."""
        return not self.reasons


def judge_answer(
    claims: Sequence[tuple[str, bool]], facts: Sequence[Sequence[str]], relevance: Relevance | None = None
) -> Judged:
    """An answer of claims (text, supported) to a question that asks for ``facts`` (each any of its spellings).

    A fact counts only where a *supported* claim says it. So four of five supported claims with the asked fact in the
    fifth are faithful enough, 0.8, and the answer still fails: it is not complete.
    """
    faithful = faithfulness([supported for _, supported in claims])
    missing = lacking(facts, " \n".join(text for text, supported in claims if supported))
    reasons = []
    if faithful is not None and faithful < FLOOR:
        reasons.append(f"faithfulness {faithful:.2f} is below {FLOOR}")
    if missing:
        reasons.append(f"not complete: no supported sentence says {', '.join(missing)}")
    if relevance is not None and relevance.value < RELEVANCE_FLOOR:
        reasons.append(f"relevance by {relevance.by} {relevance.value:.2f} is below {RELEVANCE_FLOOR}")
    return Judged(faithful, None if not facts else not missing, relevance, missing, tuple(reasons))


# -- facts in texts ----------------------------------------------------------------------------------------------------


def lacking(facts: Sequence[Sequence[str]], text: str) -> tuple[str, ...]:
    """Facts, by their first spelling, that the text says in none of their spellings."""
    said = f" {_spoken(text)} "
    return tuple(spellings[0] for spellings in facts if not any(_needle(one) in said for one in spellings))


def says(text: str, fact: str) -> bool:
    """Whether the fact's words stand in the text in one piece, number words as figures."""
    return not lacking([[fact]], text)


def _needle(fact: str) -> str:
    """Whole words, except in scripts without blanks between words."""
    spoken = _spoken(fact)
    return spoken if _UNSPACED.search(spoken) else f" {spoken} "


def _spoken(text: str) -> str:
    return " ".join(_NUMBERS.get(word, word) for word in _words(text))


def _words(text: str) -> list[str]:
    return [word.group() for word in _WORD.finditer(level(text))]


# -- support, independently of the service -----------------------------------------------------------------------------


def plain_text(page: str) -> str:
    """A page's text without tags, with Markdown's marks for headings and the header rows of tables. Not the product's
    extraction: what answers are held against must not share its faults."""
    for pattern, mark in _MARKUP:
        page = pattern.sub(mark, page)
    return html.unescape(_TAG.sub(" ", page))


def section_of(page: str, heading: str) -> str:
    """What stands below a heading, down to the next one of its level or above; empty where there is no such heading."""
    found: list[str] = []
    depth = 0
    for line in page.splitlines():
        marked = _HEADING.match(line)
        if marked and depth and len(marked.group(1)) <= depth:
            break
        if depth:
            found.append(line)
        elif marked and level(marked.group(2)) == level(heading):
            depth = len(marked.group(1))
    return "\n".join(found)


def supported_by_words(sentence: str, page: str, *, window: int = 4) -> bool:
    """Whether a page says the sentence, by words alone.

    True where it stands there verbatim, or where, within ``window`` neighbouring lines, the headings and header rows
    of tables, all its words with a figure and WORDS_FLOOR of its other words stand. This knows nothing of meaning: it
    cannot see a dropped "not" or swapped roles, which hand labels and the service's checker are for. It shares no code
    with that checker.
    """
    wanted = level(sentence)
    if not wanted:
        return False
    if wanted.strip(" .-") in level(page):
        return True
    words = [_NUMBERS.get(word, word) for word in _words(sentence)]
    figures = {word for word in words if _FIGURE.search(word)}
    content = {word for word in words if len(word) > _SHORT or not word.isascii()} - figures
    if not content and not figures:
        return False
    lines = [line for line in page.splitlines() if line.strip()]
    above = {_NUMBERS.get(w, w) for line in _headings(lines) for w in _words(line)}
    for start in range(max(1, len(lines) - window + 1)):
        held = above | {_NUMBERS.get(w, w) for w in _words(" ".join(lines[start : start + window]))}
        if figures <= held and len(content & held) >= WORDS_FLOOR * len(content):
            return True
    return False


def _headings(lines: Sequence[str]) -> list[str]:
    """Headings, and rows above a rule of a table."""
    return [
        line
        for line, following in zip(lines, [*lines[1:], ""], strict=True)
        if line.lstrip().startswith("#") or _RULE.match(following)
    ]


def count_words(text: str) -> int:
    """Words of an answer; in scripts without blanks two characters count as one."""
    shown = unicodedata.normalize("NFKC", text)
    unspaced = len(_UNSPACED.findall(shown))
    return len(_WORD.findall(_UNSPACED.sub(" ", shown))) + (unspaced + 1) // 2
