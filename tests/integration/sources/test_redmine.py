"""The connector against a real Redmine: lives of documents, and everybody's rights against the server's own answers."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from urllib.parse import quote

import pytest

from infra.servers import redmine as servers
from infra.servers.redmine import RedmineServer
from pipeline.ports import SourceDocument
from pipeline.sources.connector import SourceUnavailable
from pipeline.sources.redmine import Redmine
from pipeline.sources.remote.contract import Absent, Changes, Fetched, Unreadable
from schemas.keys import DocumentRef
from tests.integration.sources.redmine_world import (
    DEVELOPER,
    MANAGER,
    PEOPLE,
    REPORTER,
    World,
    built,
    closure,
    differences,
    fetched,
    listed,
    rule,
    system,
)

EVERYBODY = (*PEOPLE, "boss")


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RedmineServer]:
    missing = servers.available()
    if missing is not None:
        pytest.skip(missing)
    one = RedmineServer(Path(tmp_path_factory.mktemp("redmine")))
    try:
        one.start()
        yield one
    finally:
        one.stop()


@pytest.fixture(scope="module")
def world(server: RedmineServer) -> World:
    return built(server)


@pytest.fixture
def ours(world: World) -> Iterator[Redmine]:
    one = system(world.server)
    yield one
    one.close()


@pytest.fixture
def some(world: World) -> Iterator[Redmine]:
    """The connector for two projects."""
    one = system(world.server, projects=("pay", "open"))
    yield one
    one.close()


@pytest.fixture
def shared(world: World) -> Iterator[Redmine]:
    """The connector where what visitors may read, all may."""
    one = system(world.server, anonymous="everyone")
    yield one
    one.close()


@pytest.fixture
def project(world: World, request: pytest.FixtureRequest) -> str:
    """A project of the test's own."""
    name: str = request.node.name.removeprefix("test_").partition("[")[0].replace("_", "-")[:60]
    world.project(name)
    return name


@pytest.fixture
def near(world: World, project: str) -> Iterator[Redmine]:
    """The connector for the test's own project and one more."""
    one = system(world.server, projects=(project, "pay"))
    yield one
    one.close()


class Poller:
    """Follows a source by its changes alone."""

    def __init__(self, ours: Redmine) -> None:
        self.ours, self.cursor = ours, ours.start()
        self.last: Changes | None = None

    def poll(self) -> list[DocumentRef]:
        """What was touched, until there is no more for now."""
        found: list[DocumentRef] = []
        while True:
            self.last = self.ours.changes(self.cursor)
            self.cursor = self.last.cursor
            found += [t.document for t in self.last.touched]
            if not self.last.more:
                return found

    def sees(self, document: DocumentRef) -> bool:
        return document in self.poll()


def ref_of(ours: Redmine, issue: int) -> DocumentRef:
    return next(one.document for one in listed(ours) if one.document.id.startswith(f"{issue}@"))


def text_of(document: SourceDocument) -> str:
    return document.body.decode()


def may(ours: Redmine, document: SourceDocument, person: str) -> bool:
    return rule(document).admits(closure(ours.readers(), person), 0)


# -- who may read ----------------------------------------------------------------------------------------------------


@pytest.mark.requirement("A8", "I12")
@pytest.mark.timeout(300)
def test_everybody_may_read_what_the_server_lets_them_read(world: World, ours: Redmine) -> None:
    wrong, pairs = differences(world.server, ours, EVERYBODY)
    assert pairs > 500
    assert wrong == []


