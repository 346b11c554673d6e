"""DOCX, ODT and EPUB files that hold one of everything, built part by part."""

from __future__ import annotations

import io
import zipfile

_OOXML = "http://schemas.openxmlformats.org"
_RELATION = f"{_OOXML}/officeDocument/2006/relationships"
_NAMES = (
    f'xmlns:w="{_OOXML}/wordprocessingml/2006/main" xmlns:r="{_RELATION}" '
    f'xmlns:wp="{_OOXML}/drawingml/2006/wordprocessingDrawing" xmlns:a="{_OOXML}/drawingml/2006/main" '
    f'xmlns:pic="{_OOXML}/drawingml/2006/picture" xmlns:c="{_OOXML}/drawingml/2006/chart" '
    f'xmlns:dgm="{_OOXML}/drawingml/2006/diagram" xmlns:m="{_OOXML}/officeDocument/2006/math" '
    'xmlns:wps="http://schemas.microsoft.com/office/word/2010/wordprocessingShape" '
    'xmlns:mc="http://schemas.openxmlformats.org/markup-compatibility/2006" xmlns:v="urn:schemas-microsoft-com:vml"'
)
_XML = '<?xml version="1.0" encoding="UTF-8"?>'


def packed(members: dict[str, str | bytes]) -> bytes:
    """A zip container."""
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, content in members.items():
            archive.writestr(name, content)
    return out.getvalue()


# -- DOCX


def run(text: str, properties: str = "") -> str:
    return f'<w:r><w:rPr>{properties}</w:rPr><w:t xml:space="preserve">{text}</w:t></w:r>'


def par(text: str = "", style: str = "", *, more: str = "", properties: str = "") -> str:
    named = f'<w:pStyle w:val="{style}"/>' if style else ""
    return f"<w:p><w:pPr>{named}{properties}</w:pPr>{run(text) if text else ''}{more}</w:p>"


def item(text: str, level: int = 0, number: int = 1) -> str:
    return par(text, properties=f'<w:numPr><w:ilvl w:val="{level}"/><w:numId w:val="{number}"/></w:numPr>')


def cell(content: str, properties: str = "") -> str:
    return f"<w:tc><w:tcPr>{properties}</w:tcPr>{content}</w:tc>"


def row(*cells: str, properties: str = "") -> str:
    return f"<w:tr><w:trPr>{properties}</w:trPr>{''.join(cells)}</w:tr>"


def table(*rows: str) -> str:
    return f"<w:tbl><w:tblPr/><w:tblGrid><w:gridCol/><w:gridCol/></w:tblGrid>{''.join(rows)}</w:tbl>"


def drawing(uri: str, content: str, alt: str = "") -> str:
    return (
        f'<w:r><w:drawing><wp:inline><wp:extent cx="9" cy="9"/><wp:docPr id="1" name="D" descr="{alt}"/><a:graphic>'
        f'<a:graphicData uri="{uri}">{content}</a:graphicData></a:graphic></wp:inline></w:drawing></w:r>'
    )


def box(content: str) -> str:
    """A text box as Word writes it: once for new readers, once for old ones."""
    inside = f"<w:txbxContent>{content}</w:txbxContent>"
    shape = drawing("wps", f"<wps:wsp><wps:txbx>{inside}</wps:txbx></wps:wsp>")
    choice = shape.removeprefix("<w:r>").removesuffix("</w:r>")
    old = f"<w:pict><v:shape><v:textbox>{inside}</v:textbox></v:shape></w:pict>"
    return (
        f'<w:r><mc:AlternateContent><mc:Choice Requires="wps">{choice}</mc:Choice>'
        f"<mc:Fallback>{old}</mc:Fallback></mc:AlternateContent></w:r>"
    )


def field(code: str, shown: str) -> str:
    def mark(kind: str) -> str:
        return f'<w:r><w:fldChar w:fldCharType="{kind}"/></w:r>'

    instruction = f"<w:r><w:instrText>{code}</w:instrText></w:r>"
    return mark("begin") + instruction + mark("separate") + run(shown) + mark("end")


