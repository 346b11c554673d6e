"""The smallest pieces that packing moves around: sentences, list lines, whole code blocks and tables.

An atom is a slice of a block's text. A code block or table that alone exceeds a chunk becomes atoms of lines, rows or,
as the last resort, tokens; these stand in runs of their own.
"""

from __future__ import annotations

import re
from bisect import bisect_left
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from pipeline.chunk.partition import Priority, content_hash
from pipeline.chunk.sentences import is_limiting, sentence_spans
from pipeline.ports import TokenCounter
from schemas.documents import Block

# Strength of the place before an atom: smaller is cut first.
BLOCK, SENTENCE, LIMITED, TOKEN = 0, 1, 2, 3
# A tokenizer may call a very long word one unknown token; text per token is bounded all the same.
CHARACTERS_PER_TOKEN = 40
_LINE = re.compile(r"[^\n]*\n?")


@dataclass(frozen=True, slots=True)
class Atom:
    """``text[start:end]`` of a block; ``size`` in tokens, special tokens excluded."""

    block: Block
    start: int
    end: int
    size: int
    priority: Priority

    @property
    def prose(self) -> bool:
        """Whether it may be repeated as overlap."""
        return self.block.type in ("paragraph", "quote")


@dataclass
class Run:
    """Atoms that may share chunks. ``head`` is repeated before each piece of a table, with its size."""

    atoms: list[Atom] = field(default_factory=list)
    head: str = ""
    head_size: int = 0
    alone: bool = False


class Ruler:
    """Sizes of slices of one text, from one pass of the tokenizer."""

    def __init__(self, counter: TokenCounter, text: str) -> None:
        self.text = text
        self.spans = [span for span in counter.offsets(text) if span[1] > span[0]]
        self._starts = [span[0] for span in self.spans]

    def size(self, start: int, end: int) -> int:
        """Tokens that begin in the slice, or more where its characters exceed what a chunk may hold."""
        tokens = bisect_left(self._starts, end) - bisect_left(self._starts, start)
        return max(tokens, -(-(end - start) // CHARACTERS_PER_TOKEN))

    def cut(self, start: int, end: int, limit: int) -> Iterable[tuple[int, int]]:
        """The slice in pieces of at most ``limit`` tokens, at token ends, between words where that is near."""
        while start < end:
            if self.size(start, end) <= limit:
                yield start, end
                return
            first = bisect_left(self._starts, start)
            stop = self._starts[first + limit] if first + limit < len(self._starts) else end
            stop = min(stop, start + limit * CHARACTERS_PER_TOKEN, end)
            space = max(self.text.rfind(" ", start, stop), self.text.rfind("\n", start, stop))
            if space > start + (stop - start) * 3 // 4:
                yield start, space
                start = space + 1
            else:
                yield start, max(stop, start + 1)
                start = max(stop, start + 1)


def runs(blocks: Sequence[Block], counter: TokenCounter, *, whole: int, piece: int) -> list[Run]:
    """Atoms of a section's blocks in order.

    ``whole`` is the largest code block or table that is kept in one piece, ``piece`` the largest other atom.
    """
    found: list[Run] = [Run()]
    previous: Block | None = None
    for block in blocks:
        ruler = Ruler(counter, block.text)
        if block.type in ("code", "table"):
            size = ruler.size(0, len(block.text))
            if size > whole:
                found.append(_oversize(block, ruler, whole))
                found.append(Run())
            else:
                strength = _leads(previous, block)
                atom = Atom(block, 0, len(block.text), size, (strength, content_hash(block.text)))
                found[-1].atoms.append(atom)
        else:
            found[-1].atoms.extend(_prose(block, ruler, previous, piece))
        previous = block
    return [run for run in found if run.atoms]


def _leads(previous: Block | None, block: Block) -> int:
    """A sentence that ends in a colon speaks of the next block; one that limits belongs to the block before."""
    if previous is None or previous.type in ("code", "table"):
        return BLOCK
    if block.type in ("paragraph", "quote", "list") and is_limiting(block.text):
        return LIMITED
    return SENTENCE if previous.text.rstrip().endswith(":") else BLOCK


def _prose(block: Block, ruler: Ruler, previous: Block | None, piece: int) -> Iterable[Atom]:
    spans = _line_spans(block.text) if block.type == "list" else sentence_spans(block.text)
    for number, (start, end) in enumerate(spans):
        text = block.text[start:end]
        within = LIMITED if is_limiting(text) else SENTENCE
        strength = within if number else _leads(previous, block)
        yield from _slices(block, ruler, start, end, strength, piece)


def _slices(block: Block, ruler: Ruler, start: int, end: int, strength: int, limit: int) -> Iterable[Atom]:
    for number, (a, b) in enumerate(ruler.cut(start, end, limit)):
        priority = (strength if number == 0 else TOKEN, content_hash(block.text[a : min(b, a + 400)]))
        yield Atom(block, a, b, ruler.size(a, b), priority)


def _line_spans(text: str) -> list[tuple[int, int]]:
    spans = []
    for match in _LINE.finditer(text):
        end = match.start() + len(match.group().rstrip())
        if end > match.start():
            spans.append((match.start(), end))
    return spans


def _oversize(block: Block, ruler: Ruler, whole: int) -> Run:
    if block.type == "code":
        atoms: list[Atom] = []
        for start, end in _line_spans(block.text):
            apart = not atoms or block.text.count("\n", atoms[-1].end, start) > 1
            atoms.extend(_slices(block, ruler, start, end, BLOCK if apart else SENTENCE, whole))
        return Run(atoms, alone=True)
    head = block.header or ""
    head_size = ruler.size(0, len(head) + 1) if head else 0
    first = len(head) + 1 if head else 0
    if head_size > whole // 3:  # a header this long is content of its own, not a label for each piece
        first, head, head_size = 0, "", 0
    atoms = []
    for start, end in _line_spans(block.text):
        if start >= first:
            atoms.extend(_slices(block, ruler, start, end, SENTENCE, whole - head_size))
    return Run(atoms, head=head, head_size=head_size, alone=True)


def render(atoms: Sequence[Atom], head: str = "", *, fenced: bool = False) -> str:
    """Text of consecutive atoms: exact slices of each block, blocks apart by an empty line.

    ``fenced`` puts code into Markdown fences. ``head`` goes before a piece of a table that lacks it.
    """
    parts: list[str] = []
    at = 0
    while at < len(atoms):
        block = atoms[at].block
        last = at
        while last + 1 < len(atoms) and atoms[last + 1].block is block:
            last += 1
        text = block.text[atoms[at].start : atoms[last].end]
        if block.type == "table" and block.header and atoms[at].start > 0 and (head or fenced):
            text = f"{head or block.header}\n{text}"
        if block.type == "code" and fenced:
            fence = "```"
            while fence in text:
                fence += "`"
            text = f"{fence}{block.language or ''}\n{text}\n{fence}"
        parts.append(text)
        at = last + 1
    return "\n\n".join(parts)