@pytest.mark.requirement("A8", "I12", "F26")
@pytest.mark.timeout(300)
def test_rights_follow_groups_memberships_and_roles(world: World, near: Redmine, project: str) -> None:
    server, path = world.server, f"/projects/{world.projects[project]}"
    issue = world.issue(project, "shared")
    private = world.issue(project, "hidden", is_private=True)
    note = world.note(issue, "only for some", private=True)
    wiki = f"{project}: page"
    world.page(project, "Start", wiki)
    group = int(server.made("/groups.json", {"group": {"name": project}})["id"])
    membership = world.member(project, group, DEVELOPER)
    single = world.member(project, world.users["gil"], REPORTER)
    documents = [fetched(near, ref_of(near, one)) for one in (issue, private)]
    page = next(d.document for d in listed(near) if d.document.id.startswith(f"{world.projects[project]}/Start@"))
    asked = {
        "issue": documents[0].document,
        "private": documents[1].document,
        "note": fetched(near, next(c.document for c in documents[0].children)).document,
        "wiki": fetched(near, page).document,
    }
    assert asked["note"].document.id.rpartition("/")[2].startswith(f"{note}@")

    def seen(person: str) -> set[str]:
        readers = closure(near.readers(), person)
        return {name for name, one in asked.items() if rule(one).admits(readers, 0)}

    assert (seen("ana"), seen("gil")) == (set(), {"issue", "wiki"})
    server.done("POST", f"/groups/{group}/users.json", {"user_id": world.users["ana"]})
    assert seen("ana") == {"issue", "note", "wiki"}
    server.done("PUT", f"/memberships/{membership}.json", {"membership": {"role_ids": [MANAGER]}})
    assert seen("ana") == {"issue", "private", "note", "wiki"}
    with server.role("Manager", take=("view_private_notes",)):
        assert seen("ana") == {"issue", "private", "wiki"}
    with server.role("Reporter", take=("view_issues",), give=("view_private_notes",)):
        assert seen("gil") == {"wiki"}
    server.done("DELETE", f"/groups/{group}/users/{world.users['ana']}.json")
    assert seen("ana") == set()
    server.done("DELETE", f"/memberships/{single}.json")
    assert seen("gil") == set()
    server.done("PUT", f"{path}.json", {"project": {"is_public": True}})
    assert (seen("gil"), seen("ana")) == ({"issue", "wiki"}, {"issue", "wiki"})
    server.done("PUT", f"{path}.json", {"project": {"enabled_module_names": ["wiki"]}})
    assert seen("gil") == {"wiki"}
    server.done("PUT", f"{path}.json", {"project": {"is_public": False}})
    assert (seen("gil"), seen("boss")) == (set(), {"wiki"})


@pytest.mark.requirement("A8")
def test_a_group_or_project_that_loses_readers_is_one_record(world: World, near: Redmine, project: str) -> None:
    server = world.server
    group = int(server.made("/groups.json", {"group": {"name": project}})["id"])
    for login in ("ana", "ben", "cleo"):
        server.done("POST", f"/groups/{group}/users.json", {"user_id": world.users[login]})
    membership = world.member(project, group, DEVELOPER)

    def changed(act: Callable[[], None]) -> set[str]:
        before = {m.principal: m.parents for m in near.readers().memberships}
        act()
        after = {m.principal: m.parents for m in near.readers().memberships}
        return {who for who in before.keys() | after.keys() if before.get(who) != after.get(who)}

    path = f"/projects/{world.projects[project]}.json"
    assert changed(lambda: server.done("DELETE", f"/memberships/{membership}.json")) == {f"group:desk/{group}"}
    assert changed(lambda: server.done("PUT", path, {"project": {"is_public": True}})) == {"audience:desk/accounts"}
    assert changed(lambda: server.done("PUT", path, {"project": {"is_public": False}})) == {"audience:desk/accounts"}


@pytest.mark.requirement("A8", "I12")
def test_a_locked_account_reads_nothing_though_it_stays_a_member(world: World, near: Redmine, project: str) -> None:
    login = "iris"
    world.user(login)
    world.member(project, world.users[login], MANAGER)
    document = fetched(near, ref_of(near, world.issue(project, "for iris"))).document
    assert may(near, document, login)
    world.server.done("PUT", f"/users/{world.users[login]}.json", {"user": {"status": 3}})
    assert world.server.ask("GET", "/issues.json", user=login).status_code == 412
    assert not may(near, document, login)


@pytest.mark.requirement("A8")
def test_roles_given_to_those_who_are_no_members(world: World, near: Redmine, project: str) -> None:
    server = world.server
    server.done("PUT", f"/projects/{world.projects[project]}.json", {"project": {"is_public": True}})
    group = next(
        g["id"]
        for g in server.ask("GET", "/groups.json?builtin=1").json()["groups"]
        if g.get("builtin") == "non_member"
    )
    private = fetched(near, ref_of(near, world.issue(project, "hidden", is_private=True))).document
    world.member(project, world.users["gil"], REPORTER)
    assert not may(near, private, "ana")
    world.member(project, int(group), MANAGER)
    readers = near.readers()
    assert rule(private).admits(closure(readers, "ana"), 0)
    assert not rule(private).admits(closure(readers, "gil"), 0)  # a member has the roles of the membership only
    number = private.document.id.partition("@")[0]
    answers = {u: server.ask("GET", f"/issues/{number}.json", user=u).status_code for u in ("ana", "gil")}
    assert answers == {"ana": 200, "gil": 403}


