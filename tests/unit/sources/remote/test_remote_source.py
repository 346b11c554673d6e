"""A remote system through its owner: what is read, hidden, deleted and repeated, and what the cursor says."""

from __future__ import annotations

import pytest

from consumers.owner_jobs import Pace
from pipeline.errors import BusUnavailable
from pipeline.ports import SourceMembership
from pipeline.sources.guard import DeletionGuard
from pipeline.sources.remote.contract import Capabilities, Changes, Page, RateLimited, Readership, Touched, child
from schemas.events import AccessSet, AccessTombstone, ContentUpserted
from schemas.keys import DocumentRef
from schemas.reconciliation import OwnerStatus, RequestsPosition
from tests.unit.sources.remote.scripted import ANN, UNAVAILABLE, Owned, ref


@pytest.fixture
def kb() -> Owned:
    owned = Owned()
    for id_ in "abc":
        owned.script.put(id_, f"text of {id_}")
    return owned


def content(kb: Owned) -> int:
    return len(kb.log.content())


# ------------------------------------------------------------ listing


@pytest.mark.requirement("A1")
def test_a_listing_reads_everything_and_a_second_one_nothing(kb: Owned) -> None:
    kb.start()
    assert kb.texts() == {i: f"text of {i}" for i in "abc"}
    before, fetched = content(kb), len(kb.script.fetched)
    kb.start()
    assert content(kb) == before and len(kb.script.fetched) - fetched <= 3  # the sweep reads on
    assert kb.engine.listed is not None and kb.engine.listed.listed == 3 and kb.engine.listed.complete


@pytest.mark.requirement("A1", "I9")
def test_a_listing_that_is_interrupted_goes_on_from_its_page(kb: Owned) -> None:
    kb.script.listing_fails = [UNAVAILABLE, UNAVAILABLE]
    kb.start()
    for _ in range(4):
        kb.passes(1)
    assert set(kb.texts()) == set("abc") and kb.engine.listed is not None and kb.engine.listed.complete


@pytest.mark.requirement("A8")
def test_a_listing_that_breaks_off_deletes_nothing(kb: Owned) -> None:
    kb.start()
    del kb.script.pages["b"]
    kb.script.listing_fails = [UNAVAILABLE] * 50
    kb.clock.advance(200_000)
    for _ in range(30):
        kb.passes(31)
    assert kb.texts()["b"] == "text of b" and kb.engine.listed is not None and not kb.engine.listed.complete


@pytest.mark.requirement("A1", "I8")
def test_a_listing_that_could_not_begin_or_end_is_tried_again_soon_and_then_ever_later(kb: Owned) -> None:
    readers = kb.script.readers
    tried: list[float] = []

    def away() -> Readership:
        tried.append(kb.clock.elapsed())
        raise UNAVAILABLE

    kb.script.readers = away  # type: ignore[method-assign]
    kb.script.feed += [UNAVAILABLE] * 500
    kb.start()
    for _ in range(60):
        kb.passes(1, steps=4)
    assert kb.texts() == {} and 4 <= len(tried) <= 30
    kb.script.readers = readers  # type: ignore[method-assign]
    kb.script.feed.clear()
    for _ in range(90):
        kb.passes(1, steps=4)
    assert set(kb.texts()) == set("abc")  # long before the next walk is due


@pytest.mark.requirement("A1", "D7")
def test_notifications_during_a_listing_begin_no_second_one_beside_it(kb: Owned) -> None:
    kb.script.capabilities = Capabilities("listing", push="webhook", feed=False, child_kinds=("file",))
    kb.start()
    kb.script.page_size = 1
    pages: list[str | None] = []
    listing = kb.script.listing

    def noted(at: str | None) -> Page:
        pages.append(at)
        return listing(at)

    kb.script.listing = noted  # type: ignore[method-assign]
    for _ in range(6):
        kb.engine.connector.notify(None)
        kb.passes(0.01, steps=1)
    kb.passes(1)
    assert 1 <= pages.count(None) <= 3  # one for what came before it ended, one for what came since


@pytest.mark.requirement("A8", "F06")
def test_a_page_with_a_problem_proves_no_absence(kb: Owned) -> None:
    kb.start()
    del kb.script.pages["b"]
    kb.script.page_problems = ("row 7 has no id",)
    kb.script.put("d", "text of d")
    kb.passes(200_000)
    assert kb.texts()["b"] == "text of b" and kb.texts()["d"] == "text of d"
    assert any("row 7" in problem for problem in kb.engine.problems)


