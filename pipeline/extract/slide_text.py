"""Text of a slide's shapes: paragraphs with their bullets, levels and links, as layouts and masters define them."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from pipeline.extract import links
from pipeline.extract.drawing import local
from pipeline.extract.formulas import office_math

_HIDDEN_FIELDS = ("slidenum", "datetime")
_TITLES = frozenset({"title", "ctrTitle"})
_BODY = frozenset({"body", "obj", "subTitle", "tbl", "chart", "dgm", "media", "clipArt", "pic"})


@dataclass
class Line:
    """One paragraph. ``bullet`` is its sign, None without one; ``level`` is 0 for the outermost.

    ``math`` is a displayed formula: the text is TeX. Formulas inside a text stand between dollar signs.
    """

    text: str
    level: int = 0
    bullet: str | None = None
    ordered: bool = False
    start: int = 1
    math: bool = False


def frame_lines(shape: Any, slide: Any) -> list[Line]:
    """Paragraphs of a shape or table cell, with bullets where they are shown. ``slide`` is the slide or notes slide."""
    body = next((child for child in shape if local(child) == "txBody"), None)
    if body is None:
        return []
    styles = [child for child in body if local(child) == "lstStyle"]
    for above in ancestors(shape, slide):
        styles.extend(one for one in above.iterfind("./{*}txBody/{*}lstStyle"))
    styles.extend(_master_styles(shape, slide))
    lines = []
    for paragraph in body:
        if local(paragraph) != "p":
            continue
        properties = paragraph.find("./{*}pPr")
        level = _level(properties)
        formula = _displayed(paragraph)
        if formula:
            lines.append(Line(formula, math=True))
            continue
        line = Line(_text(paragraph, slide.part.rels), level)
        _set_bullet(line, [properties, *(_of_level(style, level) for style in styles)])
        lines.append(line)
    return lines


def ancestors(shape: Any, slide: Any) -> Iterator[Any]:
    """The placeholders that a slide's placeholder takes after: the layout's, then the master's."""
    own = _placeholder(shape)
    if own is None:
        return
    layout = getattr(slide, "slide_layout", None)
    kind, index = own.get("type", "obj"), own.get("idx", "0")
    if layout is None:
        return
    titles = kind in _TITLES
    for tree, names in (
        (layout.shapes._spTree, _TITLES if titles else frozenset()),
        (layout.slide_master.shapes._spTree, _TITLES if titles else frozenset({kind, "body"})),
    ):
        for one in tree:
            place = _placeholder(one)
            if place is None:
                continue
            if place.get("type", "obj") in names or (not names and place.get("idx", "0") == index):
                yield one
                break


def _placeholder(shape: Any) -> Any:
    return next(iter(shape.iterfind("./*/{*}nvPr/{*}ph")), None)


def _master_styles(shape: Any, slide: Any) -> list[Any]:
    """The master's style for the kind of placeholder; other shapes have none."""
    layout = getattr(slide, "slide_layout", None)
    own = _placeholder(shape)
    if layout is None or own is None or own.get("type", "obj") not in _BODY:
        return []
    return list(layout.slide_master._element.iterfind("./{*}txStyles/{*}bodyStyle"))


def _level(properties: Any) -> int:
    value = properties.get("lvl", "0") if properties is not None else "0"
    return min(int(value), 8) if value.isascii() and value.isdigit() and len(value) < 3 else 0


def _of_level(style: Any, level: int) -> Any:
    return style.find("./{*}lvl%dpPr" % (level + 1))  # noqa: UP031


def _set_bullet(line: Line, properties: list[Any]) -> None:
    """The first of the properties, from the paragraph up to the master, that says anything of bullets decides."""
    for one in properties:
        for child in one if one is not None else ():
            name = local(child)
            if name == "buNone":
                return
            if name in ("buChar", "buBlip", "buAutoNum"):
                line.bullet = child.get("char") or "•"
                line.ordered = name == "buAutoNum"
                start = child.get("startAt", "1")
                line.start = int(start) if start.isascii() and start.isdigit() and len(start) < 7 else 1
                return


def _text(paragraph: Any, relations: Any) -> str:
    """Runs, breaks, fields and formulas of a paragraph; the target stands behind the text of a link."""
    out: list[str] = []
    link: tuple[str, int] | None = None

    def end_link() -> None:
        nonlocal link
        if link is not None:
            out.append(links.suffix("".join(out[link[1] :]), link[0]))
            link = None

    for child in _runs(paragraph):
        name = local(child)
        if name in ("r", "fld"):
            if name == "fld" and (child.get("type") or "").startswith(_HIDDEN_FIELDS):
                continue
            target = _target(child, relations)
            if link is not None and link[0] != target:
                end_link()
            if target is not None and link is None:
                link = (target, len(out))
            out.append(next((one.text or "" for one in child if local(one) == "t"), ""))
        elif name == "br":
            out.append("\n")
        elif name in ("m", "oMath", "oMathPara"):
            end_link()
            formula = office_math(child)
            out.append(f"${formula}$" if formula else "")
    end_link()
    return "".join(out).replace("\v", "\n")


def _displayed(paragraph: Any) -> str:
    """TeX of a paragraph that is a formula and nothing else."""
    found = ""
    for child in _runs(paragraph):
        name = local(child)
        if name in ("m", "oMathPara") and not found:
            found = office_math(child) if name == "oMathPara" or child.find("./{*}oMathPara") is not None else ""
        elif name not in ("pPr", "endParaRPr"):
            return ""
    return found


def _runs(paragraph: Any) -> Iterator[Any]:
    for child in paragraph:
        if local(child) == "AlternateContent":
            branch = next((one for one in child if local(one) == "Choice"), None)
            yield from branch if branch is not None else ()
        else:
            yield child


def _target(run: Any, relations: Any) -> str | None:
    click = run.find("./{*}rPr/{*}hlinkClick")
    for name, value in click.attrib.items() if click is not None else ():
        if name.endswith("}id") and value in relations and relations[value].is_external:
            return str(relations[value].target_ref)
    return None
