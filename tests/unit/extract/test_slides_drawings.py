"""Presentations to blocks: pictures, diagrams, formulas, notes, what is hidden or broken."""

from __future__ import annotations

import io
import re
import zipfile
from collections.abc import Callable
from typing import Any

import pytest
from lxml import etree
from PIL import Image
from pptx import Presentation
from pptx.util import Inches

from pipeline.errors import DocumentError
from pipeline.extract.formulas import office_math
from pipeline.extract.reading import Limits
from tests.unit.extract.decks import TITLE_ONLY, A, M, P, add, box, read, saved, shape_of


@pytest.mark.requirement("A2")
def test_alternative_texts_are_kept_and_automatic_ones_are_not() -> None:
    picture = io.BytesIO()
    Image.new("RGB", (4, 4)).save(picture, "PNG")
    decorative = (
        f'<a:e xmlns:a="{A}"><a:extLst><a:ext uri="x"><d:decorative val="1" '
        'xmlns:d="http://schemas.microsoft.com/office/drawing/2017/decorative"/></a:ext></a:extLst></a:e>'
    )

    def fill(slide: Any) -> None:
        texts = (
            "A red valve, closed",
            "Picture 3",
            "image1.png",
            "Ornament",
            "A cat\n\nDescription automatically generated",
        )
        for number, text in enumerate(texts):
            picture.seek(0)
            shape = slide.shapes.add_picture(picture, Inches(1), Inches(2 + number))
            shape._element.nvPicPr.cNvPr.set("descr", text)
            if text == "Ornament":
                shape._element.nvPicPr.cNvPr.append(etree.fromstring(decorative)[0])

    assert [text for _, text in shape_of(fill)] == ["A red valve, closed", "A cat"]


@pytest.mark.requirement("A2")
def test_links_have_their_targets() -> None:
    def fill(slide: Any) -> None:
        paragraph = box(slide, "See ", 1, 2).text_frame.paragraphs[0]
        for text in ("the ", "guide"):
            run = paragraph.add_run()
            run.text = text
            run.hyperlink.address = "https://example.org/guide"
        paragraph.add_run().text = " first."
        paragraph.add_line_break()
        paragraph.add_run().text = "Then go."

    assert shape_of(fill) == [("paragraph", "See the guide (https://example.org/guide) first.\nThen go.")]


@pytest.mark.requirement("A2")
def test_notes_follow_the_content_and_furniture_is_dropped() -> None:
    deck = Presentation()
    slide = add(deck, TITLE_ONLY, "Plan")
    box(slide, "content", 1, 3)
    for kind in ("ftr", "sldNum", "dt"):
        shape = box(slide, f"furniture {kind}", 1, 7)
        properties = shape._element.nvSpPr.nvPr
        properties.append(etree.SubElement(properties, "{%s}ph" % P, type=kind))  # noqa: UP031
    slide.notes_slide.notes_text_frame.text = "Say hello.\nMention the budget."
    assert [b.text for b in read(saved(deck)).blocks] == [
        "Plan",
        "content",
        "Notes:",
        "Say hello.",
        "Mention the budget.",
    ]


@pytest.mark.requirement("A2")
def test_hidden_slides_and_shapes_are_left_out() -> None:
    deck = Presentation()
    for title in ("one", "two", "three"):
        slide = add(deck, TITLE_ONLY, title)
        box(slide, "unseen", 1, 3)._element.nvSpPr.cNvPr.set("hidden", "1")
    deck.slides[1]._element.set("show", "0")
    reading = read(saved(deck))
    assert [(b.text, b.page) for b in reading.blocks] == [("one", 1), ("three", 3)]
    assert reading.warnings == ["slides: 1 hidden, left out: 2"]
    assert reading.pages == 3


D = "http://schemas.openxmlformats.org/drawingml/2006/diagram"
R = "http://schemas.openxmlformats.org/officeDocument/2006/relationships"
DIAGRAM = f"""<dgm:dataModel xmlns:dgm="{D}" xmlns:a="{A}"><dgm:ptLst><dgm:pt modelId="0" type="doc"/>
<dgm:pt modelId="p" type="pres"><dgm:t><a:p><a:r><a:t>no</a:t></a:r></a:p></dgm:t></dgm:pt>{{points}}</dgm:ptLst>
<dgm:cxnLst>{{links}}</dgm:cxnLst></dgm:dataModel>"""


