"""DOCX, ODT, RTF, EPUB, PPTX, XLSX with the usual writers' libraries (python-docx, odfpy, python-pptx, openpyxl)."""

from __future__ import annotations

import io
import zipfile
from html import escape

from model import C, Doc, H, Img, L, M, Note, P, Pairs, T, plain
from web import Html


def docx(doc: Doc) -> bytes:
    from docx import Document
    from docx.enum.text import WD_BREAK

    made = Document()
    made.core_properties.title = doc.title
    made.core_properties.author = "harbour clerk"
    made.core_properties.language = doc.language
    section = made.sections[0]
    section.header.paragraphs[0].text = "Running head of the portal"
    section.footer.paragraphs[0].text = "Printed at the pier kiosk"
    for node in doc.nodes:
        if isinstance(node, H):
            made.add_heading(node.text, node.level)
        elif isinstance(node, P):
            paragraph = made.add_paragraph(style="Quote" if node.kind == "quote" else None)
            for run in node.runs:
                if isinstance(run, str):
                    paragraph.add_run(run)
                elif run.kind == "a":
                    _docx_link(made, paragraph, run)
                else:
                    one = paragraph.add_run(run.text)
                    one.bold, one.italic = run.kind == "b" or None, run.kind == "i" or None
        elif isinstance(node, L):
            _docx_list(made, node, 1)
        elif isinstance(node, T):
            if node.caption:
                made.add_paragraph(node.caption, style="Caption")
            _docx_table(made, node)
        elif isinstance(node, Pairs):
            for term, meaning in node.pairs:
                made.add_paragraph(f"{term}: {meaning}")
        elif isinstance(node, Note):
            made.add_paragraph(f"{node.label.title()}: {node.text}", style="Intense Quote")
        elif isinstance(node, Img):
            made.add_picture(io.BytesIO(_dot()))
            made.paragraphs[-1]._p.xpath(".//wp:docPr")[0].set("descr", node.alt)
            made.add_paragraph(node.caption, style="Caption")
    hidden = made.add_paragraph().add_run("vanished remark of the clerk")
    hidden.font.hidden = True
    made.add_paragraph().add_run().add_break(WD_BREAK.PAGE)
    return _saved(made)


DOCX_FORBIDDEN = ["Running head of the portal", "Printed at the pier kiosk", "vanished remark of the clerk"]


def _docx_link(made, paragraph, run) -> None:
    from docx.opc.constants import RELATIONSHIP_TYPE
    from docx.oxml import OxmlElement
    from docx.oxml.ns import qn

    link = OxmlElement("w:hyperlink")
    link.set(qn("r:id"), paragraph.part.relate_to(run.target, RELATIONSHIP_TYPE.HYPERLINK, is_external=True))
    inner, text = OxmlElement("w:r"), OxmlElement("w:t")
    text.text = run.text
    inner.append(text)
    link.append(inner)
    paragraph._p.append(link)


def _docx_list(made, node: L, depth: int) -> None:
    style = ("List Number" if node.ordered else "List Bullet") + (f" {depth}" if depth > 1 else "")
    for item in node.items:
        made.add_paragraph(plain(item.runs), style=style)
        if item.inner:
            _docx_list(made, item.inner, depth + 1)


def _docx_table(made, node: T) -> None:
    from docx.oxml import OxmlElement
    from docx.oxml.ns import qn

    grid = node.grid()
    table = made.add_table(len(grid), len(grid[0]), style="Table Grid")
    taken: set[tuple[int, int]] = set()
    for r, row in enumerate(node.rows):
        at = 0
        for cell in row:
            while (r, at) in taken:
                at += 1
            for dr in range(cell.down):
                taken.update((r + dr, at + dc) for dc in range(cell.across))
            first = table.cell(r, at)
            if cell.down > 1 or cell.across > 1:
                first = first.merge(table.cell(r + cell.down - 1, at + cell.across - 1))
            first.text = cell.text
            at += cell.across
    for row in table.rows[: node.header]:
        mark = OxmlElement("w:tblHeader")
        mark.set(qn("w:val"), "true")
        row._tr.get_or_add_trPr().append(mark)


def _dot() -> bytes:
    from PIL import Image

    out = io.BytesIO()
    Image.new("RGB", (8, 8), "gray").save(out, "PNG")
    return out.getvalue()


def _saved(made) -> bytes:
    out = io.BytesIO()
    made.save(out)
    return out.getvalue()


