"""Shapes of a slide: which are there to be seen, and in which order they are read."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from pipeline.extract import drawing
from pipeline.extract.slide_text import ancestors

_SHAPES = frozenset({"sp", "grpSp", "graphicFrame", "pic"})
_MAX_SORTED = 500  # shapes; more are left in the order of the file
_MAX_SHAPES = 20_000  # of one slide


@dataclass
class _Box:
    """A shape on a slide with its place in EMU; the shapes of a group are placed within it."""

    element: Any
    left: int
    top: int
    right: int
    bottom: int


def children(tree: Any) -> Iterator[Any]:
    """Shapes of a tree in the order of the file; of alternatives the first that says anything."""
    for count, element in enumerate(tree):
        if count >= _MAX_SHAPES:
            return
        if drawing.local(element) == "AlternateContent":
            branches = [branch for branch in element if drawing.local(branch) in ("Choice", "Fallback")]
            for branch in branches:
                found = [one for one in branch if drawing.local(one) in _SHAPES and _speaks(one)]
                if found:
                    yield from found
                    break
        elif drawing.local(element) in _SHAPES:
            yield element


def _speaks(shape: Any) -> bool:
    """False for a graphic of a kind that nothing here reads, such as newer charts: their fallback may say more."""
    return drawing.local(shape) != "graphicFrame" or any(
        drawing.local(node) in ("tbl", "chart", "relIds", "oleObj") and "chartex" not in str(node.tag)
        for data in shape.iter("{*}graphicData")
        for node in data
    )


def placeholder(shape: Any) -> str | None:
    """Type of a placeholder; ``obj`` where it has none; None for other shapes."""
    found = next(iter(shape.iterfind("./*/{*}nvPr/{*}ph")), None)
    return None if found is None else found.get("type", "obj")


def is_hidden(shape: Any) -> bool:
    """Whether the shape is set not to be shown."""
    properties = next(iter(shape.iterfind("./*/{*}cNvPr")), None)
    return properties is not None and properties.get("hidden") in ("1", "true")


def _place(shape: Any) -> tuple[int, int, int, int] | None:
    """Left, top, width and height in EMU of the shape's own transform."""
    for path in ("./{*}spPr/{*}xfrm", "./{*}grpSpPr/{*}xfrm", "./{*}xfrm"):
        transform = next(iter(shape.iterfind(path)), None)
        if transform is not None:
            offset, extent = transform.find("./{*}off"), transform.find("./{*}ext")
            if offset is not None and extent is not None:
                return int(offset.get("x")), int(offset.get("y")), int(extent.get("cx")), int(extent.get("cy"))
    return None


def _inherited_place(shape: Any, slide: Any) -> tuple[int, int, int, int] | None:
    return next((place for above in ancestors(shape, slide) if (place := _place(above)) is not None), None)


def _box(element: Any, slide: Any) -> _Box:
    place = _place(element)
    if place is None and placeholder(element) is not None:
        place = _inherited_place(element, slide)
    left, top, width, height = place or (0, 0, 0, 0)
    return _Box(element, left, top, left + max(width, 0), top + max(height, 0))


def in_reading_order(shapes: list[Any], slide: Any) -> list[Any]:
    """From top to bottom where a gap runs across all shapes, else from left to right, and again within each part."""
    if len(shapes) > _MAX_SORTED:
        return shapes
    boxes = [_box(shape, slide) for shape in shapes]
    order: list[Any] = []
    work = [boxes]
    while work:
        part = work.pop()
        pieces = _cut(part, lambda box: (box.top, box.bottom))
        if len(pieces) == 1:
            pieces = _cut(part, lambda box: (box.left, box.right))
        if len(pieces) == 1:
            order.extend(box.element for box in sorted(part, key=lambda box: (box.top, box.left)))
        else:
            work.extend(reversed(pieces))
    return order


def _cut(boxes: list[_Box], span: Any) -> list[list[_Box]]:
    """Parts with a gap between them; an overlap of a tenth of the smaller shape does not count."""
    pieces: list[list[_Box]] = []
    reach = 0
    for box in sorted(boxes, key=lambda one: span(one)[0]):
        start, end = span(box)
        if pieces and start + (end - start) // 10 < reach:
            pieces[-1].append(box)
            reach = max(reach, end)
        else:
            pieces.append([box])
            reach = end
    return pieces or [[]]