def diagram(points: dict[str, str], links: list[tuple[str, str, int]]) -> str:
    nodes = "".join(
        f'<dgm:pt modelId="{key}"><dgm:t><a:p><a:r><a:t>{text}</a:t></a:r></a:p></dgm:t></dgm:pt>'
        for key, text in points.items()
    )
    lines = "".join(
        f'<dgm:cxn modelId="c{n}" srcId="{source}" destId="{target}" srcOrd="{order}"/>'
        for n, (source, target, order) in enumerate(links)
    )
    return DIAGRAM.format(points=nodes, links=lines)


def with_diagram(xml: str) -> bytes:
    """A deck whose one slide holds a diagram with this data."""
    deck = Presentation()
    slide = add(deck, TITLE_ONLY, "T")
    box(slide, "MARK", 1, 3)
    frame = (
        f'<p:graphicFrame xmlns:p="{P}" xmlns:a="{A}"><p:nvGraphicFramePr><p:cNvPr id="9" name="Diagram 1"/>'
        '<p:cNvGraphicFramePr/><p:nvPr/></p:nvGraphicFramePr><p:xfrm><a:off x="0" y="0"/><a:ext cx="9" cy="9"/>'
        f'</p:xfrm><a:graphic><a:graphicData uri="{D}"><dgm:relIds xmlns:dgm="{D}" xmlns:r="{R}" r:dm="rId77"/>'
        "</a:graphicData></a:graphic></p:graphicFrame>"
    )
    relation = f'<Relationship Id="rId77" Type="{R}/diagramData" Target="../diagrams/data1.xml"/></Relationships>'
    changes: dict[str, Callable[[str], str]] = {
        "ppt/slides/slide1.xml": lambda x: re.sub(r"<p:sp>(?:(?!</p:sp>).)*MARK.*?</p:sp>", frame, x, flags=re.DOTALL),
        "ppt/slides/_rels/slide1.xml.rels": lambda x: x.replace("</Relationships>", relation),
    }
    target = io.BytesIO()
    with zipfile.ZipFile(io.BytesIO(saved(deck))) as old, zipfile.ZipFile(target, "w") as new:
        for name in old.namelist():
            content = old.read(name)
            new.writestr(name, changes[name](content.decode()) if name in changes else content)
        new.writestr("ppt/diagrams/data1.xml", xml)
    return target.getvalue()


@pytest.mark.requirement("A2")
def test_diagrams_are_nested_lists() -> None:
    points = {"a": "Plan", "b": "Build", "c": "Test early"}
    xml = diagram(points, [("0", "b", 1), ("0", "a", 0), ("b", "c", 0)])
    assert [b.text for b in read(with_diagram(xml)).blocks] == ["T", "- Plan\n- Build\n  - Test early"]


@pytest.mark.requirement("A2")
def test_a_diagram_that_bites_its_tail_ends() -> None:
    xml = diagram({"a": "one", "b": "two"}, [("a", "b", 0), ("b", "a", 0), ("0", "a", 0)])
    assert [b.text for b in read(with_diagram(xml)).blocks] == ["T", "- one\n  - two"]


@pytest.mark.requirement("A2")
def test_a_broken_diagram_costs_nothing_else() -> None:
    reading = read(with_diagram("<dgm:dataModel"))
    assert [b.text for b in reading.blocks] == ["T"]
    assert reading.warnings == ["slide 1: a shape cannot be read (XMLSyntaxError); left out"]


@pytest.mark.requirement("A2")
def test_external_entities_are_not_read() -> None:
    entity = '<!DOCTYPE x [<!ENTITY e SYSTEM "file:///etc/hostname">]>' + diagram({"a": "&e;"}, [("0", "a", 0)])
    with pytest.raises(DocumentError) as caught:
        read(with_diagram(entity))
    assert caught.value.kind == "bomb"


