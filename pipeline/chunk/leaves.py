"""Heading sections: the stretches of a document under one heading path."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from schemas.documents import Block


@dataclass
class Leaf:
    """Blocks that stand directly under a heading path; ``levels`` are the depths of its headings."""

    path: tuple[str, ...] = ()
    levels: tuple[int, ...] = ()
    blocks: list[Block] = field(default_factory=list)


def leaves(blocks: Sequence[Block], is_long: Callable[[str], bool]) -> list[Leaf]:
    """Leaves in document order.

    A heading with nothing below it becomes text under its parent's path, and one that is too long to repeat in each
    chunk stands in its leaf's text as well, so that no word is lost.
    """
    found = [Leaf()]
    for block in blocks:
        if block.type != "heading":
            found[-1].blocks.append(block)
            continue
        path, levels = list(found[-1].path), list(found[-1].levels)
        while levels and levels[-1] >= block.level:
            levels.pop()
            path.pop()
        leaf = Leaf((*path, block.text), (*levels, block.level))
        if is_long(block.text):
            leaf.blocks.append(Block(type="paragraph", text=block.text))
        found.append(leaf)
    return [leaf for leaf in (_settled(found, i) for i in range(len(found))) if leaf.blocks]


def _settled(found: list[Leaf], index: int) -> Leaf:
    leaf = found[index]
    if leaf.blocks or not leaf.path:
        return leaf
    following = found[index + 1] if index + 1 < len(found) else None
    if following is not None and following.path[: len(leaf.path)] == leaf.path and len(following.path) > len(leaf.path):
        return leaf  # its words are in the paths below it
    text = Block(type="paragraph", text=leaf.path[-1])
    return Leaf(leaf.path[:-1], leaf.levels[:-1], [text])
