"""Templates, files and footnotes of wikitext."""

from __future__ import annotations

import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pipeline.extract import pandoc
from pipeline.extract.media import WIKITEXT
from pipeline.extract.pandoc_marks import Marks, shortened
from pipeline.extract.pandoc_templates import expanded
from pipeline.extract.pandoc_wikitext import prepared
from pipeline.extract.reading import Body, Reading

pytestmark = pytest.mark.requirement("A2")


def read(text: str) -> Reading:
    return pandoc.read(Body(data=text.encode(), media=WIKITEXT, text=text))


@pytest.mark.parametrize(
    ("source", "expected"),
    [
        ("a {{b|c}} d", "a c d"),
        ("{{note|Mind the {{lang|de|Ventil}}.}}", "Note: Mind the de Ventil."),
        ("{{cite web|url=https://e.example|title=A title|author=B}}", "[https://e.example A title], B"),
        ("x {{cite web|url=https://e.example|title=A title|author=B}}", "x [https://e.example A title], B"),
        ("{{Box\n|name=Pump\n|width=20px\n|bar=\n}}", "* name: Pump\n"),
        ("x {{a|1=one|2=two|name = three}}", "x one two, three"),
        ("{{PAGENAME}}{{stub}}{{DEFAULTSORT:x}}", ""),
        ("a {{!}} b {{=}}", "a | b ="),
        ("{{{1|default}}} {{{2}}}", "default "),
        ("{{a|x {{b|y {{c|z}}}}}} {{d|{{{1|w}}}}}", "x y z w"),
        ("{{#if: {{{x|}}} | then | else }}", "then else"),
        ("{{#switch: x | a = one | b = two }}", "one two"),
        ("{{#tag:ref|noted}}", "<ref>noted</ref>"),
        ("{{lc:ABC}} {{formatnum:1234}}", "ABC 1234"),
        ("{{a|[[x|y]] z}}", "[[x|y]] z"),
        ("{{subst:b|c}}", "c"),
        ("{{open|x [[y", "{{open|x [[y"),
        ("close}} ]] | }}}", "close}} ]] | }}}"),
        ("t [[File:a.png|thumb|alt=Alt|Caption [[x|y]]]]", "t Alt Caption [[x|y]]"),
        ("[[Datei:a.png|mini|hochkant=1.2|Ein Ventil]]", "\n\nEin Ventil\n\n"),
        ("[[File:a.png|200px]]", ""),
    ],
)
def test_templates_and_files_become_their_words(source: str, expected: str) -> None:
    assert expanded(source).text == expected


def test_a_page_says_its_title() -> None:
    assert read("{{DISPLAYTITLE:''iPhone''}}\nWords").title == "''iPhone''"


@pytest.mark.parametrize(
    "line", ["#REDIRECT [[Target page]]", "#redirect: [[Target page]]", "#WEITERLEITUNG [[Target page]]"]
)
def test_a_redirect_names_its_target(line: str) -> None:
    assert [b.text for b in read(line).blocks] == ["Redirect: Target page"]


def test_a_numbered_list_is_no_redirect() -> None:
    assert [(b.type, b.text) for b in read("#see [[Target page]]").blocks] == [("list", "1. see Target page")]


def test_footnotes_that_are_used_again_have_one_number() -> None:
    text = (
        'A<ref name="x" /> B<ref>plain</ref> C<ref name=x/>\n\n'
        '<references>\n<ref name="x">late [[w]]</ref>\n</references>'
    )
    assert [(b.type, b.text) for b in read(text).blocks] == [
        ("paragraph", "A[^1] B[^2] C[^1]"),
        ("footnote", "[^1] late w"),
        ("footnote", "[^2] plain"),
    ]


def test_verbatim_elements_are_opaque() -> None:
    text = "<nowiki>{{a|b}} ''x''</nowiki> <math>{{a}}^2</math> <code>{{c|d}}</code> <!-- {{gone}} -->"
    assert read(text).blocks[0].text == "{{a|b}} ''x'' ${{a}}^2$ d"


@pytest.mark.parametrize(
    "text", ["<pre>open", "<syntaxhighlight lang=c>open", "<math>open", "<nowiki>open", "<gallery>open"]
)
def test_elements_without_an_end_lose_nothing(text: str) -> None:
    assert "open" in " ".join(b.text for b in read(f"before\n\n{text} words").blocks)


def test_links_to_other_languages_are_navigation() -> None:
    assert [b.text for b in read("Words [[de:Pumpe]] [[:fr:Pompe]]").blocks] == ["Words :fr:Pompe"]


def test_categories_are_no_text_but_links_to_them_are() -> None:
    page = (
        "One [[Category:Pumps]]two.\n[[ kategorie : Pumpen|P ]] [[Category:Ships]]\nThree.\n\n"
        "See [[:Category:Docks]], [[Category talk]], <nowiki>[[Category:A]]</nowiki>.\n[[Catégorie:Pompes]]"
    )
    assert [b.text for b in read(page).blocks] == [
        "One two. Three.", "See :Category:Docks, Category talk, [[Category:A]].",
    ]  # fmt: skip


def test_many_categories_take_no_time() -> None:
    for unit in ("[[Category:A", "[[Category:A]] ", " [[ \t", "[[Category"):
        began = time.process_time()
        prepared(f"a {unit * 20_000}\n{unit * 20_000}x", Marks())
        assert time.process_time() - began < 12


_PIECE = st.sampled_from(["{{", "}}", "{{{", "}}}", "[[", "]]", "|", "\n", "=", "word ", "#if:", "File:", "* "])


@given(st.lists(_PIECE, max_size=60))
def test_any_nesting_is_read(pieces: list[str]) -> None:
    source = "".join(pieces)
    expanded(source)
    bare = "".join(piece for piece in pieces if piece in ("word ", "\n", "* "))
    assert expanded(bare).text == bare


@pytest.mark.parametrize(
    "piece", ["{{", "[[", "{{a|", "}}", "{{{x|", "[[File:a|", "<ref name=x>", "<pre>", "<!--", "{|\n|"]
)
def test_openings_without_an_end_take_linear_time(piece: str) -> None:
    from pipeline.extract.pandoc_wikitext import prepared

    start = time.process_time()
    prepared(piece * 40_000, Marks())
    assert time.process_time() - start < 6


def test_signs_stand_for_what_was_set_aside() -> None:
    marks = Marks()
    code = marks.code("a\tb", "sh")
    assert marks.code_of(f" {code} ") == ("a\tb", "sh") and marks.code_of(f"x{code}") is None
    assert marks.show(f"<{marks.hide(f'[{code}]')}>") == "<[a\tb]>"
    assert marks.show("\ufdd099\ufdd1x") == "x" and marks.code_of("\ufdd099\ufdd1") is None
    assert marks.show(shortened(f"a {'y' * 5000} b", marks)) == f"a {'y' * 5000} b"


def test_depth_is_bounded() -> None:
    from pipeline.extract.pandoc_wikitext import prepared

    assert prepared(f"{'*' * 50} x", Marks()).text == f"{'*' * 20} x"
    assert expanded("{{a|" * 60 + "x" + "}}" * 60).text.count("{{") == 20
