"""An owner against a source that lists in part, not at all, while it changes, or in another order; and its answers."""

from __future__ import annotations

import json
from typing import Any

import pytest

from consumers.owner_requests import MAX_ATTEMPTS
from pipeline.errors import BusUnavailable
from schemas.events import AccessSet, AccessTombstone, HoldChanged
from schemas.reconciliation import RequestsPosition
from schemas.topics import Topic
from tests.unit.owner.scripted import ANN, EVERYONE, Owned, ref

SIX = ("a", "b", "c", "d", "e", "f")


@pytest.fixture
def kb() -> Owned:
    made = Owned()
    made.remote.put(*SIX)
    made.start()
    made.settle()
    assert made.live() == set(SIX)
    return made


# ---------------------------------------------------------------- partial, failing, racing


@pytest.mark.requirement("F02", "A8")
def test_a_listing_that_breaks_off_deletes_and_hides_nothing_and_says_so(kb: Owned) -> None:
    del kb.remote.pages["f"]
    kb.remote.put("a", text="new text")
    kb.remote.fails_at = 1
    report = kb.request("listing", confirm_deletions=True)
    assert (report.complete, report.missing, report.held, report.purged) == (False, 0, 0, 0)
    assert "stopped answering" in report.why[0] and report.listed == 2
    assert report.stale == 1 and kb.upserts("a")[-1].body.text == "new text of a"  # type: ignore[union-attr]
    assert kb.live() == set(SIX) and kb.hidden() == set()
    kb.remote.fails_at = None
    again = kb.request("listing", confirm_deletions=True)
    assert (again.complete, again.listed, again.missing, again.purged) == (True, 5, 1, 1) and "f" not in kb.live()


@pytest.mark.requirement("F02", "I8")
def test_a_listing_that_cannot_begin_is_refused_with_the_reason_and_the_owner_goes_on(kb: Owned) -> None:
    kb.remote.fails_at = -1
    kb.asked.ask("listing", confirm_deletions=True)
    kb.settle()
    (receipt,) = kb.receipts()
    assert (receipt.outcome, receipt.event_type) == ("refused", "request.listing") and "503" in (receipt.reason or "")
    assert kb.walk().complete is False and kb.live() == set(SIX) and kb.hidden() == set()
    kb.remote.put("g")
    kb.remote.tell("g")
    kb.settle(2)
    assert "g" in kb.live()


@pytest.mark.requirement("F02", "A1", "I9")
def test_what_changes_while_a_listing_runs_is_neither_missing_nor_lost(kb: Owned) -> None:
    remote = kb.remote

    def meanwhile() -> None:
        remote.put("born")  # created after the listing began
        del remote.pages["e"]  # goes away and is seen going
        moved = remote.pages.pop("f")  # moves to where the listing has been
        remote.pages = {"f": moved, **remote.pages}
        remote.put("c", text="raced")
        remote.tell("born", "e", "f", "c")

    remote.before_page[1] = meanwhile
    report = kb.request("listing")
    assert report.complete and report.held == 0 and kb.hidden() == set()
    assert kb.live() == {"a", "b", "c", "d", "f", "born"}
    assert kb.upserts("c")[-1].body.text == "raced of c"  # type: ignore[union-attr]
    versions = [e.version for e in kb.log.content() if e.document.id == "c"]  # type: ignore[attr-defined]
    assert versions == sorted(versions)


@pytest.mark.requirement("F02", "A8")
def test_a_document_missed_because_the_order_changed_is_hidden_and_back_with_the_next_listing(kb: Owned) -> None:
    def reordered() -> None:
        last = kb.remote.pages.pop("f")
        kb.remote.pages = {"f": last, **kb.remote.pages}  # and nothing tells of it

    kb.remote.before_page[1] = reordered
    report = kb.request("listing")
    assert (report.missing, report.held, report.purged, report.examples["held"]) == (1, 1, 0, ("f",))
    assert kb.hidden() == {"f"} and "f" in kb.live()
    again = kb.walk()
    assert (again.missing, again.released) == (0, 1) and kb.hidden() == set()
    assert len(kb.upserts("f")) == 1  # nothing was embedded again for it


# ---------------------------------------------------------------- quarantine, purge, confirmation, undo


