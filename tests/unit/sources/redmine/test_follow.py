"""Listing and following constructed rows: what is asked, how the cursor moves, what is told."""

from __future__ import annotations

import json

import httpx
import pytest

from pipeline.sources.connector import SourceUnavailable
from pipeline.sources.redmine import Redmine, follow
from pipeline.sources.remote.contract import Changes
from tests.unit.sources.redmine.support import Desk, issue, page, project


def at(second: int) -> str:
    return f"2026-11-30T20:{second // 60:02}:{second % 60:02}Z"


def rounds(system: Redmine, cursor: str) -> tuple[str, list[str], list[Changes]]:
    """Ask until there is no more: the cursor, numbers of what was touched, and the answers."""
    answers: list[Changes] = []
    while not answers or answers[-1].more:
        answers.append(system.changes(cursor))
        cursor = answers[-1].cursor
        assert len(answers) < 100
    return cursor, [t.document.id.partition("@")[0] for a in answers for t in a.touched], answers


@pytest.fixture
def desk() -> Desk:
    desk = Desk()
    desk.issues = {n: issue(n, updated_on=at(n)) for n in range(1, 6)}
    return desk


@pytest.mark.requirement("A1", "F02")
def test_a_listing_goes_by_id_then_by_wiki(desk: Desk) -> None:
    desk.limit = 2  # a server may give fewer than were asked for
    desk.projects[7] = project(7)
    desk.projects[8] = project(8, enabled_modules=[])
    desk.wikis = {1: {"A": page("A")}, 7: {"B": page("B")}}
    system = desk.system()
    found, pages, cursor = [], 0, None
    while True:
        answer = system.listing(cursor)
        found += [d.document.id.partition("@")[0] for d in answer.documents]
        pages += 1
        if answer.next is None:
            break
        cursor = answer.next
        desk.issues.pop(1, None)  # a deletion moves nothing out of sight
    assert found == ["1", "2", "3", "4", "5", "1/A", "7/B"]
    assert desk.system().listing(json.dumps({"wiki": 1})).documents[0].document.id.startswith("7/B@")  # goes on


@pytest.mark.requirement("A8", "F02")
def test_a_listing_proves_nothing_where_the_server_fails(desk: Desk) -> None:
    system = desk.system()
    desk.answers["/issues.json"] = 500
    with pytest.raises(SourceUnavailable):
        system.listing(None)
    desk.answers["/issues.json"] = 403
    with pytest.raises(SourceUnavailable, match="administrator"):
        system.listing(None)

    def unsorted(_: httpx.Request) -> httpx.Response:  # an unknown sort is passed by with 200
        return httpx.Response(200, json={"issues": [issue(5), issue(1)], "total_count": 2, "limit": 100})

    desk.answers["/issues.json"] = unsorted
    with pytest.raises(SourceUnavailable, match="sorted by id"):
        system.listing(None)
    desk.answers["/issues.json"] = lambda _: httpx.Response(200, text="<html>sign in</html>")
    with pytest.raises(SourceUnavailable, match="JSON"):
        system.listing(None)


@pytest.mark.requirement("I9")
def test_a_list_that_moves_while_it_is_read_is_read_again(desk: Desk) -> None:
    desk.projects = {n: project(n) for n in range(1, 6)}
    desk.limit = 2
    system = desk.system()
    calls = 0

    def shifting(request: httpx.Request) -> httpx.Response:
        nonlocal calls
        calls += 1
        rows = list(desk.projects.values())[0 if calls != 2 else 1 :]  # a row before the second page was deleted
        offset = int(request.url.params["offset"])
        return httpx.Response(200, json={"projects": rows[offset : offset + 2], "total_count": 5})

    desk.answers["/projects.json"] = shifting
    assert system.listing(None).documents
    assert calls == 6
    desk.answers["/projects.json"] = lambda _: httpx.Response(200, json={"projects": [project(1)], "total_count": 2})
    with pytest.raises(SourceUnavailable, match="faster"):
        system.listing(None)


@pytest.mark.requirement("A1", "I9", "F05")
def test_the_cursor_is_the_newest_update_and_a_while_before_it_is_asked_again(desk: Desk) -> None:
    system = desk.system(overlap_s=2)
    cursor = system.start()
    assert json.loads(cursor)["at"] == at(5)
    cursor, touched, _ = rounds(system, cursor)
    assert touched == ["3", "4", "5"]
    desk.issues[6] = issue(6, updated_on=at(4))  # became visible late
    cursor, touched, answers = rounds(system, cursor)
    assert "6" in touched
    assert all(t.revision is None for t in answers[0].touched)  # a note of the same second moves no date
    desk.clock.advance(3.5)
    cursor, touched, _ = rounds(system, cursor)
    assert touched == ["3", "4", "6", "5"]  # once more, now that all of it must be there
    cursor, touched, _ = rounds(system, cursor)
    assert touched == []  # settled: a quiet night asks for nothing old
    desk.issues[1]["updated_on"] = at(6)
    cursor, touched, _ = rounds(system, cursor)
    assert touched == ["1"]
    cursor, touched, _ = rounds(system, cursor)
    assert touched == ["4", "6", "5", "1"] or touched == ["6", "4", "5", "1"]


@pytest.mark.requirement("I9")
def test_pages_go_by_time_so_that_a_row_which_moves_is_met_again(desk: Desk) -> None:
    desk.limit = 2
    system = desk.system(overlap_s=0)
    cursor = follow.Cursor(shape=follow.Cursor.of(system.start()).shape, open="").text()  # type: ignore[union-attr]
    answer = system.changes(cursor)
    assert [t.document.id[0] for t in answer.touched] == ["1", "2"] and answer.more
    desk.issues[1]["updated_on"] = at(9)
    _, touched, _ = rounds(system, answer.cursor)
    assert {"3", "4", "5", "1"} <= set(touched)


