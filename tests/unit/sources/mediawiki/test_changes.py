"""What each kind of change looks like at a MediaWiki, and what the connector makes of it."""

from __future__ import annotations

import json
from typing import Any

import pytest

from pipeline.sources.connector import SourceUnavailable
from pipeline.sources.mediawiki.api import stamp
from pipeline.sources.remote.contract import Changes
from schemas.keys import DocumentRef
from tests.unit.sources.mediawiki.fake import START, FakeWiki, connect, error, ref

SECOND = 1_000_000
HIDDEN, SHOWN, COMMENT = {"bitmask": 1}, {"bitmask": 0}, {"bitmask": 2}


def told(wiki: FakeWiki, **more: Any) -> Changes:
    """What is told of everything that happened since the wiki's start."""
    system = connect(wiki, **more)
    return system.changes(json.dumps({"at": stamp(START)}))


def touched(changes: Changes) -> list[str]:
    return [t.document.id for t in changes.touched]


@pytest.mark.requirement("A1")
def test_an_edit_is_told_by_page_id_and_always_read() -> None:
    wiki = FakeWiki()
    wiki.edited(7, "Harbour")
    wiki.edited(7, "Harbour")
    wiki.edited(8, "Talk:Harbour", ns=1)
    answer = told(wiki)
    assert [(t.document, t.revision, t.redacted) for t in answer.touched] == [(ref(7), None, False)]
    assert not (answer.gone or answer.access or answer.relist or answer.more)


@pytest.mark.requirement("A1", "F01")
def test_the_last_word_counts_where_a_page_is_deleted_and_restored() -> None:
    wiki = FakeWiki()
    wiki.logged("delete", "delete", "Retired", page=10)
    assert told(wiki).gone == (ref(10),)
    wiki.logged("delete", "restore", "Retired", page=10, params={"count": {"revisions": 1}})
    answer = told(wiki)
    assert (touched(answer), answer.gone) == (["10"], ())
    wiki.logged("delete", "delete", "Retired", page=10)
    answer = told(wiki)
    assert (touched(answer), answer.gone) == ([], (ref(10),))


@pytest.mark.requirement("A1", "F01")
def test_a_deletion_that_only_the_log_holds_is_told_by_the_page_it_meant() -> None:
    wiki = FakeWiki()
    wiki.logged("delete", "delete", "Retired", page=10, recent=False)
    wiki.log[-1]["pageid"] = 77  # who has the title now
    assert told(wiki).gone == (ref(10),)


@pytest.mark.requirement("A1")
def test_a_row_in_both_lists_is_told_once() -> None:
    wiki = FakeWiki()
    wiki.logged("upload", "overwrite", "File:Notes.txt", ns=6, page=5)
    answer = told(wiki)
    assert [t.document for t in answer.touched] == [ref(5, "file")]


@pytest.mark.requirement("A1", "F08")
def test_a_move_keeps_the_page_whatever_namespace_it_goes_to() -> None:
    wiki = FakeWiki()
    wiki.page(11, "HR:Plan", ns=3002)
    params = {"target_ns": 3002, "target_title": "HR:Plan", "suppressredirect": False}
    wiki.logged("move", "move", "Plan", page=11, params=params)
    assert touched(told(wiki)) == ["11"]
    away = FakeWiki()
    away.logged("move", "move", "Plan", page=11, params={"target_ns": 2, "target_title": "User:Plan"})
    assert touched(told(away)) == ["11"], "it is read, and found to lie outside"
    inward = FakeWiki()
    inward.logged("move", "move", "User:Plan", ns=2, page=11, params={"target_ns": 0, "target_title": "Plan"})
    assert touched(told(inward)) == ["11"]


@pytest.mark.requirement("A1", "F08")
def test_a_move_that_only_the_log_holds_is_found_by_its_new_title() -> None:
    wiki = FakeWiki()
    wiki.page(11, "New")
    wiki.logged("move", "move", "Old", page=0, params={"target_ns": 0, "target_title": "New"}, recent=False)
    assert touched(told(wiki)) == ["11"]


@pytest.mark.requirement("A1")
def test_a_move_over_a_redirect_deletes_the_redirect() -> None:
    wiki = FakeWiki()
    wiki.logged("delete", "delete_redir", "Harbour", page=20)
    wiki.logged("move", "move_redir", "Port", page=21, params={"target_ns": 0, "target_title": "Harbour"})
    answer = told(wiki)
    assert (touched(answer), answer.gone) == (["21"], (ref(20),))


