"""The connector of MediaWiki against a real one: who may read what, and what must not be read any more."""

from __future__ import annotations

import time
from collections.abc import Iterator

import pytest
from pydantic import SecretStr

from infra.servers.mediawiki import (
    CONNECTOR,
    CONNECTOR_PASSWORD,
    RESTRICTED,
    USER_PASSWORD,
    MediaWikiServer,
    available,
)
from pipeline.clock import SystemClock
from pipeline.errors import ConfigError
from pipeline.ports import SourceDocument
from pipeline.sources.mediawiki.system import MediaWiki
from pipeline.sources.remote.contract import Fetched, Unreadable
from schemas.access import AccessRule
from tests.integration.sources.wiki_world import (
    USERS,
    Follower,
    closure,
    connect,
    everything,
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


@pytest.mark.requirement("A8")
def test_a_hidden_revision_is_told_as_withdrawn(wiki: MediaWikiServer, system: MediaWiki) -> None:
    page, secret = wiki.admin.edit("Passwords", "The password is xyzzy.")
    wiki.admin.edit("Passwords", "Ask for the password.")
    follower = Follower(system)
    wiki.admin.hide(secret)
    assert follower.touched(page).redacted
    assert "xyzzy" not in text(system, page)
    wiki.admin.hide(secret, show=True)
    assert not follower.touched(page).redacted


@pytest.mark.requirement("A8", "I12")
def test_restricted_text_is_not_copied_into_a_public_page(wiki: MediaWikiServer, system: MediaWiki) -> None:
    secret = "Severance is nine months"
    hidden, _ = wiki.admin.edit("HR:Plan", secret)
    wiki.admin.edit("Template:Wrap", "Wrapped: {{:{{{1}}}}}")
    wiki.admin.edit("Template:Far", "{{Wrap|HR:Plan}}")
    wiki.admin.edit("Detour", "#REDIRECT [[HR:Plan]]")
    wiki.admin.edit("Template:Fine", "harmless words")
    ways = [
        "{{:HR:Plan}}",
        "{{Wrap|HR:Plan}}",
        "{{Far}}",
        "{{:Detour}}",
        "{{#if:1|{{:hr:plan}}}}",
        "<ref>{{Far}}</ref>",
    ]
    ways += ["<div>{{:HR:{{ucfirst:plan}}}}</div>", "{{Special:PrefixIndex/HR:}}", "{{Wrap|1=HR:{{{x|Plan}}}}}"]
    for number, way in enumerate(ways):
        title = f"Public {number}"
        page, _ = wiki.admin.edit(title, f"Before. {way} After. {{{{Fine}}}} <references />")
        shown = wiki.admin.get(action="parse", page=title, prop="text")["parse"]["text"]
        assert secret in shown or "HR:Plan" in shown, f"{way} must include it at the wiki, or it proves nothing"
        body = text(system, page)
        assert "nine months" not in body and "HR:Plan" not in body, way
        assert "Before." in body and "After." in body and "harmless words" in body, way
    many = "".join(f"{{{{Wrap|1=HR:Plan|n={n}}}}}" for n in range(60))
    page, _ = wiki.admin.edit("Public many", f"Before. {many}")
    assert "nine months" not in text(system, page) and "Before." in text(system, page)
    inside, _ = wiki.admin.edit("HR:Summary", "So: {{:HR:Plan}}")
    assert secret in text(system, inside) and secret in text(system, hidden)
    follower = Follower(system)
    wiki.admin.edit("Template:Loop", "{{Loop}} {{:HR:Plan}}")
    page, _ = wiki.admin.edit("Looping", "Start. {{Loop}}")
    follower.touched(page)
    assert "nine months" not in text(system, page)


def _rights_agree(wiki: MediaWikiServer, system: MediaWiki, documents: list[SourceDocument]) -> int:
    """Pages × users on which the wiki and the connector's rules agree; a difference fails."""
    readership = system.readers()
    assert not readership.alarms
    compared = 0
    for name in USERS:
        session = wiki.user(name)
        truth = session.may_read([d.title for d in documents])
        session.close()
        reached = closure(readership, name.lower())
        for document in documents:
            assert isinstance(document.rule, AccessRule)
            ours = document.rule.admits(reached, SystemClock().now())
            assert ours == truth[document.title], f"{name} and {document.title}"
            compared += 1
    return compared


def all_documents(system: MediaWiki) -> list[SourceDocument]:
    listed = everything(system)
    found = [a.document for a in map(system.fetch, listed) if isinstance(a, Fetched)]
    assert len(found) == len(listed)
    return found


@pytest.mark.requirement("A8", "I4", "I12", "F26")
def test_who_may_read_is_what_the_wiki_says(wiki: MediaWikiServer, system: MediaWiki) -> None:
    wiki.admin.edit("Finance:Budget", "Ten.")
    wiki.admin.edit("HR:Salaries", "Eleven.")
    wiki.admin.edit("Open page", "For all.")
    follower = Follower(system)
    documents = all_documents(system)
    assert _rights_agree(wiki, system, documents) >= 16
    try:
        wiki.admin.groups("Bob", add="hr")
        follower.until(lambda c: c.access)
        assert _rights_agree(wiki, system, documents)
        wiki.admin.groups("Bob", remove="hr")
        follower.until(lambda c: c.access)
        assert _rights_agree(wiki, system, documents)
        wiki.admin.act("block", user="Dora", expiry="never")  # of a block it is said: who is blocked still reads
        assert _rights_agree(wiki, system, documents)
        wiki.restrict(RESTRICTED, {"*": {"read": False}})
        assert _rights_agree(wiki, system, documents)
        only = {"*": {"read": False}, "user": {"read": False}, "finance": {"read": True}, "bot": {"read": True}}
        wiki.restrict(RESTRICTED, only)
        assert _rights_agree(wiki, system, documents)
        leavers = {"*": {"read": False}, "leavers": {"edit": True}}
        wiki.restrict(RESTRICTED, leavers, {"leavers": {"read": True}})
        wiki.admin.groups("Carol", add="leavers")  # a right that the wiki's settings revoke counts as revoked
        assert _rights_agree(wiki, system, documents)
        assert "audience:wiki/ns:3002" not in closure(system.readers(), "carol").principals
        wiki.admin.groups("Carol", remove="leavers")
    finally:
        wiki.restrict(RESTRICTED)


@pytest.mark.requirement("I12")
def test_a_restriction_that_the_settings_do_not_know_closes_its_namespace(wiki: MediaWikiServer) -> None:
    wiki.admin.edit("HR:Known to few", "Few.")
    system = connect(wiki, readers={3000: ("finance", "nowhere")})
    readership = system.readers()
    findings = system.check()
    system.close()
    assert any("namespace 3002 is restricted" in alarm for alarm in readership.alarms)
    assert any("nowhere" in alarm for alarm in readership.alarms)
    assert "audience:wiki/ns:3002" not in closure(readership, "carol").principals
    assert "audience:wiki/ns:0" in closure(readership, "carol").principals
    bad = [f for f in findings if not f.good]
    assert any("namespace HR is restricted" in f.what for f in bad) and all(f.remedy for f in bad)


@pytest.mark.requirement("E5")
def test_the_check_tells_what_the_account_sees(wiki: MediaWikiServer, system: MediaWiki) -> None:
    wiki.admin.upload("Checked.txt", b"words\n")
    assert [f for f in system.check() if not f.good] == []
    sysop = connect(wiki, username="Admin", password=SecretStr("headwater-admin-password"))
    findings = sysop.check()
    sysop.close()
    assert any(not f.good and "hidden revisions" in f.what for f in findings)
    wrong = connect(wiki, password=SecretStr("x" * 32))
    with pytest.raises(ConfigError) as raised:
        wrong.start()
    wrong.close()
    assert raised.value.field == "sources.wiki.password"
    assert "x" * 32 not in str(raised.value)
    outside = connect(wiki, username="Bob", password=SecretStr(USER_PASSWORD))
    wiki.admin.edit("HR:Unseen", "Unseen.")
    unseen = next(d for d, _ in everything(outside).items() if isinstance(outside.fetch(d), Unreadable))
    assert isinstance(system.fetch(unseen), Fetched)
    assert any("may not read namespace HR" in f.what for f in outside.check())
    outside.close()


@pytest.mark.requirement("A1")
def test_files_of_a_private_wiki_need_the_accounts_own_password(wiki: MediaWikiServer, system: MediaWiki) -> None:
    wiki.admin.upload("Private.txt", b"private words\n")
    wiki.restrict(RESTRICTED, {"*": {"read": False}})
    own = connect(wiki, username=CONNECTOR, password=SecretStr(CONNECTOR_PASSWORD))
    try:
        files = [d for d in everything(system) if d.kind == "file"]
        assert files and all(isinstance(system.fetch(d), Unreadable) for d in files)
        assert any(not f.good and "files cannot be read" in f.what for f in system.check())
        bodies = [a.document.body for a in map(own.fetch, files) if isinstance(a, Fetched)]
        assert b"private words\n" in bodies
    finally:
        own.close()
        wiki.restrict(RESTRICTED)


@pytest.mark.requirement("A8")
def test_a_hidden_version_of_a_file_is_told_as_withdrawn(wiki: MediaWikiServer, system: MediaWiki) -> None:
    wiki.admin.upload("Payroll.txt", b"xyzzy\n")
    wiki.admin.upload("Payroll.txt", b"nothing\n")
    query = wiki.admin.get(
        action="query", titles="File:Payroll.txt", prop="imageinfo", iiprop="archivename|timestamp", iilimit=5
    )
    page = query["query"]["pages"][0]
    archive = next(i["archivename"] for i in page["imageinfo"] if "archivename" in i)
    follower = Follower(system)
    wiki.admin.act(
        "revisiondelete", type="oldimage", target="File:Payroll.txt", ids=archive.partition("!")[0], hide="content"
    )
    assert follower.touched(page["pageid"], "file").redacted
    assert text(system, page["pageid"], "file") == "nothing\n"


@pytest.mark.requirement("A1")
def test_an_account_that_may_not_read_everything_follows_the_rest(wiki: MediaWikiServer) -> None:
    system = connect(wiki, username="Bob", password=SecretStr(USER_PASSWORD))
    try:
        follower = Follower(system)
        wiki.admin.edit("HR:Not for Bob", f"{time.time()}")
        page, _ = wiki.admin.edit("For Bob", f"{time.time()}")
        wiki.admin.move("HR:Not for Bob", "HR:Still not for Bob")
        follower.touched(page)
        assert "For Bob" in {a.document.title for a in map(system.fetch, everything(system)) if isinstance(a, Fetched)}
    finally:
        system.close()
