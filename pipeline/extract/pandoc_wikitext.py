"""Wikitext made ready for pandoc: what it drops (templates, alternative texts, galleries, reused footnotes) is kept.

The categories that a page is filed under are no part of its text; a link to a category (``[[:Category:Ships]]``) is.

Code, formulas and ``nowiki`` are set aside first, so that nothing in them is taken for markup. All passes are linear.
"""

from __future__ import annotations

import html
import re
from collections.abc import Callable

from pipeline.extract.pandoc_marks import NAME_CLOSE, NAME_OPEN, NOTE_LIST, Marks
from pipeline.extract.pandoc_templates import Expansion, expanded

_TAG = re.compile(
    r"<(?:!--|(nowiki|pre|syntaxhighlight|source|math|chem|gallery|poem|references|ref)\b([^<>]*)>)", re.IGNORECASE
)
_CLOSING = {
    name: re.compile(rf"</{name}\s*>", re.IGNORECASE)
    for name in ("nowiki", "pre", "syntaxhighlight", "source", "math", "chem", "gallery", "poem", "references")
}
_ATTRIBUTE = r"""\b{}\s*=\s*(?:"([^"]*)"|'([^']*)'|([^\s"'>/]+))"""
_LANG = re.compile(_ATTRIBUTE.format("lang"), re.IGNORECASE)
_NAME = re.compile(_ATTRIBUTE.format("name"), re.IGNORECASE)
_INLINE = re.compile(r"\binline\b", re.IGNORECASE)
_TRANSCLUSION = re.compile(r"</?(?:includeonly|noinclude|onlyinclude|nowiki)\s*/?>", re.IGNORECASE)
_REDIRECT = re.compile(r"\s*#([^\W\d_]+)\s*:?\s*(\[\[[^\[\]]+\]\])")
_TABLE_START = re.compile(r"^[ \t:*#]*\{\|", re.MULTILINE)
_TABLE_END = re.compile(r"^[ \t]*\|\}", re.MULTILINE)
_DEEP = re.compile(r"^((?:[*#:;][ \t]?){20})(?:[*#:;][ \t]?)+", re.MULTILINE)  # deeper lists are not told apart
_CATEGORY = (
    r"\[\[[ \t]*(?:category|kategorie|catégorie|categoría|categoria|categorie|kategoria|kategori|категория|категорія)"
    r"[ \t]*:[^\[\]\n]*\]\]"
)
_CATEGORIES = re.compile(rf"^[ \t]*(?:{_CATEGORY}[ \t]*)+(?:\n|\Z)|{_CATEGORY}", re.IGNORECASE | re.MULTILINE)
_SWITCH = re.compile(r"__[A-Z]{3,40}__")


def prepared(text: str, marks: Marks) -> Expansion:
    """The text for pandoc's mediawiki reader, and the title that the page gives itself."""
    redirect = _REDIRECT.match(text)
    if redirect and (redirect.group(1).isupper() or redirect.group(1).lower() == "redirect"):
        text = f"Redirect: {redirect.group(2)}\n{text[redirect.end() :]}"
    text = _set_aside(text, marks)
    text = _CATEGORIES.sub("", _SWITCH.sub("", _TRANSCLUSION.sub("", text)))
    page = expanded(text)
    page.text = _DEEP.sub(r"\1 ", page.text)
    unclosed = len(_TABLE_START.findall(page.text)) - len(_TABLE_END.findall(page.text))
    page.text += "\n|}" * max(0, min(unclosed, 100))  # which the parser refuses, but wikis do not
    return page


def _set_aside(text: str, marks: Marks) -> str:
    """Comments go, verbatim elements become tokens, footnotes that have names carry them in their text."""
    out: list[str] = []
    position = 0
    unclosed: set[str] = set()
    last_reference = text.lower().rfind("</ref")
    while tag := _TAG.search(text, position):
        out.append(text[position : tag.start()])
        name, attributes = (tag.group(1) or "").lower(), tag.group(2) or ""
        position = tag.end()
        if not name:  # a comment, to the end of the page if nothing closes it
            end = text.find("-->", position)
            position = len(text) if end < 0 else end + 3
        elif name == "ref":
            if attributes.rstrip().endswith("/") or tag.start() < last_reference:
                out.append(_reference(attributes))
        elif attributes.rstrip().endswith("/"):
            continue
        else:
            closing = None if name in unclosed else _CLOSING[name].search(text, position)
            if closing is None:
                unclosed.add(name)
                out.append("" if name == "references" else html.escape(tag.group()))
                continue
            inside = text[position : closing.start()]
            if name == "references":
                inside = _set_aside_references(inside, marks)
                out.append(f"\n\n{NOTE_LIST} {inside}\n\n")
            else:
                out.append(_VERBATIM[name](inside, attributes, marks))
            position = closing.end()
    out.append(text[position:])
    return "".join(out)


def _set_aside_references(inside: str, marks: Marks) -> str:
    """Footnotes defined in the list at the end; no other list stands in one."""
    one_line = " ".join(inside.split("\n"))
    return _set_aside(one_line.replace("<references", "&lt;references"), marks)


def _reference(attributes: str) -> str:
    found = _NAME.search(attributes)
    name = next((group for group in found.groups() if group), "") if found else ""
    sign = f"{NAME_OPEN}{name.strip()}{NAME_CLOSE}" if name.strip() else ""
    if attributes.rstrip().endswith("/"):
        return f"<ref>{sign}</ref>" if sign else ""
    return f"<ref>{sign}"


def _code(inside: str, attributes: str, marks: Marks) -> str:
    if _INLINE.search(_LANG.sub("", attributes)):
        return f"<code>{marks.hide(inside)}</code>"
    language = _LANG.search(attributes)
    named = next((group for group in language.groups() if group), None) if language else None
    return f"<pre>{marks.code(_trimmed(inside), named)}</pre>"


def _pre(inside: str, attributes: str, marks: Marks) -> str:
    return f"<pre>{marks.code(_trimmed(html.unescape(_TRANSCLUSION.sub('', inside))))}</pre>"


def _trimmed(code: str) -> str:
    """Without the line feeds that belong to the tags."""
    return code.removeprefix("\n").rstrip("\n")


def _nowiki(inside: str, attributes: str, marks: Marks) -> str:
    return marks.hide(html.unescape(inside)) if inside else ""


def _math(inside: str, attributes: str, marks: Marks) -> str:
    return f"<math>{marks.hide(inside.strip())}</math>"


def _chemistry(inside: str, attributes: str, marks: Marks) -> str:
    return _math(rf"\ce{{{inside.strip()}}}", attributes, marks)


def _gallery(inside: str, attributes: str, marks: Marks) -> str:
    items = []
    for line in inside.split("\n"):
        file, _, rest = line.partition("|")
        if file.strip() and rest.strip():
            items.append(f"* [[File:{file.split(':', 1)[-1].strip()}|{rest.strip()}]]")
    return "\n" + "\n".join(items) + "\n"


def _poem(inside: str, attributes: str, marks: Marks) -> str:
    return "\n\n" + "<br />".join(inside.strip("\n").split("\n")) + "\n\n"


_VERBATIM: dict[str, Callable[[str, str, Marks], str]] = {
    "nowiki": _nowiki,
    "pre": _pre,
    "syntaxhighlight": _code,
    "source": _code,
    "math": _math,
    "chem": _chemistry,
    "gallery": _gallery,
    "poem": _poem,
}