@pytest.mark.requirement("A8")
@pytest.mark.parametrize(
    ("before", "after", "expected"),
    [(SHOWN, HIDDEN, [True]), (HIDDEN, SHOWN, [False]), (SHOWN, COMMENT, []), (HIDDEN, {"bitmask": 3}, [])],
)
def test_only_a_withdrawn_text_is_withdrawn(before: object, after: object, expected: list[bool]) -> None:
    wiki = FakeWiki()
    wiki.page(4, "Uses it")
    wiki.dependants = {"Passwords": [4]}
    params = {"type": "revision", "ids": ["5"], "old": before, "new": after}
    wiki.logged("delete", "revision", "Passwords", page=3, params=params)
    answer = told(wiki)
    assert [t.redacted for t in answer.touched if t.document == ref(3)] == expected
    assert [t.redacted for t in answer.touched if t.document == ref(4)] == expected, "who includes it showed it too"


@pytest.mark.requirement("A8")
def test_an_edit_after_a_hidden_revision_does_not_make_it_shown() -> None:
    wiki = FakeWiki()
    params = {"type": "revision", "ids": ["5"], "old": SHOWN, "new": HIDDEN}
    wiki.logged("delete", "revision", "Passwords", page=3, params=params)
    wiki.edited(3, "Passwords")
    assert [t.redacted for t in told(wiki).touched] == [True]


@pytest.mark.requirement("A8", "I4")
@pytest.mark.parametrize(
    ("type_", "action"),
    [("rights", "rights"), ("rights", "autopromote"), ("newusers", "create2"), ("newusers", "autocreate")],
)
def test_who_belongs_where_is_asked_at_once(type_: str, action: str) -> None:
    wiki = FakeWiki()
    wiki.logged(type_, action, "User:Alice", ns=2, params={"oldgroups": ["finance"], "newgroups": []}, recent=False)
    answer = told(wiki)
    assert answer.access and not answer.touched


@pytest.mark.requirement("A1")
@pytest.mark.parametrize(("type_", "action"), [("protect", "protect"), ("block", "block"), ("patrol", "patrol")])
def test_what_changes_neither_text_nor_readers_says_nothing(type_: str, action: str) -> None:
    wiki = FakeWiki()
    wiki.logged(type_, action, "Harbour", page=7)
    answer = told(wiki)
    assert not (answer.touched or answer.gone or answer.access)


@pytest.mark.requirement("A1")
def test_merged_and_imported_pages_are_found_by_title() -> None:
    wiki = FakeWiki()
    wiki.page(1, "From")
    wiki.page(2, "Into")
    wiki.page(3, "Imported")
    wiki.logged("merge", "merge", "From", page=1, params={"dest_ns": 0, "dest_title": "Into"})
    wiki.logged("import", "upload", "Imported", page=0, recent=False)
    assert sorted(touched(told(wiki))) == ["1", "2", "3"]


@pytest.mark.requirement("A1")
def test_a_kind_of_log_that_is_not_known_makes_its_page_be_read() -> None:
    wiki = FakeWiki()
    wiki.logged("contentmodel", "change", "Data", page=9, params=[])
    assert touched(told(wiki)) == ["9"]


@pytest.mark.requirement("A1")
def test_pages_that_use_a_changed_template_are_read_however_many() -> None:
    wiki = FakeWiki()
    users = range(100, 160)
    for id_ in users:
        wiki.page(id_, f"User {id_}")
    wiki.page(99, "Template:Other", ns=10)
    wiki.dependants = {"Template:Port": [*users, 99]}
    wiki.edited(50, "Template:Port", ns=10)
    wiki.page_size = 5
    system = connect(wiki)
    cursor, found, answers = json.dumps({"at": stamp(START)}), [], 0
    for _ in range(100):
        answer = system.changes(cursor)
        found += touched(answer)
        cursor, answers = answer.cursor, answers + 1
        wiki.edited(7, "Meanwhile") if answers == 1 else None
        if not answer.more:
            break
    assert answers > 1 and sorted(set(found)) == sorted(["7", *map(str, users)]), "an edit in between is told as well"
    assert found.count("100") == 1


@pytest.mark.requirement("A1")
def test_a_deleted_template_and_a_moved_one_change_who_uses_them() -> None:
    wiki = FakeWiki()
    wiki.page(4, "Uses it")
    wiki.page(5, "Uses it too")
    wiki.dependants = {"Template:Old": [4], "Template:New": [5]}
    wiki.logged(
        "move", "move", "Template:Old", ns=10, page=50, params={"target_ns": 10, "target_title": "Template:New"}
    )
    assert sorted(touched(told(wiki))) == ["4", "5"]
    wiki = FakeWiki()
    wiki.dependants = {"Template:Old": [4, 5]}
    wiki.logged("delete", "delete", "Template:Old", ns=10, page=50)
    wiki.logged("delete", "delete", "Used it", page=5)  # its links are cleared later, by a job
    answer = told(wiki)
    assert (touched(answer), answer.gone) == (["4"], (ref(5),))


