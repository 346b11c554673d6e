"""The ledger: what an observation adds to the log, and what it must not."""

from __future__ import annotations

from typing import Any

import pytest

from pipeline.errors import BusUnavailable, Crash
from pipeline.ports import Record, SourceMembership
from pipeline.sources.changes import Change, Limits
from pipeline.sources.ledger import FORGET_DELETED_US
from schemas.access import AccessRule
from schemas.events import AccessSet, AccessTombstone, ContentDeleted, ContentUpserted, HoldChanged
from schemas.keys import partition_of
from tests.unit.sources.support import ANN, BOB, BOTH, Bench, access, doc, gone, ref


@pytest.fixture
def bench() -> Bench:
    return Bench()


def only(events: tuple[Any, ...], kind: type[Any]) -> Any:
    assert len(events) == 1 and isinstance(events[0], kind)
    return events[0]


@pytest.mark.requirement("A1", "I1")
def test_a_new_document_gives_a_rule_and_content_that_demands_it(bench: Bench) -> None:
    (change,) = bench.say(doc("hello"))
    rule, content = only(change.access, AccessSet), only(change.content, ContentUpserted)
    assert rule.version == bench.clock.now() and content.version == rule.version + 1
    assert content.access_version == rule.version
    assert rule.content_version == content.version  # the rule was read with this content
    assert not change.urgent


@pytest.mark.requirement("A6", "I5")
def test_the_same_again_gives_nothing_even_after_a_restart(bench: Bench) -> None:
    bench.say(doc("hello", revision="r1"))
    assert bench.say(doc("hello", revision="r2")) == []
    bench.reload()
    assert bench.say(doc("hello", revision="r2")) == []


@pytest.mark.requirement("I1")
def test_versions_go_up_when_the_clock_goes_back(bench: Bench) -> None:
    bench.say(doc("one"))
    before = bench.ledger.last_version
    bench.clock.advance(-3600)
    (change,) = bench.say(doc("two"))
    assert change.content[0].version == before + 1
    bench.reload()
    bench.clock.advance(-3600)
    (change,) = bench.say(doc("three"))
    assert change.content[0].version == before + 2


@pytest.mark.requirement("A4", "F08")
@pytest.mark.parametrize(
    "changed",
    [
        {"title": "Other"},
        {"url": "https://x/y"},
        {"path": "b.md"},
        {"content_type": "text/markdown"},
        {"language": "de"},
        {"product": "X"},
        {"effective_from": 5},
        {"effective_until": 9},
    ],
)
def test_a_changed_attribute_publishes_content_and_no_rule(bench: Bench, changed: dict[str, Any]) -> None:
    bench.say(doc("hello"))
    (change,) = bench.say(doc("hello", **changed))
    assert change.access == ()
    content = only(change.content, ContentUpserted)
    assert {k: getattr(content, k) for k in changed} == changed
    assert bench.say(doc("hello", **changed)) == []


@pytest.mark.requirement("A8", "I4")
def test_a_narrower_rule_goes_alone_and_urgently(bench: Bench) -> None:
    bench.say(doc("hello", BOTH))
    state = bench.ledger.state(ref())
    assert state is not None
    (change,) = bench.say(doc("hello", ANN))
    assert change.urgent and change.content == ()
    rule = only(change.access, AccessSet)
    assert rule.content_version == state.content_version and rule.priority == "live"


@pytest.mark.requirement("I3")
def test_a_wider_rule_takes_the_content_with_it_in_one_transaction(bench: Bench) -> None:
    bench.say(doc("hello", ANN))
    bench.clock.advance(1)
    changes = bench.ledger.observe(doc("hello", BOTH))
    (change,) = changes
    rule, content = only(change.access, AccessSet), only(change.content, ContentUpserted)
    assert rule.content_version == content.version and content.access_version == rule.version
    assert not change.urgent
    (transaction,) = bench.write(changes)
    assert [r.topic for r in transaction] == ["access", "content", "cursors", "cursors"]


@pytest.mark.requirement("I3", "I4", "F26")
def test_a_swapped_reader_is_both_urgent_and_republished(bench: Bench) -> None:
    bench.say(doc("hello", ANN))
    (change,) = bench.say(doc("hello", BOB))
    assert change.urgent
    assert only(change.access, AccessSet).content_version == only(change.content, ContentUpserted).version