@pytest.mark.requirement("F01", "F02", "A8", "D5")
def test_what_a_listing_lacks_is_hidden_at_once_and_deleted_after_the_quarantine(kb: Owned) -> None:
    del kb.remote.pages["f"]
    first = kb.request("listing")
    assert (first.missing, first.held, first.purged) == (1, 1, 0) and kb.hidden() == {"f"}
    assert kb.walk(6).purged == 0
    kb.remote.fails_at = 1
    assert kb.walk(2).complete is False and "f" in kb.live()  # the time is over, but not by this listing
    kb.remote.fails_at = None
    last = kb.walk()
    assert (last.missing, last.held, last.purged) == (1, 0, 1) and "f" not in kb.live()
    assert any(isinstance(e, AccessTombstone) for e in kb.log.access())
    assert kb.walk().missing == 0


@pytest.mark.requirement("F02")
def test_the_quarantine_outlives_its_owner(kb: Owned) -> None:
    del kb.remote.pages["f"]
    kb.walk()
    kb.start()
    kb.settle()
    assert kb.hidden() == {"f"} and len([e for e in kb.log.access() if isinstance(e, HoldChanged)]) == 1
    kb.walk(7)
    assert "f" not in kb.live()


@pytest.mark.requirement("F02")
def test_an_empty_listing_hides_everything_and_never_ends_a_quarantine(kb: Owned) -> None:
    before = dict(kb.remote.pages)
    kb.remote.pages.clear()
    assert kb.walk().held == 6 and kb.hidden() == set(SIX)
    assert kb.engine.alarms and "6 of 6" in kb.engine.alarms[0]
    assert kb.walk(30).purged == 0 and kb.live() == set(SIX)
    kb.remote.pages.update(before)
    assert kb.walk().released == 6 and kb.hidden() == set() and kb.engine.alarms == []
    kb.remote.pages.clear()
    assert kb.request("listing", confirm_deletions=True).purged == 6 and kb.live() == set()


@pytest.mark.requirement("F02", "A8")
def test_undo_shows_at_once_what_one_listing_hid_and_keeps_it_visible(kb: Owned) -> None:
    kb.remote.unreadable.add("a")
    walk = kb.walk()
    gone = [kb.remote.pages.pop(id_) for id_ in ("d", "e", "f")]
    listing = kb.request("listing")
    assert kb.hidden() == {"a", "d", "e", "f"} and listing.held == 3
    undone = kb.request("undo", of_request=listing.request_id)
    assert (undone.released, undone.examples["released"]) == (3, ("d", "e", "f"))
    assert kb.hidden() == {"a"} and kb.engine.alarms == []
    kb.start()  # an owner that begins anew knows of it
    kb.settle()
    assert kb.walk(30).missing == 3 and kb.hidden() == {"a"} and kb.live() == set(SIX)
    assert kb.request("undo", of_request=listing.request_id).released == 0  # done already, and said so
    assert "stands" in kb.report("r2").why[0]
    assert kb.request("undo", of_request=walk.request_id).released == 1 and kb.hidden() == set()
    assert kb.walk().held == 0 and kb.hidden() == set()
    kb.remote.pages["d"] = gone[0]
    kb.walk()
    del kb.remote.pages["d"]  # it came back, so its going counts anew
    assert kb.walk().held == 1 and kb.hidden() == {"d"}
    assert kb.request("listing", confirm_deletions=True).purged == 3


@pytest.mark.requirement("A8", "D5")
def test_what_was_seen_going_is_deleted_even_where_an_undo_kept_it(kb: Owned) -> None:
    del kb.remote.pages["f"]
    listing = kb.request("listing")
    kb.request("undo", of_request=listing.request_id)
    kb.remote.tell("f")
    kb.settle(2)
    assert "f" not in kb.live()


@pytest.mark.requirement("F02")
def test_a_lifted_quarantine_is_not_laid_on_again(kb: Owned) -> None:
    del kb.remote.pages["f"]
    kb.walk()
    assert kb.request("lift_hold", document=ref("f"), hold="quarantine").released == 1
    assert kb.walk().held == 0 and kb.hidden() == set()


# ---------------------------------------------------------------- counting