def _style(name: str, more: str = "", *, base: str = "Normal", kind: str = "paragraph") -> str:
    ident = name.replace(" ", "").capitalize()
    about = f'<w:name w:val="{name}"/><w:basedOn w:val="{base}"/>'
    return f'<w:style w:type="{kind}" w:styleId="{ident}">{about}{more}</w:style>'


_STYLES = "".join(
    [
        '<w:style w:type="paragraph" w:default="1" w:styleId="Normal"><w:name w:val="Normal"/></w:style>',
        *(
            _style(name)
            for name in ("Title", "Subtitle", "caption", "Source Code", "Quote", "HTML Preformatted", "toc 1")
        ),
        *(_style(f"heading {n}", base="Missing" if n == 7 else "Normal") for n in range(1, 8)),
        '<w:style w:type="paragraph" w:styleId="berschrift1"><w:name w:val="heading 1"/></w:style>',
        _style("My Head", base="Heading2"),
        _style("Outlined", '<w:pPr><w:outlineLvl w:val="1"/></w:pPr>'),
        _style("Unseen", "<w:rPr><w:vanish/></w:rPr>", kind="character"),
    ]
)
_LEVELS = ((0, 1, "bullet", "•"), (1, 1, "decimal", "%1."), (2, 4, "decimal", "%1."))
_NUMBERING = "".join(
    f'<w:abstractNum w:abstractNumId="{ident}">'
    + "".join(
        f'<w:lvl w:ilvl="{level}"><w:start w:val="{start}"/><w:numFmt w:val="{form}"/>'
        f'<w:lvlText w:val="{text}"/></w:lvl>'
        for level in range(4)
    )
    + "</w:abstractNum>"
    for ident, start, form, text in _LEVELS
) + "".join(f'<w:num w:numId="{n + 1}"><w:abstractNumId w:val="{n}"/></w:num>' for n in range(3))


def docx(body: str, more: dict[str, str | bytes] | None = None) -> bytes:
    """A document with styles, lists, notes, a comment, a header, a chart and a diagram."""
    parts = {
        "styles": f"<w:styles {_NAMES}>{_STYLES}</w:styles>",
        "numbering": f"<w:numbering {_NAMES}>{_NUMBERING}</w:numbering>",
        "footnotes": f'<w:footnotes {_NAMES}><w:footnote w:id="2">{par(" Footnote words")}</w:footnote></w:footnotes>',
        "endnotes": f'<w:endnotes {_NAMES}><w:endnote w:id="2">{par("Endnote words")}</w:endnote></w:endnotes>',
        "comments": f'<w:comments {_NAMES}><w:comment w:id="5">{par("Comment words")}</w:comment></w:comments>',
        "header": f"<w:hdr {_NAMES}>{par('Header words')}</w:hdr>",
        "chart": f"<c:chartSpace {_NAMES}><a:t>Chart title</a:t><c:v>Pumps</c:v><c:v>17</c:v></c:chartSpace>",
        "diagramData": f"<dgm:dataModel {_NAMES}><a:t>Step one</a:t><a:t>Step two</a:t></dgm:dataModel>",
    }
    relations = "".join(f'<Relationship Id="{kind}" Type="{_RELATION}/{kind}" Target="{kind}.xml"/>' for kind in parts)
    links = (
        f'<Relationship Id="rId9" Type="{_RELATION}/hyperlink" Target="https://example.org/a" TargetMode="External"/>'
        f'<Relationship Id="rId10" Type="{_RELATION}/image" Target="media/i.png"/>'
    )
    package = f'xmlns="{_OOXML}/package/2006/relationships"'
    main = "application/vnd.openxmlformats-officedocument.wordprocessingml"
    members: dict[str, str | bytes] = {
        "[Content_Types].xml": f'{_XML}<Types xmlns="{_OOXML}/package/2006/content-types"><Override '
        f'PartName="/word/document.xml" ContentType="{main}.document.main+xml"/></Types>',
        "_rels/.rels": f'{_XML}<Relationships {package}><Relationship Id="rId1" Type="{_RELATION}/officeDocument" '
        'Target="word/document.xml"/></Relationships>',
        "word/document.xml": f"{_XML}<w:document {_NAMES}><w:body>{body}<w:sectPr/></w:body></w:document>",
        "word/_rels/document.xml.rels": f"{_XML}<Relationships {package}>{relations}{links}</Relationships>",
        "word/media/i.png": b"\x89PNG\r\n\x1a\n",
        "docProps/core.xml": f'{_XML}<cp:coreProperties xmlns:cp="{_OOXML}/package/2006/metadata/core-properties" '
        'xmlns:dc="http://purl.org/dc/elements/1.1/"><dc:title>Core title</dc:title><dc:language>de-DE</dc:language>'
        "</cp:coreProperties>",
        **{f"word/{kind}.xml": _XML + content for kind, content in parts.items()},
    }
    return packed({**members, **(more or {})})