@pytest.mark.requirement("A8", "I12")
def test_a_role_that_is_limited_to_a_tracker_while_it_is_held(world: World, near: Redmine, project: str) -> None:
    server = world.server
    world.member(project, world.users["gil"], world.roles["Pages"])
    bug = fetched(near, ref_of(near, world.issue(project, "a bug"))).document
    feature = fetched(near, ref_of(near, world.issue(project, "a feature", tracker_id=2))).document
    with server.role("Pages", give=("view_issues",)):
        readers = closure(near.readers(), "gil")
        assert [rule(one).admits(readers, 0) for one in (bug, feature)] == [True, True]
        (before,) = server.sql("select settings from roles where name = 'Pages'")[0]
        (limited,) = server.sql("select settings from roles where name = 'Bugs'")[0]
        server.sql("update roles set settings = ? where name = 'Pages'", limited)
        with closing(system(server, projects=(project,))) as fresh:  # what was asked a minute ago is asked again
            readers = closure(fresh.readers(), "gil")
        server.sql("update roles set settings = ? where name = 'Pages'", before)
        assert [rule(one).admits(readers, 0) for one in (bug, feature)] == [True, False]


@pytest.mark.requirement("A8")
def test_anonymous_rights_reach_everyone_only_where_visitors_are_let_in(
    world: World, ours: Redmine, shared: Redmine
) -> None:
    issue = next(i for i in world.issues if world.row(i)["subject"] == "open: plain")
    document = fetched(shared, ref_of(shared, issue)).document
    assert not any(m.principal == "everyone" for m in shared.readers().memberships)  # a login is required
    (before,) = world.server.sql("select value from settings where name = 'login_required'")[0]
    world.server.sql(
        "update settings set value = '0', updated_on = datetime('now', '+1 day') where name = 'login_required'"
    )
    try:
        everyone = next(m for m in shared.readers().memberships if m.principal == "everyone")
        readers = rule(document)
        assert all(any(g.principal in everyone.parents for g in clause.any_of) for clause in readers.clauses)
        hidden = next(i for i in world.issues if world.row(i)["subject"] == "open: private")
        private = rule(fetched(shared, ref_of(shared, hidden)).document)
        assert not any(g.principal in everyone.parents for clause in private.clauses for g in clause.any_of)
    finally:
        world.server.sql("update settings set value = ? where name = 'login_required'", before)
    assert rule(fetched(ours, document.document).document) != readers


# -- lives of documents ----------------------------------------------------------------------------------------------


