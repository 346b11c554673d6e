"""Office files made ready for pandoc: what all of them share, EPUB, and RTF."""

from __future__ import annotations

import io
import posixpath
import re
import zipfile
from dataclasses import dataclass
from typing import TYPE_CHECKING
from urllib.parse import unquote

from pipeline.extract.containers import check_zip, member_bytes
from pipeline.extract.pandoc_marks import HEADER_ROW, NOTHING, Marks
from pipeline.extract.reading import Body, refused

if TYPE_CHECKING:
    from lxml import etree

_KEPT = (".xml", ".rels", ".opf", ".ncx", ".xhtml", ".html", ".htm")
_DC = "{http://purl.org/dc/elements/1.1/}"
_OPF = "{http://www.idpf.org/2007/opf}"
_HIDDEN_STYLE = re.compile(r"display\s*:\s*none|visibility\s*:\s*hidden", re.IGNORECASE)
_MAY_HIDE = re.compile(rb"\bhidden\b|display\s*:\s*none|<rt\b", re.IGNORECASE)
# Fonts are garbled by these methods, not text.
_FONT_METHODS = ("http://www.idpf.org/2008/embedding", "http://ns.adobe.com/pdf/enc#RC")
_STRICT = re.compile(rb"http://purl\.oclc\.org/ooxml/(\w+)/")
_RTF_CONTROL = re.compile(rb"\\(?:([a-z]+)(-?[0-9]{1,9})? ?|[^a-z])", re.DOTALL)
_RTF_NOTE = re.compile(rb"[\r\n ]*\\footnote(?![a-z])")
# The second half of a pair of surrogates, after what stands for the first where it cannot be shown.
_RTF_LOW_HALF = re.compile(rb"(?:\\'[0-9a-fA-F]{2}|[^\\{}\r\n]){0,2}[\r\n]*\\u(-?[0-9]{1,5}) ?")


@dataclass(frozen=True)
class Source:
    """What pandoc is given, and what is known of the document besides; ``titled``: its title stands in the text."""

    data: bytes
    title: str | None = None
    language: str | None = None
    titled: bool = False
    warnings: tuple[str, ...] = ()


def parsed(content: bytes, name: str) -> etree._Element:
    """The root of an XML member, entities unresolved. Raises DocumentError (kind 'malformed')."""
    from lxml import etree

    parser = etree.XMLParser(resolve_entities=False, no_network=True, load_dtd=False, huge_tree=True, remove_pis=True)
    try:
        return etree.fromstring(content, parser)
    except (etree.XMLSyntaxError, ValueError) as error:
        raise refused(f"body: {name!r} is no sound XML ({error}); save the file anew", "malformed") from error


def serialised(root: etree._Element) -> bytes:
    """An XML member again."""
    from lxml import etree

    return bytes(etree.tostring(root, xml_declaration=True, encoding="UTF-8"))


def dublin_core(content: bytes | None, name: str) -> tuple[str | None, str | None]:
    """Title and language of a member with Dublin Core metadata; None where it says nothing."""
    if not content:
        return None, None
    root = parsed(content, name)
    title, language = (next(root.iter(_DC + field), None) for field in ("title", "language"))
    said = [" ".join((node.text or "").split()) or None if node is not None else None for node in (title, language)]
    return said[0], said[1][:35] if said[1] else None


def repacked(data: bytes, names: tuple[str, ...], changed: dict[str, bytes]) -> bytes:
    """The container with changed members, media, fonts, macros and signatures emptied."""
    out = io.BytesIO()
    with zipfile.ZipFile(io.BytesIO(data)) as old, zipfile.ZipFile(out, "w", zipfile.ZIP_STORED) as new:
        for name in dict.fromkeys((*names, *changed)):
            if name in changed:
                new.writestr(zipfile.ZipInfo(name), changed[name])
            elif name == "mimetype" or name.lower().endswith(_KEPT):
                new.writestr(zipfile.ZipInfo(name), old.read(name))
            else:  # pandoc passes over an image that is missing, and over its alternative text
                new.writestr(zipfile.ZipInfo(name), b"")
    return out.getvalue()