_PICTURE = '<pic:pic><pic:blipFill><a:blip r:embed="rId10"/></pic:blipFill></pic:pic>'
_VANISH = "<w:vanish/>"
_MONO = '<w:rFonts w:ascii="Consolas"/>'
_CHECKED = (
    '<w:ins w:id="1"><w:r><w:t>inserted </w:t></w:r></w:ins><w:del w:id="2"><w:r><w:delText>deleted </w:delText></w:r>'
    '</w:del><w:moveFrom w:id="3"><w:r><w:t>movedfrom </w:t></w:r></w:moveFrom><w:moveTo w:id="4"><w:r>'
    '<w:t xml:space="preserve">movedto </w:t></w:r></w:moveTo>'
)
DOCX_BODY = "".join(
    [
        par("Title words", "Title"), par("Subtitle words", "Subtitle"),
        f'<w:sdt><w:sdtPr><w:docPartObj><w:docPartGallery w:val="Table of Contents"/></w:docPartObj></w:sdtPr>'
        f"<w:sdtContent>{par('Contents')}</w:sdtContent></w:sdt>", par("Head one 1", "Toc1"),
        par("Head one", "Heading1"), par("Localised head", "berschrift1"), par("Based head", "Myhead"),
        par("Outlined head", "Outlined"), par("Deep seven", "Heading7"),
        par("Plain ", more=_CHECKED + run("hidden ", _VANISH) + run("unseen ", '<w:rStyle w:val="Unseen"/>')
            + run("nothidden ", '<w:vanish w:val="0"/>') + '<w:r><w:commentReference w:id="5"/></w:r>'),
        par("Foot", more='<w:r><w:footnoteReference w:id="2"/></w:r>' + run(" End")
            + '<w:r><w:endnoteReference w:id="2"/></w:r>'),
        par("Link ", more='<w:hyperlink r:id="rId9"><w:r><w:t>link text</w:t></w:r></w:hyperlink>'
            + field(' HYPERLINK "https://field.example" ', " field link") + field(" DATE ", " date shown")
            + f'<w:fldSimple w:instr=" AUTHOR ">{run(" simple field")}</w:fldSimple>'),
        item("one"), item("nested", 1), item("two"), item("num a", 0, 2), item("num sub", 1, 2), item("num b", 0, 2),
        par("interrupt"), item("num c", 0, 2), item("from four", 0, 3),
        table(
            row(cell(par("H A")), cell(par("H B")), properties="<w:tblHeader/>"),
            row(cell(par("wide"), '<w:gridSpan w:val="2"/>')),
            row(cell(par("down"), '<w:vMerge w:val="restart"/>'), cell(par("x"))),
            row(cell(par(), "<w:vMerge/>"), cell(par("y"))),
            row(cell(par("left ibis") + par("right ibis")), cell(item("cell one") + item("cell two"))),
            row(cell(par("outer") + table(row(cell(par("in one")), cell(par("in two")))) + par()), cell(par("z"))),
            row(cell(par("gone")), cell(par("row")), properties='<w:del w:id="8"/>'),
        ),
        par("Table 1: Caption words", "Caption"),
        par(more=drawing("picture", _PICTURE, "Alt words")), par("Figure 1: Figure words", "Caption"),
        par("x = 1", "Sourcecode"), par("", "Sourcecode"),
        par("", "Sourcecode", more="<w:r><w:tab/><w:t>y  = 2</w:t><w:br/><w:t># z</w:t></w:r>"),
        par(more=run("typed  in", _MONO)), par(more=run("  consolas", _MONO)),
        par("Quoted words", "Quote"),
        par("Before box ", more=box(par("Box words") + par("Box second")) + run("after box")),
        par("Old ", more="<w:r><w:pict><v:shape><v:textbox><w:txbxContent>" + par("Old box words")
            + "</w:txbxContent></v:textbox></v:shape></w:pict></w:r>" + run("box")),
        par(more='<w:r><w:pict><v:shape alt="Old picture words"/></w:pict></w:r>'),
        par("Chart: ", more=drawing("chart", '<c:chart r:id="chart"/>')),
        par("Diagram: ", more=drawing("diagram", '<dgm:relIds r:dm="diagramData"/>')),
        f"<w:sdt><w:sdtContent>{par('Control words')}</w:sdtContent></w:sdt>",
        par("Math ", more="<m:oMath><m:sSup><m:e><m:r><m:t>x</m:t></m:r></m:e><m:sup><m:r><m:t>2</m:t></m:r></m:sup>"
            "</m:sSup></m:oMath>"),
        par(more="<m:oMathPara><m:oMath><m:r><m:t>a+b</m:t></m:r></m:oMath></m:oMathPara>"),
        par("Ruby ", more="<w:r><w:ruby><w:rt><w:r><w:t>top</w:t></w:r></w:rt><w:rubyBase><w:r><w:t>base</w:t></w:r>"
            "</w:rubyBase></w:ruby></w:r>"),
        par("hidden paragraph").replace("<w:rPr></w:rPr>", f"<w:rPr>{_VANISH}</w:rPr>"),
        par("End", more='<w:r><w:br w:type="page"/></w:r>' + run("after the page")),
    ]
)  # fmt: skip

