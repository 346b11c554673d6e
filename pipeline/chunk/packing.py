"""Runs of atoms to chunks: by the strongest places, by filling each piece, or by likeness of neighbours."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise

from pipeline.chunk.atoms import LIMITED, SENTENCE, TOKEN, Atom, Cutter, Run
from pipeline.chunk.graphemes import cut_at, first_end
from pipeline.chunk.partition import Priority, partition
from pipeline.chunk.ruler import Ruler

_FEWEST = 8  # tokens of a sentence that are worth cutting it


@dataclass(frozen=True, slots=True)
class Draft:
    """A chunk before its section is known: its own atoms, and those before it that it repeats.

    ``lead``: what its opening needs to be understood, for a section that begins here. ``wide``: it may fill the whole
    encoder.
    """

    atoms: tuple[Atom, ...]
    overlap: tuple[Atom, ...] = ()
    lead: tuple[Atom, ...] = ()
    wide: bool = False


def by_strength(run: Run, room: int, overlap: int, least: int) -> Iterator[Draft]:
    """One chunk if all of the run fits ``room`` tokens, else cut at its strongest places with room for the overlap."""
    sizes = [atom.size + atom.above for atom in run.atoms]
    limit = room - max((atom.head_size for atom in run.atoms), default=0)
    if not run.alone and sum(sizes) > limit:
        limit -= overlap
    cuts = partition(sizes, [atom.priority for atom in run.atoms], limit, least, weak=LIMITED)
    for start, end in pairwise([0, *cuts, len(sizes)]):
        repeated = () if run.alone or start == 0 else _repeated(run.atoms, start, overlap)
        yield Draft(tuple(run.atoms[start:end]), repeated, wide=run.wide)


def by_likeness(
    run: Run, likeness: Sequence[float], threshold: float, room: int, overlap: int, least: int
) -> Iterator[Draft]:
    """A new chunk where ``likeness[i]``, that of atoms i and i+1, is below the threshold.

    Chunks below ``least`` tokens are joined to the neighbour that is more like them; what is larger than ``room`` is
    cut where it is least alike, and only there sentences are repeated.
    """
    atoms = run.atoms
    sizes = [atom.size for atom in atoms]
    breaks = [
        i for i in range(1, len(atoms)) if likeness[i - 1] < threshold and atoms[i].priority[0] not in (LIMITED, TOKEN)
    ]
    breaks = _without_small(breaks, sizes, likeness, room - overlap, least)
    for start, end in pairwise([0, *breaks, len(atoms)]):
        total = sum(sizes[start:end])
        limit = room if total <= room else room - overlap
        places: list[Priority] = [(atoms[i].priority[0] >= LIMITED, _rank(likeness, i)) for i in range(start, end)]
        for a, b in pairwise([0, *partition(sizes[start:end], places, limit, least, weak=1), end - start]):
            repeated = () if a == 0 else _repeated(atoms[start:end], a, overlap)
            yield Draft(tuple(atoms[start + a : start + b]), repeated)


def _rank(likeness: Sequence[float], at: int) -> int:
    return round(1000 * likeness[at - 1]) if at else 0


def _without_small(
    breaks: Sequence[int], sizes: Sequence[int], likeness: Sequence[float], limit: int, least: int
) -> list[int]:
    places = [0, *breaks, len(sizes)]
    total = {a: sum(sizes[a:b]) for a, b in pairwise(places)}
    right = dict(pairwise(places))
    left = {after: before for before, after in right.items()}
    kept = set(breaks)
    for at in sorted(breaks, key=lambda i: (-likeness[i - 1], i)):
        before = left[at]
        if min(total[before], total[at]) < least and total[before] + total[at] <= limit:
            total[before] += total.pop(at)
            right[before] = right[at]
            left[right[at]] = before
            kept.discard(at)
    return sorted(kept)


def filled(
    run: Run, cutter: Cutter, overlap: int, room_of: Callable[[Atom], int], over: Callable[[Draft], int]
) -> Iterator[Draft]:
    """Each chunk takes as many tokens as fit, wherever that ends; rows and lines stay whole.

    ``room_of`` is the room of a chunk that begins with the atom, ``over`` by how many tokens a draft is too long.
    """
    rest = deque(run.atoms)
    repeated: tuple[Atom, ...] = ()
    while rest:
        left = room_of(rest[0]) - sum(atom.size for atom in repeated)
        taken: list[Atom] = []
        while rest:
            atom = rest.popleft()
            cost = (atom.head_size if atom.start == 0 or not taken else 0) + (atom.above if taken else 0)
            if atom.size + cost <= left:
                taken.append(atom)
                left -= atom.size + cost
                continue
            parts = cutter.split(atom, left - cost) if atom.prose and left - cost >= _FEWEST else None
            if parts is not None:
                taken.append(parts[0])
                rest.appendleft(parts[1])
            else:
                rest.appendleft(atom)
            break
        if not taken and repeated:
            repeated = ()
            continue
        draft = Draft(tuple(taken or [rest.popleft()]), repeated)
        while len(draft.atoms) > 1 and (excess := over(draft)) > 0:
            draft = _shortened(draft, excess, cutter, rest)
        yield draft
        repeated = _tail(draft.atoms, overlap, cutter) if rest and rest[0].leaf == draft.atoms[-1].leaf else ()


def _shortened(draft: Draft, excess: int, cutter: Cutter, rest: deque[Atom]) -> Draft:
    """The draft without about ``excess`` tokens at its end, which go back to the rest."""
    *kept, last = draft.atoms
    parts = cutter.split(last, last.size - excess) if last.prose and last.size - excess >= _FEWEST else None
    if parts is None:
        rest.appendleft(last)
        return replace(draft, atoms=tuple(kept))
    rest.appendleft(parts[1])
    return replace(draft, atoms=(*kept, parts[0]))


def _repeated(atoms: Sequence[Atom], start: int, left: int) -> tuple[Atom, ...]:
    """Whole sentences before ``start``, up to ``left`` tokens; none beside lists, code and tables."""
    if not atoms[start].prose:
        return ()
    at = start
    while at > 0 and atoms[at - 1].prose and atoms[at - 1].leaf == atoms[start].leaf and atoms[at - 1].size <= left:
        at -= 1
        left -= atoms[at].size
    return tuple(atoms[at:start])


def _tail(atoms: Sequence[Atom], left: int, cutter: Cutter) -> tuple[Atom, ...]:
    """The last ``left`` tokens of prose, from a token's beginning on."""
    at, found = len(atoms), deque[Atom]()
    while at > 0 and left > 0 and atoms[at - 1].prose and atoms[at - 1].leaf == atoms[-1].leaf:
        at -= 1
        atom = atoms[at]
        if atom.size > left:
            cut = _last_tokens(atom, left, cutter)
            if cut is not None:
                found.appendleft(cut)
            break
        found.appendleft(atom)
        left -= atom.size
    return tuple(found)


