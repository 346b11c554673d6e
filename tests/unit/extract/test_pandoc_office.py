"""Office text in the forms in which programs write it: what pandoc alone would lose or break."""

from __future__ import annotations

import pytest

from pipeline.extract import pandoc
from pipeline.extract.media import DOCX, ODT, RTF
from pipeline.extract.reading import Body, Reading
from tests.unit.extract.files.pandoc import office

pytestmark = pytest.mark.requirement("A2")


def shown(data: bytes, media: str) -> list[tuple[str, int, str]]:
    return [(block.type, block.level, block.text) for block in pandoc.read(Body(data=data, media=media)).blocks]


def rtf(body: str) -> list[tuple[str, int, str]]:
    return shown(f"{{\\rtf1\\ansi\\ansicpg1252 {body}\\par}}".encode("ascii"), RTF)


@pytest.mark.parametrize("start", ["\\footnote", "\\*\\footnote", "\\*\n\\footnote"])
def test_rtf_footnotes_are_kept_whether_or_not_they_may_be_passed_over(start: str) -> None:
    read = rtf(f"A pump{{\\super\\chftn}}{{{start}\\pard\\plain {{\\super\\chftn}} Sealed.}} runs.")
    assert read == [("paragraph", 0, "A pump[^1] runs."), ("footnote", 0, "[^1] Sealed.")]


@pytest.mark.parametrize("letter", ["\\u228?", "\\u228 ?", "\\'e4"])
def test_an_rtf_link_with_letters_beyond_ascii_is_one_link(letter: str) -> None:
    field = '{\\field{\\*\\fldinst{HYPERLINK "https://maps.example/way"}}{\\fldrslt{\\ul Z%shlweg}}}'
    assert rtf(f"Map: {field % letter}.") == [("paragraph", 0, "Map: Zählweg (https://maps.example/way).")]


def test_rtf_links_to_different_addresses_stay_apart() -> None:
    field = '{\\field{\\*\\fldinst{HYPERLINK "https://%s.example/"}}{\\fldrslt{%s}}}'
    read = rtf(field % ("a", "one") + field % ("b", "two"))
    assert read == [("paragraph", 0, "one (https://a.example/)two (https://b.example/)")]


@pytest.mark.parametrize(
    "pair",
    [
        "\\u-10179?\\u-8576?",
        "\\u55357 ?\\u56960 ?",
        "\\u55357\\'3f\\u56960\\'3f",
        "\\uc0\\u55357 \\u56960 \\uc1 ",
        "\\uc2\\u55357 ??\\u56960 ??\\uc1 ",
        "\\u128640 ?",
    ],
)
def test_rtf_signs_beyond_16_bits_are_whole(pair: str) -> None:
    assert rtf(f"Go {pair}x {pair} now.") == [("paragraph", 0, "Go 🚀x 🚀 now.")]


def test_half_a_pair_in_rtf_leaves_the_words_around_it() -> None:
    [(_, _, text)] = rtf("before \\u55357 ?middle \\u56960 ?after")
    assert text.replace("\ufffd", "") == "before middle after"


_BASED_ON_TITLE = "".join(
    f'<w:style w:type="paragraph" w:styleId="{name.replace(" ", "")}"><w:name w:val="{name}"/>'
    '<w:basedOn w:val="Title"/></w:style>'
    for name in ("Subtitle", "Author", "Date", "Big Title", "heading 1")
)
_WORD = "http://schemas.openxmlformats.org/wordprocessingml/2006/main"


def docx(body: str) -> list[tuple[str, int, str]]:
    title = '<w:style w:type="paragraph" w:styleId="Title"><w:name w:val="Title"/></w:style>'
    styles = f'<w:styles xmlns:w="{_WORD}">{title}{_BASED_ON_TITLE}</w:styles>'
    return shown(office.docx(body, {"word/styles.xml": styles}), DOCX)


