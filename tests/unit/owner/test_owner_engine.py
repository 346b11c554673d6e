"""The owner of a folder on a log in memory: real files, a real watch, a clock moved by hand."""

from __future__ import annotations

import os
import shutil
import time
from pathlib import Path
from typing import Any

import pytest

from pipeline.errors import BusUnavailable, Crash
from pipeline.sources.folder.inotify import IN_Q_OVERFLOW
from pipeline.sources.folder.tree import Tree
from schemas.events import AccessSet, AccessTombstone, ContentDeleted, ContentUpserted, HoldChanged, SourceRequest
from schemas.keys import DocumentRef
from schemas.receipts import DeadLetter, Receipt
from schemas.topics import Topic
from tests.unit.owner.support import MemoryOwnerLog, Wiki


def upserts(wiki: Wiki) -> list[ContentUpserted]:
    return [e for e in wiki.log.content() if isinstance(e, ContentUpserted)]


def newest(wiki: Wiki) -> dict[str, Any]:
    """The newest content event of each document."""
    return {e.document.id: e for e in wiki.log.content()}  # type: ignore[attr-defined]


def holds(wiki: Wiki) -> dict[str, bool]:
    return {e.document.id: e.active for e in wiki.log.access() if isinstance(e, HoldChanged)}


def ref(id_: str) -> DocumentRef:
    return DocumentRef(tenant="acme", source="wiki", id=id_)


@pytest.mark.requirement("A1", "A3")
def test_the_first_listing_publishes_everything_in_bulk(wiki: Wiki) -> None:
    wiki.start()
    wiki.settle()
    events = upserts(wiki)
    assert {(e.document.id, e.title, e.priority) for e in events} == {
        ("eng/runbook.md", "Runbook", "bulk"),
        ("index.md", "Home", "bulk"),
    }
    rules = {e.document.id: e for e in wiki.log.access() if isinstance(e, AccessSet)}
    clauses = [c.names() for c in rules["eng/runbook.md"].rule.clauses]
    assert clauses == [["audience:wiki/"], ["audience:wiki/eng"]]
    parents = wiki.log.parents()
    assert parents["everyone"] == ("audience:wiki/",)
    assert parents["group:wiki/eng"] == ("audience:wiki/eng",)
    assert parents["user:bob"] == ("group:wiki/sre",) and parents["user:cleo"] == ()
    assert wiki.log.cursor().pending is False and wiki.log.cursor().polled_at > 0


@pytest.mark.requirement("I9")
def test_memberships_come_before_documents_and_a_cursor_ends_each_transaction(wiki: Wiki) -> None:
    wiki.start()
    wiki.settle()
    first = wiki.log.transactions[0]
    assert {r.topic for r in first} == {"membership", "cursors"}
    assert all('"cursor"' in (t[-1].key or "") for t in wiki.log.transactions)


@pytest.mark.requirement("A6", "I1")
def test_a_restart_appends_nothing_and_versions_go_up(wiki: Wiki) -> None:
    wiki.start()
    wiki.settle()
    before, last = wiki.log.events(), wiki.log.cursor().last_version
    wiki.restart()
    wiki.settle()
    assert wiki.log.events() == before
    wiki.clock.advance(-86_400)
    wiki.put("index.md", "# Home\n\nNew.", old=False)
    wiki.engine.step()
    assert newest(wiki)["index.md"].version > last


@pytest.mark.requirement("A1", "A6")
def test_what_changed_while_the_owner_was_away_is_found(wiki: Wiki) -> None:
    wiki.start()
    wiki.settle()
    wiki.engine.close()
    wiki.put("index.md", "# Home\n\nNew.", old=False)
    wiki.put("new.md", "# New")
    (wiki.root / "eng" / "runbook.md").rename(wiki.root / "eng" / "book.md")
    wiki.start()
    wiki.settle()
    found = newest(wiki)
    assert found["index.md"].body.text.endswith("New.") and "new.md" in found
    assert found["eng/runbook.md"].path == "eng/book.md" and len(found) == 3


