"""Documents as a tree of nodes, and what a reader is to find of them: the truth beside each made file."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any


@dataclass(frozen=True)
class Run:
    """Inline text: kind is b(old), i(talic), c(ode), a (link) or fn (footnote; text is the note)."""

    kind: str
    text: str
    target: str = ""


def b(text: str) -> Run:
    return Run("b", text)


def i(text: str) -> Run:
    return Run("i", text)


def c(text: str) -> Run:
    return Run("c", text)


def a(text: str, target: str) -> Run:
    return Run("a", text, target)


def fn(text: str) -> Run:
    return Run("fn", text)


Inline = tuple[Any, ...]  # str | Run


class Node:
    """One piece of a document; kind is what formats that cannot say it name."""

    kind = ""


@dataclass(frozen=True)
class H(Node):
    level: int
    text: str

    def __init__(self, level: int, text: str) -> None:
        object.__setattr__(self, "level", level)
        object.__setattr__(self, "text", text)
        object.__setattr__(self, "kind", "heading")


@dataclass(frozen=True)
class P(Node):
    runs: Inline

    def __init__(self, *runs: Any, kind: str = "text") -> None:
        object.__setattr__(self, "runs", runs)
        object.__setattr__(self, "kind", kind)


@dataclass(frozen=True)
class Item:
    runs: Inline
    inner: L | None = None


@dataclass(frozen=True)
class L(Node):
    ordered: bool
    items: tuple[Item, ...]

    def __init__(self, *items: Any, ordered: bool = False) -> None:
        made = []
        for one in items:
            if isinstance(one, Item):
                made.append(one)
            elif isinstance(one, tuple) and one and isinstance(one[-1], L):
                made.append(Item(one[:-1], one[-1]))
            else:
                made.append(Item(one if isinstance(one, tuple) else (one,)))
        object.__setattr__(self, "ordered", ordered)
        object.__setattr__(self, "items", tuple(made))
        object.__setattr__(self, "kind", "list")


@dataclass(frozen=True)
class Cell:
    text: str
    down: int = 1
    across: int = 1


@dataclass(frozen=True)
class T(Node):
    rows: tuple[tuple[Cell, ...], ...]
    caption: str = ""
    header: int = 1

    def __init__(self, rows: list[list[Any]], caption: str = "", header: int = 1) -> None:
        made = tuple(tuple(one if isinstance(one, Cell) else Cell(str(one)) for one in row) for row in rows)
        object.__setattr__(self, "rows", made)
        object.__setattr__(self, "caption", caption)
        object.__setattr__(self, "header", header)
        object.__setattr__(self, "kind", "merged" if any(x.down + x.across > 2 for r in made for x in r) else "table")

    def grid(self) -> list[list[str | None]]:
        """Cells by row and column; None where a merged cell reaches: there a reader may repeat it or leave it blank."""
        taken: dict[tuple[int, int], str | None] = {}
        for r, row in enumerate(self.rows):
            at = 0
            for cell in row:
                while (r, at) in taken:
                    at += 1
                for dr in range(cell.down):
                    for dc in range(cell.across):
                        taken[r + dr, at + dc] = cell.text if (dr, dc) == (0, 0) else None
                at += cell.across
        width = max(col for _, col in taken) + 1
        return [[taken.get((r, col), "") for col in range(width)] for r in range(len(self.rows))]


@dataclass(frozen=True)
class C(Node):
    language: str
    text: str

    def __init__(self, language: str, text: str) -> None:
        object.__setattr__(self, "language", language)
        object.__setattr__(self, "text", text)
        object.__setattr__(self, "kind", "code")


@dataclass(frozen=True)
class Img(Node):
    alt: str
    caption: str
    source: str

    def __init__(self, alt: str, caption: str, source: str) -> None:
        object.__setattr__(self, "alt", alt)
        object.__setattr__(self, "caption", caption)
        object.__setattr__(self, "source", source)
        object.__setattr__(self, "kind", "image")


@dataclass(frozen=True)
class Pairs(Node):
    """A definition list."""

    pairs: tuple[tuple[str, str], ...]

    def __init__(self, *pairs: tuple[str, str]) -> None:
        object.__setattr__(self, "pairs", pairs)
        object.__setattr__(self, "kind", "definitions")


@dataclass(frozen=True)
class Note(Node):
    """An admonition; label is note, tip or warning."""

    label: str
    text: str

    def __init__(self, label: str, text: str) -> None:
        object.__setattr__(self, "label", label)
        object.__setattr__(self, "text", text)
        object.__setattr__(self, "kind", "note")


@dataclass(frozen=True)
class M(Node):
    """A displayed formula in TeX."""

    text: str

    def __init__(self, text: str) -> None:
        object.__setattr__(self, "text", text)
        object.__setattr__(self, "kind", "math")


@dataclass(frozen=True)
class Doc:
    name: str
    language: str
    nodes: tuple[Node, ...]
    forbidden: tuple[str, ...] = field(default=())

    @property
    def title(self) -> str:
        return next(n.text for n in self.nodes if isinstance(n, H))

    def without(self, kinds: set[str]) -> Doc:
        """The document for a format that cannot say everything: nodes and runs of these kinds are left out."""
        kept = []
        for node in self.nodes:
            if node.kind in kinds:
                continue
            if isinstance(node, P):
                runs = tuple(r for r in node.runs if not (isinstance(r, Run) and r.kind in kinds))
                node = P(*runs, kind=node.kind)
            kept.append(node)
        return replace(self, nodes=tuple(kept))


def plain(runs: Inline) -> str:
    """The words of inline text, footnotes left out."""
    return "".join(r if isinstance(r, str) else "" if r.kind == "fn" else r.text for r in runs)


def truth(doc: Doc, *, top: tuple[str, ...] = ()) -> dict[str, Any]:
    """What is to be found, in order: pieces with their heading path; footnotes at the end; link targets."""
    pieces: list[dict[str, Any]] = []
    stack: list[tuple[int, str]] = []
    notes: list[str] = []
    links: list[str] = []

    def put(kind: str, text: str, **more: Any) -> None:
        pieces.append({"kind": kind, "text": text, "path": [*top, *(t for _, t in stack)], **more})

    def inline(runs: Inline) -> str:
        notes.extend(r.text for r in runs if isinstance(r, Run) and r.kind == "fn")
        links.extend(r.target.removeprefix("mailto:") for r in runs if isinstance(r, Run) and r.kind == "a")
        return plain(runs)

    def items(one: L, depth: int) -> None:
        for item in one.items:
            put("item", inline(item.runs), depth=depth)
            if item.inner is not None:
                items(item.inner, depth + 1)

    for node in doc.nodes:
        if isinstance(node, H):
            while stack and stack[-1][0] >= node.level:
                stack.pop()
            put("heading", node.text, level=node.level)
            stack.append((node.level, node.text))
        elif isinstance(node, P):
            put(node.kind, inline(node.runs))
        elif isinstance(node, L):
            items(node, 0)
        elif isinstance(node, T):
            put("table", node.caption, rows=node.grid(), header=node.header)
        elif isinstance(node, C):
            put("code", node.text, language=node.language)
        elif isinstance(node, Img):
            put("image", f"{node.alt} {node.caption}".strip())
        elif isinstance(node, Pairs):
            for term, meaning in node.pairs:
                put("item", term)
                put("item", meaning)
        elif isinstance(node, (Note, M)):
            put("text" if isinstance(node, Note) else "math", node.text)
    for note in notes:
        pieces.append({"kind": "footnote", "text": note, "path": []})
    return {"language": doc.language, "pieces": pieces, "links": links, "forbidden": list(doc.forbidden)}