@pytest.mark.requirement("A8", "F02", "F03")
def test_what_a_listing_lacks_is_looked_for_by_itself_and_deleted(kb: Owned) -> None:
    kb.start()
    del kb.script.pages["b"]
    kb.passes(200_000)
    assert kb.texts()["b"] is None


@pytest.mark.requirement("A8")
def test_what_a_listing_lacks_and_may_not_be_read_is_hidden_not_deleted(kb: Owned) -> None:
    kb.start()
    stands = kb.script.pages.pop("b")
    kb.script.forbidden.add("b")
    kb.passes(200_000)
    assert kb.texts()["b"] == "text of b" and kb.hidden() == {"b"}
    kb.script.forbidden.clear()
    kb.script.pages["b"] = stands
    kb.passes(200_000)
    assert kb.hidden() == set()


@pytest.mark.requirement("A8")
def test_suspiciously_many_missing_are_hidden_without_a_question_each(kb: Owned) -> None:
    kb.guard = DeletionGuard(share=0.1, count=1)
    kb.start()
    kept = kb.script.pages.pop("a")
    kb.script.pages.clear()
    kb.script.pages["a"] = kept
    fetched = len(kb.script.fetched)
    kb.passes(200_000)
    assert kb.hidden() == {"b", "c"} and kb.texts()["b"] is not None
    assert len(kb.script.fetched) - fetched <= 10


@pytest.mark.requirement("A8")
def test_a_document_that_is_made_while_a_listing_runs_is_not_missing(kb: Owned) -> None:
    kb.start()
    kb.script.page_size = 1
    kb.clock.advance(200_000)
    kb.engine.step()  # the listing begins
    kb.script.put("0", "made before the pages that are left")
    kb.script.tell(Touched(ref("0"), "1"))
    kb.passes(6)
    kb.passes(6)
    assert kb.texts()["0"] == "made before the pages that are left"


# ------------------------------------------------------------ changes


@pytest.mark.requirement("A1", "A6")
def test_an_overlap_repeats_nothing(kb: Owned) -> None:
    kb.start()
    kb.script.put("a", "second text")
    kb.script.tell(Touched(ref("a"), "2"), cursor="1")
    kb.passes(5)
    assert kb.texts()["a"] == "second text"
    before, fetched = content(kb), kb.script.fetched.count("a")
    kb.script.tell(Touched(ref("a"), "2"), Touched(ref("b"), "1"), cursor="2")
    kb.passes(5)
    assert content(kb) == before and kb.script.fetched.count("a") == fetched


@pytest.mark.requirement("I9")
def test_the_cursor_goes_to_the_log_with_the_last_of_its_events(kb: Owned) -> None:
    kb.start()
    kb.script.put("a", "new", ANN)
    kb.script.put("b", "new")
    kb.script.tell(Touched(ref("a"), "2"), Touched(ref("b"), "2"), cursor="after both")
    kb.passes(5)
    (position,) = {
        i for i, t in enumerate(kb.log.transactions) if b"after both" in b"".join(r.value or b"" for r in t)
    } & {i for i, t in enumerate(kb.log.transactions) if any(r.topic == "content" for r in t)}
    assert kb.position() == "after both" and kb.script.done[-1] == "after both"
    earlier = [r for t in kb.log.transactions[:position] for r in t if b"after both" in (r.value or b"")]
    assert earlier == []


@pytest.mark.requirement("I9")
def test_an_owner_that_dies_before_its_events_are_written_asks_from_the_old_cursor(kb: Owned) -> None:
    kb.start()
    kb.script.tell(cursor="kept")
    kb.passes(5)
    kb.script.put("a", "new")
    kb.script.tell(Touched(ref("a"), "2"), cursor="lost")
    kb.log.fail_next = 1
    with pytest.raises(BusUnavailable):
        kb.passes(5)
    assert kb.position() == "kept"
    kb.start()
    kb.passes(5)
    assert kb.script.asked[-1] == "kept" or "kept" in kb.script.asked[-3:]
    assert kb.texts()["a"] == "new"


@pytest.mark.requirement("I9", "I8")
def test_a_system_that_stops_answering_keeps_what_was_to_be_read(kb: Owned) -> None:
    kb.start()
    kb.script.put("a", "new")
    kb.script.put("b", "new")
    kb.script.tell(Touched(ref("a"), "2"), Touched(ref("b"), "2"), cursor="later")
    kb.script.fails = [UNAVAILABLE] * 20
    kb.script.feed += [UNAVAILABLE] * 3  # nor is it said what happened since
    kb.passes(5)
    assert kb.engine.connector.degraded is not None and kb.position() != "later"
    for _ in range(30):
        kb.passes(31)
    assert (kb.texts()["a"], kb.texts()["b"]) == ("new", "new") and kb.position() == "later"
    assert kb.engine.connector.degraded is None


