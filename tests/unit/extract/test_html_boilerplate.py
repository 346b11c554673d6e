"""What of a page is not content: navigation, banners, hidden text; and that no name drops what is."""

from __future__ import annotations

import time

import pytest

from pipeline.extract.html import HtmlDocument, read_html

CONTENT = "<p>The valve opens at four bar and closes at three.</p>"


def texts(page: str) -> list[str]:
    return [block.text for block in read_html(page).blocks]


@pytest.mark.requirement("A2")
@pytest.mark.parametrize(
    "part",
    [
        "<nav>Start</nav>",
        "<div role='navigation'>Start</div>",
        "<ul class='main-menu'><li><a href='/a'>A</a><li><a href='/b'>B</a></ul>",
        "<div class='breadcrumb'>Home / Docs</div>",
        "<div class='page-footer'>Imprint</div>",
        "<footer>Imprint <a href='/x'>Privacy</a></footer>",
        "<aside>Advertising</aside>",
        "<div id='onetrust-consent-sdk'><div>We value your privacy</div></div>",
        "<div id='CybotCookiebotDialog'>This site uses cookies</div>",
        "<div id='usercentrics-root'>Cookies</div>",
        "<div id='didomi-host'>Cookies</div>",
        "<div class='cc-window cc-banner' role='dialog'>Cookies</div>",
        "<div class='my-cookie-notice'>Cookies</div>",
        "<section class='gdpr' role='dialog'>Cookies</section>",
        "<div class='site-consent' style='position: fixed; bottom: 0'>Cookies</div>",
        "<a href='#main'>Skip to main content</a>",
        "<a class='skip-link' href='#c'>To the text</a>",
        "<a href='https://example.org/edit'>Edit this page</a>",
        "<div class='share-buttons'>Tweet</div>",
        "<div class='pagination'><a href='/1'>1</a></div>",
        "<a rel='next' href='/2'>Next</a>",
        "<div class='related-posts'><a href='/o'>Other</a></div>",
        "<div class='adsbygoogle'>Buy</div><div id='div-gpt-ad-1'>Buy</div>",
        "<form role='search'>Search</form>",
        "<button>Copy</button><select><option>EN</select><textarea>t</textarea>",
        "<!-- comment --><template>t</template><noscript>n</noscript><style>s{}</style><script>s</script>",
        "<p hidden>h</p><p style='DISPLAY : none'>h</p><p style='visibility:hidden'>h</p><p style='opacity:0'>h</p>",
        "<p style='font-size:0px'>h</p><p style='text-indent:-9999px'>h</p>",
        "<p style='position:absolute;left:-9999px'>h</p><p style='clip: rect(0,0,0,0)'>h</p>",
        "<i class='icon' aria-hidden='true'>home</i>",
        "<h2 class='sr-only'>Site menu</h2><span class='visually-hidden'>opens in a new tab</span>",
        "<dialog>Later</dialog>",
        "<p class='d-none'>h</p>",
        "<h2>Valves<a class='headerlink' href='#v'>¶</a></h2>",
    ],
)
def test_what_is_not_content_is_left_out(part: str) -> None:
    found = texts(f"<html><body><div>{part}{CONTENT}</div></body></html>")
    assert [text for text in found if text != "Valves"] == ["The valve opens at four bar and closes at three."]


@pytest.mark.requirement("A2")
@pytest.mark.parametrize(
    "page",
    [
        "<body class='sidebar-layout footer'><div class='content-footer-wrapper'>{}</div></body>",
        "<body><div class='sidebar'>{}</div></body>",
        "<body><aside>{}</aside><footer>x</footer></body>",
        "<body><header>{}</header></body>",
        "<body><footer>{}</footer></body>",
        "<body><div aria-hidden='true'>{}</div><div role='dialog'>Log in</div></body>",
        "<body><div class='footer'><main>{}</main></div></body>",
        "<body><div class='menu-layout'><a href='/h'>Home</a>{}</div></body>",
        "<body><div class='toc'>{}</div><main><input></main></body>",
        "<body><main>{}</main><main>x</main></body>",
        "<body><div class='hidden md:block'>{}</div><p>x</p></body>",
        "<body><form id='aspnetForm'>{}</form></body>",
        "<body><div role='banner'>{}</div></body>",
        "<body><div class='cookie-recipes-container'>{}</div><p>Most of this page is here, not in that box above.</p>",
    ],
)
def test_names_never_drop_most_of_the_text(page: str) -> None:
    assert "The valve opens at four bar and closes at three." in texts(page.format(CONTENT))