@pytest.mark.requirement("I4", "I9")
def test_a_revocation_does_not_wait_for_a_large_body(bench: Bench) -> None:
    large = "x" * 2000
    bench.say(doc(large, BOTH))
    bench.bodies.down = True
    (first,) = bench.say(doc(large + "y", ANN))
    rule = only(first.access, AccessSet)
    assert first.urgent and first.again and first.content == ()
    with pytest.raises(BusUnavailable):
        bench.ledger.observe(doc(large + "y", ANN))
    bench.reload()  # what an owner does when in doubt
    bench.bodies.down = False
    (second,) = bench.say(doc(large + "y", ANN))
    content = only(second.content, ContentUpserted)
    assert second.access == () and content.access_version == rule.version
    assert content.version > rule.content_version  # newer than what the rule promised
    assert bench.say(doc(large + "y", ANN)) == []


@pytest.mark.requirement("I3")
def test_redaction_closes_older_content_for_good(bench: Bench) -> None:
    bench.say(doc("secret"))
    (change,) = bench.say(doc("clean", redacted=True))
    content = only(change.content, ContentUpserted)
    assert change.urgent and only(change.access, AccessSet).not_before == content.version
    (later,) = bench.say(doc("clean", BOTH))
    assert only(later.access, AccessSet).not_before == content.version  # re-sent by every later rule
    bench.reload()
    (later,) = bench.say(doc("clean", BOB))
    assert only(later.access, AccessSet).not_before == content.version


@pytest.mark.requirement("A6")
def test_the_same_redaction_again_gives_nothing(bench: Bench) -> None:
    bench.say(doc("secret"))
    bench.say(doc("clean", redacted=True))
    assert bench.say(doc("clean", redacted=True)) == []


@pytest.mark.requirement("A8", "F01", "I3")
def test_deletion_writes_a_tombstone_first_and_is_said_once(bench: Bench) -> None:
    bench.say(doc("hello"))
    (change,) = bench.say(gone())
    tombstone, deleted = only(change.access, AccessTombstone), only(change.content, ContentDeleted)
    assert change.urgent and tombstone.not_before == tombstone.version < deleted.version
    assert deleted.access_version == tombstone.version
    assert bench.say(gone()) == []
    bench.reload()
    assert bench.say(gone()) == [] and bench.ledger.live() == 0


@pytest.mark.requirement("I3", "I5")
def test_restoring_keeps_what_the_tombstone_closed(bench: Bench) -> None:
    bench.say(doc("hello"))
    (deleted,) = bench.say(gone())
    bench.reload()
    (restored,) = bench.say(doc("hello"))
    rule, content = only(restored.access, AccessSet), only(restored.content, ContentUpserted)
    assert rule.not_before == deleted.access[0].version < content.version
    assert rule.content_version == content.version and not restored.urgent


@pytest.mark.requirement("I5")
def test_delete_before_create_leaves_a_tombstone(bench: Bench) -> None:
    (change,) = bench.say(gone("late"))
    assert only(change.access, AccessTombstone).document == ref("late")
    (created,) = bench.say(doc("late", id_="late"))
    assert created.access[0].not_before == change.access[0].version  # type: ignore[union-attr]


@pytest.mark.requirement("A1")
def test_a_rule_alone_stands_for_the_newest_content(bench: Bench) -> None:
    (first,) = bench.say(access(ANN))
    assert only(first.access, AccessSet).content_version == 0
    (second,) = bench.say(doc("hello", None))
    assert second.access == () and only(second.content, ContentUpserted).access_version == first.access[0].version
    (wider,) = bench.say(access(BOTH))
    assert only(wider.access, AccessSet).content_version == second.content[0].version and not wider.urgent
    (narrower,) = bench.say(access(BOB))
    assert narrower.urgent and bench.say(access(BOB)) == []


@pytest.mark.requirement("I12")
def test_a_document_without_any_rule_is_for_nobody(bench: Bench) -> None:
    (change,) = bench.say(doc("hello", None))
    rule = only(change.access, AccessSet).rule
    assert rule.clauses[0].names() == ["nobody"] and "no access rule" in rule.reason


