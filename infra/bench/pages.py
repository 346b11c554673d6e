"""Documents to ingest: the handbook's last state, the sample wiki, and as many more as are wanted, made from theirs.

A made page is real prose in an order that no other page has, drawn with a seed: distinct text, so nothing is reused.
"""

from __future__ import annotations

import random
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from infra import corpus

ROOT = Path(__file__).parents[2]
WIKI = ROOT / corpus.SAMPLE_WIKI
HANDBOOK = ROOT / corpus.HANDBOOK
MARKDOWN = "text/markdown; charset=utf-8"
_MEDIA = {".md": MARKDOWN, ".html": "text/html; charset=utf-8"}
_SENTENCE = re.compile(r"(?<=[.!?])\s+")
_WORDS = (8, 40)  # of a sentence that may be drawn


@dataclass(frozen=True)
class Page:
    """A document as a source shows it."""

    id: str
    title: str
    text: str
    content_type: str = MARKDOWN


def documents(wanted: int, seed: int = 3, *, wiki: Path = WIKI, handbook: Path = HANDBOOK) -> list[Page]:
    """``wanted`` distinct pages: real ones first, shuffled ones to fill up. Raises FileNotFoundError without a wiki."""
    real = [*handbook_pages(handbook), *wiki_pages(wiki)]
    if not real:
        raise FileNotFoundError(f"no pages under {wiki}")
    made = shuffled(sentences(page.text for page in real), max(0, wanted - len(real)), seed)
    return [*real, *made][:wanted]


def handbook_pages(events: Path) -> list[Page]:
    """The live pages at the end of the history; none where it is not at hand."""
    if not events.is_file():
        return []
    return [Page(key, event.get("title") or key, event["text"]) for key, event in corpus.last_state(events).items()]


def wiki_pages(folder: Path) -> list[Page]:
    """The sample wiki."""
    return [
        Page(
            file.relative_to(folder).as_posix(),
            file.stem.replace("-", " "),
            file.read_text(encoding="utf-8"),
            _MEDIA.get(file.suffix, "text/plain; charset=utf-8"),
        )
        for file in corpus.pages(folder)
    ]


def sentences(texts: Iterable[str]) -> list[str]:
    """Distinct sentences of ordinary prose, in order of appearance."""
    found: dict[str, None] = {}
    for text in texts:
        for line in text.splitlines():
            if line.startswith(("#", "|", "-", "*", "<", "```", "title:", " ")):
                continue
            for sentence in _SENTENCE.split(line.strip()):
                if _WORDS[0] <= len(sentence.split()) <= _WORDS[1] and "](" not in sentence and "<" not in sentence:
                    found.setdefault(sentence)
    return list(found)


def shuffled(pool: Sequence[str], count: int, seed: int) -> list[Page]:
    """Pages of five parts with two paragraphs each, about 600 words, from sentences drawn with the seed."""
    drawn = random.Random(seed)
    pages = []
    for number in range(count):
        parts = [f"# Notes {number}"]
        for part in range(5):
            heading = " ".join(drawn.choice(pool).split()[:4]).rstrip(".,;:")
            paragraphs = [" ".join(drawn.sample(pool, min(4, len(pool)))) for _ in range(2)]
            parts += [f"## {part + 1} {heading}", *paragraphs]
        pages.append(Page(f"made/{seed}-{number}.md", f"Notes {number}", "\n\n".join(parts)))
    return pages


def short_texts(pool: Sequence[str], count: int, seed: int) -> list[str]:
    """Texts of one chunk each: four sentences, about 70 words."""
    drawn = random.Random(seed)
    return [f"Note {number}. " + " ".join(drawn.sample(pool, min(4, len(pool)))) for number in range(count)]


def long_page(pool: Sequence[str], sections: int, seed: int) -> list[str]:
    """Paragraphs of a page of at least ``sections`` chunks: a heading and about 100 words each, to be joined by \\n\\n.

    Paragraph ``2 * i + 1`` is the text under heading ``i``.
    """
    drawn = random.Random(seed)
    found = []
    for number in range(sections):
        found += [f"## Part {number}", " ".join(drawn.sample(pool, min(6, len(pool))))]
    return found


def with_one_paragraph_changed(paragraphs: Sequence[str], pool: Sequence[str], seed: int) -> list[str]:
    """The same with other text under the middle heading."""
    drawn = random.Random(seed)
    changed = list(paragraphs)
    middle = 2 * (len(paragraphs) // 4) + 1
    changed[middle] = "Revised. " + " ".join(drawn.sample(pool, min(6, len(pool))))
    return changed
