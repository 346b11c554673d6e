"""Documents of constructed answers: identity, revisions, rules, what is left out, what cannot be had."""

from __future__ import annotations

from typing import Any

import pytest

from pipeline.extract.extractor import BlockExtractor
from pipeline.ports import SourceDocument
from pipeline.sources.connector import SourceUnavailable
from pipeline.sources.redmine import Redmine
from pipeline.sources.remote.contract import Absent, Fetched, Unreadable, child
from schemas.access import AccessRule
from schemas.keys import DocumentRef
from tests.unit.sources.redmine.support import Desk, attachment, issue, journal, page

BORN = 1_796_068_800  # 2026-11-30T20:00:00Z


def ref(kind: str, id_: str) -> DocumentRef:
    return DocumentRef(tenant="acme", source="desk", kind=kind, id=id_)


ONE = ref("issue", f"1@{BORN}")


@pytest.fixture
def desk() -> Desk:
    desk = Desk()
    desk.issues[1] = issue()
    return desk


def fetched(system: Redmine, document: DocumentRef = ONE) -> Fetched:
    answer = system.fetch(document)
    assert isinstance(answer, Fetched), answer
    return answer


def names(document: SourceDocument) -> list[list[str]]:
    assert isinstance(document.rule, AccessRule)
    return [clause.names() for clause in document.rule.clauses]


def body(document: SourceDocument) -> str:
    return document.body.decode()


@pytest.mark.requirement("A1", "I9")
def test_the_revision_of_a_row_is_that_of_the_issue_itself(desk: Desk) -> None:
    desk.issues[1] |= {"attachments": [attachment(1, "a.txt")], "custom_fields": [{"id": 1, "name": "R", "value": "x"}]}
    desk.fields = [{"id": 1, "visible": True, "customized_type": "issue", "field_format": "string"}]
    desk.journals[1] = [journal(1, "note"), journal(2, "private", private_notes=True)]
    system = desk.system()
    (listed,) = system.listing(None).documents
    assert (listed.document, listed.revision) == (ONE, fetched(system).document.revision)
    assert listed.children is None  # a list knows no private notes: those known stand


@pytest.mark.requirement("A1", "A8", "I9")
@pytest.mark.parametrize(
    "change",
    [
        {"updated_on": "2026-11-30T20:00:01Z"},
        {"description": "in the same second"},
        {"subject": "in the same second"},
        {"is_private": True},
        {"project": {"id": 2, "name": "Other"}},
        {"project": {"id": 1, "name": "Renamed"}},
        {"assigned_to": {"id": 7, "name": "Team"}},
        {"author": {"id": 8, "name": "Gil X"}},
        {"tracker": {"id": 2, "name": "Feature"}},
        {"attachments": [attachment(1, "a.txt")]},  # DELETE of one moves no date
        {"status": {"id": 5, "name": "Closed"}},
    ],
)
def test_what_moves_the_revision(desk: Desk, change: dict[str, Any]) -> None:
    system = desk.system()
    before = system.listing(None).documents[0].revision
    desk.issues[1] |= change
    assert system.listing(None).documents[0].revision != before


@pytest.mark.requirement("I9")
def test_what_does_not_move_it(desk: Desk) -> None:
    system = desk.system()
    before = system.listing(None).documents[0].revision
    desk.issues[1] |= {"spent_hours": 3.0, "relations": [{"id": 1}], "watchers": [], "done_ratio": 50}
    assert system.listing(None).documents[0].revision == before
    assert desk.system(text="markdown").listing(None).documents[0].revision != before  # the same text reads differently
    assert desk.system(anonymous="everyone").listing(None).documents[0].revision != before


@pytest.mark.requirement("A8", "F09")
def test_a_number_that_was_given_again_is_another_issue(desk: Desk) -> None:
    system = desk.system()
    desk.issues[1] = issue(created_on="2026-11-30T20:30:00Z")
    answer = system.fetch(ONE)
    assert isinstance(answer, Absent) and "another issue" in answer.reason
    assert system.listing(None).documents[0].document != ONE


@pytest.mark.requirement("A8", "I12")
def test_hidden_is_not_gone_and_an_outage_is_neither(desk: Desk) -> None:
    system = desk.system()
    for status, expected in ((403, Unreadable), (404, Absent), (410, Absent)):
        desk.answers["/issues/1.json"] = status
        assert isinstance(system.fetch(ONE), expected)
    for status in (500, 502, 422):
        desk.answers["/issues/1.json"] = status
        with pytest.raises(SourceUnavailable):
            system.fetch(ONE)
    assert isinstance(system.fetch(ref("issue", "1")), Absent)
    assert isinstance(system.fetch(ref("wiki", "nonsense")), Absent)
    assert isinstance(system.fetch(ref("note", "issue:1")), Absent)


