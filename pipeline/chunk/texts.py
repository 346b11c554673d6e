"""The words of a chunk or section: exact slices of blocks under the headings that its own path does not name."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass, replace

from pipeline.chunk.atoms import Atom
from pipeline.chunk.leaves import Leaf, shared_depth
from pipeline.chunk.ruler import CHARACTERS_PER_TOKEN, Ruler
from pipeline.ports import TokenCounter

PATH_JOIN = " > "


@dataclass(frozen=True)
class Heading:
    """A heading path as it is used: shortened parts, and the prefix of its chunks with its size in tokens."""

    path: tuple[str, ...]
    prefix: str
    size: int


class Texts:
    """Texts of one document. ``budget`` is the number of tokens that a heading path may take."""

    def __init__(self, parts: Sequence[Leaf], counter: TokenCounter, budget: int) -> None:
        self._parts = parts
        self._counter = counter
        self._budget = budget
        self._headings: dict[tuple[tuple[str, ...], int], Heading] = {}
        self._short: dict[str, str] = {}

    def is_long(self, text: str) -> bool:
        """Whether a heading takes more than its budget, and is shortened in paths."""
        return len(text) > self._budget * CHARACTERS_PER_TOKEN or self.size(text) > self._budget

    def size(self, text: str) -> int:
        """Tokens, special tokens excluded."""
        return len(self._counter.offsets(text)) if text else 0

    def heading(self, path: tuple[str, ...], room: int | None = None) -> Heading:
        """The path within its budget, or within ``room`` tokens: the nearest headings say most, and are kept."""
        budget = self._budget if room is None else min(room, self._budget)
        known = self._headings.get((path, budget))
        if known is None:
            short = tuple(self.short(part) for part in path)
            kept = short
            prefix = _prefix(kept)
            while kept and self.size(prefix) > budget:
                kept = kept[1:]
                prefix = _prefix(kept)
            known = self._headings[path, budget] = Heading(short, prefix, self.size(prefix))
        return known

    def short(self, text: str) -> str:
        """A heading as it stands in paths: cut to the budget, with an ellipsis."""
        if (known := self._short.get(text)) is None:
            known = text
            if self.is_long(text):
                ruler = Ruler(self._counter, text, 0, min(len(text), (self._budget + 1) * CHARACTERS_PER_TOKEN))
                _, end = next(ruler.cut(0, ruler.end, max(1, self._budget - 2)))
                known = text[:end].rstrip() + "…"
            self._short[text] = known
        return known

    def path(self, atoms: Sequence[Atom]) -> tuple[str, ...]:
        """The headings that all of the atoms stand under."""
        return self.common(dict.fromkeys(atom.leaf for atom in atoms))

    def common(self, numbers: Collection[int]) -> tuple[str, ...]:
        """The headings that all of these leaves stand under."""
        opening = self._parts[next(iter(numbers))]
        return opening.path[: min(shared_depth(opening, self._parts[number]) for number in numbers)]

    def embedded(self, atoms: Sequence[Atom]) -> str:
        """Text of a chunk; headings below its common path stand in it, shortened as in paths."""
        first, last = atoms[0].leaf, atoms[-1].leaf
        return render(atoms) if first == last else self._under_headings(atoms, len(self.path(atoms)), fenced=False)

    def read(self, atoms: Sequence[Atom], shared: int) -> str:
        """Text of a section whose own path has ``shared`` headings, as Markdown."""
        return self._under_headings(atoms, shared, fenced=True)

    def _under_headings(self, atoms: Sequence[Atom], shared: int, *, fenced: bool) -> str:
        out: list[str] = []
        before: Leaf | None = None
        for number, group in _by_leaf(atoms):
            leaf = self._parts[number]
            known = shared if before is None else max(shared, shared_depth(before, leaf))
            for level, heading in zip(leaf.levels[known:], leaf.path[known:], strict=True):
                out.append(f"{'#' * level} {heading if fenced else self.short(heading)}")
            before = leaf
            out.append(render(group, fenced=fenced))
        return "\n\n".join(out)


def _prefix(path: tuple[str, ...]) -> str:
    return PATH_JOIN.join(path) + "\n\n" if path else ""


def _by_leaf(atoms: Sequence[Atom]) -> Iterator[tuple[int, Sequence[Atom]]]:
    at = 0
    while at < len(atoms):
        last = at
        while last + 1 < len(atoms) and atoms[last + 1].leaf == atoms[at].leaf:
            last += 1
        yield atoms[at].leaf, atoms[at : last + 1]
        at = last + 1


def merged(atoms: Sequence[Atom]) -> tuple[Atom, ...]:
    """Neighbours of one block as one atom, so that a chunk keeps a slice for each of its blocks."""
    out: list[Atom] = []
    at = 0
    while at < len(atoms):
        first, last, size = atoms[at], at, atoms[at].size
        while (
            last + 1 < len(atoms) and atoms[last + 1].block is first.block and atoms[last].end <= atoms[last + 1].start
        ):
            last += 1
            size += atoms[last].size
        out.append(first if last == at else replace(first, end=atoms[last].end, size=size))
        at = last + 1
    return tuple(out)


def render(atoms: Sequence[Atom], *, fenced: bool = False) -> str:
    """Text of consecutive atoms: exact slices of each block, blocks apart by an empty line.

    A piece of a table that lacks its header gets it. ``fenced`` is for reading: code and formulas in Markdown's marks.
    """
    parts: list[str] = []
    for atom in merged(atoms):
        block, text = atom.block, atom.text
        if block.type == "table" and atom.start > 0 and (head := atom.head or (block.header if fenced else "")):
            text = f"{head}\n{text}"
        if fenced and block.type == "code":
            fence = "```"
            while fence in text:
                fence += "`"
            text = f"{fence}{block.language or ''}\n{text}\n{fence}"
        elif fenced and block.type == "math" and not text.lstrip().startswith(("$", "\\[", "\\begin")):
            text = f"$$\n{text}\n$$"
        parts.append(text)
    return "\n\n".join(parts)