def odt(doc: Doc) -> bytes:
    from odf import table, text
    from odf.opendocument import OpenDocumentText

    made = OpenDocumentText()
    for node in doc.nodes:
        if isinstance(node, H):
            made.text.addElement(text.H(outlinelevel=node.level, text=node.text))
        elif isinstance(node, P):
            paragraph = text.P()
            for run in node.runs:
                if isinstance(run, str):
                    paragraph.addText(run)
                elif run.kind == "a":
                    paragraph.addElement(text.A(href=run.target, text=run.text))
                elif run.kind == "fn":
                    note = text.Note(noteclass="footnote")
                    note.addElement(text.NoteCitation(text="1"))
                    body = text.NoteBody()
                    body.addElement(text.P(text=run.text))
                    note.addElement(body)
                    paragraph.addElement(note)
                else:
                    paragraph.addElement(text.Span(text=run.text))
            made.text.addElement(paragraph)
        elif isinstance(node, L):
            made.text.addElement(_odt_list(node))
        elif isinstance(node, T):
            if node.caption:
                made.text.addElement(text.P(text=node.caption))
            made.text.addElement(_odt_table(node))
        elif isinstance(node, Pairs):
            for term, meaning in node.pairs:
                made.text.addElement(text.P(text=f"{term}: {meaning}"))
        elif isinstance(node, Note):
            made.text.addElement(text.P(text=node.text))
    out = io.BytesIO()
    made.write(out)
    return out.getvalue()


def _odt_list(node: L):
    from odf import text

    made = text.List()
    for item in node.items:
        one = text.ListItem()
        one.addElement(text.P(text=plain(item.runs)))
        if item.inner:
            one.addElement(_odt_list(item.inner))
        made.addElement(one)
    return made


def _odt_table(node: T):
    from odf import table, text

    made = table.Table()
    grid = node.grid()
    made.addElement(table.TableColumn(numbercolumnsrepeated=len(grid[0])))
    head = table.TableHeaderRows()
    for r, row in enumerate(node.rows):
        line, at = table.TableRow(), 0
        cells = iter(row)
        while at < len(grid[0]):
            if grid[r][at] is None:
                line.addElement(table.CoveredTableCell())
                at += 1
                continue
            cell = next(cells)
            one = table.TableCell(valuetype="string", numbercolumnsspanned=cell.across, numberrowsspanned=cell.down)
            one.addElement(text.P(text=cell.text))
            line.addElement(one)
            at += 1
        (head if r < node.header else made).addElement(line)
        if r == node.header - 1:
            made.addElement(head)
    return made


def rtf(doc: Doc) -> bytes:
    def say(text: str) -> str:
        out = []
        for one in text:
            if one in "\\{}":
                out.append("\\" + one)
            elif ord(one) < 128:
                out.append(one)
            else:
                units = one.encode("utf-16-le")
                for k in range(0, len(units), 2):
                    value = int.from_bytes(units[k : k + 2], "little", signed=True)
                    out.append(f"\\u{value}?")
        return "".join(out)

    levels = "".join(f"{{\\s{n}\\outlinelevel{n - 1} heading {n};}}" for n in range(1, 5))
    out = ["{\\rtf1\\ansi\\ansicpg1252\\deff0{\\fonttbl{\\f0 Helvetica;}}{\\stylesheet{\\s0 Normal;}" + levels + "}",
           "{\\info{\\title " + say(doc.title) + "}{\\author harbour clerk}}", "{\\header\\pard Running head of the portal\\par}"]
    for node in doc.nodes:
        if isinstance(node, H):
            out.append(f"\\pard\\s{node.level}\\outlinelevel{node.level - 1}\\b {say(node.text)}\\b0\\par")
        elif isinstance(node, P):
            parts = []
            for run in node.runs:
                if isinstance(run, str):
                    parts.append(say(run))
                elif run.kind == "a":
                    parts.append('{\\field{\\*\\fldinst HYPERLINK "' + say(run.target) + '"}{\\fldrslt ' + say(run.text) + "}}")
                elif run.kind == "fn":
                    parts.append("{\\super\\chftn}{\\footnote\\pard\\plain{\\super\\chftn} " + say(run.text) + "}")
                else:
                    parts.append({"b": "{\\b ", "i": "{\\i ", "c": "{"}[run.kind] + say(run.text) + "}")
            out.append("\\pard " + "".join(parts) + "\\par")
        elif isinstance(node, L):
            out += _rtf_list(node, say, 1)
        elif isinstance(node, T):
            if node.caption:
                out.append(f"\\pard {say(node.caption)}\\par")
            for r, row in enumerate(node.rows):
                cells = "".join(f"\\cellx{(n + 1) * 1800}" for n in range(len(row)))
                head = "\\trhdr" if r < node.header else ""
                out.append(f"\\trowd{head}{cells}" + "".join(f"\\pard\\intbl {say(x.text)}\\cell" for x in row) + "\\row")
    return "\n".join([*out, "}"]).encode("ascii")


def _rtf_list(node: L, say, depth: int) -> list[str]:
    out = []
    for item in node.items:

        out.append(f"\\pard\\fi-360\\li{360 * depth}\\bullet  {say(plain(item.runs))}\\par")
        if item.inner:
            out += _rtf_list(item.inner, say, depth + 1)
    return out


