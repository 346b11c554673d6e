"""DrawingML, the drawings of office documents: alternative texts, charts' data and the text of diagrams."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import Any

from lxml import etree

from pipeline.extract.number_format import plain_number

# Names that programs give to pictures; they say nothing of what is to be seen.
_AUTOMATIC = re.compile(
    r"(?:(?:picture|image|graphic|grafik|bild|imagen?|immagine|photo|screenshot|content placeholder|placeholder|shape|"
    r"rectangle|textbox|text box|object|chart|diagram|table|group|logo|title|icon)\s*\d*|"
    r"[\w\-. ()]{1,80}\.(?:png|jpe?g|gif|bmp|tiff?|svg|emf|wmf|webp))",
    re.IGNORECASE,
)
_GENERATED = re.compile(
    r"\s*(?:Description automatically generated(?: with [\w ]{1,30})?|AI-generated content[^.]{0,60})\.?\s*\Z",
    re.IGNORECASE,
)
_DECORATIVE = "{http://schemas.microsoft.com/office/drawing/2017/decorative}decorative"
_MAX_POINTS = 100_000  # values of one chart


@dataclass
class Chart:
    """A chart as a table: categories down, one column for each series; the first row names them."""

    title: str = ""
    rows: list[list[str]] = field(default_factory=list)


def parse(data: bytes) -> Any:
    """Root element of an XML part. Nothing is fetched or expanded. Raises lxml.etree.XMLSyntaxError."""
    parser = etree.XMLParser(resolve_entities=False, no_network=True, load_dtd=False, remove_comments=True)
    return etree.fromstring(data, parser)


def local(element: Any) -> str:
    """Tag without its namespace; empty for comments."""
    tag = element.tag
    return tag.rpartition("}")[2] if isinstance(tag, str) else ""


def alternative_text(properties: Any) -> str:
    """What the author says is to be seen, of a cNvPr element; empty for automatic names and decoration."""
    if properties is None or any(one.get("val") in ("1", "true") for one in properties.iter(_DECORATIVE)):
        return ""
    text = _GENERATED.sub("", properties.get("descr") or "").strip()
    return "" if _AUTOMATIC.fullmatch(text) else text


def rich_text(element: Any) -> str:
    """All text below an element, its paragraphs on lines of their own."""
    lines = []
    for paragraph in element.iter("{*}p"):
        lines.append("".join(t.text or "" for t in paragraph.iter("{*}t")))
    return "\n".join(line for line in lines if line.strip())


def read_chart(root: Any) -> Chart:
    """Title and cached values of a chart part, of any kind of chart."""
    chart = Chart()
    title = next(root.iter("{*}title"), None)
    if title is not None and local(title.getparent()) == "chart":
        chart.title = rich_text(title) or _first_value(title)
    series: list[tuple[str, dict[int, str], dict[int, str]]] = []  # name, labels and values by point
    left = _MAX_POINTS
    for one in root.iter("{*}ser"):
        parts = {local(child): child for child in one}
        values = parts.get("val", parts.get("yVal"))
        if values is None:
            continue
        across = parts.get("cat", parts.get("xVal"))
        points = _points(values, left)
        labels = _points(across, left) if across is not None else {}
        left -= len(points) + len(labels)
        series.append((_first_value(parts["tx"]) if "tx" in parts else "", labels, points))
    given = [labels for _, labels, _ in series if labels]
    if any(labels != given[0] for labels in given):  # a scatter chart: each series has its own x
        chart.rows.append(["", "x", "y"])
        for name, labels, points in series:
            chart.rows.extend([name, labels.get(index, ""), value] for index, value in sorted(points.items()))
    elif series:
        chart.rows.append(["", *(name for name, _, _ in series)])
        shared = given[0] if given else {}
        for index in sorted({index for _, _, points in series for index in points} | set(shared)):
            chart.rows.append([shared.get(index, ""), *(points.get(index, "") for _, _, points in series)])
    return chart


def _points(element: Any, left: int) -> dict[int, str]:
    """Cached points by index; the levels of a category of several levels are joined."""
    levels = list(element.iter("{*}lvl")) or [element]
    points: dict[int, str] = {}
    for level in levels:
        for point in level.iter("{*}pt"):
            index, value = point.get("idx") or "", next((v.text or "" for v in point.iter("{*}v")), "")
            if index.isascii() and index.isdigit() and len(index) < 8 and len(points) < left:
                text = _number(value)
                points[int(index)] = f"{text} {points[int(index)]}" if int(index) in points else text
    return points


def _number(value: str) -> str:
    try:
        return plain_number(float(value)) if len(value) < 30 and "_" not in value else value
    except ValueError:
        return value


def _first_value(element: Any) -> str:
    return next(((value.text or "").strip() for value in element.iter("{*}v")), "")


def diagram_items(root: Any) -> list[tuple[int, str]]:
    """Texts of a diagram (SmartArt) data part with their depth, from 0, in the order the diagram shows them."""
    texts: dict[str, str] = {}
    document = None
    for point in root.iter("{*}pt"):
        identity, kind = point.get("modelId") or "", point.get("type", "node")
        if kind == "doc":
            document = identity
        elif kind in ("node", "asst"):
            body = next((child for child in point if local(child) == "t"), None)
            texts[identity] = rich_text(body) if body is not None else ""
    children: dict[str, list[tuple[int, str]]] = {}
    for link in root.iter("{*}cxn"):
        if link.get("type", "parOf") == "parOf":
            order = link.get("srcOrd") or "0"
            number = int(order) if order.isascii() and order.isdigit() else 0
            children.setdefault(link.get("srcId") or "", []).append((number, link.get("destId") or ""))
    items: list[tuple[int, str]] = []
    seen: set[str] = set()
    work = [(0, identity) for _, identity in sorted(children.get(document or "", []), reverse=True)]
    while work:
        depth, identity = work.pop()
        if identity in seen or identity not in texts:
            continue
        seen.add(identity)
        if texts[identity].strip():
            items.append((depth, texts[identity]))
        work.extend((depth + 1, child) for _, child in sorted(children.get(identity, []), reverse=True))
    items.extend((0, text) for identity, text in texts.items() if identity not in seen and text.strip())
    return items