@pytest.mark.requirement("F06", "I8")
def test_one_document_that_cannot_be_given_stops_no_other(kb: Owned) -> None:
    kb.start()
    for id_ in "abc":
        kb.script.put(id_, "new")

    def broken(document: DocumentRef) -> None:
        if document.id == "b":
            raise UNAVAILABLE

    kb.script.before_fetch = broken
    kb.script.tell(*(Touched(ref(i), "2") for i in "abc"), cursor="later")
    for _ in range(10):
        kb.passes(20)
    assert kb.texts() == {"a": "new", "b": "text of b", "c": "new"} and kb.position() == "later"
    assert kb.hidden() == {"b"} and any("page b cannot be read" in p for p in kb.engine.problems)
    kb.script.before_fetch = lambda document: None
    for _ in range(8):
        kb.passes(31)
    assert kb.texts()["b"] == "new" and kb.hidden() == set()


@pytest.mark.requirement("I8")
def test_a_limit_is_waited_for_and_loses_nothing(kb: Owned) -> None:
    kb.start()
    kb.script.put("a", "new")
    kb.script.tell(Touched(ref("a"), "2"), cursor="later")
    kb.script.fails = [RateLimited("429", 30.0)]
    kb.passes(5)
    fetched = len(kb.script.fetched)
    kb.passes(20)
    assert len(kb.script.fetched) == fetched and kb.texts()["a"] == "text of a"
    kb.passes(11)
    assert kb.texts()["a"] == "new"


@pytest.mark.requirement("I9")
def test_a_cursor_that_says_nothing_any_more_leads_to_a_listing(kb: Owned) -> None:
    kb.start()
    kb.script.put("d", "text of d")
    kb.script.tell(cursor="", relist=True)
    kb.passes(5)
    assert kb.texts()["d"] == "text of d" and kb.script.started == 2
    kb.passes(5)
    assert kb.script.asked[-1] == "start2"


@pytest.mark.requirement("A8", "F01")
def test_a_deletion_that_is_told_is_looked_for_once_and_written_at_once(kb: Owned) -> None:
    kb.start()
    del kb.script.pages["a"]
    kb.script.tell(gone=(ref("a"), ref("b"), ref("never seen")), cursor="1")
    kb.passes(5)
    assert kb.texts() == {"a": None, "b": "text of b", "c": "text of c"}


@pytest.mark.requirement("A8")
def test_a_restored_document_is_back(kb: Owned) -> None:
    kb.start()
    stands = kb.script.pages.pop("a")
    kb.script.tell(gone=(ref("a"),), cursor="1")
    kb.passes(5)
    kb.script.pages["a"] = stands
    kb.script.tell(Touched(ref("a"), "1"), cursor="2")
    kb.passes(5)
    assert kb.texts()["a"] == "text of a"


@pytest.mark.requirement("A8")
def test_not_found_is_hidden_at_once_and_deleted_at_a_second_look(kb: Owned) -> None:
    kb.start()
    del kb.script.pages["a"]
    kb.script.tell(Touched(ref("a")), cursor="1")
    kb.passes(5)
    assert kb.hidden() == {"a"} and kb.texts()["a"] == "text of a"
    kb.passes(1.1)
    assert kb.texts()["a"] is None


@pytest.mark.requirement("A8")
def test_not_found_that_is_there_at_the_second_look_is_shown_again(kb: Owned) -> None:
    kb.start()
    stands = kb.script.pages.pop("a")
    kb.script.tell(Touched(ref("a")), cursor="1")
    kb.passes(5)
    kb.script.pages["a"] = stands
    kb.passes(1.1)
    assert kb.hidden() == set() and kb.texts()["a"] == "text of a"


@pytest.mark.requirement("A8")
def test_forbidden_is_hidden_as_long_as_it_lasts(kb: Owned) -> None:
    kb.start()
    kb.script.forbidden.add("a")
    kb.script.tell(Touched(ref("a")), cursor="1")
    kb.passes(5)
    kb.passes(60)
    assert kb.hidden() == {"a"} and kb.texts()["a"] == "text of a"
    kb.script.forbidden.clear()
    kb.script.tell(Touched(ref("a"), "1"), cursor="2")
    kb.passes(5)
    assert kb.hidden() == set()


