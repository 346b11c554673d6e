"""Listing a wiki: redirects, files, pages that move meanwhile, one answer in parts."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from pipeline.sources.mediawiki.system import MediaWiki
from pipeline.sources.remote.contract import Fetched, Listed
from schemas.keys import DocumentRef
from tests.unit.sources.mediawiki.fake import START, FakeWiki, connect, ref


def everything(system: MediaWiki) -> dict[DocumentRef, Listed]:
    found: dict[DocumentRef, Listed] = {}
    at: str | None = None
    while True:
        page = system.listing(at)
        found.update({one.document: one for one in page.documents})
        if page.next is None:
            return found
        at = page.next


@pytest.mark.requirement("A1", "F09")
def test_content_namespaces_and_files_are_listed_without_redirects() -> None:
    wiki = FakeWiki()
    wiki.page(1, "Harbour")
    wiki.page(2, "Port", redirect=True)
    wiki.page(3, "Talk:Harbour", ns=1)
    wiki.page(4, "HR:Harbour", ns=3002)
    wiki.page(5, "File:Map.txt", ns=6)
    wiki.files[5] = b"map"
    wiki.page_size = 1
    found = everything(connect(wiki))
    assert set(found) == {ref(1), ref(4), ref(5, "file")}
    assert connect(wiki).listing(None).total == 5
    assert found[ref(1)].updated_at == START
    assert set(everything(connect(wiki, namespaces=(1,)))) == {ref(3)}


@pytest.mark.requirement("A1", "A6")
def test_the_listings_revision_is_the_one_that_is_fetched_and_moves_with_everything() -> None:
    wiki = FakeWiki()
    wiki.page(1, "Harbour")
    wiki.page(5, "File:Map.txt", ns=6)
    wiki.files[5] = b"map"
    system = connect(wiki)
    seen = set()
    changes: list[Callable[[], None]] = [
        lambda: None,
        lambda: wiki.pages[1].update(lastrevid=99),
        lambda: wiki.pages[1].update(touched="2026-11-30T13:00:00Z"),  # a template of it
        lambda: wiki.files.update({5: b"another map"}),
    ]
    for change in changes:
        change()
        listed = everything(system)
        for document, one in listed.items():
            answer = system.fetch(document)
            assert isinstance(answer, Fetched) and answer.document.revision == one.revision
        seen.add((listed[ref(1)].revision, listed[ref(5, "file")].revision))
    assert len(seen) == len(changes)


@pytest.mark.requirement("A1")
def test_a_page_that_moves_while_it_is_listed_is_met() -> None:
    wiki = FakeWiki()
    for id_, title in enumerate("BCDZ", start=1):
        wiki.page(id_, title)
    wiki.page_size = 2
    system = connect(wiki, namespaces=(0,))
    first = system.listing(None)
    wiki.pages[4]["title"] = "A"  # to before what was listed
    wiki.logged("move", "move", "Z", page=4, params={"target_ns": 0, "target_title": "A"})
    met = {one.document for one in first.documents}
    at = first.next
    while at is not None:
        page = system.listing(at)
        met |= {one.document for one in page.documents}
        at = page.next
    assert met == {ref(i) for i in (1, 2, 3, 4)}


@pytest.mark.requirement("A1", "F06")
def test_one_file_without_a_date_among_many_is_listed_like_them() -> None:
    wiki = FakeWiki()
    for id_ in range(1, 2001):
        wiki.page(id_, f"File:{id_}.txt", ns=6, image={"timestamp": None} if id_ == 1234 else {})
        wiki.files[id_] = b"words"
    wiki.pages[1234]["touched"] = ""
    found = everything(connect(wiki))
    assert len(found) == 2000 and found[ref(1234, "file")].updated_at is None