# -- ODT

_ODF = "urn:oasis:names:tc:opendocument:xmlns"
_ODF_NAMES = " ".join(
    f'xmlns:{short}="{_ODF}:{name}:1.0"'
    for short, name in {
        "office": "office", "text": "text", "table": "table", "style": "style", "draw": "drawing",
        "svg": "svg-compatible",
    }.items()
) + ' xmlns:xlink="http://www.w3.org/1999/xlink" xmlns:dc="http://purl.org/dc/elements/1.1/"'  # fmt: skip


def text(content: str, style: str = "") -> str:
    return f'<text:p text:style-name="{style}">{content}</text:p>'


def _cells(*contents: str) -> str:
    cells = "".join(
        one if one.startswith("<table:") else f"<table:table-cell>{one}</table:table-cell>" for one in contents
    )
    return f"<table:table-row>{cells}</table:table-row>"


def odt(body: str, more: dict[str, str | bytes] | None = None) -> bytes:
    """A text document with automatic styles that hide text, number lists and derive from named ones."""
    hidden = '<style:text-properties text:display="none"/></style:style>'
    automatic = (
        f'<style:style style:name="Hid" style:family="text">{hidden}'
        f'<style:style style:name="HidP" style:family="paragraph">{hidden}'
        '<text:list-style style:name="LN"><text:list-level-style-number text:level="1" style:num-format="1" '
        'style:num-suffix="." text:start-value="3"/></text:list-style>'
        '<text:list-style style:name="LB"><text:list-level-style-bullet text:level="1" text:bullet-char="•"/>'
        '<text:list-level-style-bullet text:level="2" text:bullet-char="•"/></text:list-style>'
        '<style:style style:name="P9" style:family="paragraph" style:parent-style-name="Preformatted_20_Text"/>'
    )
    members: dict[str, str | bytes] = {
        "mimetype": "application/vnd.oasis.opendocument.text",
        "content.xml": f"{_XML}<office:document-content {_ODF_NAMES}><office:automatic-styles>{automatic}"
        f"</office:automatic-styles><office:body><office:text>{body}</office:text></office:body>"
        "</office:document-content>",
        "styles.xml": f"{_XML}<office:document-styles {_ODF_NAMES}><office:styles><style:style style:name="
        '"Preformatted_20_Text" style:family="paragraph"/></office:styles><office:master-styles><style:master-page '
        f'style:name="S"><style:header>{text("Header words")}</style:header></style:master-page>'
        "</office:master-styles></office:document-styles>",
        "meta.xml": f"{_XML}<office:document-meta {_ODF_NAMES}><office:meta><dc:title>Meta title</dc:title>"
        "<dc:language>de-DE</dc:language></office:meta></office:document-meta>",
        "META-INF/manifest.xml": f'{_XML}<manifest:manifest xmlns:manifest="{_ODF}:manifest:1.0">'
        '<manifest:file-entry manifest:full-path="content.xml" manifest:media-type="text/xml"/></manifest:manifest>',
    }
    return packed({**members, **(more or {})})