@pytest.mark.requirement("I12", "I5")
def test_a_rule_for_a_deleted_document_does_not_replace_its_tombstone(bench: Bench) -> None:
    bench.say(doc("hello"))
    bench.say(gone())
    assert bench.say(access(BOTH)) == []
    (restored,) = bench.say(doc("hello", None))
    assert only(restored.access, AccessSet).rule.clauses[0].names() == ["nobody"]


@pytest.mark.requirement("F22", "I8")
def test_a_body_beyond_the_limit_is_refused_and_its_access_kept(bench: Bench) -> None:
    bench.say(doc("small", BOTH))
    (change,) = bench.say(doc(b"x" * 10_001, ANN))
    assert change.refusal is not None and change.refusal.kind == "too_large" and "10000" in change.refusal.reason
    assert change.content == () and only(change.access, AccessSet).rule == ANN and change.urgent
    assert bench.say(doc(b"x" * 10_001, ANN)) == []  # refused once, not at every look
    (fixed,) = bench.say(doc("small", ANN))
    assert fixed.refusal is None and only(fixed.content, ContentUpserted)


@pytest.mark.requirement("I3", "F22")
def test_new_readers_of_a_refused_body_do_not_get_the_text_before_it(bench: Bench) -> None:
    (first,) = bench.say(doc("old", ANN))
    (change,) = bench.say(doc(b"x" * 10_001, BOTH))
    assert only(change.access, AccessSet).content_version > first.content[0].version
    (later,) = bench.say(access(BOB))
    assert only(later.access, AccessSet).content_version > first.content[0].version


@pytest.mark.requirement("I8")
def test_an_attribute_that_cannot_be_written_is_named(bench: Bench) -> None:
    (change,) = bench.say(doc("hello", effective_from=9, effective_until=3))
    assert change.refusal is not None and "effective_until" in change.refusal.reason
    assert bench.bodies.bodies == {}


def test_bodies_travel_inline_as_text_as_base64_or_by_claim_check(bench: Bench) -> None:
    def body(data: bytes, id_: str) -> Any:
        return bench.say(doc(data, id_=id_))[0].content[0].body  # type: ignore[union-attr]

    assert body("déjà".encode(), "t").text == "déjà"
    assert body(b"\xff\xfe\x00", "b").base64 == "//4A"
    check = body(b"x" * 1001, "c")
    assert check.where == "store" and bench.bodies.bodies[check.path] == b"x" * 1001 and check.size == 1001
    (change,) = bench.say(gone("c"))
    assert change.drop_body == check.path
    bench.reload()


def test_an_erasable_source_keeps_no_body_in_the_log() -> None:
    bench = Bench(inline_limit=0)
    assert bench.say(doc("x"))[0].content[0].body.where == "store"  # type: ignore[union-attr]


@pytest.mark.requirement("I3")
def test_quarantine_hides_once_and_ends_when_the_content_is_seen(bench: Bench) -> None:
    bench.say(doc("hello"))
    (laid,) = bench.ledger.hold(ref(), active=True, reason="missing")
    bench.write([laid])
    assert only(laid.access, HoldChanged).active and laid.urgent
    assert bench.ledger.hold(ref(), active=True, reason="missing") == []
    bench.reload()
    (seen,) = bench.say(doc("hello"))
    lifted = only(seen.access, HoldChanged)
    assert not lifted.active and lifted.version > laid.access[0].version and seen.content == ()
    assert bench.say(doc("hello")) == []
    assert bench.ledger.hold(ref("unknown"), active=True, reason="missing") == []


@pytest.mark.requirement("A1", "I12")
def test_memberships_are_written_where_they_differ_and_losses_come_first(bench: Bench) -> None:
    def member(name: str, *parents: str, removed: bool = False) -> SourceMembership:
        return SourceMembership("acme", name, parents, removed)

    whole = [member("user:ann", "group:kb/a"), member("user:bob", "group:kb/a"), member("user:cleo")]
    assert len(bench.ledger.memberships(whole, whole=True)) == 3
    assert bench.ledger.memberships(whole, whole=True) == []
    changed = [member("user:ann", "group:kb/a", "group:kb/b"), member("user:bob")]
    changes = bench.ledger.memberships(changed, whole=True)
    said = [(c.membership[0].principal, c.membership[0].parents, c.membership[0].removed, c.urgent) for c in changes]
    assert said == [
        ("user:bob", (), False, True),
        ("user:cleo", (), True, True),
        ("user:ann", ("group:kb/a", "group:kb/b"), False, False),
    ]
    (denied,) = bench.ledger.memberships([member("user:ann", "group:kb/a", "group:kb/b", "audience:kb/x#deny")])
    assert denied.urgent  # gaining a denial takes away