def epub(doc: Doc) -> bytes:
    """Chapters at every second-level heading, with a navigation page and a cover page without words of the text."""
    chapters: list[list] = [[]]
    for node in doc.nodes:
        if isinstance(node, H) and node.level == 2:
            chapters.append([])
        chapters[-1].append(node)
    names = [f"c{n}.xhtml" for n in range(len(chapters))]
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w", zipfile.ZIP_DEFLATED) as book:
        book.writestr(zipfile.ZipInfo("mimetype"), "application/epub+zip")
        book.writestr("META-INF/container.xml", '<?xml version="1.0"?><container version="1.0" '
                      'xmlns="urn:oasis:names:tc:opendocument:xmlns:container"><rootfiles><rootfile '
                      'full-path="OEBPS/book.opf" media-type="application/oebps-package+xml"/></rootfiles></container>')
        items = "".join(f'<item id="i{n}" href="{name}" media-type="application/xhtml+xml"/>' for n, name in enumerate(names))
        spine = "".join(f'<itemref idref="i{n}"/>' for n in range(len(names)))
        book.writestr("OEBPS/book.opf", f'<?xml version="1.0"?><package version="3.0" unique-identifier="id" '
                      f'xmlns="http://www.idpf.org/2007/opf"><metadata xmlns:dc="http://purl.org/dc/elements/1.1/">'
                      f'<dc:identifier id="id">urn:headwater:{doc.name}</dc:identifier><dc:title>{escape(doc.title)}</dc:title>'
                      f'<dc:language>{doc.language}</dc:language></metadata><manifest>{items}<item id="nav" href="nav.xhtml" '
                      f'media-type="application/xhtml+xml" properties="nav"/></manifest><spine>{spine}</spine></package>')
        links = "".join(f'<li><a href="{name}">Jump to leaf {n}</a></li>' for n, name in enumerate(names))
        book.writestr("OEBPS/nav.xhtml", _xhtml("nav", f'<nav xmlns:epub="http://www.idpf.org/2007/ops" '
                                                f'epub:type="toc"><ol>{links}</ol></nav>'))
        for name, nodes in zip(names, chapters):
            body = Html().body(Doc(doc.name, doc.language, tuple(nodes)))
            book.writestr(f"OEBPS/{name}", _xhtml(doc.title, body))
    return out.getvalue()


def _xhtml(title: str, body: str) -> str:
    return ('<?xml version="1.0" encoding="utf-8"?><html xmlns="http://www.w3.org/1999/xhtml"><head><title>'
            f"{escape(title)}</title></head><body>{body.replace('<hr>', '<hr/>').replace('<br>', '<br/>')}</body></html>")


def pptx(doc: Doc) -> bytes:
    """A slide at every heading of level 1 or 2; speaker notes are the footnotes."""
    from pptx import Presentation
    from pptx.util import Inches

    made = Presentation()
    slide, frame, notes = None, None, []
    for node in doc.nodes:
        if isinstance(node, H):
            slide = made.slides.add_slide(made.slide_layouts[1])
            slide.shapes.title.text = node.text
            frame = slide.placeholders[1].text_frame
            fresh = True
        elif isinstance(node, P):
            paragraph = frame.paragraphs[0] if fresh else frame.add_paragraph()
            paragraph.text, fresh = plain(node.runs), False
        elif isinstance(node, L):
            def put(one: L, depth: int) -> None:
                nonlocal fresh
                for item in one.items:
                    paragraph = frame.paragraphs[0] if fresh else frame.add_paragraph()
                    paragraph.text, paragraph.level, fresh = plain(item.runs), depth, False
                    if item.inner:
                        put(item.inner, depth + 1)
            put(node, 0)
        elif isinstance(node, T):
            grid = node.grid()
            shape = slide.shapes.add_table(len(grid), len(grid[0]), Inches(0.5), Inches(4.5), Inches(9), Inches(2))
            for r, row in enumerate(grid):
                for col, text in enumerate(row):
                    shape.table.cell(r, col).text = text or ""
    return _saved(made)


def xlsx(sheets: list[tuple[str, T]]) -> bytes:
    from openpyxl import Workbook

    book = Workbook()
    book.remove(book.active)
    for name, node in sheets:
        sheet = book.create_sheet(name)
        taken: dict[tuple[int, int], bool] = {}
        for r, row in enumerate(node.rows, 1):
            at = 1
            for cell in row:
                while taken.get((r, at)):
                    at += 1
                for dr in range(cell.down):
                    for dc in range(cell.across):
                        taken[r + dr, at + dc] = True
                value = cell.text
                sheet.cell(r, at, int(value) if value.isdigit() else value)
                if cell.down > 1 or cell.across > 1:
                    sheet.merge_cells(start_row=r, start_column=at, end_row=r + cell.down - 1, end_column=at + cell.across - 1)
                at += cell.across
    hidden = book.create_sheet("Drafts")
    hidden["A1"] = "hidden reckoning of the clerk"
    hidden.sheet_state = "hidden"
    return _saved(book)


LACKS = {
    "docx": {"fn", "math", "code"},
    "odt": {"math", "code", "image", "note"},
    "rtf": {"math", "code", "image", "note", "merged", "definitions"},
    "epub": {"math"},
    "pptx": {"math", "code", "image", "note", "merged", "definitions", "fn", "a", "quote"},
}
__all__ = ["C", "M", "docx", "epub", "odt", "pptx", "rtf", "xlsx"]