def test_what_looks_like_a_title_by_its_base_is_no_title() -> None:
    front = [("Pump manual", "Title"), ("Second edition", "Subtitle"), ("A. Miller", "Author"), ("May 2024", "Date")]
    read = docx("".join(office.par(*one) for one in (*front, ("Start", "heading1"), ("Text", ""))))
    assert read == [
        ("heading", 1, "Pump manual"),
        ("paragraph", 0, "Second edition"),
        ("paragraph", 0, "A. Miller"),
        ("paragraph", 0, "May 2024"),
        ("heading", 2, "Start"),
        ("paragraph", 0, "Text"),
    ]


def test_a_style_made_from_the_title_is_a_title() -> None:
    read = docx(office.par("Pump manual", "BigTitle") + office.par("Start", "heading1") + office.par("Text"))
    assert read == [("heading", 1, "Pump manual"), ("heading", 2, "Start"), ("paragraph", 0, "Text")]


_MATH = '<math xmlns="http://www.w3.org/1998/Math/MathML" display="block">%s</math>'
_SPEED = (
    "<semantics><mrow><msub><mi>v</mi><mn>0</mn></msub><mo>=</mo><mfrac><mi>a</mi><mi>b</mi></mfrac></mrow>"
    '<annotation encoding="StarMath 5.0">v_0 = a over b</annotation></semantics>'
)


def odt_with(inside: str, mathml: str, name: str = "Object 1") -> Reading:
    """An ODT with a formula in a sentence and in a paragraph of its own."""
    frame = f'<draw:frame text:anchor-type="as-char">{inside}</draw:frame>'
    body = f"<text:p>Speed {frame} holds.</text:p><text:p>{frame}</text:p>"
    data = office.odt(body, {f"{name}/content.xml": _MATH % mathml, "ObjectReplacements/Object 1": b"x"})
    return pandoc.read(Body(data=data, media=ODT))


@pytest.mark.parametrize(
    ("inside", "name"),
    [
        (
            '<draw:object xlink:href="./Object 1"/><draw:image xlink:href="./ObjectReplacements/Object 1"/>'
            "<svg:desc>formula</svg:desc>",
            "Object 1",
        ),
        ('<draw:object xlink:href="Formula-0/"/>', "Formula-0"),
        ('<draw:object xlink:href="./Object%201"/>', "Object 1"),
        (f"<draw:object>{_MATH % _SPEED}</draw:object>", "unused"),
    ],
)
def test_formulas_of_odt_stand_in_their_sentence_or_alone(inside: str, name: str) -> None:
    reading = odt_with(inside, _SPEED, name)
    tex = "v_{0} = \\frac{a}{b}"
    assert [(block.type, block.text) for block in reading.blocks] == [
        ("paragraph", f"Speed ${tex}$ holds."),
        ("math", tex),
    ]
    assert reading.warnings == []


def test_a_formula_of_odt_beyond_the_rules_keeps_its_signs() -> None:
    reading = odt_with('<draw:object xlink:href="Object 1"/>', "<mi>a</mi><mo>+</mo><unheard><mi>q</mi></unheard>")
    assert [block.text for block in reading.blocks] == ["Speed $a+q$ holds.", "$a+q$"]


def test_an_embedded_object_of_odt_that_is_broken_is_told() -> None:
    reading = odt_with('<draw:object xlink:href="Object 1"/>', "<mi>a")
    assert [block.text for block in reading.blocks] == ["Speed holds."]
    assert reading.warnings == ["formula: 2 embedded objects could not be read; left out"]


def test_a_subtitle_of_odt_is_not_its_title() -> None:
    space = "urn:oasis:names:tc:opendocument:xmlns:style:1.0"
    style = f'<s xmlns:y="{space}"><y:style y:name="Subtitle" y:family="paragraph" y:parent-style-name="Title"/></s>'
    body = '<text:p text:style-name="Subtitle">Second edition</text:p><text:p text:style-name="Title">Manual</text:p>'
    read = shown(office.odt(body, {"styles.xml": style}), ODT)
    assert read == [("paragraph", 0, "Second edition"), ("heading", 1, "Manual")]
