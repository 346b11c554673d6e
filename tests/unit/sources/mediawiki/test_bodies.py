"""One document of a wiki: what is there, what is not, and what must not be in it."""

from __future__ import annotations

from typing import Any

import pytest
from mwparserfromhell.parser import ParserError

from pipeline.sources.connector import SourceUnavailable
from pipeline.sources.remote.contract import Absent, Fetched, Unreadable
from schemas.access import AccessRule
from tests.unit.sources.mediawiki.fake import FakeWiki, connect, error, ref

READERS = {3002: ("hr",)}


def body(wiki: FakeWiki, page: int, kind: str = "page", **more: Any) -> str:
    answer = connect(wiki, readers=READERS, **more).fetch(ref(page, kind))
    assert isinstance(answer, Fetched), answer
    return answer.document.body.decode()


@pytest.mark.requirement("A1", "F07")
def test_one_address_for_a_page_however_it_is_named() -> None:
    wiki = FakeWiki()
    wiki.page(1, "Café & Co/50% a+b?")
    answer = connect(wiki, page_url="https://wiki.test/wiki/").fetch(ref(1))
    assert isinstance(answer, Fetched)
    assert answer.document.url == "https://wiki.test/wiki/Caf%C3%A9_%26_Co/50%25_a%2Bb%3F"
    assert answer.document.title == answer.document.path == "Café & Co/50% a+b?"
    plain = connect(wiki).fetch(ref(1))
    assert isinstance(plain, Fetched) and plain.document.url == "http://wiki.test/w/index.php?curid=1"
    assert answer.document.rule == AccessRule.any_of("audience:wiki/ns:0")


@pytest.mark.requirement("A1")
def test_what_is_not_there() -> None:
    wiki = FakeWiki()
    wiki.page(1, "Port", redirect=True)
    wiki.page(2, "User:Port", ns=2)
    wiki.page(3, "File:Map", ns=6)
    system = connect(wiki)
    for document in (ref(1), ref(2), ref(3), ref(4), ref(1, "file"), ref(2, "issue")):
        assert isinstance(system.fetch(document), Absent), document
    assert isinstance(system.fetch(ref(1).model_copy(update={"id": "1|2"})), Absent)


@pytest.mark.requirement("A8")
def test_what_is_there_and_not_for_us() -> None:
    wiki = FakeWiki()
    wiki.page(1, "Hidden", text=None)
    wiki.page(2, "Denied")
    system = connect(wiki)
    hidden = system.fetch(ref(1))
    assert isinstance(hidden, Unreadable) and "hidden" in hidden.reason
    wiki.errors = [error("accessdenied")]
    assert isinstance(system.fetch(ref(2)), Unreadable)
    wiki.errors = [error("internal_api_error_DBQueryError")]
    with pytest.raises(SourceUnavailable):
        system.fetch(ref(2))


@pytest.mark.requirement("A2")
def test_what_is_no_wikitext_is_taken_as_it_is() -> None:
    wiki = FakeWiki()
    wiki.page(1, "Module", "return '{{x}}'")
    wiki.models[1] = "Scribunto"
    answer = connect(wiki).fetch(ref(1))
    assert isinstance(answer, Fetched)
    assert (answer.document.body, answer.document.content_type) == (b"return '{{x}}'", "text/plain; charset=utf-8")


def _included(wiki: FakeWiki) -> None:
    """``:HR:Plan`` and ``Wrap`` include what is restricted, as the wiki tells it; text that is included is shown."""

    def templates(text: str) -> list[dict[str, Any]]:
        found = [{"ns": 3002, "title": "HR:Plan", "exists": True}] if ":HR:Plan" in text or "Wrap" in text else []
        return found + ([{"ns": 10, "title": "Template:Fine", "exists": True}] if "Fine" in text else [])

    wiki.templates = templates


@pytest.mark.requirement("A8", "I12")
def test_restricted_includes_are_left_out_and_others_stay() -> None:
    wiki = FakeWiki()
    _included(wiki)
    wiki.page(1, "Public", "Before {{:HR:Plan}} {{#if:1|{{Wrap|x}}}} {{Fine}} <ref>{{Wrap}}</ref> after")
    shown = body(wiki, 1)
    assert "HR:Plan" not in shown and "Wrap" not in shown
    assert "Before" in shown and "{{Fine}}" in shown and "after" in shown
    wiki.page(2, "HR:Summary", "So {{:HR:Plan}}", ns=3002)
    assert "HR:Plan" in body(wiki, 2), "who reads this page reads that one too"