@pytest.mark.requirement("A8", "I12")
def test_rules_of_issues(desk: Desk) -> None:
    at = "audience:desk/project:1"
    system = desk.system()
    seen = [f"{at}/view", f"{at}/view/tracker:1"]
    author = "audience:desk/account:5"
    assert names(fetched(system).document) == [seen, sorted([author, f"{at}/issues", f"{at}/issues/tracker:1"])]
    desk.issues[1] |= {"is_private": True, "assigned_to": {"id": 7, "name": "Ana or a team"}}
    reached = [author, "audience:desk/account:7", "group:desk/7", f"{at}/private", f"{at}/private/tracker:1"]
    assert names(fetched(system).document) == [seen, sorted(reached)]
    del desk.issues[1]["is_private"]  # what is not surely public is private
    assert names(fetched(system).document) == [seen, sorted(reached)]
    open_ = desk.system(anonymous="everyone")
    assert names(fetched(open_).document) == [seen, sorted(reached)]
    desk.issues[1]["is_private"] = False
    assert all(f"{at}/anonymous" in clause for clause in names(fetched(open_).document))


@pytest.mark.requirement("A8", "I12")
def test_private_notes_are_documents_of_their_own(desk: Desk) -> None:
    desk.journals[1] = [
        journal(1, "for all <b>\r\nsecond line"),
        journal(2, "for few", private_notes=True),
        journal(3, "", private_notes=True, details=[{"property": "attr", "name": "status_id"}]),
        {k: v for k, v in journal(4, "of an old version").items() if k != "private_notes"},
    ]
    system = desk.system()
    answer = fetched(system)
    assert "for all &lt;b&gt;" in body(answer.document)
    assert "for few" not in body(answer.document) and "old version" not in body(answer.document)
    assert [c.document.id.rpartition("/")[2] for c in answer.children] == [f"2@{BORN + 300}", f"4@{BORN + 300}"]
    note = fetched(system, answer.children[0].document)
    assert note.document.title == "Issue 1 (private note)" and "for few" in body(note.document)
    assert note.document.url == "http://desk.test/issues/1#change-2"
    assert names(note.document) == [
        *names(answer.document),
        ["audience:desk/account:6", "audience:desk/project:1/notes"],
    ]
    assert (note.document.rule, note.document.revision) == (answer.children[0].rule, answer.children[0].revision)
    before = answer.children[0].revision
    desk.journals[1][1]["notes"] = "edited, and no date moved"
    assert fetched(system).children[0].revision != before
    desk.journals[1][1]["private_notes"] = False
    assert isinstance(system.fetch(answer.children[0].document), Absent)
    assert "edited" in body(fetched(system).document)


@pytest.mark.requirement("A2", "A3")
def test_an_issue_reads_well(desk: Desk) -> None:
    desk.issues[1] |= {"subject": "Pump & <valve>", "description": "h1. Symptom\r\n\r\nIt stops."}
    desk.journals[1] = [journal(1, "Replaced #2 and [[Valve|the valve]]")]
    document = fetched(desk.system()).document
    extracted = BlockExtractor().extract(document.body, document.content_type)
    assert [(b.type, b.text) for b in extracted.blocks if b.type == "heading"] == [
        ("heading", "Symptom"),
        ("heading", "Note by Ben X, 2026-11-30"),
    ]
    text = "\n".join(b.text for b in extracted.blocks)
    assert all(part in text for part in ("#1", "Bug", "New", "It stops.", "Replaced #2 and the valve"))
    assert (document.title, document.path) == ("Pump & <valve>", "Payments")
    assert (document.url, document.updated_at) == ("http://desk.test/issues/1", BORN * 1_000_000)


@pytest.mark.requirement("A8")
def test_fields_for_some_roles_are_left_out(desk: Desk) -> None:
    desk.fields = [
        {"id": 1, "name": "Region", "visible": True, "customized_type": "issue", "field_format": "list"},
        {"id": 2, "name": "Margin", "visible": False, "customized_type": "issue", "field_format": "string"},
        {
            "id": 3,
            "name": "Size",
            "visible": True,
            "customized_type": "issue",
            "field_format": "enumeration",
            "possible_values": [{"value": "9", "label": "Large"}],
        },
        {"id": 4, "name": "Buyer", "visible": True, "customized_type": "issue", "field_format": "user"},
    ]
    values = {1: ["Alps", "Jura"], 2: "forty", 3: "9", 4: "77"}
    desk.issues[1]["custom_fields"] = [{"id": n, "name": f"Field {n}", "value": v} for n, v in values.items()]
    text = body(fetched(desk.system()).document)
    assert "Alps, Jura" in text and "Large" in text
    assert "forty" not in text and "77" not in text
    desk.answers["/custom_fields.json"] = 403  # who may see what is not known: nothing is shown
    assert "Alps" not in body(fetched(desk.system()).document)


