"""The smallest pieces that packing moves around: sentences, lines of lists, whole code blocks, formulas and tables.

An atom is a slice of a block's text. A code block or table that alone exceeds a chunk becomes atoms of lines, rows or,
as the last resort, tokens. Atoms come in runs, a run at a time, so that a document of any size needs bounded memory.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace

from pipeline.chunk.graphemes import cut_at
from pipeline.chunk.partition import Priority, content_hash
from pipeline.chunk.ruler import CHARACTERS_PER_TOKEN, Ruler, Span, measured, sliced
from pipeline.chunk.sentences import is_limiting, iter_lines, iter_sentences
from pipeline.ports import TokenCounter
from schemas.documents import Block

# Strength of the place before an atom: smaller is cut first. Headings of level n are n - 7.
BLOCK, LINE, SENTENCE, LIMITED, TOKEN = 0, 1, 2, 3, 4
SOLID = ("code", "table", "math")  # kept whole while they fit
_REPEATED = ("paragraph", "quote", "footnote", "heading")
MOST_ATOMS = 50_000  # of a run; a longer stretch goes on in the next


@dataclass(frozen=True, slots=True)
class Atom:
    """``block.text[start:end]``; ``size`` in tokens, special tokens excluded.

    ``head`` is repeated before a piece of a table that this atom opens, ``head_size`` its tokens; the first row holds
    the header itself, counted apart from ``size`` as well. ``leaf`` is the number of its heading section, ``above``
    the tokens of its heading where that stands in the text before the atom.
    """

    block: Block
    leaf: int
    start: int
    end: int
    size: int
    priority: Priority
    head: str = ""
    head_size: int = 0
    above: int = 0

    @property
    def prose(self) -> bool:
        """Whether it may be repeated as overlap, and cut between words."""
        return self.block.type in _REPEATED

    @property
    def text(self) -> str:
        """Its slice."""
        return self.block.text[self.start : self.end]


@dataclass
class Run:
    """Atoms that may share chunks. ``alone``: pieces of one block. ``wide``: one that may fill the whole encoder."""

    atoms: list[Atom] = field(default_factory=list)
    alone: bool = False
    wide: bool = False


@dataclass(frozen=True)
class Room:
    """Tokens for the text of a chunk: ``whole`` for a solid block in one piece, ``piece`` for any other atom.

    A solid block up to ``wide`` stands alone in one piece.
    """

    whole: int
    piece: int
    wide: int = 0


@dataclass
class Cutter:
    """Blocks to runs of atoms. ``spend`` is told the size of each atom and raises when a document has too many.

    ``rows``: solid blocks are always lines, packed with what is around them. ``lines``: a line break is a stronger
    place than the end of a sentence. ``headings``: one that stands in the text is kept whole.
    """

    counter: TokenCounter
    spend: Callable[[int], None]
    rows: bool = False
    lines: bool = False
    headings: bool = False

    def runs(self, leaf: int, blocks: Sequence[Block], room: Room) -> Iterator[Run]:
        """Runs of a heading section's blocks in order, none empty."""
        run = Run()
        previous: Block | None = None
        for block in blocks:
            if block.type not in SOLID and not (self.headings and block.type == "heading"):
                atoms = self._prose(leaf, block, previous, room)
            elif self.rows:
                atoms = self._lines(leaf, block, room.piece, _leads(previous, block))
            else:
                size = self.bounded(block.text, max(room.whole, room.wide))
                atom = Atom(block, leaf, 0, len(block.text), size, (_leads(previous, block), content_hash(block.text)))
                if size <= room.whole:
                    self.spend(size)
                    atoms = iter((atom,))
                else:
                    if run.atoms:
                        yield run
                    run = Run()
                    if size <= room.wide:
                        self.spend(size)
                        yield Run([atom], alone=True, wide=True)
                    else:
                        opening = SENTENCE if block.type == "table" else BLOCK
                        yield from _batches(self._lines(leaf, block, room.whole, opening))
                    atoms = iter(())
            for atom in atoms:
                if len(run.atoms) >= MOST_ATOMS:
                    yield run
                    run = Run()
                run.atoms.append(atom)
            previous = block
        if run.atoms:
            yield run

    def split(self, atom: Atom, limit: int) -> tuple[Atom, Atom] | None:
        """Its first ``limit`` tokens and the rest, between words where that is near; None where it cannot be cut so."""
        ruler = Ruler(self.counter, atom.block.text, atom.start, atom.end)
        start, end = next(ruler.cut(atom.start, atom.end, max(1, limit)))
        following = end
        while following < atom.end and atom.block.text[following].isspace():
            following += 1
        if following >= atom.end or cut_at(atom.block.text, end, start) < end:
            return None
        rest = replace(
            atom, start=following, size=ruler.size(following, atom.end), priority=(TOKEN, atom.priority[1]), above=0
        )  # fmt: skip
        return replace(atom, start=start, end=end, size=ruler.size(start, end)), rest

    def bounded(self, text: str, most: int) -> int:
        """Tokens of the text; of one that is far beyond ``most``, only that it is more."""
        if len(text) > most * CHARACTERS_PER_TOKEN:
            return most + 1
        return Ruler(self.counter, text).size(0, len(text))

    def _prose(self, leaf: int, block: Block, previous: Block | None, room: Room) -> Iterator[Atom]:
        text = block.text
        spans = iter_lines(text) if block.type == "list" else iter_sentences(text)
        last = 0
        for number, (span, ruler) in enumerate(measured(self.counter, text, spans)):
            within = LIMITED if is_limiting(text[span[0] : span[0] + 80]) else SENTENCE
            if self.lines and within == SENTENCE and "\n" in text[last : span[0]]:
                within = LINE
            strength = within if number else _leads(previous, block)
            yield from self._slices(leaf, block, ruler, span, strength, room.piece)
            last = span[1]

    def _lines(self, leaf: int, block: Block, limit: int, opening: int) -> Iterator[Atom]:
        """Rows of a table under their header, lines of anything else; blank lines are the places to cut code."""
        text, head, head_size = block.text, "", 0
        if block.type == "table" and block.header and text.startswith(block.header + "\n"):
            size = self.bounded(block.header + "\n", limit // 3)
            if size <= limit // 3:  # a longer header is content of its own, not a label for each piece
                head, head_size = block.header, size
        body = len(head) + 1 if head else 0
        last = -1
        for span, ruler in measured(self.counter, text, _from(body, iter_lines(text))):
            apart = block.type != "table" and (last < 0 or text.count("\n", last, span[0]) > 1)
            strength = opening if last < 0 else BLOCK if apart else SENTENCE
            for atom in self._slices(leaf, block, ruler, span, strength, limit - head_size):
                if last < 0 and head:
                    yield replace(atom, start=0, head_size=head_size)
                else:
                    yield replace(atom, head=head, head_size=head_size) if head else atom
                last = span[1]

    def _slices(self, leaf: int, block: Block, ruler: Ruler, span: Span, strength: int, limit: int) -> Iterator[Atom]:
        verbatim = block.type in SOLID
        for number, (a, b, size) in enumerate(sliced(self.counter, ruler, span, limit, verbatim=verbatim)):
            self.spend(size)
            opening = content_hash(block.text[a : min(b, a + 400)])
            yield Atom(block, leaf, a, b, size, (strength if number == 0 else TOKEN, opening))


def _from(start: int, spans: Iterable[Span]) -> Iterator[Span]:
    return (span for span in spans if span[0] >= start)


def _batches(atoms: Iterable[Atom]) -> Iterator[Run]:
    run = Run(alone=True)
    for atom in atoms:
        if len(run.atoms) >= MOST_ATOMS:
            yield run
            run = Run(alone=True)
        run.atoms.append(atom)
    if run.atoms:
        yield run


def _leads(previous: Block | None, block: Block) -> int:
    """A sentence that ends in a colon speaks of the next block; one that limits belongs to the block before."""
    if previous is None or previous.type in SOLID:
        return BLOCK
    if block.type in ("paragraph", "quote", "list") and is_limiting(block.text):
        return LIMITED
    return SENTENCE if previous.text[-80:].rstrip().endswith(":") else BLOCK