@pytest.mark.requirement("F02", "I1")
def test_a_listing_without_repair_counts_and_changes_nothing(kb: Owned) -> None:
    del kb.remote.pages["f"]
    kb.remote.put("new")
    kb.remote.put("a", text="other")
    kb.remote.put("b", rule=ANN)
    kb.remote.unreadable.add("c")
    events, states = kb.log.events(), len([r for r in kb.log.topic(Topic.CURSORS) if '"state"' in (r.key or "")])
    report = kb.request("listing", repair=False)
    assert not report.repair and (report.new, report.stale, report.wrongly_readable, report.missing) == (1, 2, 1, 1)
    assert (report.listed, report.known, report.repaired, report.held) == (6, 6, 0, 0)
    assert kb.log.events() == events and kb.connectors[-1].closed and not kb.connectors[0].closed
    assert len([r for r in kb.log.topic(Topic.CURSORS) if '"state"' in (r.key or "")]) == states
    repaired = kb.request("listing")
    assert (repaired.new, repaired.stale, repaired.wrongly_readable, repaired.missing) == (1, 2, 1, 1)
    assert repaired.held == 2 and repaired.repaired == 5  # new, two stale, the missing and the unreadable one
    rules = [e for e in kb.log.access() if isinstance(e, AccessSet) and e.document.id == "b"]
    assert rules[-1].rule == ANN


# ---------------------------------------------------------------- backfill


@pytest.mark.requirement("A10", "I13")
def test_a_backfill_appends_again_what_was_updated_in_its_window(kb: Owned) -> None:
    kb.clock.advance(10)
    start = kb.clock.now()
    kb.remote.put("b", "c")
    kb.remote.tell("b", "c")
    kb.settle(2)
    kb.clock.advance(10)
    middle = kb.clock.now()
    kb.remote.put("d", text="later")
    before = {id_: len(kb.upserts(id_)) for id_ in SIX}
    report = kb.request("backfill", updated_from=start, updated_until=middle)
    after = {id_: len(kb.upserts(id_)) for id_ in SIX}
    assert {id_ for id_ in SIX if after[id_] > before[id_]} == {"b", "c"}
    assert (report.repaired, report.complete, report.missing) == (2, True, 0)
    again = kb.upserts("b")[-1]
    rule = [e for e in kb.log.access() if isinstance(e, AccessSet) and e.document.id == "b"][-1]
    assert (
        again.priority == "bulk" and rule.version > again.observed_at - 10**6 and again.access_version == rule.version
    )
    assert kb.request("backfill").repaired == 6  # without bounds: everything


@pytest.mark.requirement("I13")
def test_a_backfill_waits_for_the_index_and_lets_walks_and_edits_pass() -> None:
    kb = Owned()
    kb.throttled, kb.applied, kb.live_at_most = True, dict.fromkeys(range(3), 10_000), 5
    kb.remote.put(*(f"p{n}" for n in range(20)))
    kb.start()
    kb.settle()
    kb.applied = kb.log.content_ends()
    kb.asked.ask("backfill")
    kb.settle(40)
    kb.clock.advance(1)
    kb.settle(1)
    out = sum(len(kb.upserts(f"p{n}")) for n in range(20)) - 20
    assert 6 <= out <= 10 and kb.receipts() == []
    (open_,) = RequestsPosition.read(kb.log.cursor("requests").position).open
    assert (open_.state, open_.expected, open_.done) == ("begun", 20, out)
    kb.remote.put("live", text="edit")
    kb.remote.tell("live")
    kb.settle(3)
    assert "live" in kb.live() and kb.log.cursor().pending is False  # a backfill leaves nothing unseen
    kb.applied = dict.fromkeys(range(3), 10_000)
    kb.settle(40)
    assert kb.report("r0").repaired == 20  # what came since was appended anyway


# ---------------------------------------------------------------- answers, crashes, order


def crash_at(kb: Owned, monkeypatch: pytest.MonkeyPatch, topic: Topic) -> None:
    """The next transaction with such a record dies before it is written."""
    real = kb.log.write

    def write(outgoing: Any, now: int) -> Any:
        if any(record.topic == topic for record in outgoing):
            monkeypatch.undo()
            raise BusUnavailable("killed")
        return real(outgoing, now)

    monkeypatch.setattr(kb.log, "write", write)


@pytest.mark.requirement("I9", "I1", "F24")
@pytest.mark.parametrize("topic", [Topic.RECEIPTS, Topic.ACCESS])
def test_an_owner_that_dies_in_a_request_answers_it_once_after_its_restart(
    kb: Owned, monkeypatch: pytest.MonkeyPatch, topic: Topic
) -> None:
    del kb.remote.pages["f"]
    crash_at(kb, monkeypatch, topic)
    kb.asked.ask("listing")
    with pytest.raises(BusUnavailable):
        kb.settle()
    assert kb.receipts() == []
    kb.start()
    kb.settle()
    report = kb.report("r0")
    assert report.attempts == 2 and report.complete and kb.hidden() == {"f"}
    assert len([e for e in kb.log.access() if isinstance(e, HoldChanged)]) == 1  # not hidden twice
    kb.start()
    kb.settle()
    assert len(kb.receipts()) == 1