@pytest.mark.requirement("A1", "A4", "D4", "F08")
def test_watched_edit_create_rename_and_delete(wiki: Wiki) -> None:
    wiki.start()
    wiki.settle()
    wiki.put("index.md", "# Home\n\nEdited.", old=False)
    wiki.engine.step()
    assert newest(wiki)["index.md"].body.text.endswith("Edited.") and newest(wiki)["index.md"].priority == "live"
    wiki.put("eng/new.md", "# New", old=False)
    wiki.engine.step()
    assert newest(wiki)["eng/new.md"].title == "New"
    (wiki.root / "eng" / "new.md").rename(wiki.root / "moved.md")
    wiki.engine.step()
    assert newest(wiki)["eng/new.md"].path == "moved.md" and "moved.md" not in newest(wiki)
    rule = [e for e in wiki.log.access() if isinstance(e, AccessSet)][-1]
    assert rule.document.id == "eng/new.md" and [c.names() for c in rule.rule.clauses] == [["audience:wiki/"]]
    (wiki.root / "moved.md").unlink()
    wiki.engine.step()
    assert isinstance(newest(wiki)["eng/new.md"], ContentDeleted)
    assert isinstance(wiki.log.access()[-1], AccessTombstone)


@pytest.mark.requirement("A8", "D5", "I4")
def test_a_permission_change_is_membership_alone(wiki: Wiki) -> None:
    wiki.start()
    wiki.settle()
    documents = len(wiki.log.topic(Topic.ACCESS) + wiki.log.topic(Topic.CONTENT))
    wiki.put("eng/.access.yaml", "allow: [user:cleo]\ndeny: [user:ann]", old=False)
    wiki.engine.step()
    parents = wiki.log.parents()
    assert parents["group:wiki/eng"] == () and parents["user:cleo"] == ("audience:wiki/eng",)
    assert "audience:wiki/eng#deny" in parents["user:ann"]
    assert len(wiki.log.topic(Topic.ACCESS) + wiki.log.topic(Topic.CONTENT)) == documents


def _swapped(wiki: Wiki) -> None:
    """A folder for few and one for all change their names, between two looks."""
    wiki.put("shut/.access.yaml", "allow: [group:eng]")
    wiki.put("shut/page.md", "# Page\n\nSecret.")
    wiki.put("open/page.md", "# Page\n\nPublic.")
    wiki.throttled, wiki.applied = True, {}
    wiki.start()
    wiki.settle()
    assert wiki.log.parents()["everyone"] == ("audience:wiki/", "audience:wiki/open")
    assert wiki.log.parents()["group:wiki/eng"] == ("audience:wiki/eng", "audience:wiki/shut")
    wiki.engine.close()
    for old, new in (("shut", "between"), ("open", "shut"), ("between", "open")):
        (wiki.root / old).rename(wiki.root / new)


@pytest.mark.requirement("A8", "B1", "I4")
def test_a_folder_opens_only_when_the_texts_that_replace_its_old_ones_are_indexed(wiki: Wiki) -> None:
    _swapped(wiki)
    wiki.applied = wiki.log.content_ends()
    wiki.start()
    wiki.settle()
    parents = wiki.log.parents()
    assert parents["everyone"] == ("audience:wiki/",) and parents["group:wiki/eng"] == ("audience:wiki/eng",)
    assert newest(wiki)["shut/page.md"].body.text.endswith("Public.")
    wiki.applied = None  # nobody can say
    wiki.settle()
    assert wiki.log.parents() == parents
    wiki.applied = wiki.log.content_ends()
    wiki.settle()
    assert wiki.log.parents()["everyone"] == ("audience:wiki/", "audience:wiki/shut")
    assert wiki.log.parents()["group:wiki/eng"] == ("audience:wiki/eng", "audience:wiki/open")