@pytest.mark.requirement("A1")
def test_one_unreadable_title_does_not_keep_the_others_from_being_asked_for() -> None:
    wiki = FakeWiki()
    for id_, title in enumerate(["Alpha", "Secret", "Omega", "Last"], start=1):
        wiki.page(id_, title)
        wiki.page(id_ + 10, f"Uses {title}")
        wiki.dependants[title] = [id_ + 10]
        wiki.logged("import", "interwiki", title, page=0)
    wiki.denied = {"Secret"}
    system = connect(wiki)
    answer = system.changes(json.dumps({"at": stamp(START)}))
    found = touched(answer)
    while answer.more:
        answer = system.changes(answer.cursor)
        found += touched(answer)
    assert sorted(found) == sorted(["1", "3", "4", "11", "13", "14"])


@pytest.mark.requirement("A1", "I9", "F05")
def test_a_row_that_becomes_visible_late_is_told_and_none_twice() -> None:
    wiki = FakeWiki()
    system = connect(wiki, overlap_s=10)
    cursor = json.dumps({"at": stamp(START)})
    wiki.edited(1, "First", timestamp=stamp(START + 20 * SECOND))
    first = system.changes(cursor)
    wiki.edited(2, "Late", timestamp=stamp(START + 12 * SECOND))
    second = system.changes(first.cursor)
    third = system.changes(second.cursor)
    assert (touched(first), touched(second), touched(third)) == (["1"], ["2"], [])
    asked = [q["rcstart"] for q in wiki.asked if "rcstart" in q]
    assert asked[1] == stamp(START + 10 * SECOND), "the overlap is counted back from the newest row"


@pytest.mark.requirement("A1", "I9")
def test_the_cursor_follows_the_wikis_clock_not_ours() -> None:
    wiki = FakeWiki()
    wiki.now = START - 500 * SECOND  # its clock is behind ours
    system = connect(wiki)
    cursor = system.start()
    wiki.edited(1, "Told")
    assert touched(system.changes(cursor)) == ["1"]


@pytest.mark.requirement("A1", "I9")
def test_a_long_answer_is_read_in_parts_each_row_once() -> None:
    wiki = FakeWiki()
    for id_ in range(1, 24):
        wiki.edited(id_, f"Burst {id_}")  # all in one second
    wiki.logged("delete", "delete", "Gone", page=90)
    wiki.page_size = 5
    system = connect(wiki)
    cursor = json.dumps({"at": stamp(START)})
    found: list[str] = []
    gone: list[DocumentRef] = []
    for _ in range(12):
        answer = system.changes(cursor)
        cursor = answer.cursor
        found += touched(answer)
        gone += answer.gone
        if not answer.more:
            break
    assert not answer.more and found == [str(i) for i in range(1, 24)] and gone == [ref(90)]
    assert touched(system.changes(cursor)) == []


@pytest.mark.requirement("A1", "I9")
def test_a_cursor_that_is_older_than_recent_changes_asks_for_a_listing() -> None:
    wiki = FakeWiki()
    system = connect(wiki)
    cursor = system.start()
    wiki.now += 100 * 86_400 * SECOND
    wiki.edited(1, "New")
    answer = system.changes(cursor)
    assert answer.relist
    assert not system.changes(answer.cursor).relist


@pytest.mark.requirement("A1", "I9")
def test_a_long_silence_is_no_purge() -> None:
    wiki = FakeWiki()
    system = connect(wiki)
    cursor = system.start()
    for _ in range(30):  # asked all the time, nothing happens, and recent changes are empty
        wiki.now += 20 * 3600 * SECOND
        answer = system.changes(cursor)
        assert not answer.relist
        cursor = answer.cursor
    wiki.edited(2, "New")
    assert touched(system.changes(cursor)) == ["2"]
    wiki.now += 60 * SECOND
    stopped = connect(wiki).start()
    wiki.now += 3 * 86_400 * SECOND  # we were stopped, and recent changes still reach back
    wiki.edited(3, "Newer")
    assert touched(system.changes(stopped)) == ["3"]


@pytest.mark.requirement("A1", "I9")
def test_a_bad_cursor_asks_for_a_listing_and_an_outage_does_not() -> None:
    wiki = FakeWiki()
    system = connect(wiki)
    assert system.changes("").relist and system.changes("[]").relist
    cursor = system.start()
    wiki.errors = [error("badcontinue")]
    assert system.changes(cursor).relist
    wiki.errors = [error("internal_api_error_DBQueryError")]
    with pytest.raises(SourceUnavailable):
        system.changes(cursor)