@pytest.mark.requirement("A8", "I4")
def test_what_memberships_take_away_can_be_written_before_what_they_give(bench: Bench) -> None:
    def member(name: str, *parents: str) -> SourceMembership:
        return SourceMembership("acme", name, parents)

    bench.write(
        bench.ledger.memberships(
            [
                member("everyone", "audience:kb/open"),
                member("user:ann", "group:kb/eng"),
                member("user:bob", "audience:kb/shut#deny"),
                member("group:kb/eng", "audience:kb/shut"),
            ],
            whole=True,
        )
    )
    swapped = [
        member("everyone", "audience:kb/shut"),
        member("user:ann", "group:kb/eng", "group:kb/outside"),
        member("user:bob"),
        member("user:cleo", "group:kb/eng"),
        member("group:kb/eng", "audience:kb/open"),
        member("group:kb/outside", "audience:kb/late", "audience:kb/open#deny"),
    ]
    said = {c.membership[0].principal: c.membership[0].parents for c in _said(bench, swapped, gains=False)}
    assert said == {
        "everyone": (),
        "user:ann": ("group:kb/eng", "group:kb/outside"),  # being outside denies: it does not wait
        "group:kb/eng": (),
        "group:kb/outside": ("audience:kb/open#deny",),
    }
    assert _said(bench, swapped, gains=False) == []
    given = {c.membership[0].principal: c.membership[0].parents for c in _said(bench, swapped, gains=True)}
    assert given == {
        "everyone": ("audience:kb/shut",),
        "user:bob": (),
        "user:cleo": ("group:kb/eng",),
        "group:kb/eng": ("audience:kb/open",),
        "group:kb/outside": ("audience:kb/late", "audience:kb/open#deny"),
    }
    assert _said(bench, swapped, gains=True) == []


def _said(bench: Bench, seen: list[SourceMembership], *, gains: bool) -> list[Change]:
    changes = bench.ledger.memberships(seen, whole=True, gains=gains)
    bench.write(changes)
    bench.reload()
    return changes


@pytest.mark.requirement("I1", "I4")
def test_memberships_that_give_come_last_and_never_out_of_order(bench: Bench) -> None:
    bench.write(bench.ledger.memberships([SourceMembership("acme", "user:ann", ("group:kb/a",))]))
    gains = bench.ledger.memberships([SourceMembership("acme", "user:bob", ("group:kb/a",))])
    twice = bench.ledger.memberships([SourceMembership("acme", "user:ann", ("group:kb/a", "group:kb/b"))])
    twice += bench.ledger.memberships([SourceMembership("acme", "user:ann", ())])
    changes = [*gains, *twice, *bench.ledger.observe(doc("x"))]
    written = [[(r.topic, r.key) for r in t if r.topic != "cursors"] for t in bench.write(changes)]
    ann, bob = '["acme","user:ann","kb"]', '["acme","user:bob","kb"]'
    assert written == [
        [("membership", ann), ("membership", ann)],
        [("access", ref().key), ("content", ref().key)],
        [("membership", bob)],
    ]
    assert bench.ledger.members["user:ann"].parents == ()


@pytest.mark.requirement("A1")
def test_each_source_writes_its_own_record_of_a_person(bench: Bench) -> None:
    changes = bench.ledger.memberships([SourceMembership("acme", "user:ann", ("group:kb/a",))])
    ((record, _),) = bench.write(changes)
    assert record.key == '["acme","user:ann","kb"]'
    bench.records.append(Record("membership", 0, 99, 0, '["acme","user:ann","other"]', b"not ours"))
    bench.reload()
    assert bench.ledger.members["user:ann"].parents == ("group:kb/a",)