@pytest.mark.requirement("A8", "I12")
def test_includes_from_a_restriction_that_only_the_wiki_knows_are_left_out_and_pages_read_again() -> None:
    wiki = FakeWiki()
    _included(wiki)
    wiki.page(1, "Public", "Before {{:HR:Plan}} after")
    wiki.page(2, "HR:Plan", ns=3002)
    system = connect(wiki, namespaces=(0,))
    before = system.fetch(ref(1))
    wiki.denied = {"HR:Plan"}
    assert system.readers().alarms
    after = system.fetch(ref(1))
    assert isinstance(before, Fetched) and isinstance(after, Fetched)
    assert b"HR:Plan" in before.document.body and b"HR:Plan" not in after.document.body
    assert before.document.revision != after.document.revision == system.listing(None).documents[0].revision


@pytest.mark.requirement("A8", "I12")
def test_of_very_many_includes_none_is_taken() -> None:
    wiki = FakeWiki()
    _included(wiki)
    wiki.page(1, "Public", "Before " + "".join(f"{{{{Fine|{n}}}}}" for n in range(200)) + "{{Wrap}}")
    assert body(wiki, 1).strip("</p>").strip() == "Before"
    assert len(wiki.asked) < 10


@pytest.mark.requirement("A8", "I12")
def test_what_cannot_be_freed_of_a_restricted_include_is_its_own_words_only() -> None:
    wiki = FakeWiki()
    wiki.templates = lambda text: [{"ns": 3002, "title": "HR:Plan", "exists": True}]  # whatever is taken out
    wiki.page(1, "Public", "Words {{Odd|{{:HR:Plan}}}} <odd>x</odd>")
    answer = connect(wiki, readers=READERS).fetch(ref(1))
    assert isinstance(answer, Fetched)
    assert answer.document.body == b"Words  <odd>x</odd>" and answer.document.content_type.startswith("text/plain")


@pytest.mark.requirement("A8")
@pytest.mark.parametrize("name", ["Special", "special", "Spezial", ":Special"])
def test_included_lists_are_left_out(name: str) -> None:
    wiki = FakeWiki()
    wiki.page(1, "Public", f"Before {{{{ {name}:PrefixIndex/HR: }}}} after")
    assert "PrefixIndex" not in body(wiki, 1)


@pytest.mark.requirement("A1", "F06")
def test_a_page_that_cannot_be_rendered_is_its_own_words() -> None:
    wiki = FakeWiki()
    wiki.page(1, "Broken", "Words {{#invoke:Broken}}")
    system = connect(wiki)
    system.listing(None)
    wiki._parse = lambda asked: {"error": {"code": "internal_api_error_LuaError", "info": "No."}}  # type: ignore[method-assign]
    answer = system.fetch(ref(1))
    assert isinstance(answer, Fetched) and answer.document.body == b"Words "


@pytest.mark.requirement("A1", "F06")
def test_wikitext_that_cannot_be_taken_apart_is_its_own_words(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(text: str) -> None:
        raise ParserError("too deep")  # type: ignore[no-untyped-call]

    monkeypatch.setattr("mwparserfromhell.parse", refuse)
    wiki = FakeWiki()
    _included(wiki)
    wiki.page(1, "Public", "Words {{:HR:Plan}}")
    assert body(wiki, 1) == "Words {{:HR:Plan}}"


@pytest.mark.requirement("A1", "F06")
def test_files() -> None:
    wiki = FakeWiki()
    wiki.page(5, "File:Notes.txt", ns=6)
    wiki.files[5] = b"notes"
    wiki.page(6, "File:Photo.png", "A photo of the harbour", ns=6, image={"mime": "image/png"})
    wiki.files[6] = b"\x89PNG"
    wiki.page(7, "File:Large.txt", ns=6)
    wiki.files[7] = b"x" * 2000
    wiki.page(8, "File:Hidden.txt", ns=6, image={"filehidden": True})
    wiki.files[8] = b"hidden"
    wiki.page(9, "File:Torn.txt", ns=6, image={"sha1": "0" * 40})
    wiki.files[9] = b"torn"
    assert body(wiki, 5, "file") == "notes"
    assert "A photo of the harbour" in body(wiki, 6, "file")
    system = connect(wiki)
    large = system.fetch(ref(7, "file"))
    assert isinstance(large, Unreadable) and "bodies.max_bytes = 1000" in large.reason
    assert isinstance(system.fetch(ref(8, "file")), Unreadable)
    with pytest.raises(SourceUnavailable):
        system.fetch(ref(9, "file"))
