"""Blocks to pieces that fit the encoder, a strategy's way."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from pipeline.chunk.atoms import MOST_ATOMS, Atom, Cutter, Room, Run
from pipeline.chunk.joining import Joining, Small
from pipeline.chunk.leaves import DEEPEST, Leaf, leaves, opened
from pipeline.chunk.likeness import Likeness, threshold
from pipeline.chunk.packing import Draft, by_likeness, by_strength, filled, halves, lead
from pipeline.chunk.partition import Priority, content_hash
from pipeline.chunk.texts import PATH_JOIN, Texts, merged
from pipeline.errors import DocumentError
from pipeline.ports import TokenCounter
from schemas.documents import Block
from schemas.generation import ChunkingSpec, Strategy

STAGE = "chunk"
_STEP = 16  # tokens


@dataclass(frozen=True)
class Way:
    """What a strategy does differently.

    ``across``: a chunk may hold several heading sections. ``rows``: solid blocks are always rows and lines. ``lines``:
    line breaks are cut before sentences. ``wide``: a solid block may fill the whole encoder. ``fills``: every piece is
    as full as it can be. ``joins``: small neighbouring heading sections share a chunk.
    """

    across: bool = False
    rows: bool = False
    lines: bool = False
    wide: bool = False
    fills: bool = False
    joins: bool = False


WAYS: dict[Strategy, Way] = {
    "hierarchical": Way(joins=True),
    "fixed": Way(across=True, rows=True, fills=True),
    "recursive": Way(across=True, lines=True),
    "semantic": Way(),
    "document_aware": Way(wide=True, joins=True),
}


@dataclass(frozen=True)
class Sizes:
    """Tokens. ``maximum`` of a chunk and ``encoder`` for the widest include ``special`` tokens and heading path."""

    maximum: int
    encoder: int
    special: int
    path: int
    overlap: int


@dataclass(frozen=True, slots=True)
class Piece:
    """A chunk that fits, before it has a section. ``atoms`` are its own, one a block; ``lead`` as in ``Draft``.

    ``first``: it opens its heading section. ``opening`` is the priority of the place before it, ``most`` what it may
    have of ``tokens``.
    """

    atoms: tuple[Atom, ...]
    lead: tuple[Atom, ...]
    first: bool
    opening: Priority
    path: tuple[str, ...]
    prefix: str
    text: str
    tokens: int
    most: int


class Drafting:
    """One document being cut. Raises DocumentError (too-many-chunks) as soon as the tokens read so far are too many."""

    def __init__(
        self, blocks: Sequence[Block], way: Way, spec: ChunkingSpec, sizes: Sizes, counter: TokenCounter,
        likeness: Likeness | None,
    ) -> None:  # fmt: skip
        self._way, self._spec, self._sizes, self._counter, self._likeness = way, spec, sizes, counter, likeness
        self.parts: list[Leaf] = leaves(blocks, Texts((), counter, sizes.path).is_long)
        self.texts = Texts(self.parts, counter, sizes.path)
        self._cutter = Cutter(counter, self._spend, rows=way.rows, lines=way.lines, headings=way.wide)
        self._spent = 0

    def pieces(self) -> Iterator[Piece]:
        """All of them in order."""
        before: tuple[Atom, ...] = ()
        for number, piece in enumerate(self._fitted()):
            if number >= self._spec.max_chunks:
                raise self._too_many()
            atoms = piece.atoms
            first = not before or before[-1].leaf != atoms[0].leaf
            needed = () if first else lead(before, atoms[0], self._spec.parent_tokens // 4)
            yield replace(piece, first=first, lead=merged(needed), atoms=merged(atoms))
            before = atoms

    def _fitted(self) -> Iterator[Piece]:
        """Drafts, or smaller ones if the tokenizer counts the whole as more than its parts."""
        for draft in self._drafts():
            waiting = [draft]
            while waiting:
                one = waiting.pop()
                piece = self._piece(one)
                if piece.tokens > piece.most and piece.prefix and one.wide:
                    piece = self._piece(one, bare=True)
                if piece.tokens <= piece.most:
                    yield piece
                elif one.overlap:
                    waiting.append(replace(one, overlap=()))
                elif (parts := halves(one)) is not None:
                    waiting += reversed(parts)
                else:
                    raise DocumentError(f"a single character exceeds {piece.most} tokens", stage=STAGE, kind="too-long")

    def _piece(self, draft: Draft, *, bare: bool = False) -> Piece:
        atoms = draft.atoms
        most = self._sizes.encoder if draft.wide else self._sizes.maximum
        room = 0 if bare else most - self._sizes.special - sum(a.size for a in atoms) if draft.wide else None
        heading = self.texts.heading(self.texts.path(atoms), room)
        text = self.texts.embedded([*draft.overlap, *atoms])
        tokens = self._counter.count(heading.prefix + text)
        return Piece(atoms, (), False, atoms[0].priority, heading.path, heading.prefix, text, tokens, most)

    def _drafts(self) -> Iterator[Draft]:
        sizes, least = self._sizes, self._spec.child_min_tokens - self._sizes.special
        if self._way.fills:
            for _, run in self._runs():
                yield from filled(run, self._cutter, sizes.overlap, self._room_from, self._over)
            return
        if self._likeness is not None:
            runs = list(self._runs())
            values = self._likeness.of([run for _, run in runs])
            below = threshold(values, self._spec.semantic_threshold, self._spec.semantic_percentile)
            for (room, run), alike in zip(runs, values, strict=True):
                used = sizes.maximum - sizes.special - room
                if run.alone:
                    yield from by_strength(run, room, sizes.overlap, max(0, least - used))
                else:
                    yield from by_likeness(run, alike, below, room, sizes.overlap, max(0, least - used))
            return
        for room, run in self._runs():
            used = sizes.maximum - sizes.special - room
            yield from by_strength(run, room, sizes.overlap, max(0, least - used))

    def _runs(self) -> Iterator[tuple[int, Run]]:
        """Runs with the room of their chunks: of a heading section each, or across them."""
        sizes = self._sizes
        full = sizes.maximum - sizes.special
        wide = sizes.encoder - sizes.special if self._way.wide else 0
        if not self._way.across:
            for group in self._groups():
                room = full - self.texts.heading(self.texts.common(group)).size
                space = Room(room, room - sizes.overlap, wide)
                if len(group) > 1:
                    yield room, self._joined(group, space)
                    continue
                for run in self._cutter.runs(group[0], self.parts[group[0]].blocks, space):
                    yield room, run
            return
        longest = max((self.texts.heading(leaf.path).size for leaf in self.parts), default=0)
        # In steps, so that a heading that grows by a word moves no cut elsewhere.
        room = full - min(sizes.path, -(-longest // _STEP) * _STEP)
        joined = Run()
        for number, leaf in enumerate(self.parts):
            first = True
            for run in self._cutter.runs(number, leaf.blocks, Room(room, room - sizes.overlap)):
                if first:
                    run.atoms[0] = self._opening(leaf, run.atoms[0])
                    first = False
                if run.alone or len(joined.atoms) + len(run.atoms) > MOST_ATOMS:
                    if joined.atoms:
                        yield room, joined
                    joined = Run()
                if run.alone:
                    yield room, run
                else:
                    joined.atoms += run.atoms
        if joined.atoms:
            yield room, joined

    def _groups(self) -> Iterator[range]:
        """Heading sections by chunk: small neighbours together."""
        if not self._way.joins or len(self.parts) < 2:
            yield from (range(number, number + 1) for number in range(len(self.parts)))
            return
        sizes = self._sizes
        least = self._spec.child_min_tokens - sizes.special
        full = sizes.maximum - sizes.special

        def room(path: tuple[str, ...]) -> int:
            return full - min(sizes.path, -(-self.texts.heading(path).size // _STEP) * _STEP)

        yield from Joining(least, max(0, least), room).groups(self.parts, [self._small(leaf) for leaf in self.parts])

    def _small(self, leaf: Leaf) -> Small:
        """Its tokens, or that they are more than a chunk holds."""
        size = sum(self._line(level, heading) for level, heading in opened(leaf))
        for block in leaf.blocks:
            if size > self._sizes.maximum:
                break
            size += self._cutter.bounded(block.text, self._sizes.maximum)
        opening = (min(leaf.opens, default=0), content_hash(PATH_JOIN.join(leaf.path)))
        pages = (leaf.blocks[0].page, leaf.blocks[-1].page)
        return Small(size, opening, pages, any(block.anchors for block in leaf.blocks))

    def _line(self, level: int, heading: str) -> int:
        """Tokens of a heading that stands in the text."""
        return self.texts.size(f"{'#' * level} {self.texts.short(heading)}")

    def _joined(self, group: range, room: Room) -> Run:
        """The atoms of several heading sections, all of them small."""
        joined = Run()
        for number in group:
            at = len(joined.atoms)
            for run in self._cutter.runs(number, self.parts[number].blocks, room):
                joined.atoms += run.atoms
            if at:
                joined.atoms[at] = self._opening(self.parts[number], joined.atoms[at])
        return joined

    def _opening(self, leaf: Leaf, atom: Atom) -> Atom:
        """The first atom of a heading section: a stronger place, the stronger the higher its heading stands."""
        if not leaf.opens:
            return atom
        strength = min(leaf.opens) - DEEPEST - 1
        if leaf.heading is None:  # a heading with nothing below it is the text itself
            return replace(atom, priority=(strength, atom.priority[1]))
        above = sum(self._line(level, heading) for level, heading in opened(leaf))
        return replace(atom, priority=(strength, content_hash(PATH_JOIN.join(leaf.path))), above=above)

    def _room_from(self, atom: Atom) -> int:
        prefix = self.texts.heading(self.parts[atom.leaf].path).size
        return self._sizes.maximum - self._sizes.special - prefix

    def _over(self, draft: Draft) -> int:
        piece = self._piece(draft)
        return piece.tokens - piece.most

    def _spend(self, size: int) -> None:
        self._spent += size
        if self._spent > self._spec.max_chunks * self._sizes.encoder:
            raise self._too_many()

    def _too_many(self) -> DocumentError:
        most = self._spec.max_chunks
        return DocumentError(
            f"the document needs more than {most} chunks; split it at its source or raise chunking.max_chunks",
            stage=STAGE,
            kind="too-many-chunks",
        )