@pytest.mark.requirement("A1", "A8", "I9")
@pytest.mark.timeout(240)
def test_the_life_of_an_issue(world: World, near: Redmine, project: str) -> None:
    server, follow = world.server, Poller(near)
    number = world.issue(project, "Pump fails", description="h1. Symptom\r\n\r\nIt stops at *40 C*.", tracker_id=1)
    ref = ref_of(near, number)
    assert follow.sees(ref)
    first = fetched(near, ref)
    assert first.document.title == "Pump fails"
    assert "<h3>Symptom</h3>" in text_of(first.document)
    assert first.document.url == f"{server.url}/issues/{number}"

    world.change(number, subject="Pump fails when hot")
    assert follow.sees(ref)
    assert fetched(near, ref).document.title == "Pump fails when hot"
    public = world.note(number, "Valve replaced")
    private = world.note(number, "Customer owes us 90 Euro", private=True)
    assert follow.sees(ref)
    with_notes = fetched(near, ref)
    assert "Valve replaced" in text_of(with_notes.document)
    assert "90 Euro" not in text_of(with_notes.document)
    (note,) = with_notes.children
    assert note.document.id.startswith(f"issue:{ref.id}/{private}@")
    read = fetched(near, note.document).document
    assert "90 Euro" in text_of(read)
    assert read.title == "Pump fails when hot (private note)"
    assert (rule(read), read.revision) == (note.rule, note.revision)

    listed_before = {one.document: one.revision for one in listed(near)}
    server.done("PUT", f"/journals/{public}.json", {"journal": {"private_notes": True}})  # moves no date
    assert {one.document: one.revision for one in listed(near)} == listed_before
    hidden = fetched(near, ref)
    assert "Valve replaced" not in text_of(hidden.document)
    assert {c.document.id.rpartition("/")[2].partition("@")[0] for c in hidden.children} == {str(public), str(private)}
    server.done("PUT", f"/journals/{private}.json", {"journal": {"notes": ""}})  # that is how a note is deleted
    assert isinstance(near.fetch(note.document), Absent)

    upload = server.upload("reading.md", b"# Reading\n\n40 degrees", "text/markdown")
    world.change(number, uploads=[upload])
    revision = next(one.revision for one in listed(near) if one.document == ref)
    with_file = fetched(near, ref)
    assert with_file.document.revision == revision
    file = next(c for c in with_file.children if c.document.kind == "attachment")
    attached = fetched(near, file.document).document
    assert (attached.title, attached.body) == ("reading.md", b"# Reading\n\n40 degrees")
    assert attached.content_type.startswith("text/markdown")
    assert (rule(attached), attached.revision) == (rule(with_file.document), file.revision)
    id_ = file.document.id.rpartition("/")[2].partition("@")[0]
    server.done("DELETE", f"/attachments/{id_}.json")
    assert next(one.revision for one in listed(near) if one.document == ref) != revision
    assert isinstance(near.fetch(file.document), Absent)

    world.change(number, is_private=True)
    assert follow.sees(ref)
    assert rule(fetched(near, ref).document) != rule(first.document)
    world.change(number, is_private=False, project_id=world.projects["pay"])
    assert follow.sees(ref)
    moved = fetched(near, ref).document
    assert moved.document == ref
    assert may(near, moved, "ana") and not may(near, moved, "gil")

    server.done("DELETE", f"/issues/{number}.json")
    assert isinstance(near.fetch(ref), Absent)
    assert all(one.document != ref for one in listed(near))
    time.sleep(1.1)
    again = world.issue(project, "Another one")
    if again == number:  # this database gives ids again
        answer = near.fetch(ref)
        assert isinstance(answer, Absent) and "another issue" in answer.reason
    assert ref_of(near, again) != ref


@pytest.mark.requirement("A1", "A8", "F07", "F08")
@pytest.mark.timeout(240)
def test_the_life_of_a_wiki_page(world: World, near: Redmine, project: str) -> None:
    server, follow, id_ = world.server, Poller(near), world.projects[project]
    title = "Café_&_Co"
    world.page(project, quote(title, safe=""), "h1. Menu\r\n\r\n|_. dish |_. price |\r\n| soup | 4 |")
    seen = [d for d in follow.poll() if d.kind == "wiki" and d.id.startswith(f"{id_}/")]
    assert len(set(seen)) == 1
    ref = seen[0]
    assert ref.id.startswith(f"{id_}/{title}@")
    page = fetched(near, ref).document
    assert page.title == "Café & Co"
    assert "<th>dish</th>" in text_of(page) and "<td>soup</td>" in text_of(page)
    assert page.url is not None and server.ask("GET", page.url.removeprefix(server.url)).status_code in (200, 302)
    world.page(project, quote(title, safe=""), "Closed")
    assert follow.sees(ref)
    assert not follow.sees(ref)
    again = fetched(near, ref).document
    assert (again.revision != page.revision, "Closed" in text_of(again)) == (True, True)
    assert next(one.revision for one in listed(near) if one.document == ref) == again.revision

    upload = server.upload("card #1 & 2.json", b"soup of the day", "text/plain")
    body = {"wiki_page": {"text": "Closed", "uploads": [upload]}}
    server.done("PUT", f"/projects/{id_}/wiki/{quote(title, safe='')}.json", body)
    (file,) = fetched(near, ref).children
    assert fetched(near, file.document).document.body == b"soup of the day"
    assert rule(fetched(near, file.document).document) == rule(again)

    server.sql("update wiki_pages set title = 'Bistro' where title = ?", title)  # as its rename form does
    server.sql(
        "insert into wiki_redirects (wiki_id, title, redirects_to, redirects_to_wiki_id, created_on) "
        "select id, ?, 'Bistro', id, datetime('now') from wikis where project_id = ?",
        title,
        id_,
    )
    new = [d for d in follow.poll() if d.id.startswith(f"{id_}/Bistro@")]
    assert len(new) == 1 and follow.last is not None and ref in follow.last.gone
    assert near.fetch(ref) == Absent("renamed")
    assert fetched(near, new[0]).document.title == "Bistro"
    server.done("DELETE", f"/projects/{id_}/wiki/Bistro.json")
    follow.poll()
    assert follow.last is not None and new[0] in follow.last.gone
    assert isinstance(near.fetch(new[0]), Absent)


