"""One form for what looks the same; nothing that nobody sees."""

from __future__ import annotations

import unicodedata

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from pipeline.extract import BlockExtractor
from pipeline.extract.normalise import clean, code, doubts, normalised, prose
from schemas.documents import Block

SOURCE = """# Größe und Kühlung

Déjà vu: naïve café, ångström, Việt Nam, が, 각.

| Spalte | Wert |
| ------ | ---- |
| Müller | 5 °C |

- één
- zwei
"""


@pytest.mark.requirement("A2", "I6")
def test_bodies_that_differ_in_form_alone_give_equal_blocks() -> None:
    wanted = BlockExtractor().extract(SOURCE.encode(), "text/markdown").blocks
    assert len(wanted) >= 4
    nfd = unicodedata.normalize("NFD", SOURCE)
    forms = [SOURCE, nfd, SOURCE.replace("\n", "\r\n"), SOURCE.replace("\n", "\r"), nfd.replace("\n", "\r\n")]
    for form in forms:
        for encoding in ("utf-8", "utf-8-sig", "utf-16"):
            got = BlockExtractor().extract(form.encode(encoding), "text/markdown").blocks
            assert [b.model_copy(update={"anchors": ()}) for b in got] == [
                b.model_copy(update={"anchors": ()}) for b in wanted
            ]


@pytest.mark.requirement("A2")
@pytest.mark.parametrize(
    ("text", "wanted"),
    [
        ("un\u00adbreak\u200bable\ufeff w\u2060ord", "unbreakable word"),
        ("user\u202e\u2066exe.txt\u2069\u202c\u200f", "userexe.txt"),
        ("see\U000e0049\U000e0067\U000e006eore this", "seeore this"),  # tag characters spell what nobody sees
        ("10\u00a0000\u202f€ \u3000x", "10 000 €  x"),
        ("one\r\ntwo\rthree\u0085four\u2028five\u2029six\x0bseven", "one\ntwo\nthree\nfour\nfive\nsix\nseven"),
        ("a\x00b\x07c\x9bd\ud800e", "a b c d\ufffde"),
        ("\x1b[31mred\x1b[0m \x1b]0;title\x07plain", "red plain"),
        # joiners: kept where the script or the emoji needs them
        ("می\u200cخواهم", "می\u200cخواهم"),
        ("क\u094d\u200dष", "क\u094d\u200dष"),
        ("👩\u200d💻 ❤\ufe0f\u200d🔥", "👩\u200d💻 ❤\ufe0f\u200d🔥"),
        ("pass\u200dword and\u200cmore", "password andmore"),
        ("😀\ufe0f\U000e0101\U000e0105", "😀\ufe0f"),  # bytes hidden in variation selectors
        ("e\u0301 가", "é 가"),
        ("tab\tstays", "tab\tstays"),
    ],
)
def test_prose_has_one_form(text: str, wanted: str) -> None:
    assert prose(text) == wanted


@pytest.mark.requirement("A2")
def test_code_keeps_its_characters() -> None:
    source = "x = 'e\u0301\u00a0\u200b\u202e'\n\tif\x0c a\u2028b:"
    assert code(source) == source
    assert code("\ufeffa\r\nb\x00c\udc80") == "a\nb c\ufffd"
    (block,) = normalised([Block(type="code", text=source, language="python")])
    assert block.text == source
    assert "direction" in doubts([block])[0]
    assert doubts(normalised([Block(type="paragraph", text=source)])) == ()
    document = BlockExtractor().extract("```c\n/*\u202e } \u2066if*/\n```\n".encode(), "text/markdown")
    assert document.blocks[0].text == "/*\u202e } \u2066if*/" and document.warnings[0].startswith("code: ")


@pytest.mark.requirement("A2")
def test_what_is_invisible_is_no_block_and_headers_stay_prefixes() -> None:
    table = Block(type="table", text="| e\u0301\u200b |\n| --- |\n| x |", header="| e\u0301\u200b |\n| --- |")
    blocks = [Block(type="heading", text="\u200b\ufeff", level=1), Block(type="paragraph", text=" \u00a0 "), table]
    (kept,) = normalised(blocks)
    assert kept.header == "| é |\n| --- |" and kept.text.startswith(kept.header)


@pytest.mark.requirement("A2", "I8")
@settings(max_examples=300, deadline=None)
@given(st.text(st.characters(codec=None), max_size=60))
def test_offsets_survive_cleaning_and_prose_is_stable(text: str) -> None:
    cleaned = clean(text)
    assert len(cleaned) == len(text)
    cleaned.encode()  # no lone surrogate is left
    once = prose(text)
    assert prose(once) == once
    assert unicodedata.is_normalized("NFC", once) and "\x00" not in once and "\r" not in once


@pytest.mark.requirement("A2", "I8")
@settings(max_examples=300, deadline=None)
@example("\ufe0e\u200d\ufe0f\u200d")
@example("\u200d\ufe0e\u200d\ufe0f\u200c\u00e9")
@given(
    st.text(
        st.sampled_from("a\u0301é\u200c\u200d\ufe0f\ufe0e\U000e0101\u202e\u200b😀ا\u00a0\r\n\x1b[m\u2028"), max_size=12
    )
)
def test_prose_is_stable_for_what_interacts(text: str) -> None:
    assert prose(prose(text)) == prose(text)


@pytest.mark.requirement("A2")
def test_titles_are_one_line_of_prose() -> None:
    body = "<html><head><title>Cafe\u0301\u00a0\n  Guide\u200b</title></head><body><p>x</p></body></html>"
    assert BlockExtractor().extract(body.encode(), "text/html").title == "Café Guide"
