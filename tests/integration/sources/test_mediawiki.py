"""The connector of MediaWiki against a real one: the whole life of pages and files, and none of it lost."""

from __future__ import annotations

import socket
import threading
import time
from collections.abc import Iterator

import pytest

from infra.servers.mediawiki import (
    CONNECTOR,
    CONNECTOR_PASSWORD,
    MediaWikiServer,
    available,
)
from pipeline.clock import SystemClock
from pipeline.sources.mediawiki.system import MediaWiki
from pipeline.sources.remote.contract import Absent
from schemas.keys import DocumentRef
from tests.integration.sources.wiki_world import (
    Follower,
    connect,
    everything,
    fetched,
    ref,
    running,
    text,
)

WHY_NOT = available()
pytestmark = pytest.mark.skipif(WHY_NOT is not None, reason=WHY_NOT or "")


@pytest.fixture(scope="module")
def wiki(tmp_path_factory: pytest.TempPathFactory) -> Iterator[MediaWikiServer]:
    with running(tmp_path_factory.mktemp("mediawiki")) as server:
        yield server


@pytest.fixture
def system(wiki: MediaWikiServer) -> Iterator[MediaWiki]:
    opened = connect(wiki)
    yield opened
    opened.close()


@pytest.mark.requirement("A1", "F08")
def test_a_page_is_created_edited_and_moved(wiki: MediaWikiServer, system: MediaWiki) -> None:
    follower = Follower(system)
    page, _ = wiki.admin.edit("Lungfish", "A lungfish breathes air.")
    assert not follower.touched(page).redacted
    first = fetched(system, page).document
    assert (first.title, first.url) == ("Lungfish", f"{wiki.url}/index.php?curid={page}")
    assert b"breathes air" in first.body and first.updated_at is not None
    assert abs(first.updated_at - SystemClock().now()) < 60_000_000
    assert first.rule is not None and first.revision == everything(system)[ref(page)].revision

    wiki.admin.edit("Lungfish", "A lungfish breathes water.")
    follower.touched(page)
    second = fetched(system, page).document
    assert b"breathes water" in second.body and second.revision != first.revision

    wiki.admin.move("Lungfish", "HR:Dipnoi")
    follower.touched(page)
    moved = fetched(system, page).document
    assert (moved.title, moved.path) == ("HR:Dipnoi", "HR:Dipnoi")
    assert moved.rule != second.rule
    assert moved.revision == everything(system)[ref(page)].revision


@pytest.mark.requirement("A1", "F01")
def test_a_page_is_deleted_and_restored(wiki: MediaWikiServer, system: MediaWiki) -> None:
    page, _ = wiki.admin.edit("Retired policy", "Old rules.")
    follower = Follower(system)
    wiki.admin.delete("Retired policy")
    follower.gone(page)
    assert isinstance(system.fetch(ref(page)), Absent)
    assert ref(page) not in everything(system)
    wiki.admin.restore("Retired policy")
    follower.touched(page)
    assert "Old rules." in text(system, page)


@pytest.mark.requirement("A1", "F08")
def test_a_redirect_is_no_document_and_can_be_moved_over(wiki: MediaWikiServer, system: MediaWiki) -> None:
    page, _ = wiki.admin.edit("Harbour", "Ships lie here.")
    wiki.admin.move("Harbour", "Port")
    redirect = wiki.admin.get(action="query", titles="Harbour", prop="info")["query"]["pages"][0]["pageid"]
    assert ref(redirect) not in everything(system)
    assert isinstance(system.fetch(ref(redirect)), Absent)
    follower = Follower(system)
    wiki.admin.move("Port", "Harbour")
    told = follower.until(lambda c: any(t.document == ref(page) for t in c.touched))
    assert ref(redirect) in {d for c in told for d in c.gone}
    assert fetched(system, page).document.title == "Harbour"
    other, _ = wiki.admin.edit("Quay", "Boats.")
    wiki.admin.edit("Quay", "#REDIRECT [[Harbour]]")
    follower.touched(other)
    assert isinstance(system.fetch(ref(other)), Absent)