@pytest.mark.requirement("A1", "A8", "F04")
@pytest.mark.timeout(240)
def test_the_life_of_a_project(world: World, near: Redmine, project: str) -> None:
    server, path = world.server, f"/projects/{world.projects[project]}"
    world.member(project, world.users["gil"], REPORTER)
    ref = ref_of(near, world.issue(project, "stays"))
    follow = Poller(near)
    follow.poll()

    def told() -> tuple[bool, bool]:
        follow.poll()
        assert follow.last is not None
        return follow.last.access, follow.last.relist

    assert told() == (False, False)
    server.done("PUT", f"{path}.json", {"project": {"is_public": True}})
    assert told() == (True, False)
    server.done("PUT", f"{path}/close.json")
    assert told() == (True, True)
    document = fetched(near, ref).document
    assert any(one.document == ref for one in listed(near)) and may(near, document, "gil")
    server.done("PUT", f"{path}/reopen.json")
    server.done("PUT", f"{path}/archive.json")
    assert told() == (True, True)
    assert all(one.document != ref for one in listed(near))
    assert isinstance(near.fetch(ref), Unreadable)
    assert not any(may(near, document, person) for person in EVERYBODY)
    server.done("PUT", f"{path}/unarchive.json")
    assert told() == (True, True)
    assert any(one.document == ref for one in listed(near)) and may(near, document, "gil")
    server.done("DELETE", f"{path}.json")
    assert told() == (True, True)
    assert isinstance(near.fetch(ref), Absent)


@pytest.mark.requirement("A8")
def test_fields_that_some_roles_only_may_see_are_left_out(world: World, near: Redmine, project: str) -> None:
    fields = {f["name"]: f["id"] for f in world.server.ask("GET", "/custom_fields.json").json()["custom_fields"]}
    number = world.issue(
        project,
        "fields",
        custom_fields=[{"id": fields["Region"], "value": "Alps"}, {"id": fields["Margin"], "value": "forty"}],
    )
    text = text_of(fetched(near, ref_of(near, number)).document)
    assert "Alps" in text and "forty" not in text
    follow = Poller(near)
    before = {one.document: one.revision for one in listed(near)}
    world.server.sql("update custom_fields set visible = 0 where name = 'Region'")
    try:
        follow.poll()
        assert follow.last is not None and follow.last.relist
        changed = {one.document for one in listed(near) if before.get(one.document) != one.revision}
        assert changed == {ref_of(near, number)}
    finally:
        world.server.sql("update custom_fields set visible = 1 where name = 'Region'")


@pytest.mark.requirement("A1")
def test_only_the_named_projects_are_covered(world: World, ours: Redmine, some: Redmine) -> None:
    found = listed(some)
    inside = {world.projects[name] for name in ("pay", "open")}
    subjects = {
        fetched(some, one.document).document.title.partition(":")[0] for one in found if one.document.kind == "issue"
    }
    assert subjects == {"pay", "open"}
    assert {int(one.document.id.partition("/")[0]) for one in found if one.document.kind == "wiki"} == inside
    other = next(one.document for one in listed(ours) if one.document not in {f.document for f in found})
    assert isinstance(some.fetch(other), Absent)


# -- nothing is lost -------------------------------------------------------------------------------------------------