@pytest.mark.requirement("A8", "I1", "I4")
def test_an_owner_that_begins_anew_waits_for_what_an_earlier_one_wrote(wiki: Wiki) -> None:
    _swapped(wiki)
    wiki.start()
    wiki.settle()
    wiki.restart()
    wiki.settle()
    assert wiki.log.parents()["everyone"] == ("audience:wiki/",)
    wiki.applied = wiki.log.content_ends()
    wiki.settle()
    assert wiki.log.parents()["everyone"] == ("audience:wiki/", "audience:wiki/shut")


@pytest.mark.requirement("A6", "A8")
def test_an_owner_that_begins_anew_keeps_readers_whom_it_cannot_tell_yet(wiki: Wiki) -> None:
    wiki.start()
    wiki.settle()
    before = wiki.log.membership()
    wiki.put("new.md", "# New", old=False)  # the root's access file may come in a moment
    wiki.restart()
    wiki.settle()
    assert wiki.log.membership() == before


@pytest.mark.requirement("A8", "I13")
def test_a_grant_waits_for_no_new_document(wiki: Wiki) -> None:
    wiki.throttled, wiki.applied = True, {}
    wiki.start()
    wiki.settle()
    for n in range(30):
        wiki.put(f"new/{n}.md", f"# {n}", old=False)
    wiki.put("eng/.access.yaml", "allow: [everyone]", old=False)
    wiki.engine.step()
    assert wiki.engine.busy
    assert "audience:wiki/eng" in wiki.log.parents()["everyone"]


@pytest.mark.requirement("A1", "D5")
def test_a_group_change_and_a_user_who_left(wiki: Wiki) -> None:
    wiki.start()
    wiki.settle()
    wiki.put("groups.yaml", "users: [ann, cleo]\ngroups:\n  eng: [cleo]\n", old=False)
    wiki.engine.step()
    parents = wiki.log.parents()
    assert parents["user:ann"] == () and parents["user:cleo"] == ("group:wiki/eng",)
    assert "user:bob" not in parents and "group:wiki/sre" not in parents


@pytest.mark.requirement("I12")
@pytest.mark.parametrize("broken", ["allow: [eng]", "allow: [", "", "deny: [user:bob]"])
def test_a_broken_access_file_closes_its_folder_and_alarms(wiki: Wiki, broken: str) -> None:
    wiki.start()
    wiki.settle()
    wiki.put("eng/.access.yaml", broken, old=False)
    wiki.engine.step()
    assert not any("audience:wiki/eng" in p for p in wiki.log.parents().values())
    assert any("eng/.access.yaml" in alarm for alarm in wiki.engine.alarms)
    wiki.put("eng/.access.yaml", "allow: [group:eng]", old=False)
    wiki.engine.step()
    assert wiki.log.parents()["group:wiki/eng"] == ("audience:wiki/eng",)


@pytest.mark.requirement("I12")
def test_broken_or_missing_groups_make_everyone_nobody(wiki: Wiki) -> None:
    wiki.start()
    wiki.settle()
    wiki.put("groups.yaml", "users: [ann", old=False)
    wiki.engine.step()
    assert not any(p.startswith(("user:", "group:")) for p in wiki.log.parents())
    assert any("groups.yaml" in alarm for alarm in wiki.engine.alarms)
    (wiki.root / "groups.yaml").unlink()
    wiki.engine.step()
    assert any("missing" in alarm for alarm in wiki.engine.alarms)


@pytest.mark.requirement("I12")
def test_a_vanished_access_file_opens_its_folder_only_at_a_second_look(wiki: Wiki) -> None:
    wiki.start()
    wiki.settle()
    (wiki.root / "eng" / ".access.yaml").unlink()
    wiki.engine.step()
    assert "audience:wiki/eng" not in wiki.log.parents()["everyone"]
    wiki.clock.advance(0.25)
    wiki.engine.step()
    assert "audience:wiki/eng" in wiki.log.parents()["everyone"]