@pytest.mark.requirement("I9")
def test_transactions_are_small_ordered_and_take_away_first(bench: Bench) -> None:
    for n in range(10):
        bench.say(doc("x", BOTH, id_=f"d{n}"))
    bench.write(bench.ledger.memberships([SourceMembership("acme", "user:ann", ("group:kb/a",))]))
    bench.clock.advance(1)
    changes = [c for n in range(200) for c in bench.ledger.observe(doc("y", id_=f"n{n}"))]
    changes += [c for n in range(5) for c in bench.ledger.observe(doc("x", ANN, id_=f"d{n}"))]
    changes += [c for n in range(5, 10) for c in bench.ledger.observe(gone(f"d{n}"))]
    changes += bench.ledger.memberships([SourceMembership("acme", "user:ann", ())])
    written = bench.write(changes, Limits(events=50, urgent_events=10, bytes=10_000))
    assert [r.topic for r in written[0]] == ["membership", "cursors"]
    urgent = [t for t in written[1:] if any(b'"id":"d' in (r.value or b"") for r in t)]
    assert written[1 : 1 + len(urgent)] == urgent
    assert all(not any(b'"id":"n' in (r.value or b"") for r in t) for t in urgent)
    for transaction in written:
        assert len(transaction) <= 50 and sum(len(r.value or b"") for r in transaction) <= 12_000
        order = ["membership", "access", "content", "cursors"]
        assert [r.topic for r in transaction] == sorted((r.topic for r in transaction), key=order.index)
        assert '"cursor"' in (transaction[-1].key or "")


@pytest.mark.requirement("I1", "I9")
def test_hurrying_never_turns_the_order_of_one_document_round(bench: Bench) -> None:
    changes = bench.ledger.observe(doc("one", BOTH)) + bench.ledger.observe(doc("z", id_="z"))
    changes += bench.ledger.observe(doc("one", ANN)) + bench.ledger.observe(doc("two", ANN))
    written = [r for t in bench.write(changes) for r in t]
    for topic in ("access", "content"):
        versions = [_version(r) for r in written if r.topic == topic and r.key == ref().key]
        assert versions == sorted(versions) and len(versions) == 2


def _version(record: Record) -> int:
    import json

    return int(json.loads(record.value or b"")["version"])


@pytest.mark.requirement("I1")
def test_holds_share_the_partition_of_their_document(bench: Bench) -> None:
    from pipeline.sources.changes import transactions

    changes = bench.ledger.observe(doc("x")) + bench.ledger.hold(ref(), active=True, reason="r")
    (transaction,) = transactions(changes, bench.cursor, Limits())
    places = {partition_of(r.partition_key or r.key, 12) for r in transaction.records if r.topic == "access"}
    assert len(places) == 1
    cursors = {r.partition_key for r in transaction.records if r.topic == "cursors"}
    assert len(cursors) == 1  # one partition holds all of a source's states


@pytest.mark.requirement("F10")
def test_deleted_documents_are_forgotten_at_last(bench: Bench) -> None:
    bench.say(doc("x"))
    bench.say(doc("y", id_="b"))
    bench.say(gone())
    assert bench.ledger.expired() == []
    bench.clock.advance(FORGET_DELETED_US / 1_000_000 + 1)
    assert bench.ledger.expired() == [ref()]
    assert [d.id for d, _ in bench.ledger.states()] == ["b"]


@pytest.mark.requirement("I1")
def test_an_owner_that_cannot_read_its_own_state_stops(bench: Bench) -> None:
    record = Record("cursors", 0, 7, 0, ref().state_key(), b'{"type":"document","new":1}')
    with pytest.raises(Crash, match="newer release"):
        bench.ledger.load_cursor(record)
    bench.ledger.load_cursor(Record("cursors", 0, 8, 0, '["acme","other","cursor","changes"]', b"not ours"))
    bench.ledger.load_cursor(Record("cursors", 0, 9, 0, None, b"nobody's"))


def test_a_forced_look_publishes_unchanged_content(bench: Bench) -> None:
    bench.say(doc("x"))
    (change,) = bench.say(doc("x"), force=True)
    assert only(change.content, ContentUpserted) and change.access == ()


def test_the_size_hint_and_the_reason_are_no_change(bench: Bench) -> None:
    bench.say(doc("x", AccessRule.any_of("user:ann")))
    clause = ANN.clauses[0].model_copy(update={"size_hint": 7})
    assert bench.say(doc("x", AccessRule(clauses=(clause,), reason="recounted"))) == []