@pytest.mark.requirement("I9", "A6")
def test_a_backfill_goes_on_where_its_owner_died(kb: Owned, monkeypatch: pytest.MonkeyPatch) -> None:
    kb.asked.ask("backfill")
    kb.engine.step()  # begun
    for _ in range(2):
        kb.engine.step()
    done = sum(len(kb.upserts(id_)) - 1 for id_ in SIX)
    assert 0 < done < 6
    crash_at(kb, monkeypatch, Topic.CONTENT)
    with pytest.raises(BusUnavailable):
        kb.settle()
    kb.start()
    kb.settle()
    assert [len(kb.upserts(id_)) for id_ in SIX] == [2] * 6
    assert kb.report("r0").attempts == 2


@pytest.mark.requirement("I8")
def test_a_request_that_always_ends_its_owner_is_refused_at_last(kb: Owned, monkeypatch: pytest.MonkeyPatch) -> None:
    kb.asked.ask("document", document=ref("a"))
    kb.asked.ask("document", document=ref("b"))
    for _ in range(MAX_ATTEMPTS):
        with monkeypatch.context() as broken:
            broken.setattr(kb.connectors[-1], "read", lambda document: 1 / 0)
            with pytest.raises(ZeroDivisionError):
                kb.settle()
        kb.start()
    kb.settle()
    first, second = kb.receipts()
    assert (first.request_id, first.outcome, second.outcome) == ("r0", "refused", "done")
    assert f"{MAX_ATTEMPTS} times" in (first.reason or "")


@pytest.mark.requirement("F24", "I9")
def test_short_requests_pass_long_ones_and_each_is_answered_once(kb: Owned) -> None:
    listing = kb.asked.ask("listing")
    kb.asked.ask("backfill")
    kb.asked.ask("document", document=ref("a"))
    kb.engine.step()
    assert [r.request_id for r in kb.receipts()] == ["r2"]
    position = RequestsPosition.read(kb.log.cursor("requests").position)
    assert (position.next, position.answered) == (0, (2,))
    assert [(o.request_id, o.state) for o in position.open] == [(listing, "begun"), ("r1", "queued")]
    kb.start()
    kb.settle()
    assert [r.request_id for r in kb.receipts()] == ["r2", "r0", "r1"]
    known = RequestsPosition.read(kb.log.cursor("requests").position)
    assert known.model_copy(update={"status": None}) == RequestsPosition(next=3)


def test_a_position_of_an_older_release_is_understood(kb: Owned) -> None:
    assert RequestsPosition.read("7") == RequestsPosition(next=7) and RequestsPosition.read("").next == 0
    assert json.loads(RequestsPosition(next=7).model_dump_json(exclude_defaults=True)) == {"next": 7}


@pytest.mark.requirement("A8", "F01")
def test_a_document_that_nobody_knows_is_deleted_by_request_only_where_that_is_confirmed(kb: Owned) -> None:
    kb.asked.ask("document", document=ref("ghost"))
    kb.asked.ask("document", document=ref("ghost"), confirm_deletions=True)
    kb.settle()
    assert [(r.outcome) for r in kb.receipts()] == ["refused", "done"]
    assert [e.document.id for e in kb.log.access() if isinstance(e, AccessTombstone)] == ["ghost"]
    kb.remote.put("ghost")  # it comes into being after all
    kb.remote.tell("ghost")
    kb.settle(2)
    assert "ghost" in kb.live()


@pytest.mark.requirement("A8")
def test_one_document_is_said_again_whole(kb: Owned) -> None:
    kb.remote.unreadable.add("a")
    kb.walk()
    versions = [e.version for e in kb.log.access() if e.document.id == "a"]  # type: ignore[attr-defined]
    kb.request("document", document=ref("a"))  # still unreadable: its hold is said again
    said = [e for e in kb.log.access() if e.document.id == "a"][len(versions) :]  # type: ignore[attr-defined]
    assert [(type(e), e.active) for e in said] == [(HoldChanged, True)]  # type: ignore[attr-defined]
    kb.request("document", document=ref("b"))
    said = [e for e in kb.log.access() if e.document.id == "b"]  # type: ignore[attr-defined]
    assert len(said) == 2 and said[1].version > said[0].version  # type: ignore[attr-defined]
    assert said[1].rule == EVERYONE  # type: ignore[attr-defined]