@pytest.mark.requirement("I12")
def test_a_new_folder_is_closed_until_its_access_file_could_be_there(wiki: Wiki) -> None:
    wiki.start()
    wiki.settle()
    wiki.put("secret/plan.md", "# Plan", old=False)
    wiki.engine.step()
    assert "audience:wiki/secret" not in wiki.log.parents()["everyone"] and "secret/plan.md" in newest(wiki)
    wiki.put("secret/.access.yaml", "allow: [user:ann]", old=False)
    wiki.engine.step()
    wiki.clock.advance(1)
    wiki.engine.step()
    assert "audience:wiki/secret" not in wiki.log.parents()["everyone"]
    assert "audience:wiki/secret" in wiki.log.parents()["user:ann"]


@pytest.mark.requirement("A4")
def test_a_renamed_folder_keeps_its_documents(wiki: Wiki) -> None:
    wiki.put("eng/deep/er/x.md", "# X")
    wiki.start()
    wiki.settle()
    (wiki.root / "eng").rename(wiki.root / "ops")
    wiki.engine.step()
    found = newest(wiki)
    assert found["eng/runbook.md"].path == "ops/runbook.md" and found["eng/deep/er/x.md"].path == "ops/deep/er/x.md"
    assert len(found) == 3 and not any(isinstance(e, ContentDeleted) for e in found.values())
    wiki.put("ops/deep/er/x.md", "# X2", old=False)  # the moved folder is still watched
    wiki.engine.step()
    assert newest(wiki)["eng/deep/er/x.md"].title == "X2"


@pytest.mark.requirement("A1")
def test_a_file_is_read_when_its_writer_closes_it(wiki: Wiki) -> None:
    wiki.start()
    wiki.settle()
    with open(wiki.root / "slow.md", "w") as file:
        file.write("# Half")
        file.flush()
        before = len(upserts(wiki))
        look = wiki.engine.connector.changes(0.08)
        assert look is None and len(upserts(wiki)) == before
        file.write(" and whole")
    wiki.engine.step()
    assert newest(wiki)["slow.md"].title == "Half and whole"


@pytest.mark.requirement("A1")
def test_an_mtime_set_back_hides_no_edit(wiki: Wiki) -> None:
    wiki.start()
    wiki.settle()
    info = os.stat(wiki.root / "index.md")
    wiki.engine.close()
    (wiki.root / "index.md").write_text("# Home\n\nWelc0me.")  # same length
    os.utime(wiki.root / "index.md", ns=(info.st_atime_ns, info.st_mtime_ns))
    wiki.start()
    wiki.settle()
    assert newest(wiki)["index.md"].body.text.endswith("Welc0me.")


@pytest.mark.requirement("I9", "I12")
def test_lost_events_end_in_a_walk(wiki: Wiki, monkeypatch: pytest.MonkeyPatch) -> None:
    wiki.start()
    wiki.settle()
    source = wiki.engine.connector
    watch = source._watch  # type: ignore[attr-defined]
    wiki.put("lost.md", "# Lost", old=False)
    os.read(watch._fd, 100_000)  # the events are gone
    real = watch._event
    monkeypatch.setattr(watch, "_event", lambda watch, mask, cookie, name: real(-1, IN_Q_OVERFLOW, 0, ""))
    wiki.put("other.md", "# Other", old=False)
    wiki.engine.step()
    assert {"lost.md", "other.md"} <= set(newest(wiki))
    wiki.put("after.md", "# After", old=False)
    wiki.engine.step()
    assert "after.md" in newest(wiki)


@pytest.mark.requirement("F02", "F03")
def test_the_periodic_walk_finds_what_no_event_told(wiki: Wiki) -> None:
    wiki.start()
    wiki.settle()
    source = wiki.engine.connector
    source._watch.close()  # type: ignore[attr-defined]
    source._watch = None  # type: ignore[attr-defined]
    (wiki.root / "index.md").unlink()
    wiki.put("new.md", "# New")
    assert wiki.engine.connector.degraded
    polled = wiki.log.cursor().polled_at
    wiki.settle()
    assert "new.md" not in newest(wiki) and wiki.log.cursor().polled_at == polled
    wiki.clock.advance(6)
    wiki.settle()
    assert "new.md" in newest(wiki) and isinstance(newest(wiki)["index.md"], ContentDeleted)
    assert wiki.log.cursor().polled_at > polled


