"""A document in a few lines, without a model: the outline of its headings and its most central sentences."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import islice

from pipeline import analysis
from pipeline.chunk.graphemes import cut_at
from pipeline.chunk.leaves import DEEPEST
from pipeline.chunk.ruler import Ruler
from pipeline.chunk.sentences import iter_lines, iter_sentences
from pipeline.ports import TokenCounter
from schemas.documents import Block

_MOST_SENTENCES = 4000  # of a longer document the beginning is summed up
_MOST_CHARACTERS = 1000  # a longer sentence sums nothing up
_OPENS_DOCUMENT, _OPENS_SECTION = 1.5, 1.2  # writers say first what matters
_SAME = 0.6  # share of words from which a sentence says what another one said
_WORTH = 0.5  # of the best sentence's rank: what is further from the centre sums nothing up
_JOIN = " · "


@dataclass(frozen=True)
class _Sentence:
    text: str
    words: tuple[str, ...]
    weight: float


def summary_text(blocks: Sequence[Block], counter: TokenCounter, most: int) -> str:
    """At most ``most`` tokens, special tokens included; exact sentences of the document, in its order.

    It holds no title, so that a rename changes nothing, and changes only where its headings or the choice of sentences
    do. Empty for a document without words.
    """
    outline = _outline(blocks, counter, counter.count("") + (most - counter.count("")) // 3)
    sentences = list(islice(_sentences(blocks), _MOST_SENTENCES))
    room = most - counter.count(outline)
    chosen: list[int] = []
    for number in _ranked(sentences):
        size = counter.count(sentences[number].text)
        if size > room or any(_alike(sentences[number], sentences[other]) for other in chosen):
            continue
        chosen.append(number)
        room -= size
        if room < counter.count("") + 4:
            break
    while True:
        text = "\n\n".join(part for part in (outline, "\n".join(sentences[n].text for n in sorted(chosen))) if part)
        if counter.count(text) <= most:
            break
        if chosen:
            chosen.pop()
        else:
            outline = text = _cut(outline, counter, most)
            break
    return text or _cut(next((block.text.strip() for block in blocks if block.text.strip()), ""), counter, most)


def _outline(blocks: Sequence[Block], counter: TokenCounter, most: int) -> str:
    """Headings of as many levels as fit, else the first ones of the top level."""
    headings = [(min(max(b.level, 1), DEEPEST), " ".join(b.text.split())) for b in blocks if b.type == "heading"]
    best = ""
    for level in range(1, DEEPEST + 1):
        upper = [text for depth, text in headings if depth <= level and text]
        text = _fitting(upper, counter, most)
        if best and len(upper) > text.count(_JOIN) + 1:
            break
        best = text or best
    return best


def _fitting(texts: Sequence[str], counter: TokenCounter, most: int) -> str:
    kept: list[str] = []
    left = most
    for text in texts:
        size = counter.count(text[: 40 * most]) - counter.count("") + 1
        if size > left:
            break
        kept.append(text)
        left -= size
    return _JOIN.join(kept)


def _sentences(blocks: Sequence[Block]) -> Iterator[_Sentence]:
    prose = [b for b in blocks if b.type in ("paragraph", "quote")]
    body = prose or [b for b in blocks if b.type != "heading"]
    allowed = {id(block) for block in body}
    weight = _OPENS_DOCUMENT
    for block in blocks:
        if block.type == "heading":
            weight = max(weight, _OPENS_SECTION)
        if id(block) not in allowed:
            continue
        for start, end in iter_sentences(block.text) if prose else iter_lines(block.text):
            if end - start > _MOST_CHARACTERS:
                continue
            text = block.text[start:end].strip()
            words = tuple(dict.fromkeys(analysis.tokens(text)))
            if len(words) > 2:
                yield _Sentence(text, words, weight)
                weight = 1.0


def _ranked(sentences: Sequence[_Sentence]) -> list[int]:
    """Most central first: nearness to all others, in words weighted by how few sentences hold them."""
    spread = Counter(word for sentence in sentences for word in sentence.words)
    rare = {word: math.log(1 + len(sentences) / count) for word, count in spread.items()}
    lengths = [math.sqrt(math.fsum(rare[word] ** 2 for word in s.words)) for s in sentences]
    centre: Counter[str] = Counter()
    for sentence, length in zip(sentences, lengths, strict=True):
        for word in sentence.words:
            centre[word] += rare[word] / length  # type: ignore[assignment]
    # A sentence's likeness to itself says nothing.
    scores = [
        round(s.weight * max(0.0, math.fsum(centre[w] * rare[w] for w in s.words) / length - 1) / len(sentences), 6)
        for s, length in zip(sentences, lengths, strict=True)
    ]
    least = _WORTH * max(scores, default=0.0)
    return sorted((n for n, score in enumerate(scores) if score >= least), key=lambda number: (-scores[number], number))


def _alike(one: _Sentence, other: _Sentence) -> bool:
    shared = len(set(one.words) & set(other.words))
    return shared > _SAME * min(len(one.words), len(other.words))


def _cut(text: str, counter: TokenCounter, most: int) -> str:
    text = text[: 40 * most]
    room = most - counter.count("")
    while text and counter.count(text) > most:
        _, end = next(Ruler(counter, text).cut(0, len(text), max(1, room)))
        text = text[: end if end < len(text) else cut_at(text, len(text) // 2, 0)]
        room = room * 3 // 4
    return text
