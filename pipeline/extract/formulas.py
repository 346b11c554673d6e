"""Formulas of office documents (OMML) as TeX."""

from __future__ import annotations

from typing import Any

from lxml import etree

from pipeline.extract.drawing import local

_SIMPLE = frozenset("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789")
_OPERATORS = {"∑": "\\sum", "∏": "\\prod", "∫": "\\int", "∬": "\\iint", "∮": "\\oint", "⋃": "\\bigcup", "⋂": "\\bigcap"}
_ACCENTS = {"\u0302": "\\hat", "\u0303": "\\tilde", "\u0304": "\\bar", "\u0305": "\\bar", "\u0307": "\\dot",
            "\u20d7": "\\vec"}  # fmt: skip

Parts = list[tuple[str, str]]


def office_math(element: Any) -> str:
    """TeX of a formula without delimiters. Letters and signs that are Unicode in the document stay so."""
    stack: list[Parts] = [[]]
    for event, node in etree.iterwalk(element, events=("start", "end")):
        if event == "start":
            stack.append([])
            continue
        parts = stack.pop()
        stack[-1].append((local(node), _joined(node, parts)))
    return "".join(text for _, text in stack[0]).strip()


def _joined(node: Any, parts: Parts) -> str:
    """TeX of an element whose children are known."""
    name = local(node)
    if name == "t":
        return node.text or ""
    if name.endswith("Pr"):
        return ""
    one = dict(parts)
    base = one.get("e", "")
    if name == "f":
        return f"\\frac{{{one.get('num', '')}}}{{{one.get('den', '')}}}"
    if name == "rad":
        degree = one.get("deg", "")
        return f"\\sqrt[{degree}]{{{base}}}" if degree else f"\\sqrt{{{base}}}"
    if name in ("sSup", "sSub", "sSubSup"):
        return _base(base) + _script("_", one.get("sub", "")) + _script("^", one.get("sup", ""))
    if name == "sPre":
        return "{}" + _script("_", one.get("sub", "")) + _script("^", one.get("sup", "")) + base
    if name == "nary":
        sign = _property(node, "chr") or "∫"
        scripts = _script("_", one.get("sub", "")) + _script("^", one.get("sup", ""))
        return f"{_OPERATORS.get(sign, sign)}{scripts} {base}"
    if name == "d":
        opening, closing, between = (_property(node, key) for key in ("begChr", "endChr", "sepChr"))
        inside = (between or "|").join(text for part, text in parts if part == "e")
        return f"{'(' if opening is None else opening}{inside}{')' if closing is None else closing}"
    if name == "func":
        return f"{one.get('fName', '')} {base}"
    if name in ("limLow", "limUpp"):
        return base + _script("_" if name == "limLow" else "^", one.get("lim", ""))
    if name == "acc":
        accent = _ACCENTS.get(_property(node, "chr") or "\u0302", "\\hat")
        return f"{accent}{{{base}}}"
    if name == "bar":
        return f"\\overline{{{base}}}"
    if name == "mr":
        return " & ".join(text for part, text in parts if part == "e")
    if name == "m" and any(part == "mr" for part, _ in parts):
        rows = " \\\\ ".join(text for part, text in parts if part == "mr")
        return f"\\begin{{matrix}} {rows} \\end{{matrix}}"
    if name == "eqArr":
        return " \\\\ ".join(text for part, text in parts if part == "e")
    return "".join(text for _, text in parts)


def _base(text: str) -> str:
    return text if len(text) == 1 else f"{{{text}}}"


def _script(sign: str, text: str) -> str:
    if not text:
        return ""
    return sign + (text if len(text) == 1 and text in _SIMPLE else f"{{{text}}}")


def _property(node: Any, name: str) -> str | None:
    """Value of a property of the element; None where it is not given."""
    found = next(iter(node.iterfind(f"./{{*}}{local(node)}Pr/{{*}}{name}")), None)
    if found is None:
        return None
    return next((value for key, value in found.attrib.items() if key.rpartition("}")[2] == "val"), "")