@pytest.mark.requirement("A8", "I3")
def test_a_redaction_shuts_out_what_is_indexed(kb: Owned) -> None:
    kb.start()
    kb.script.put("a", "without the secret")
    kb.script.tell(Touched(ref("a"), "2", redacted=True), Touched(ref("a"), "2"), cursor="1")
    kb.passes(5)
    newest = [e for e in kb.log.access() if isinstance(e, AccessSet) and e.document.id == "a"][-1]
    shown = [e for e in kb.log.content() if isinstance(e, ContentUpserted) and e.document.id == "a"][-1]
    assert newest.not_before == shown.version
    count = content(kb)
    kb.script.tell(Touched(ref("a"), "2", redacted=True), cursor="2")
    kb.passes(5)
    assert content(kb) == count


# ------------------------------------------------------------ children


@pytest.mark.requirement("A1", "F06")
def test_children_come_go_and_change_with_their_document(kb: Owned) -> None:
    kb.script.put("a", "with files", one="first", two="second")
    kb.start()
    files = {f"page:a/{name}" for name in ("one", "two")}
    assert files <= set(kb.texts())
    kb.script.put("a", "with one file", one="first")
    kb.script.tell(Touched(ref("a"), "3"), cursor="1")
    kb.passes(5)
    assert kb.texts()["page:a/two"] is None and kb.texts()["page:a/one"] == "first"
    del kb.script.pages["a"]
    kb.script.tell(gone=(ref("a"),), cursor="2")
    kb.passes(5)
    assert kb.texts()["page:a/one"] is None


@pytest.mark.requirement("A8", "F26")
def test_a_narrowed_parent_narrows_its_children(kb: Owned) -> None:
    kb.script.put("a", "with a file", one="first")
    kb.start()
    kb.script.pages["a"].rule = ANN
    kb.script.pages["a"].revision += 1
    kb.script.tell(Touched(ref("a"), "3"), cursor="1")
    kb.passes(5)
    newest = {e.document.id: e.rule for e in kb.log.access() if isinstance(e, AccessSet)}
    assert newest["page:a/one"].clauses == newest["a"].clauses == ANN.clauses


@pytest.mark.requirement("A8")
def test_a_listing_that_does_not_name_children_does_not_miss_them(kb: Owned) -> None:
    kb.script.put("a", "with a file", one="first")
    kb.start()
    kb.script.lists_children = False
    kb.passes(200_000)
    assert kb.texts()["page:a/one"] == "first"


@pytest.mark.requirement("A8", "F04")
def test_a_child_that_a_listing_lacks_is_deleted(kb: Owned) -> None:
    kb.script.put("a", "with a file", one="first")
    kb.start()
    kb.script.pages["a"].files.clear()  # and nothing of its document moves
    kb.passes(200_000)
    assert kb.texts()["page:a/one"] is None and kb.texts()["a"] == "with a file"


# ------------------------------------------------------------ notifications, readers, sweep


@pytest.mark.requirement("A1", "D4")
def test_a_notification_is_looked_at_without_waiting_for_the_poll(kb: Owned) -> None:
    kb.start()
    kb.passes(5)
    kb.clock.advance(0.01)
    kb.script.put("a", "new")
    kb.script.tell(Touched(ref("a"), "2"), cursor="1")
    kb.settle()
    assert kb.texts()["a"] == "text of a"
    kb.script.notify(None)
    kb.settle()
    assert kb.texts()["a"] == "new"


@pytest.mark.requirement("A1")
def test_what_becomes_visible_a_moment_after_its_notification_is_met(kb: Owned) -> None:
    kb.start()
    kb.passes(5)
    kb.clock.advance(0.01)
    kb.script.notify(None)
    kb.settle()
    kb.script.put("a", "new")
    kb.script.tell(Touched(ref("a"), "2"), cursor="1")
    kb.passes(0.31)
    assert kb.texts()["a"] == "new"


@pytest.mark.requirement("A1")
def test_a_request_can_notify(kb: Owned) -> None:
    kb.start()
    kb.passes(5)
    kb.script.put("a", "new")
    kb.asked.ask("notify", document=ref("a"))
    kb.settle()
    assert kb.texts()["a"] == "new"


@pytest.mark.requirement("A8", "D5")
def test_a_membership_that_ends_is_written_at_the_next_comparison(kb: Owned) -> None:
    kb.script.members = (SourceMembership("acme", "user:bob", ("group:kb/1",)),)
    kb.start()
    assert kb.log.parents() == {"user:bob": ("group:kb/1",)}
    kb.script.members = ()
    kb.passes(5)
    assert kb.log.parents() == {}