@pytest.mark.requirement("A2")
def test_opaque_text_and_late_text_stay() -> None:
    assert texts("<p style='opacity:0.5'>a</p><p style='font-size:0.8em'>b</p><p hidden='until-found'>c</p>") == [
        "a",
        "b",
        "c",
    ]
    assert texts("<p>Price <span class='sr-only'>5 euros</span><span aria-hidden='true'>€5</span></p>") == [
        "Price 5 euros"
    ]
    assert texts("<article><aside>A remark</aside><header><p>By Ann</p></header><p>Text</p></article>") == [
        "A remark",
        "By Ann",
        "Text",
    ]
    assert texts("<header><h1>Title</h1><ul><li><a href='/'>Home</a></ul><p>Lead</p></header>" + CONTENT)[:2] == [
        "Title",
        "Lead",
    ]


@pytest.mark.requirement("A2")
def test_a_page_of_links_is_an_index_not_a_menu() -> None:
    page = "<h1>All pages</h1><ul class='page-links'>" + "".join(f"<li><a href='/{n}'>Page {n}</a>" for n in range(9))
    assert texts(page)[1].count("Page") == 9


@pytest.mark.requirement("A2")
def test_title_and_language() -> None:
    def told(page: str) -> tuple[str | None, str | None]:
        document: HtmlDocument = read_html(page)
        return document.title, document.language

    assert told("<html lang=de_AT><title>A &amp;\n B</title>x") == ("A & B", "de-AT")
    assert told("<body lang=fr><svg><title>icon</title></svg>x") == (None, "fr")
    assert told("<meta http-equiv='Content-Language' content='pt-BR, en'>x") == (None, "pt-BR")
    assert told("<html lang='not a language'>x") == (None, None)


@pytest.mark.requirement("A2")
def test_a_tag_with_too_many_attributes_keeps_its_text_and_is_reported() -> None:
    document = read_html("<p " + " ".join(f"a{n}='<b>'" for n in range(300)) + ">kept</p>")
    assert [block.text for block in document.blocks] == ["kept"]
    assert document.warnings == ["html: 1 tags with more than 256 attributes; left those out"]
    assert read_html("<img src='data:x " + "a=1 " * 500 + "' alt=kept>").warnings == []


def _deep(opening: str, closing: str, count: int, inside: str) -> str:
    return opening * count + inside + closing * count


@pytest.mark.requirement("A2", "A4")
@pytest.mark.parametrize(
    ("name", "page"),
    [
        ("less-than signs", "<" * 5_000_000),
        ("attributes", "<p " + " ".join(f"a{n}=1" for n in range(1_000_000)) + ">kept</p>"),
        ("depth", "<div>" * 100_000 + "kept"),
        ("figures", _deep("<figure><figcaption>", "</figcaption></figure>", 900, "word " * 30_000)),
        ("abbreviations", _deep("<abbr title=q>", "</abbr>", 1900, "word " * 30_000)),
        ("formulas", _deep("<span class=math>", "</span>", 1900, "<b>1</b>" * 20_000)),
        ("line numbers", _deep("<table><tr><td class=lineno>", "</table>", 300, "<b>1</b>" * 6_000 + "kept")),
        ("code in rows", f"<table><tr><th>{'h' * 1000}<th>b</tr>" + "<tr><td>a<td><pre>x\ny</pre></tr>" * 3000),
        ("consent", "<p class='" + "cookie" * 160_000 + "'>kept"),
    ],
)
def test_hostile_pages_take_bounded_time_and_space(name: str, page: str) -> None:
    started = time.process_time()
    blocks = read_html(page).blocks
    seconds = time.process_time() - started
    assert seconds < 15, f"{name}: {seconds:.1f} s"
    size = sum(len(block.text) for block in blocks)
    assert 0 < size < 2 * len(page)
    if "kept" in page:
        assert any("kept" in block.text for block in blocks)