@pytest.mark.requirement("F02", "A8")
def test_suspiciously_many_missing_documents_are_hidden_and_come_back(wiki: Wiki) -> None:
    for n in range(30):
        wiki.put(f"many/p{n}.md", f"# Page {n}")
    wiki.start()
    wiki.settle()
    wiki.engine.close()
    shutil.move(wiki.root / "many", wiki.root.parent / "away")
    wiki.start()
    wiki.settle()
    assert sum(holds(wiki).values()) == 30 and not any(isinstance(e, ContentDeleted) for e in wiki.log.content())
    parents = wiki.log.parents()  # an undo shows them to their readers
    assert "audience:wiki/many" in parents["everyone"] and "audience:wiki/many" in parents
    assert any("30 of 32" in alarm for alarm in wiki.engine.alarms)
    wiki.restart()  # it stays so, without a second set of holds
    wiki.settle()
    assert len([e for e in wiki.log.access() if isinstance(e, HoldChanged)]) == 30
    contents = len(upserts(wiki))
    shutil.move(wiki.root.parent / "away", wiki.root / "many")
    wiki.settle()
    assert not any(holds(wiki).values()) and len(upserts(wiki)) == contents
    wiki.clock.advance(10)
    wiki.settle()
    assert wiki.engine.alarms == []


class Requests:
    def __init__(self) -> None:
        self.all: list[tuple[int, SourceRequest]] = []

    def ask(self, **more: Any) -> None:
        request = SourceRequest(tenant="acme", source="wiki", request_id=f"r{len(self.all)}", requested_at=1, **more)
        self.all.append((len(self.all), request))

    def take(self, position: int) -> list[tuple[int, SourceRequest]]:
        return [r for r in self.all if r[0] >= position]


def receipts(wiki: Wiki) -> list[Receipt]:
    return [Receipt.model_validate_json(r.value or b"") for r in wiki.log.topic(Topic.RECEIPTS)]


@pytest.mark.requirement("F02")
def test_a_request_confirms_mass_deletion(wiki: Wiki) -> None:
    for n in range(30):
        wiki.put(f"many/p{n}.md", f"# Page {n}")
    wiki.requests = asked = Requests()
    wiki.start()
    wiki.settle()
    wiki.engine.close()
    shutil.rmtree(wiki.root / "many")
    wiki.start()
    wiki.settle()
    assert wiki.engine.ledger.live() == 32
    asked.ask(type="listing", confirm_deletions=True)
    wiki.settle()
    assert wiki.engine.ledger.live() == 2
    parents = wiki.log.parents()
    assert "audience:wiki/many" not in parents["everyone"] and "audience:wiki/many" not in parents
    assert [(r.request_id, r.outcome) for r in receipts(wiki)] == [("r0", "done")]
    wiki.restart()
    wiki.settle()
    assert len(receipts(wiki)) == 1  # served once


@pytest.mark.requirement("A8", "D5")
def test_a_folder_that_was_seen_going_is_hidden_at_once_and_deleted_at_the_second_look(wiki: Wiki) -> None:
    for n in range(30):
        wiki.put(f"many/p{n}.md", f"# Page {n}")
    wiki.start()
    wiki.settle()
    shutil.move(wiki.root / "many", wiki.root.parent / "away")
    wiki.engine.step()
    assert sum(holds(wiki).values()) == 30 and wiki.engine.ledger.live() == 32
    wiki.clock.advance(1)
    wiki.settle()
    assert wiki.engine.ledger.live() == 2


@pytest.mark.requirement("A8", "F01")
def test_a_few_deletions_are_deletions(wiki: Wiki) -> None:
    for n in range(12):
        wiki.put(f"many/p{n}.md", f"# Page {n}")
    wiki.start()
    wiki.settle()
    shutil.rmtree(wiki.root / "many")
    wiki.settle()
    assert wiki.engine.ledger.live() == 2 and not holds(wiki)
    assert "audience:wiki/many" not in wiki.log.parents()


