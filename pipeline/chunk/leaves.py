"""Heading sections: the stretches of a document under one heading path."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field

from schemas.documents import Block

DEEPEST = 6  # deeper headings count as this level: paths stay short whatever a document nests


@dataclass
class Leaf:
    """Blocks that stand directly under a heading path; ``levels`` are the depths of its headings.

    ``opens`` are the depths of the headings that begin with it, those without text of their own included. ``keys``
    tell headings of equal words apart.
    """

    path: tuple[str, ...] = ()
    levels: tuple[int, ...] = ()
    blocks: list[Block] = field(default_factory=list)
    heading: Block | None = None
    opens: tuple[int, ...] = ()
    keys: tuple[int, ...] = ()


def leaves(blocks: Sequence[Block], is_long: Callable[[str], bool]) -> list[Leaf]:
    """Leaves in document order.

    A heading with nothing below it becomes text under its parent's path, and one that is too long to repeat in each
    chunk stands in its leaf's text as well, so that no word is lost.
    """
    found = [Leaf()]
    for block in blocks:
        if block.type != "heading":
            if block.text.strip():
                found[-1].blocks.append(block)
            continue
        if not block.text.strip():
            continue
        path, levels, keys = list(found[-1].path), list(found[-1].levels), list(found[-1].keys)
        level = min(max(block.level, 1), DEEPEST)
        while levels and levels[-1] >= level:
            levels.pop()
            path.pop()
            keys.pop()
        leaf = Leaf((*path, block.text), (*levels, level), heading=block, opens=(level,), keys=(*keys, len(found)))
        if is_long(block.text):
            leaf.blocks.append(block)
        found.append(leaf)
    kept: list[Leaf] = []
    waiting: tuple[int, ...] = ()  # headings whose first text comes further down
    for number in range(len(found)):
        leaf = _settled(found, number)
        leaf.opens, waiting = (*waiting, *leaf.opens), ()
        if leaf.blocks:
            kept.append(leaf)
        else:
            waiting = leaf.opens
    return kept


def shared_depth(one: Leaf, other: Leaf) -> int:
    """How many of their outermost headings are the same ones."""
    depth = 0
    while depth < min(len(one.keys), len(other.keys)) and one.keys[depth] == other.keys[depth]:
        depth += 1
    return depth


def opened(leaf: Leaf) -> Iterator[tuple[int, str]]:
    """Depth and words of each heading that begins with the leaf; none where its heading is the text itself."""
    count = min(len(leaf.opens), len(leaf.path)) if leaf.heading is not None else 0
    yield from zip(leaf.levels[len(leaf.path) - count :], leaf.path[len(leaf.path) - count :], strict=True)


def _settled(found: list[Leaf], index: int) -> Leaf:
    leaf = found[index]
    if leaf.blocks or leaf.heading is None:
        return leaf
    following = found[index + 1] if index + 1 < len(found) else None
    if following is not None and leaf.keys[-1] in following.keys:
        return leaf  # its words are in the paths below it
    return Leaf(leaf.path[:-1], leaf.levels[:-1], [leaf.heading], opens=leaf.opens, keys=leaf.keys[:-1])