def transitional(data: bytes, names: tuple[str, ...]) -> bytes:
    """A document in the strict variant of Office Open XML with the names of the usual one; others as they are."""
    relations = member_bytes(data, "_rels/.rels") or b""
    if _STRICT.search(relations) is None:
        return data
    changed = {
        name: _STRICT.sub(rb"http://schemas.openxmlformats.org/\1/2006/", member_bytes(data, name) or b"")
        for name in names
        if name.lower().endswith((".xml", ".rels"))
    }
    return repacked(data, names, changed)


def epub(body: Body, marks: Marks) -> Source:
    """An EPUB without hidden text and without its page of contents."""
    data = body.data
    contents = check_zip(data, body.limits, doctypes=True)
    encryption = member_bytes(data, "META-INF/encryption.xml")
    if encryption is not None:
        methods = [
            node.get("Algorithm") for node in parsed(encryption, "META-INF/encryption.xml").iter("{*}EncryptionMethod")
        ]
        if any(method not in _FONT_METHODS for method in methods):
            raise refused("body: the book is encrypted (DRM); send an edition without it", "encrypted")
    container = member_bytes(data, "META-INF/container.xml")
    root_file = next(parsed(container, "META-INF/container.xml").iter("{*}rootfile"), None) if container else None
    path = (root_file.get("full-path") or "") if root_file is not None else ""
    package = member_bytes(data, path) if path in contents else None
    if package is None:
        raise refused("body: the EPUB names no package file; save the book anew", "malformed")
    opf = parsed(package, path)
    title, language = dublin_core(package, path)
    changed: dict[str, bytes] = {}
    if _drop_contents_page(opf):
        changed[path] = serialised(opf)
    for name in contents.names:
        if name.lower().endswith((".xhtml", ".html", ".htm")):
            chapter = member_bytes(data, name) or b""
            visible = _visible(chapter) if _MAY_HIDE.search(chapter) else None
            if visible is not None:
                changed[name] = visible
    return Source(repacked(data, contents.names, changed), title, language, warnings=contents.warnings)


def _drop_contents_page(opf: etree._Element) -> bool:
    """Takes the pages that the guide calls contents out of the reading order."""
    pages = {
        posixpath.normpath(unquote((reference.get("href") or "").split("#")[0]))
        for reference in opf.iter(f"{_OPF}reference")
        if (reference.get("type") or "").lower() == "toc"
    }
    items = {
        item.get("id")
        for item in opf.iter(f"{_OPF}item")
        if posixpath.normpath(unquote(item.get("href") or "")) in pages
    }
    found = [one for one in opf.iter(f"{_OPF}itemref") if one.get("idref") in items]
    spine = list(opf.iter(f"{_OPF}itemref"))
    if not found or len(found) == len(spine):  # a book of one page is no list of contents
        return False
    for one in found:
        parent = one.getparent()
        if parent is not None:
            parent.remove(one)
    return True


def _visible(chapter: bytes) -> bytes | None:
    """The chapter without hidden elements, ruby in brackets; None where it is no XML and stays as it is."""
    from lxml import etree

    parser = etree.XMLParser(resolve_entities=False, no_network=True, load_dtd=False, huge_tree=True)
    try:
        root = etree.fromstring(chapter, parser)
    except etree.XMLSyntaxError:
        return None
    for node in list(root.iter("{*}*")):
        if node.get("hidden") is not None or _HIDDEN_STYLE.search(node.get("style") or ""):
            remove(node)
        elif etree.QName(node).localname == "rt":
            node.text = f"({node.text or ''}"
            last = node[-1] if len(node) else None
            if last is None:
                node.text += ")"
            else:
                last.tail = f"{last.tail or ''})"
    return bytes(etree.tostring(root.getroottree(), encoding="UTF-8", xml_declaration=True))