@pytest.mark.requirement("A1")
def test_a_template_changes_the_pages_that_use_it_before_the_job_queue_has_run(
    tmp_path_factory: pytest.TempPathFactory,
) -> None:
    wiki = MediaWikiServer(tmp_path_factory.mktemp("idle"), jobs=False)
    wiki.start()
    system = connect(wiki)
    try:
        wiki.admin.edit("Template:Port", "port 8080")
        page, _ = wiki.admin.edit("Server", "It listens on {{Port}}.")
        wiki.run_jobs()
        assert "port 8080" in text(system, page)
        follower = Follower(system)
        wiki.admin.edit("Template:Port", "port 9090")
        assert follower.touched(page).revision is None
        assert wiki.jobs_waiting() > 0, "the wiki's own cache must be stale here"
        assert "port 9090" in text(system, page)
        wiki.admin.move("Template:Port", "Template:Harbour", noredirect=1)
        follower.touched(page)
        assert "port 9090" not in text(system, page)
    finally:
        system.close()
        wiki.stop()


@pytest.mark.requirement("A1", "A2")
def test_a_page_is_rendered_whole(wiki: MediaWikiServer, system: MediaWiki) -> None:
    source = (
        '== Setup ==\n{| class="wikitable"\n! Key !! Value\n|-\n| timeout || 30 s\n|}\n'
        "* one\n** two\nSee the note.<ref>The footnote.</ref>\n"
        '<syntaxhighlight lang="python">\nif x:\n    # comment\n    go()\n</syntaxhighlight>\n'
        "__TOC__\n=== A ===\n=== B ===\n=== C ===\n<references />"
    )
    page, _ = wiki.admin.edit("Handbook", source)
    document = fetched(system, page).document
    body = document.body.decode()
    assert document.content_type == "text/html; charset=utf-8"
    for part in ("<table", "timeout", "The footnote.", "# comment"):
        assert part in body
    for part in ("editsection", 'id="toc"', "NewPP limit report", "action=edit&amp;section"):
        assert part not in body
    assert fetched(system, page).document.body == document.body, "the same page twice must be equal"
    raw, _ = wiki.admin.edit(
        "User:Admin/data.json", '{"port": 8080}', contentmodel="json", contentformat="application/json"
    )
    assert raw
    other = connect(wiki, namespaces=(2,))
    plain = fetched(other, raw).document
    other.close()
    assert plain.content_type.startswith("text/plain") and '"port": 8080' in plain.body.decode()


@pytest.mark.requirement("A1")
def test_a_file_is_uploaded_and_overwritten(wiki: MediaWikiServer, system: MediaWiki) -> None:
    follower = Follower(system)
    wiki.admin.upload("Notes.txt", b"first notes\n", "About the notes")
    listed = next(one for document, one in everything(system).items() if document.kind == "file")
    page = int(listed.document.id)
    follower.touched(page, "file")
    first = fetched(system, page, "file").document
    assert (first.body, first.content_type, first.title) == (b"first notes\n", "text/plain", "File:Notes.txt")
    assert first.revision == listed.revision
    wiki.admin.upload("Notes.txt", b"second notes\n")
    follower.touched(page, "file")
    second = fetched(system, page, "file").document
    assert second.body == b"second notes\n" and second.revision != first.revision
    wiki.admin.delete("File:Notes.txt")
    follower.gone(page, "file")
    assert isinstance(system.fetch(ref(page, "file")), Absent)


@pytest.mark.requirement("I8")
def test_a_session_that_ended_is_renewed(wiki: MediaWikiServer, system: MediaWiki) -> None:
    cursor = system.start()
    system._api._http.cookies().clear()
    assert not system.changes(cursor).relist


@pytest.mark.requirement("A1")
def test_the_feed_is_a_hint_to_look(wiki: MediaWikiServer) -> None:
    heard = threading.Event()
    system = connect(wiki, udp=f"127.0.0.1:{wiki.udp_port}")
    said: list[DocumentRef | None] = []

    def notify(document: DocumentRef | None) -> None:
        said.append(document)
        heard.set()

    system.listen(notify)
    try:
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as stranger:
            stranger.sendto(b"[" * 50_000, ("127.0.0.1", wiki.udp_port or 0))
        follower = Follower(system)
        page, _ = wiki.admin.edit("Latency", f"At {time.time()}")
        assert heard.wait(5) and set(said) == {None}
        follower.touched(page)
    finally:
        system.close()