_NOTE = '<text:note text:note-class="{0}"><text:note-body>{1}</text:note-body></text:note>'
ODT_BODY = "".join(
    [
        '<text:tracked-changes><text:changed-region text:id="c1"><text:deletion>' + text("deleted words")
        + "</text:deletion></text:changed-region></text:tracked-changes>",
        text("Title words", "Title"), text("Subtitle words", "Subtitle"),
        '<text:h text:outline-level="1">Head one</text:h><text:h text:outline-level="2">Head two</text:h>',
        text(
            'Para <text:change text:change-id="c1"/><text:span text:style-name="Hid">hidden span </text:span>seen'
            '<text:tab/>tab<text:line-break/>break <text:a xlink:href="https://example.org/a">link text</text:a>'
            + _NOTE.format("footnote", text("Footnote words")) + _NOTE.format("endnote", text("Endnote words"))
            + f"<office:annotation>{text('Comment words')}</office:annotation>"
            '<text:hidden-text text:string-value="hidden field">hidden field</text:hidden-text> '
            "<text:date>date shown</text:date> <text:bookmark-ref>reference words</text:bookmark-ref> "
            "<text:ruby><text:ruby-base>base</text:ruby-base><text:ruby-text>top</text:ruby-text></text:ruby> "
            "<text:placeholder>placeholder</text:placeholder>"
        ),
        text("hidden paragraph", "HidP"),
        f'<text:list text:style-name="LB"><text:list-header>{text("list header")}</text:list-header><text:list-item>'
        f"{text('one')}<text:list><text:list-item>{text('nested')}</text:list-item></text:list></text:list-item>"
        "</text:list>",
        f'<text:list text:style-name="LN"><text:list-item>{text("third")}</text:list-item></text:list>',
        text("code  x", "Preformatted_20_Text"), text('<text:s text:c="2"/>code<text:tab/>y', "P9"),
        "<table:table><table:table-column/><table:table-column/><table:table-header-rows>"
        + _cells(text("H A"), text("H B")) + "</table:table-header-rows>"
        + _cells(f'<table:table-cell table:number-columns-spanned="2">{text("wide")}</table:table-cell>',
                 "<table:covered-table-cell/>")
        + _cells(f'<table:table-cell table:number-rows-spanned="2">{text("down")}</table:table-cell>', text("x"))
        + _cells("<table:covered-table-cell/>", text("left ibis") + text("right ibis"))
        + "<table:table-row><table:table-cell><table:table><table:table-column/>"
        + _cells(text("in one"), text("in two"))
        + f"</table:table></table:table-cell><table:table-cell>{text('z')}</table:table-cell></table:table-row>"
        + "</table:table>",
        text('<draw:frame><draw:image xlink:href="x.png"/><svg:title>Alt</svg:title><svg:desc>words</svg:desc>'
             "</draw:frame>"),
        text(f"Before box <draw:frame><draw:text-box>{text('Box words')}</draw:text-box></draw:frame>after box"),
        text(f"Shape <draw:custom-shape>{text('Shape words')}</draw:custom-shape>"),
        f"<text:section>{text('Section words')}</text:section>"
        f'<text:section text:display="none">{text("Hidden section")}</text:section>',
        f"<text:table-of-content><text:index-body>{text('Contents')}</text:index-body></text:table-of-content>",
        f"<text:numbered-paragraph>{text('Numbered words')}</text:numbered-paragraph>",
    ]
)  # fmt: skip