@pytest.mark.requirement("A2")
@pytest.mark.parametrize(
    ("inside", "tex"),
    [
        ("<f><num><r><t>a</t></r></num><den><r><t>b+1</t></r></den></f>", r"\frac{a}{b+1}"),
        ("<sSup><e><r><t>x</t></r></e><sup><r><t>2</t></r></sup></sSup>", "x^2"),
        ("<sSub><e><r><t>xy</t></r></e><sub><r><t>ij</t></r></sub></sSub>", "{xy}_{ij}"),
        ("<rad><radPr/><deg/><e><r><t>q</t></r></e></rad>", r"\sqrt{q}"),
        (
            '<nary><naryPr><chr val="∑"/></naryPr><sub><r><t>i=1</t></r></sub><sup><r><t>n</t></r></sup>'
            "<e><r><t>i</t></r></e></nary>",
            r"\sum_{i=1}^n i",
        ),
        ('<d><dPr><begChr val="["/><endChr val="]"/></dPr><e><r><t>z</t></r></e></d>', "[z]"),
        ("<m><mr><e><r><t>1</t></r></e><e><r><t>0</t></r></e></mr><mr><e><r><t>0</t></r></e></mr></m>",
         r"\begin{matrix} 1 & 0 \\ 0 \end{matrix}"),
    ],
)  # fmt: skip
def test_formulas_are_tex(inside: str, tex: str) -> None:
    assert office_math(etree.fromstring(f'<oMath xmlns="{M}">{inside}</oMath>')) == tex


@pytest.mark.requirement("A2")
def test_formulas_stand_in_their_paragraph_or_alone() -> None:
    formula = f'<m:oMath xmlns:m="{M}"><m:r><m:t>r²</m:t></m:r></m:oMath>'
    newer = 'xmlns:a14="http://schemas.microsoft.com/office/drawing/2010/main"'
    inline = (
        f'<a:p xmlns:a="{A}"><a:r><a:t>Area </a:t></a:r><mc:AlternateContent {newer} xmlns:mc="http://schemas.'
        'openxmlformats.org/markup-compatibility/2006"><mc:Choice Requires="a14"><a14:m>'
        f"{formula}</a14:m></mc:Choice></mc:AlternateContent></a:p>"
    )
    alone = f'<a:p xmlns:a="{A}"><a14:m {newer}><m:oMathPara xmlns:m="{M}">{formula}</m:oMathPara></a14:m></a:p>'

    def fill(slide: Any) -> None:
        body = box(slide, "x", 1, 2).text_frame._txBody
        for xml in (inline, alone):
            body.append(etree.fromstring(xml))

    assert shape_of(fill)[1:] == [("paragraph", "Area $r²$"), ("math", "r²")]


@pytest.mark.requirement("A2")
def test_limits_of_pages_and_output() -> None:
    deck = Presentation()
    for n in range(4):
        add(deck, TITLE_ONLY, f"slide number {n}")
    data = saved(deck)
    reading = read(data, Limits(pages=2))
    assert [b.text for b in reading.blocks] == ["slide number 0", "slide number 1"]
    assert reading.warnings == ["slides: 4, the first 2 were read"]
    with pytest.raises(DocumentError) as caught:
        read(data, Limits(output_bytes=30))
    assert caught.value.kind == "output"


@pytest.mark.requirement("A2")
def test_a_broken_presentation_is_refused_with_a_sentence() -> None:
    target = io.BytesIO()
    with zipfile.ZipFile(target, "w") as archive:
        archive.writestr("[Content_Types].xml", "<Types/>")
    with pytest.raises(DocumentError, match=r"^body: the presentation cannot be read \(\w+\)") as caught:
        read(target.getvalue())
    assert caught.value.kind == "malformed"


@pytest.mark.requirement("A2")
def test_slide_shows_are_read_like_presentations() -> None:
    deck = Presentation()
    add(deck, TITLE_ONLY, "Show")
    target = io.BytesIO()
    with zipfile.ZipFile(io.BytesIO(saved(deck))) as old, zipfile.ZipFile(target, "w") as new:
        for name in old.namelist():
            new.writestr(name, old.read(name).replace(b"presentation.main+xml", b"slideshow.main+xml"))
    assert [b.text for b in read(target.getvalue()).blocks] == ["Show"]