@pytest.mark.requirement("F02")
def test_a_root_that_vanishes_deletes_nothing(wiki: Wiki) -> None:
    wiki.start()
    wiki.settle()
    before = wiki.log.events()
    os.rename(wiki.root, wiki.root.parent / "away")
    wiki.settle()
    wiki.clock.advance(10)
    wiki.settle()
    assert wiki.log.events() == before and wiki.engine.problems
    os.rename(wiki.root.parent / "away", wiki.root)
    wiki.clock.advance(10)
    wiki.settle()
    wiki.put("back.md", "# Back", old=False)
    wiki.settle()
    assert "back.md" in newest(wiki) and wiki.engine.ledger.live() == 3


@pytest.mark.requirement("F22", "I8")
def test_a_file_beyond_the_limit_is_a_dead_letter_and_its_neighbours_pass(wiki: Wiki) -> None:
    wiki.max_bytes = 1000
    wiki.put("a.md", "# A")
    wiki.put("b.md", "x" * 5000)
    wiki.put("c.md", "# C")
    wiki.start()
    wiki.settle()
    assert {"a.md", "c.md"} <= set(newest(wiki)) and "b.md" not in newest(wiki)
    (letter,) = [DeadLetter.model_validate_json(r.value or b"") for r in wiki.log.topic(Topic.DEAD_LETTER)]
    assert letter.document == ref("b.md") and letter.stage == "source" and "max_bytes" in letter.reason
    named = [r for r in wiki.log.topic(Topic.CURSORS) if r.offset == letter.coordinates.offset]
    assert any(r.key == ref("b.md").state_key() for r in named)
    assert [r.outcome for r in receipts(wiki)] == ["refused"]
    wiki.restart()
    wiki.settle()
    assert len(wiki.log.topic(Topic.DEAD_LETTER)) == 1


@pytest.mark.requirement("F06")
def test_one_odd_file_among_many_is_reported_and_the_rest_indexed(wiki: Wiki) -> None:
    for n in range(40):
        wiki.put(f"many/p{n}.md", f"# Page {n}")
    wiki.put("many/odd.md", "---\neffective_from: never\n---\n# Odd")
    wiki.put("many/bytes.md", b"\xff\xfe\xfa\x00\x01")
    wiki.put(b"many/caf\xe9.md".decode("utf-8", "surrogateescape"), "# Latin")
    wiki.start()
    wiki.settle()
    assert len(newest(wiki)) == 45 and any("odd.md" in p for p in wiki.engine.problems)
    assert "many/caf\\xe9.md" in newest(wiki)
    before = wiki.log.events()
    wiki.restart()
    wiki.settle()
    assert wiki.log.events() == before


@pytest.mark.requirement("A8", "I12")
def test_a_file_that_cannot_be_read_any_more_is_hidden(wiki: Wiki, monkeypatch: pytest.MonkeyPatch) -> None:
    wiki.start()
    wiki.settle()
    source: Any = wiki.engine.connector
    real = source._tree.read

    def refusing(path: str, limit: int) -> Any:
        if path == "index.md":
            raise PermissionError(13, "Permission denied")
        return real(path, limit)

    monkeypatch.setattr(source._tree, "read", refusing)
    wiki.put("index.md", "# Locked", old=False)
    wiki.engine.step()
    assert holds(wiki) == {"index.md": True}
    monkeypatch.undo()
    wiki.clock.advance(6)
    wiki.settle()
    assert holds(wiki) == {"index.md": False} and newest(wiki)["index.md"].title == "Locked"


@pytest.mark.requirement("I9", "I1")
def test_a_transaction_in_doubt_is_looked_up_in_the_log(wiki: Wiki) -> None:
    wiki.start()
    wiki.settle()
    for told in ("fail_next", "lose_next"):
        setattr(wiki.log, told, 1)
        wiki.put("index.md", f"# {told}", old=False)
        with pytest.raises(BusUnavailable):
            wiki.engine.step()
        wiki.restart()
        wiki.settle()
        assert newest(wiki)["index.md"].title == told
        versions = [e.version for e in upserts(wiki) if e.document.id == "index.md"]
        assert versions == sorted(versions) and len(set(versions)) == len(versions)
    assert [e.title for e in upserts(wiki) if e.document.id == "index.md"].count("lose_next") == 1