@pytest.mark.requirement("I9")
def test_more_rows_of_one_second_than_a_page_holds(desk: Desk) -> None:
    desk.limit = 3
    desk.issues = {n: issue(n, updated_on=at(7)) for n in range(1, 11)} | {11: issue(11, updated_on=at(8))}
    system = desk.system(overlap_s=0)
    began = follow.Cursor.of(system.start())
    assert began is not None
    began.at = at(7)
    cursor, touched, answers = rounds(system, began.text())
    assert set(touched) == {str(n) for n in range(1, 12)}
    assert len(answers) < 12
    desk.clock.advance(2)
    cursor, _, _ = rounds(system, cursor)
    assert rounds(system, cursor)[1] == []


@pytest.mark.requirement("I9")
def test_a_cursor_in_the_middle_of_a_round_goes_on_in_another_process(desk: Desk) -> None:
    desk.limit = 2
    began = follow.Cursor.of(desk.system().start())
    assert began is not None
    began.at = at(0)
    first = desk.system(overlap_s=0).changes(began.text())
    assert first.more
    _, touched, _ = rounds(desk.system(overlap_s=0), first.cursor)
    assert {"3", "4", "5"} <= set(touched)


@pytest.mark.requirement("I9")
def test_an_update_in_the_future_does_not_hide_what_comes_before_it(desk: Desk) -> None:
    desk.issues[5]["updated_on"] = "2036-01-01T00:00:00Z"
    system = desk.system(overlap_s=0)
    cursor, _, _ = rounds(system, system.start())
    assert json.loads(cursor)["at"] < "2027"
    desk.issues[1]["updated_on"] = at(59)
    assert "1" in rounds(system, cursor)[1]


@pytest.mark.requirement("I9")
def test_a_cursor_that_says_nothing_asks_for_a_listing(desk: Desk) -> None:
    for text in ("", "{}x", '{"other": 1}', "[]"):
        answer = desk.system().changes(text)
        assert answer.relist and answer.access and json.loads(answer.cursor)["at"] == at(5)


@pytest.mark.requirement("A1", "A8", "F04")
def test_projects_are_compared(desk: Desk) -> None:
    system = desk.system()
    cursor, _, _ = rounds(system, system.start())

    def told() -> tuple[bool, bool]:
        nonlocal cursor
        cursor, _, answers = rounds(system, cursor)
        return answers[0].access, answers[0].relist

    assert told() == (False, False)
    desk.projects[1]["name"] = "Renamed"
    assert told() == (False, False)
    opened: list[dict[str, object]] = [{"is_public": True}, {"inherit_members": True}, {"parent": {"id": 9}}]
    for change in opened:
        desk.projects[1] |= change
        assert told() == (True, False)
    closed: list[dict[str, object]] = [{"status": 5}, {"enabled_modules": [{"id": 2, "name": "wiki"}]}]
    for change in closed:
        desk.projects[1] |= change
        assert told() == (True, True)
    kept = desk.projects.pop(1)  # archived
    assert told() == (True, True)
    desk.projects[1] = kept  # and back, with issues whose dates did not move
    assert told() == (True, True)
    desk.fields = [{"id": 1, "visible": True, "customized_type": "issue", "field_format": "string"}]
    assert told() == (True, True)
    desk.projects[2] = project(2)
    _, _, answers = rounds(desk.system(), cursor)  # seen after a restart as well
    assert answers[0].relist


@pytest.mark.requirement("A1", "A8", "F04")
def test_wikis_are_compared_by_turns(desk: Desk, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(follow, "WIKIS", 2)
    desk.projects = {n: project(n) for n in range(1, 5)}
    desk.wikis = {n: {"A": page("A"), "B": page("B")} for n in range(1, 5)}
    desk.issues = {}
    system = desk.system()
    cursor = system.start()
    seen: list[str] = []
    for _ in range(2):
        cursor, touched, _ = rounds(system, cursor)
        seen += touched
    assert sorted(seen) == sorted(f"{n}/{t}" for n in range(1, 5) for t in "AB")
    desk.wikis[4]["A"] |= {"version": 2}
    del desk.wikis[1]["B"]
    desk.answers["/projects/2/wiki/index.json"] = 403  # archived meanwhile: its pages are not read, and look gone
    gone: list[str] = []
    touched = []
    for _ in range(2):
        cursor, more, answers = rounds(system, cursor)
        touched += more
        gone += [d.id.partition("@")[0] for a in answers for d in a.gone]
    assert touched == ["4/A"]
    assert gone == ["1/B", "2/A", "2/B"]  # each is looked for by itself before anything is concluded


@pytest.mark.requirement("I9", "F01")
def test_what_a_lost_answer_told_of_wikis_is_told_again(desk: Desk) -> None:
    desk.wikis = {1: {"A": page("A"), "B": page("B")}}
    system = desk.system()
    cursor, _, _ = rounds(system, system.start())
    cursor, _, _ = rounds(system, cursor)
    del desk.wikis[1]["B"]
    desk.answers["/issues.json"] = 500  # asked after the wikis were compared
    with pytest.raises(SourceUnavailable):
        system.changes(cursor)
    del desk.answers["/issues.json"]
    assert [d.id[:3] for d in system.changes(cursor).gone] == ["1/B"]
    answer = system.changes(cursor)  # the one before it never reached the log
    assert [d.id[:3] for d in answer.gone] == ["1/B"]
    assert system.changes(answer.cursor).gone == ()