@pytest.mark.requirement("A8", "F09")
def test_attachments_live_by_their_issue(desk: Desk) -> None:
    desk.issues[1]["attachments"] = [attachment(3, "a b.txt"), attachment(4, "a b.txt")]
    desk.files = {3: b"hello", 4: b"other"}
    system = desk.system()
    parent = fetched(system)
    first, second = (fetched(system, c.document).document for c in parent.children)
    assert (first.body, second.body, first.title) == (b"hello", b"other", "a b.txt")
    assert first.content_type == "text/plain" and first.rule == parent.document.rule
    assert all(url.host == "desk.test" for url in desk.asked)  # not the host that the link names
    desk.issues[1]["attachments"] = [attachment(3, "a b.txt", created_on="2026-11-30T21:00:00Z")]
    assert isinstance(system.fetch(parent.children[0].document), Absent)  # its number was given again


@pytest.mark.requirement("F06")
def test_an_attachment_that_is_too_large_or_has_no_date_stops_nothing(desk: Desk) -> None:
    desk.issues[1]["attachments"] = [
        attachment(3, "big.bin", filesize=1000),
        attachment(4, "lies.bin", filesize=5),
        attachment(5, "dateless.txt", created_on=None),
    ]
    desk.files = {3: b"x" * 1000, 4: b"x" * 1000, 5: b"fine"}
    system = desk.system()
    children = fetched(system).children
    answers = [system.fetch(c.document) for c in children]
    assert [type(a) for a in answers] == [Unreadable, Unreadable, Fetched]
    assert desk.count["/attachments/download/3/big.bin"] == 0
    desk.answers["/attachments/download/5/dateless.txt"] = 404  # its file is lost on the server's disk
    assert isinstance(system.fetch(children[2].document), Absent)
    assert isinstance(system.fetch(child(ONE, "attachment", "9@1")), Absent)


@pytest.mark.requirement("A1", "F07", "F08")
def test_wiki_pages(desk: Desk) -> None:
    desk.wikis[1] = {"Café_&_Co": page("Café_&_Co")}
    system = desk.system()
    at = system.listing(None).next
    (listed,) = system.listing(at).documents
    assert listed.document == ref("wiki", f"1/Café_&_Co@{BORN}")
    document = fetched(system, listed.document).document
    assert (document.title, document.revision) == ("Café & Co", listed.revision)
    assert document.url == "http://desk.test/projects/1/wiki/Caf%C3%A9_%26_Co"
    assert names(document) == [["audience:desk/project:1/wiki"]]
    desk.wikis[1]["Café_&_Co"] |= {"version": 2}
    assert system.listing(at).documents[0].revision != listed.revision
    desk.wikis[1]["Café_&_Co"] |= {"created_on": "2026-11-30T20:10:00Z"}
    assert isinstance(system.fetch(listed.document), Absent)  # deleted, and made again under its title


@pytest.mark.requirement("F08")
def test_an_old_title_that_redirects_is_gone_and_another_redirect_is_an_outage(desk: Desk) -> None:
    import httpx

    desk.wikis[1] = {"New": page("New")}
    system = desk.system()

    def away(_: httpx.Request) -> httpx.Response:
        return httpx.Response(302, headers={"location": "http://desk.test/projects/p1/wiki/New"})

    desk.answers = {"/projects/1/wiki/Old.json": away, "/projects/1/wiki/New.json": away}
    assert system.fetch(ref("wiki", f"1/Old@{BORN}")) == Absent("renamed")
    with pytest.raises(SourceUnavailable):
        system.fetch(ref("wiki", f"1/New@{BORN}"))


@pytest.mark.requirement("A8")
def test_only_covered_projects(desk: Desk) -> None:
    desk.projects[2] = {**desk.projects[1], "id": 2, "identifier": "p2"}
    desk.issues[2] = issue(2, project={"id": 2, "name": "Other"})
    system = desk.system(projects=("p1",))
    assert [d.document for d in system.listing(None).documents] == [ONE]
    desk.issues[1]["project"] = {"id": 2, "name": "Other"}  # moved away
    assert isinstance(system.fetch(ONE), Absent)
    assert desk.system(projects=("typo",)).listing(None).documents == ()