# -- EPUB

CHAPTERS = {
    "c1": """<section epub:type="chapter"><h1>Chapter one</h1>
<p>Text with <a href="https://example.org/a">link text</a> and <a href="c2.xhtml#x">inner</a>, a note<a
epub:type="noteref" href="#fn1">1</a>.</p><aside epub:type="footnote" id="fn1"><p>Footnote words</p></aside>
<pre><code class="language-python">def f():
\treturn  1

# c</code></pre><p hidden="hidden">hidden words</p><p style="display:none">unseen words</p>
<table><caption>Caption words</caption><thead><tr><th>A</th><th>B</th></tr></thead><tbody><tr><td rowspan="2">down</td>
<td><p>left ibis</p><p>right ibis</p></td></tr><tr><td>x<br/>y</td></tr></tbody></table>
<figure><img src="i.png" alt="Alt words"/><figcaption>Figure words</figcaption></figure>
<ul><li>one<ul><li>nested</li></ul></li></ul><ol start="3"><li>third</li></ol>
<dl><dt>term</dt><dd>definition</dd></dl><blockquote><p>quoted</p></blockquote>
<p><ruby>base<rt>top</rt></ruby> <math xmlns="http://www.w3.org/1998/Math/MathML"><mi>x</mi></math></p>
<script>var unseen</script></section>""",
    "c2": '<h1>Chapter two</h1><h2>Part</h2><p id="x">Second words</p>',
    "toc": "<h1>Contents</h1><p>Chapter one and two</p>",
}


def epub(spine: tuple[str, ...] = ("nav", "toc", "c2", "c1"), more: dict[str, str | bytes] | None = None) -> bytes:
    """A book whose reading order is the spine's; the guide says which page is the list of contents."""
    names = 'xmlns="http://www.w3.org/1999/xhtml" xmlns:epub="http://www.idpf.org/2007/ops"'
    pages = {
        **CHAPTERS,
        "nav": '<nav epub:type="toc"><h1>Navigation</h1><ol><li><a href="c1.xhtml">Entry</a></li></ol></nav>',
    }
    items = "".join(
        f'<item id="{name}" href="{name}.xhtml" media-type="application/xhtml+xml" properties="{properties}"/>'
        for name, properties in ((name, "nav" if name == "nav" else "") for name in pages)
    )
    order = "".join(f'<itemref idref="{name}"/>' for name in spine)
    members: dict[str, str | bytes] = {
        "mimetype": "application/epub+zip",
        "META-INF/container.xml": f'{_XML}<container xmlns="urn:oasis:names:tc:opendocument:xmlns:container">'
        '<rootfiles><rootfile full-path="OEBPS/book.opf"/></rootfiles></container>',
        "OEBPS/book.opf": f'{_XML}<package xmlns="http://www.idpf.org/2007/opf" version="3.0"><metadata '
        'xmlns:dc="http://purl.org/dc/elements/1.1/"><dc:title>Book title</dc:title><dc:language>de</dc:language>'
        f"</metadata><manifest>{items}</manifest><spine>{order}</spine><guide>"
        '<reference type="toc" href="toc.xhtml"/></guide></package>',
        **{
            f"OEBPS/{name}.xhtml": f"{_XML}<!DOCTYPE html><html {names}><head><title>page</title></head>"
            f"<body>{body}</body></html>"
            for name, body in pages.items()
        },
    }
    return packed({**members, **(more or {})})