def _last_tokens(atom: Atom, count: int, cutter: Cutter) -> Atom | None:
    text = atom.block.text
    ruler = Ruler(cutter.counter, text, atom.start, atom.end)
    start = ruler.stop(atom.start, atom.end, max(1, ruler.size(atom.start, atom.end) - count))
    blank = text.find(" ", start, start + (atom.end - start) // 4)
    if blank >= 0 and start > atom.start and not text[start - 1].isspace():
        start = blank + 1  # from the next word on, where it is near
    if start >= atom.end or cut_at(text, start, atom.start) < start:
        return None
    return replace(atom, start=start, size=ruler.size(start, atom.end), priority=(TOKEN, atom.priority[1]), head="")


def halves(draft: Draft) -> tuple[Draft, Draft] | None:
    """The draft in two, for a tokenizer that counts the whole as more than its parts; None for a single character."""
    atoms = draft.atoms
    if len(atoms) == 1:
        atom = atoms[0]
        half = (atom.start + atom.end) // 2
        middle = cut_at(atom.block.text, half, atom.start)
        if middle == atom.start:
            middle = first_end(atom.block.text, atom.start, atom.end)
        if middle == atom.end:
            middle = half  # one grapheme cluster: parted rather than lost
        if middle == atom.start:
            return None
        size = max(1, atom.size // 2)
        rest = replace(atom, start=middle, size=size, priority=(TOKEN, atom.priority[1]))
        if atom.start == 0 and atom.head_size:
            rest = replace(rest, head=atom.block.header or "")
        atoms = (replace(atom, end=middle, size=size), rest)
    split = len(atoms) // 2
    return replace(draft, atoms=atoms[:split], overlap=()), replace(draft, atoms=atoms[split:], overlap=())


def lead(before: Sequence[Atom], opening: Atom, most: int) -> tuple[Atom, ...]:
    """Atoms before an opening that limits or continues a sentence, back to the one where the thought begins.

    At most ``most`` tokens; ``before`` are the atoms of the chunk before it.
    """
    if opening.priority[0] < LIMITED or (not opening.prose and opening.block.type != "list"):
        return ()
    found = deque[Atom]()
    for atom in reversed(before):
        if atom.leaf != opening.leaf or atom.block.type in ("code", "table", "math") or atom.size > most:
            break
        found.appendleft(atom)
        most -= atom.size
        if atom.priority[0] <= SENTENCE:
            break
    return tuple(found)