@pytest.mark.requirement("I1")
def test_a_second_owner_fences_the_first(wiki: Wiki) -> None:
    wiki.start()
    wiki.settle()
    MemoryOwnerLog(wiki.log, wiki.clock)
    wiki.put("index.md", "# Late", old=False)
    with pytest.raises(Crash):
        wiki.engine.step()
    assert newest(wiki)["index.md"].title == "Home"


@pytest.mark.requirement("I13")
def test_bulk_stops_while_the_index_is_behind_and_live_edits_pass(wiki: Wiki) -> None:
    for n in range(60):
        wiki.put(f"many/p{n:02}.md", f"# Page {n}")
    wiki.throttled, wiki.applied = True, {}
    wiki.start()
    for _ in range(8):
        wiki.engine.step()
    out = len(upserts(wiki))
    assert 20 <= out <= 40 and wiki.engine.busy and wiki.log.cursor().pending
    wiki.put("index.md", "# Live", old=False)
    wiki.engine.step()
    live = newest(wiki)["index.md"]
    assert live.title == "Live" and live.priority == "live" and wiki.engine.busy
    wiki.applied = None  # the store is away: nothing more goes out
    for _ in range(3):
        wiki.engine.step()
    assert len(upserts(wiki)) == out + 1
    wiki.applied = dict.fromkeys(range(3), 10_000)
    wiki.settle()
    assert len(newest(wiki)) == 62 and wiki.log.cursor().pending is False


@pytest.mark.requirement("A6", "F24")
def test_requests_for_one_document_and_for_holds(wiki: Wiki) -> None:
    wiki.requests = asked = Requests()
    wiki.start()
    wiki.settle()
    before = len(upserts(wiki))
    asked.ask(type="document", document=ref("index.md"))
    asked.ask(type="document", document=ref("none.md"))
    asked.ask(type="lift_hold", document=ref("index.md"), hold="legal")
    wiki.settle()
    assert len(upserts(wiki)) == before + 1  # published again although nothing changed
    assert [(r.request_id, r.outcome) for r in receipts(wiki)] == [("r0", "done"), ("r1", "refused"), ("r2", "done")]
    lifted = [e for e in wiki.log.access() if isinstance(e, HoldChanged)]
    assert [(h.hold, h.active) for h in lifted] == [("legal", False)]
    asked.ask(type="document", document=ref("index.md"))  # asked again, done again
    wiki.settle()
    assert len(upserts(wiki)) == before + 2


@pytest.mark.requirement("A11")
def test_an_idle_source_says_that_it_is_complete_up_to_now(wiki: Wiki) -> None:
    wiki.start()
    wiki.settle()
    events = wiki.log.events()
    for _ in range(3):
        wiki.clock.advance(6)
        wiki.engine.step()
        wiki.engine.step()
    assert wiki.log.cursor().polled_at > wiki.clock.now() - 7_000_000 and wiki.log.events() == events


@pytest.mark.requirement("I1", "A11")
def test_a_cursor_shows_that_the_owner_lives_even_where_it_waits(wiki: Wiki) -> None:
    for n in range(60):
        wiki.put(f"many/p{n:02}.md", f"# Page {n}")
    wiki.throttled, wiki.applied = True, {}
    wiki.start()
    for _ in range(8):
        wiki.engine.step()
    assert wiki.engine.busy
    cursors = len(wiki.log.topic(Topic.CURSORS))
    wiki.clock.advance(6)
    wiki.engine.step()
    assert len(wiki.log.topic(Topic.CURSORS)) == cursors + 1
    assert wiki.log.cursor().pending and wiki.log.cursor().polled_at == 0


@pytest.mark.requirement("A8")
def test_the_body_of_a_deleted_document_goes_at_once(wiki: Wiki) -> None:
    wiki.inline_limit = 0
    wiki.start()
    wiki.settle()
    assert len(wiki.bodies.bodies) == 2
    (wiki.root / "index.md").unlink()
    wiki.engine.step()
    assert len(wiki.bodies.bodies) == 1