@pytest.mark.requirement("A8")
def test_the_sweep_finds_what_moves_no_date(kb: Owned) -> None:
    kb.script.put("a", "with a file", one="first")
    kb.start()
    kb.script.pages["b"].text = "edited without a trace"
    kb.script.pages["a"].files.clear()
    for _ in range(14):
        kb.passes(300)
    assert kb.texts()["b"] == "edited without a trace" and kb.texts()["page:a/one"] is None


# ------------------------------------------------------------ requests


@pytest.mark.requirement("E5")
def test_a_paused_source_reads_nothing_until_it_is_resumed(kb: Owned) -> None:
    kb.start()
    kb.asked.ask("pause")
    kb.settle()
    kb.script.put("a", "new")
    kb.script.tell(Touched(ref("a"), "2"), cursor="1")
    kb.passes(60)
    assert kb.texts()["a"] == "text of a"
    kb.start()  # it stays paused over a restart
    kb.passes(60)
    assert kb.texts()["a"] == "text of a" and kb.engine.paused
    kb.asked.ask("resume")
    kb.passes(6)
    assert kb.texts()["a"] == "new"


@pytest.mark.requirement("E5")
def test_a_reset_reads_every_document_again_and_publishes_what_differs(kb: Owned) -> None:
    kb.start()
    kb.script.pages["b"].text = "edited without a trace"
    before, fetched = content(kb), len(kb.script.fetched)
    id_ = kb.asked.ask("reset")
    kb.settle()
    kb.passes(1)
    assert len(kb.script.fetched) - fetched >= 3 and content(kb) == before + 1
    assert kb.texts()["b"] == "edited without a trace"
    receipts = [r for r in kb.log.records if r.topic == "receipts" and r.key == id_]
    assert len(receipts) == 1


@pytest.mark.requirement("A11")
def test_an_owner_says_how_it_is(kb: Owned) -> None:
    def told() -> OwnerStatus:
        status = RequestsPosition.read(kb.log.cursor("requests").position).status
        assert status is not None
        return status

    kb.start()
    kb.passes(5)
    first = told()
    assert (first.state, first.documents, first.listed, first.why) == ("waiting", 3, 3, None)
    kb.script.feed += [UNAVAILABLE] * 100
    for _ in range(3):
        kb.passes(10)
    assert told().state == "unreachable" and "502" in (told().why or "")
    kb.script.feed.clear()
    kb.passes(60)
    assert told().state == "waiting"
    kb.script.listing_fails = [UNAVAILABLE] * 100
    kb.start()  # a new owner, which cannot list: the last complete listing is still known
    kb.passes(5)
    assert told().listed_at == first.listed_at
    kb.script.listing_fails.clear()
    kb.throttled, kb.applied = True, {}
    kb.start()
    for id_ in "abc":
        kb.script.put(id_, "written while the index is behind")
    kb.engine._pace = Pace(window=0, idle_s=0.0, rest_s=0.0, walk_s=100_000)
    kb.passes(200_000, steps=6)  # each waits a moment for the index
    kb.passes(2, steps=2)
    assert told().state == "starved"


@pytest.mark.requirement("A1")
def test_a_backfill_says_a_window_again(kb: Owned) -> None:
    kb.start()
    kb.script.pages["a"].updated_at = 5_000_000
    kb.script.pages["b"].updated_at = 50_000_000
    before = content(kb)
    kb.asked.ask("backfill", updated_from=1_000_000, updated_until=10_000_000)
    kb.settle()
    assert content(kb) == before + 2  # the one in the window, and the one without a date


@pytest.mark.requirement("A8")
def test_one_document_is_read_by_request(kb: Owned) -> None:
    kb.start()
    del kb.script.pages["a"]
    kb.asked.ask("document", document=ref("a"))
    kb.settle()
    assert kb.texts()["a"] is None
    assert any(isinstance(e, AccessTombstone) for e in kb.log.access())


@pytest.mark.requirement("A1")
def test_a_document_may_be_asked_for_by_its_path(kb: Owned) -> None:
    kb.start()
    kb.script.pages["a"].text = "edited without a trace"
    kb.asked.ask("document", document=ref("pages/a"))
    kb.settle()
    assert kb.texts()["a"] == "edited without a trace"
    id_ = kb.asked.ask("document", document=ref("pages/z"))
    kb.settle()
    (receipt,) = [r for r in kb.log.records if r.topic == "receipts" and r.key == id_]
    assert b"document_id" in (receipt.value or b"")


def test_children_are_told_from_other_documents() -> None:
    one = child(ref("7@1"), "file", "9")
    assert one.id == "page:7@1/9" and one.kind == "file"
    assert Changes("x").touched == ()