def remove(node: etree._Element) -> None:
    """Takes an element out and leaves the text after it."""
    parent = node.getparent()
    if parent is None:
        return
    if node.tail:
        before = node.getprevious()
        if before is not None:
            before.tail = (before.tail or "") + node.tail
        else:
            parent.text = (parent.text or "") + node.tail
    parent.remove(node)


def unwrap(node: etree._Element) -> None:
    """Puts an element's content in its place."""
    parent = node.getparent()
    if parent is None:
        return
    if node.text:
        before = node.getprevious()
        if before is not None:
            before.tail = (before.tail or "") + node.text
        else:
            parent.text = (parent.text or "") + node.text
    for child in list(node):
        node.addprevious(child)
    remove(node)


def rtf(body: Body, marks: Marks) -> Source:
    """RTF with footnotes and signs beyond 16 bits in forms that pandoc reads, deleted text hidden, header rows marked,
    and lists parted from the tables after them.

    Raises DocumentError (kind 'malformed') for what is no RTF.
    """
    data = body.data
    if not data.lstrip().startswith(b"{\\rtf"):
        raise refused("body: it does not begin as RTF does; declare its real type", "malformed")
    header_sign, nothing = (b"\\u%d ?" % (ord(sign) - 65_536) for sign in (HEADER_ROW, NOTHING))
    out: list[bytes] = []
    position = 0
    last_end = b""  # what ended the paragraph before
    header = False
    tokens: dict[int, bytes] = {}
    while control := _RTF_CONTROL.search(data, position):
        out.append(data[position : control.start()])
        position = control.end()
        word, whole = control.group(1), control.group()
        if word == b"bin":
            position += max(0, int(control.group(2) or 0))
            continue
        if word == b"u" and (sign := _rtf_beyond(data, control)):
            if sign[0] not in tokens:
                tokens[sign[0]] = _rtf_token(marks.hide(chr(sign[0])))
            whole, position = tokens[sign[0]], sign[1]
        elif whole == b"\\*" and _RTF_NOTE.match(data, position):  # pandoc passes over a destination marked like that
            whole = b""
        elif word == b"u" and not whole.endswith(b" "):
            whole += b" "  # without it pandoc takes the letter after the substitute for part of that
        elif word == b"deleted":
            whole = whole.replace(b"\\deleted", b"\\v", 1)
        elif word == b"trowd":
            if last_end == b"par":  # otherwise pandoc puts the table before a list that stands above it
                whole = b"\\pard\\plain " + nothing + b"\\par" + whole
                last_end = b"row"
            header = False
        elif word == b"trhdr":
            header = True
        elif word in (b"par", b"row", b"cell", b"nestcell", b"nestrow"):
            last_end = word
            if word == b"cell" and header:
                whole, header = header_sign + whole, False
        out.append(whole)
    out.append(data[position:])
    return Source(b"".join(out))


def _rtf_beyond(data: bytes, control: re.Match[bytes]) -> tuple[int, int] | None:
    """Code point of a sign beyond 16 bits that begins here, and where its last control ends; None for others."""
    code = int(control.group(2) or 0)
    if 0x10000 <= code <= 0x10FFFF:
        return code, control.end()
    if not 0xD800 <= code & 0xFFFF <= 0xDBFF:
        return None
    low = _RTF_LOW_HALF.match(data, control.end())
    half = int(low.group(1)) & 0xFFFF if low else 0
    if low is None or not 0xDC00 <= half <= 0xDFFF:
        return None
    return 0x10000 + ((code & 0x3FF) << 10) + (half & 0x3FF), low.end()


def _rtf_token(token: str) -> bytes:
    """A token as controls; what stands for its last sign where that cannot be shown follows in the document."""
    first, last = (b"".join(b"\\u%d " % (ord(sign) - 65_536) for sign in part) for part in (token[0], token[-1]))
    return b"{\\uc0" + first + token[1:-1].encode("ascii") + b"}" + last