@pytest.mark.requirement("A1", "D4")
def test_what_went_and_came_back_is_as_safe_from_a_wrong_listing_as_before(wiki: Wiki, tmp_path: Path) -> None:
    for n in range(30):
        wiki.put(f"many/{n}.md", f"# Page {n}\n\nText {n}.")
    wiki.start()
    wiki.settle()
    away = tmp_path / "away"
    (wiki.root / "many").rename(away)
    wiki.engine.step()  # seen going: hidden, to be deleted at a second look
    away.rename(wiki.root / "many")
    wiki.settle(6)
    assert not any(isinstance(e, AccessTombstone) for e in wiki.log.access())
    wiki.engine.connector.close()  # from now on only the walk sees changes
    (wiki.root / "many").rename(away)
    wiki.clock.advance(10)
    wiki.settle()
    assert not any(isinstance(e, AccessTombstone) for e in wiki.log.access())
    assert wiki.engine.alarms and "hidden, not deleted" in wiki.engine.alarms[0]


@pytest.mark.requirement("F02", "A8")
def test_what_stood_on_another_device_is_hidden_not_deleted(wiki: Wiki, monkeypatch: pytest.MonkeyPatch) -> None:
    wiki.start()
    wiki.settle()
    wiki.engine.close()
    (wiki.root / "eng" / "runbook.md").unlink()  # as a folder looks from which something was unmounted
    (wiki.root / "index.md").unlink()
    real = Tree.device_above

    def device(tree: Tree, path: str) -> int | None:
        return -1 if path.startswith("eng/") else real(tree, path)

    monkeypatch.setattr(Tree, "device_above", device)
    wiki.start()
    wiki.settle()
    assert isinstance(newest(wiki)["index.md"], ContentDeleted)  # looked for where it stood: surely gone
    assert holds(wiki) == {"eng/runbook.md": True} and wiki.engine.ledger.live() == 1
    listed = wiki.engine.listed
    assert listed is not None and (listed.missing, listed.held, listed.purged) == (2, 1, 1)


@pytest.mark.requirement("A11", "D4")
def test_a_moved_file_was_updated_when_it_moved_and_a_dated_back_one_when_it_was_written(wiki: Wiki) -> None:
    os.utime(wiki.put("old.md", "# Old", old=False), (1_000_000, 1_000_000))
    wiki.start()
    wiki.settle()
    assert newest(wiki)["old.md"].source_facts.updated_at == 1_000_000 * 10**6
    began = time.time() - 1
    (wiki.root / "old.md").rename(wiki.root / "eng" / "new.md")
    wiki.engine.step()
    moved = newest(wiki)["old.md"]
    assert moved.path == "eng/new.md" and moved.source_facts.updated_at > began * 1e6
    os.utime(wiki.put("index.md", "# Home\n\nOther.", old=False), (2_000_000, 2_000_000))
    wiki.engine.step()
    assert newest(wiki)["index.md"].source_facts.updated_at > began * 1e6


@pytest.mark.requirement("A10", "I13")
def test_a_backfill_of_a_folder_reads_what_was_touched_in_the_window(wiki: Wiki) -> None:
    wiki.requests = asked = Requests()
    wiki.start()
    wiki.settle()
    before = len(upserts(wiki))
    asked.ask(type="backfill", updated_from=0, updated_until=1_000)
    wiki.settle(4)
    assert len(upserts(wiki)) == before
    os.utime(wiki.root / "index.md", (1_000_000, 1_000_000))
    wiki.settle()
    asked.ask(type="backfill", updated_from=999_999 * 10**6, updated_until=1_000_001 * 10**6)
    wiki.settle(4)
    assert [(e.document.id, e.priority) for e in upserts(wiki)[before:]] == [("index.md", "bulk")]
    counts = [(r.details or {})["repaired"] for r in receipts(wiki)]
    assert counts == [0, 1]
