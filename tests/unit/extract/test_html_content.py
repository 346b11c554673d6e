"""What HTML says is kept: tables, code of every highlighter, formulas, footnotes, admonitions, inline marks."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from lxml import etree, html

from pipeline.extract.html import read_html
from schemas.documents import Block


def shape(text: str) -> list[tuple[str, str]]:
    return [(block.type, block.text) for block in read_html(text).blocks]


@pytest.mark.requirement("A2")
@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("<div>a</div><div>b</div>", ["a", "b"]),
        ("<p><b>w</b>ord un&shy;der long<wbr>word", ["word under longword"]),
        ("x<sup>2</sup> H<sub>2</sub>O 10<sup>-3</sup> 5<sub>10</sub>", ["x^2 H2O 10^-3 5_10"]),
        ("e<sup>x+1</sup> v<sub>max</sub> 1<sup>st</sup> <sup>note</sup>", ["e^(x+1) v_max 1st note"]),
        ("<kbd>Ctrl</kbd><kbd>C</kbd> <q>hi</q> <del>old</del> <ins>new</ins>", ['Ctrl C "hi" ~~old~~ new']),
        ("<abbr title='Mean time'>MT</abbr>, <abbr title='Mean time'>MT</abbr>", ["MT (Mean time), MT"]),
        ("<abbr title='MT'>MT</abbr>", ["MT"]),
        ("<ruby>漢<rp>(</rp><rt>kan</rt><rp>)</rp></ruby>", ["漢(kan)"]),
        ("<details><summary>More</summary><p>inside</p></details>", ["More", "inside"]),
        ("<p>a <svg><title>icon</title></svg>b <svg><text>Valve</text></svg></p>", ["a b Valve"]),
        ("<figure><img alt='A cat'><figcaption>A cat asleep</figcaption></figure>", ["A cat asleep"]),
        ("<figure><img alt='Sales rose'><figcaption>Figure 1</figcaption></figure>", ["Sales rose", "Figure 1"]),
        ("<video controls>none<track></video><p>Caption</p>", ["Caption"]),
        ("<h2>One<p>two<ul><li>three</ul>", ["One", "two", "- three"]),
        ("b<img alt='pic'>c (<img alt='in'>)", ["b pic c (in)"]),
        ("<ol start=3><li>x<li value=7>y<li>z</ol>", ["3. x\n7. y\n8. z"]),
        ("a<sup>[<a href='#s'>source</a>]</sup>", ["a[source]"]),
        ("<h1>Valve <b>x</b><button>Copy path</button></h1>", ["Valve x"]),
        ("<h3><button>Why?</button></h3>Because.<button>Like</button>", ["Why?", "Because."]),
    ],
)
def test_words_are_neither_glued_nor_split_nor_doubled(text: str, expected: list[str]) -> None:
    assert [block.text for block in read_html(text).blocks] == expected


@pytest.mark.requirement("A2")
def test_links_keep_their_targets() -> None:
    page = "<base href='https://example.org/docs/'><a href='setup.html'>Setup</a> <a href='#x'>part</a> <a>none</a>"
    assert shape(page) == [("paragraph", "Setup (https://example.org/docs/setup.html) part none")]
    assert shape("<a href='//cdn.example.org/x'>y</a> <a href='sftp://h/f'>z</a>") == [
        ("paragraph", "y (https://cdn.example.org/x) z (sftp://h/f)")
    ]
    card = "<a href='https://example.org/card'><h3>Title</h3><p>Teaser</p></a>"
    assert shape(card) == [
        ("heading", "Title"),
        ("paragraph", "Teaser"),
        ("paragraph", "(https://example.org/card)"),
    ]
    assert shape("<a href='https://[bad'>odd</a><base href='https://[worse'>") == [("paragraph", "odd (https://[bad)")]


LINES = ["def a(x):", "", "\tif x:", "    return 'é'"]


@pytest.mark.requirement("A2", "F11")
@pytest.mark.parametrize(
    "markup",
    [
        "<pre><code class='language-python'>{text}</code></pre>",
        "<pre class='hljs python'><span class='hljs-keyword'>{text}</span></pre>",
        "<pre class='brush: python; toolbar: false'>{text}</pre>",
        "<pre lang='python'>{text}</pre>",
        "<pre class='sourceCode python numberSource'><code>{text}</code></pre>",
        "<div class='highlight-python notranslate'><div class='highlight'><pre><span></span>{text}\n</pre></div></div>",
        "<div class='mw-highlight mw-highlight-lang-python'><pre>{text}</pre></div>",
        "<pre class='shiki' data-language='python'><code>{spans_lf}</code></pre>",
        "<pre class='shiki' data-language='python'><code>{spans}</code></pre>",
        "<pre class='prism-code language-python'><code>{br}</code></pre>",
        "<div data-lang='python'><pre><code><ol>{items}</ol></code></pre></div>",
        "<pre class='line-numbers language-python'><code>{text}<span class='line-numbers-rows'></span></code></pre>",
        "<div class='highlight-python'><table class='highlighttable'><tr><td class='linenos'><pre>1\n2\n3\n4</pre></td>"
        "<td class='code'><pre>{text}</pre></td></tr></table></div>",
        "<div class='language-python highlighter-rouge'><pre><code><table class='rouge-table'><tr><td class='gutter'>"
        "<pre class='lineno'>1\n2\n3\n4\n</pre></td><td class='code'><pre>{text}\n</pre></td></tr></table></code></pre>"
        "</div>",
        "<div class='highlight-source-python'><table>{rows}</table></div>",
        "<pre><code class='language-python'><table class='hljs-ln'>{rows}</table></code></pre>",
        "<pre class='language-python'><button class='copybtn'>Copy</button>{text}<script>x()</script></pre>",
    ],
)
def test_code_keeps_every_byte_whatever_marked_it_up(markup: str) -> None:
    text = "\n".join(LINES)
    filled = markup.format(
        text=text,
        spans="".join(f'<span class="line">{line}</span>' for line in LINES),
        spans_lf="\n".join(f'<span class="line">{line}</span>' for line in LINES),
        br="".join(f'<span class="token-line">{line}<br></span>' for line in LINES),
        items="".join(f"<li>{line}</li>" for line in LINES),
        rows="\n".join(
            f'<tr><td class="blob-num hljs-ln-numbers">{n}</td><td class="blob-code">{line}</td></tr>'
            for n, line in enumerate(LINES)
        ),
    )
    assert [(b.type, b.text, b.language) for b in read_html(f"<p>x</p>{filled}").blocks[1:]] == [
        ("code", text, "python")
    ]


@pytest.mark.requirement("A2")
def test_lists_code_and_tables_in_cells() -> None:
    page = """<table><caption>Steps</caption><tr><th>A<th>B</tr>
    <tr><td>Do<ul><li>one<li>two<ol><li>deep<li>er</ol></ul>then<td><code>x|y</code></tr>
    <tr><td>code<td><pre>if a:
  b</pre>see</tr>
    <tr><td>inner<td><table><tr><td>i1<td>i2<tr><td>i3<td>i4</table></tr></table>"""
    assert shape(page) == [
        ("paragraph", "Steps"),
        ("table", "| A | B |\n| --- | --- |\n| Do - one; - two; 1. deep; 2. er; then | x\\|y |\n| code | see |"),
        ("code", "if a:\n  b"),
        ("table", "| A | B |\n| --- | --- |\n| inner | i1, i2; i3, i4 |"),
    ]


@pytest.mark.requirement("A2")
def test_tables_of_every_build() -> None:
    page = "<table><tfoot><tr><td>sum<td>3</tfoot><tbody><tr><th>r1<td>1</tbody><tbody><tr><th>r2<td>2</tbody></table>"
    assert shape(page) == [("table", "| r1 | 1 |\n| r2 | 2 |\n| sum | 3 |")]
    wide = "<table><tr><td>k<td rowspan=2 colspan=2>w<td>z<tr><td>k2<td>z2</table>"
    assert shape(wide) == [("table", "| k | w |  | z |\n| k2 | w |  | z2 |")]
    layout = "<table><tr><td><h2>Left</h2><p>a</p><td><table><tr><td>i1<td>i2<tr><td>i3<td>i4</table>tail</table>"
    assert shape(layout) == [
        ("heading", "Left"),
        ("paragraph", "a"),
        ("table", "| i1 | i2 |\n| i3 | i4 |"),
        ("paragraph", "tail"),
    ]
    assert shape("<table><tr><th>Name<tr><td>Ann<tr><td>Bo</table>") == [
        ("table", "| Name |\n| --- |\n| Ann |\n| Bo |")
    ]


@pytest.mark.requirement("A2")
@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (
            "so <span class=katex><span class=katex-mathml><math><semantics><mi>x</mi><annotation "
            "encoding='application/x-tex'>x^2</annotation></semantics></math></span><span class=katex-html "
            "aria-hidden=true>x2</span></span> holds",
            [("paragraph", "so $x^2$ holds")],
        ),
        (
            "<span class=MathJax>drawn</span><script type='math/tex'>a&b</script>"
            "<script type='math/tex; mode=display'>c<d</script>",
            [("paragraph", "$a&b$"), ("math", "c<d")],
        ),
        (
            "<math display=block><mfrac><mi>a</mi><msqrt><msup><mi>b</mi><mn>2</mn></msup></msqrt></mfrac></math>",
            [("math", "\\frac{a}{\\sqrt{{b}^{2}}}")],
        ),
        ("<math alttext='{\\displaystyle y_1}'><mi>y</mi></math>", [("paragraph", "$y_1$")]),
        (
            "<span class=mwe-math-element><span style='display: none'><math alttext='q'></math></span>"
            "<img class=mwe-math-fallback-image-inline alt='{\\displaystyle q}'></span>",
            [("paragraph", "$q$")],
        ),
        ("<div class='math'>\\[e=mc^2\\]</div>", [("math", "e=mc^2")]),
        ("<span class='math inline'>\\(z\\)</span>", [("paragraph", "$z$")]),
    ],
)
def test_formulas_are_their_source_once(text: str, expected: list[tuple[str, str]]) -> None:
    assert shape(text) == expected


@pytest.mark.requirement("A2")
@pytest.mark.parametrize(
    "page",
    [
        "<p>Said<sup><a href='#fn1' id='fnref1'>1</a></sup>.</p><section class='footnotes'><hr><ol><li id='fn1'>"
        "<p>By whom <a href='#fnref1' class='footnote-back'>↩</a></p></li></ol></section>",
        "<p>Said<sup id='cite_ref-1' class='reference'><a href='#cite_note-1'>[1]</a></sup>.</p><ol class='references'>"
        "<li id='cite_note-1'><span class='mw-cite-backlink'><a href='#cite_ref-1'>^</a></span> By whom</li></ol>",
        "<p>Said<a href='#fn:1' class='footnote-ref' role='doc-noteref'>1</a>.</p><div class='footnotes' "
        "role='doc-endnotes'><hr><ol><li id='fn:1'><p>By whom&nbsp;<a href='#fnref:1' role='doc-backlink'>↩</a></p>"
        "</li></ol></div>",
        "<p>Said<sup class='footnote'>[<a id='_footnoteref_1' class='footnote' href='#_footnotedef_1'>1</a>]</sup>.</p>"
        "<div id='footnotes'><div class='footnote' id='_footnotedef_1'><a href='#_footnoteref_1'>1</a>. By whom</div>"
        "</div>",
    ],
)
def test_footnotes_of_every_renderer(page: str) -> None:
    assert shape(page + "<p>End</p>") == [
        ("paragraph", "Said[^1]."),
        ("paragraph", "End"),
        ("footnote", "[^1] By whom"),
    ]


@pytest.mark.requirement("A2")
@pytest.mark.parametrize(
    "page",
    [
        "<div class='admonition warning'><p class='admonition-title'>Warning</p><p>Hot</p><pre>x</pre></div>",
        "<div class='markdown-alert markdown-alert-warning'><p class='markdown-alert-title'><svg></svg>Warning</p>"
        "<p>Hot</p><pre>x</pre></div>",
        "<div class='theme-admonition theme-admonition-warning alert'><div class='admonitionHeading_x1'><span></span>"
        "warning</div><div><p>Hot</p><pre>x</pre></div></div>",
        "<div class='custom-block warning'><p>Hot</p><pre>x</pre></div>",
        "<aside class='starlight-aside starlight-aside--warning'><p>Hot</p><pre>x</pre></aside>",
        "<div class='alert alert-warning'>Hot<pre>x</pre></div>",
        "<div class='warning'><div class='title'><p>Warning</p></div><p>Hot</p><pre>x</pre></div>",
        "<div class='admonitionblock warning'><table><tr><td class='icon'><div class='title'>Warning</div></td>"
        "<td class='content'>Hot<pre>x</pre></td></tr></table></div>",
    ],
)
def test_admonitions_are_named(page: str) -> None:
    found = shape(f"<article><p>Before</p></article>{page}<p>after</p>")
    assert [(kind, text.replace("warning", "Warning")) for kind, text in found] == [
        ("paragraph", "Before"),
        ("paragraph", "Warning: Hot"),
        ("code", "x"),
        ("paragraph", "after"),
    ]


@pytest.mark.requirement("A2")
def test_tabs_name_their_panels_and_hidden_panels_stay() -> None:
    page = (
        "<ul role=tablist><li role=tab>Linux</li><li role=tab>macOS</li></ul>"
        "<div role=tabpanel><pre>apt</pre></div><div role=tabpanel hidden><pre>brew</pre></div>"
    )
    assert shape(page) == [("paragraph", "Linux"), ("code", "apt"), ("paragraph", "macOS"), ("code", "brew")]


@pytest.mark.requirement("A2")
@pytest.mark.parametrize(
    "page",
    [
        "<table><tr><td>one</td> <td>two</td> <p>three</p></table><tr><td>",
        "<table><tr><td>one</td>two<td>three</td></tr></table>",
        "<table><tbody>one<tr><td>two</td><td>three</td></tr></tbody></table>",
    ],
)
def test_words_between_cells_are_not_lost(page: str) -> None:
    assert words_of(read_html(page).blocks) == ["one", "two", "three"]


WORD = st.from_regex(r"[a-z]{3,7}", fullmatch=True)
LEAF = st.builds(lambda tag, text: f"<{tag}>{text}</{tag}>", st.sampled_from(["p", "b", "code", "span", "li"]), WORD)
TREE = st.recursive(
    LEAF,
    lambda inner: st.builds(
        lambda tag, parts: f"<{tag}>{' '.join(parts)}</{tag}>",
        st.sampled_from(["div", "section", "ul", "blockquote", "td", "table><tr><td", "h2", "a href='x'", "article"]),
        st.lists(inner, min_size=1, max_size=4),
    ),
    max_leaves=25,
)


def words_of(blocks: list[Block]) -> list[str]:
    text = " ".join(block.text for block in blocks)
    return [word for word in "".join(c if c.isalpha() else " " for c in text).split() if len(word) > 2]


@pytest.mark.requirement("A2")
@settings(max_examples=120, deadline=None)
@given(TREE)
def test_every_word_of_a_page_is_kept_once_and_in_order(page: str) -> None:
    tree = html.document_fromstring(page)
    expected = " ".join(etree.tostring(tree, method="text", encoding="unicode").split()).split()
    found = words_of(read_html(page).blocks)
    assert "".join(found) == "".join(expected)