@pytest.mark.requirement("A1", "I9", "F05")
def test_writers_at_once_lose_no_change(wiki: MediaWikiServer, system: MediaWiki) -> None:
    pages = [wiki.admin.edit(f"Race {n}", "start")[0] for n in range(36)]
    follower = Follower(system)
    follower.drain()
    found: dict[DocumentRef, int] = {}
    stop = threading.Event()

    def poll() -> None:
        while not stop.is_set():
            for one in follower.drain():
                for touched in one.touched:
                    found[touched.document] = found.get(touched.document, 0) + 1

    def write(numbers: range) -> None:
        session = wiki.user(CONNECTOR, CONNECTOR_PASSWORD)
        for n in numbers:
            session.edit(f"Race {n}", f"changed {n}")
        session.close()

    poller = threading.Thread(target=poll)
    writers = [threading.Thread(target=write, args=(range(k, 36, 3),)) for k in range(3)]
    for thread in [poller, *writers]:
        thread.start()
    for thread in writers:
        thread.join()
    time.sleep(1.0)
    stop.set()
    poller.join()
    assert {ref(p) for p in pages} - set(found) == set()
    told_often = [d.id for p in pages if found[d := ref(p)] > 1]
    assert told_often == [], "each change is told once, overlap or not"


@pytest.mark.requirement("A1", "I9")
def test_a_cursor_of_another_kind_asks_for_a_listing(system: MediaWiki) -> None:
    assert system.changes("nonsense").relist
    good = system.start()
    broken = good[:-1] + ',"since":"2026-01-01T00:00:00Z","more":{"rccontinue":"nonsense","continue":"-||"}}'
    again = system.changes(broken)
    assert again.relist and not system.changes(again.cursor).relist


@pytest.mark.requirement("A1", "I9")
def test_a_page_that_moves_back_past_a_running_listing_is_met(
    wiki: MediaWikiServer, system: MediaWiki, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("pipeline.sources.mediawiki.listing.PER_PAGE", 2)
    wiki.admin.edit("Aardvark", "Begins the list.")
    page, _ = wiki.admin.edit("Zzz last", "Ends the list.")
    first = system.listing(None)
    wiki.admin.move("Zzz last", "Aaa first", noredirect=1)
    found = {one.document for one in first.documents}
    at = first.next
    while at is not None:
        following = system.listing(at)
        found |= {one.document for one in following.documents}
        at = following.next
    assert ref(page) in found


@pytest.mark.requirement("A1")
def test_merged_and_imported_pages_are_told(wiki: MediaWikiServer, system: MediaWiki) -> None:
    early, _ = wiki.admin.edit("Early notes", "Written first.")
    time.sleep(1.1)  # histories merge only where one is older than the other
    late, _ = wiki.admin.edit("Late notes", "Written last.")
    follower = Follower(system)
    wiki.admin.act("mergehistory", **{"from": "Early notes", "to": "Late notes"})
    told = follower.until(lambda c: bool(c.touched or c.gone))
    met = {t.document for c in told for t in c.touched} | {d for c in told for d in c.gone}
    assert {ref(early), ref(late)} <= met
    xml = (
        '<mediawiki xmlns="http://www.mediawiki.org/xml/export-0.11/" version="0.11" xml:lang="en"><page>'
        "<title>Imported</title><ns>0</ns><revision><timestamp>2020-01-01T00:00:00Z</timestamp>"
        "<contributor><username>Elsewhere</username></contributor><model>wikitext</model><format>text/x-wiki</format>"
        "<text>Old words.</text></revision></page></mediawiki>"
    )
    wiki.admin.act("import", files={"xml": ("dump.xml", xml.encode())}, interwikiprefix="old", assignknownusers=1)
    page = wiki.admin.get(action="query", titles="Imported", prop="info")["query"]["pages"][0]["pageid"]
    assert not follower.touched(page).redacted
    document = fetched(system, page).document
    assert b"Old words." in document.body