@pytest.mark.requirement("A1", "I9", "F05")
@pytest.mark.timeout(240)
def test_three_writers_against_a_fast_poller_lose_nothing(world: World, near: Redmine, project: str) -> None:
    numbers = [world.issue(project, f"busy {n}") for n in range(9)]
    refs = {number: ref_of(near, number) for number in numbers}
    follow = Poller(near)
    seen: dict[DocumentRef, str] = {}

    due: set[DocumentRef] = set()

    def look() -> None:
        try:
            due.update(follow.poll())
            for ref in list(due):
                answer = near.fetch(ref)
                assert isinstance(answer, Fetched)
                seen[ref] = text_of(answer.document)
                due.discard(ref)
        except SourceUnavailable:  # a busy SQLite turns some away: they are asked for again
            time.sleep(0.05)

    def write(mine: list[int]) -> None:
        for turn in range(12):
            for number in mine:
                body = {"issue": {"notes": f"turn {turn} of {number}"}}
                while world.server.ask("PUT", f"/issues/{number}.json", body).status_code >= 500:
                    time.sleep(0.05)

    writers = [threading.Thread(target=write, args=(numbers[n::3],)) for n in range(3)]
    for one in writers:
        one.start()
    while any(one.is_alive() for one in writers):
        look()
    for one in writers:
        one.join()
    look()
    late = time.monotonic() + 1.5
    while time.monotonic() < late:  # notes of one second move no date twice: the overlap shows them
        look()
    missing = [
        (number, turn)
        for number, ref in refs.items()
        for turn in range(12)
        if f"turn {turn} of {number}" not in seen.get(ref, "")
    ]
    assert missing == []


@pytest.mark.requirement("A1", "I9")
@pytest.mark.timeout(240)
def test_more_rows_of_one_second_than_fit_on_a_page(world: World, near: Redmine, project: str) -> None:
    server, id_ = world.server, world.projects[project]
    one = world.issue(project, "many 0")
    world.copies(one, [f"many {n}" for n in range(1, 250)])
    follow = Poller(near)
    follow.poll()
    server.sql("update issues set updated_on = datetime('now', '+330 minutes') where project_id = ?", id_)  # its zone
    (count,) = server.sql("select count(distinct updated_on) from issues where project_id = ?", id_)[0]
    assert count == 1
    before = near.reach.requests
    touched = {d for d in follow.poll() if d.kind == "issue"}
    mine = {one.document for one in listed(near) if one.document.kind == "issue"}
    inside = {d for d in mine if world_of(server, d) == id_}
    assert len(inside) == 250
    assert inside <= touched
    assert near.reach.requests - before < 60
    time.sleep(3.2)
    follow.poll()
    assert [d for d in follow.poll() if d in inside] == []  # settled: quiet polls ask for nothing old


def world_of(server: RedmineServer, document: DocumentRef) -> int | None:
    """The project of an issue, None of anything else."""
    if document.kind != "issue":
        return None
    (project,) = server.sql("select project_id from issues where id = ?", int(document.id.partition("@")[0]))[0]
    return int(project)


@pytest.mark.requirement("A1", "F02")
@pytest.mark.timeout(240)
def test_a_listing_meets_all_that_stands_while_rows_are_deleted(world: World, near: Redmine, project: str) -> None:
    world.copies(world.issue(project, "standing"), [f"standing {n}" for n in range(130)])
    first = near.listing(None)
    standing = {one.document for one in listed(near) if world_of(world.server, one.document) == world.projects[project]}
    victims = sorted(int(one.id.partition("@")[0]) for one in standing)[:3]
    standing = {one for one in standing if int(one.id.partition("@")[0]) not in victims}
    for victim in victims:
        world.server.done("DELETE", f"/issues/{victim}.json")
    met = {one.document for one in first.documents}
    at = first.next
    while at is not None:
        page = near.listing(at)
        met |= {one.document for one in page.documents}
        at = page.next
    assert len(standing) == 128
    assert standing <= met


# -- what the key can see --------------------------------------------------------------------------------------------


@pytest.mark.requirement("A1", "I12")
def test_check_says_what_the_key_cannot_see(world: World, ours: Redmine) -> None:
    assert all(finding.good for finding in ours.check()), ours.check()
    (key,) = [u["api_key"] for u in [world.server.ask("GET", f"/users/{world.users['ana']}.json").json()["user"]]]
    with closing(system(world.server, api_key=key)) as mine:
        bad = [finding for finding in mine.check() if not finding.good]
        assert bad and all(finding.remedy for finding in bad)
        with pytest.raises(SourceUnavailable, match="administrator"):
            mine.readers()
    with closing(system(world.server, projects=("nowhere",))) as wrong:
        assert any("nowhere" in finding.what for finding in wrong.check() if not finding.good)
