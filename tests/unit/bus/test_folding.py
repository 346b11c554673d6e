"""Folding access and membership events: any order, any repetition, the same end."""

from __future__ import annotations

import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pipeline.bus.codec import AccessEventModel, Undecodable, decode_access, decode_membership, encode
from pipeline.bus.folding import fold_access, fold_membership, source_of
from pipeline.ports import Record
from schemas.access import AccessRule, Closure
from schemas.documents import AccessRecord, PrincipalRecord
from schemas.events import AccessSet, AccessTombstone, HoldChanged, MembershipSet
from schemas.keys import DocumentRef, membership_key

DOC = DocumentRef(tenant="acme", source="wiki", id="1")


def unreadable(offset: int, key: str = DOC.key, value: bytes = b"?") -> Undecodable:
    found = decode_access(Record("access", 0, offset, 0, key, value))
    assert isinstance(found, Undecodable)
    return found


Log = list[tuple[int, AccessEventModel | Undecodable]]


def fold(log: Log, record: AccessRecord | None = None) -> AccessRecord | None:
    for offset, event in log:
        record = fold_access(record, event, document=DOC, offset=offset).record
    return record


@st.composite
def logs(draw: st.DrawFn) -> Log:
    """An owner's events in order (versions grow with offsets, not_before never shrinks), some unreadable."""
    log: Log = []
    not_before = 0
    for offset in range(draw(st.integers(1, 8))):
        version = 10 * (offset + 1)
        kind = draw(st.sampled_from(["rule", "rule", "tombstone", "hold", "lift", "bad", "bad hold"]))
        if kind == "rule":
            not_before = max(not_before, draw(st.integers(0, version)))
            allowed = draw(st.sampled_from(["user:ann", "user:bob", "everyone"]))
            event: AccessEventModel | Undecodable = AccessSet(
                document=DOC, version=version, content_version=1, not_before=not_before, observed_at=version,
                rule=AccessRule.any_of(allowed),
            )  # fmt: skip
        elif kind == "tombstone":
            not_before = version
            event = AccessTombstone(document=DOC, version=version, not_before=version, observed_at=version)
        elif kind in ("hold", "lift"):
            event = HoldChanged(document=DOC, hold="legal", active=kind == "hold", version=version, observed_at=version)
        else:
            event = unreadable(offset, DOC.key if kind == "bad" else DOC.hold_key("legal"))
        log.append((offset, event))
    return log


def meaning(record: AccessRecord | None) -> object:
    """What queries can see of a record."""
    if record is None:
        return None
    seen = frozenset(record.holds), record.not_before, record.tombstone
    closed = record.tombstone or bool(record.holds)
    return (*seen, None if closed else (record.rule, record.version, record.content_version))


@given(logs(), st.data())
@settings(max_examples=80, deadline=None)
@pytest.mark.requirement("I5", "I11", "I12", "A6")
def test_replays_from_anywhere_end_where_the_log_ends(log: Log, data: st.DataObject) -> None:
    """An owner that rewinds folds a suffix again; several owners one after the other do so several times."""
    straight = fold(log)
    record: AccessRecord | None = None
    at = 0
    while at < len(log):
        stop = data.draw(st.integers(at + 1, len(log)))
        record = fold(log[at:stop], record)
        at = stop if stop == len(log) else data.draw(st.integers(max(0, stop - 3), stop))
    assert meaning(record) == meaning(straight)
    again = fold(log[data.draw(st.integers(0, len(log) - 1)) :], record)
    assert meaning(again) == meaning(straight)


@given(logs())
@settings(max_examples=60, deadline=None)
@pytest.mark.requirement("I12")
def test_nobody_passes_while_the_newest_record_of_a_key_cannot_be_read(log: Log) -> None:
    newest: dict[str, AccessEventModel | Undecodable] = {}
    for _, event in log:
        hold = isinstance(event, HoldChanged) or (isinstance(event, Undecodable) and event.hold is not None)
        newest["hold" if hold else "rule"] = event
    record = fold(log)
    assert record is not None
    closed = any(isinstance(event, Undecodable) for event in newest.values())
    if closed:
        assert record.holds, "admission refuses a document with any hold"
    rule = newest.get("rule")
    if isinstance(rule, Undecodable) or rule is None:
        assert not record.rule.admits(Closure(principals=frozenset({"user:ann", "everyone"})), 0)


@pytest.mark.requirement("I5")
def test_the_effect_says_whether_to_write() -> None:
    event = AccessSet(document=DOC, version=5, content_version=1, observed_at=5, rule=AccessRule.any_of("user:ann"))
    first = fold_access(None, event, document=DOC, offset=0)
    assert (first.effect, first.changed) == ("applied", True)
    again = fold_access(first.record, event, document=DOC, offset=0)
    assert (again.effect, again.changed) == ("unchanged", False)
    older = event.model_copy(update={"version": 4})
    assert fold_access(first.record, older, document=DOC, offset=1).effect == "superseded"
    raised = fold_access(first.record, older.model_copy(update={"not_before": 3}), document=DOC, offset=1)
    assert (raised.effect, raised.changed) == ("superseded", True)
    closed = fold_access(first.record, unreadable(7), document=DOC, offset=7)
    assert (closed.effect, closed.changed) == ("closed", True)
    assert fold_access(closed.record, unreadable(7), document=DOC, offset=7).changed is False


@pytest.mark.requirement("I12")
def test_a_first_unreadable_event_leaves_a_closed_record() -> None:
    record = fold([(3, unreadable(3))])
    assert record is not None and record.holds == {"unreadable": 3}
    assert not record.rule.admits(Closure(principals=frozenset({"everyone"})), 0)


def test_an_unknown_kind_of_hold_is_a_hold() -> None:
    key = json.dumps([*json.loads(DOC.key), "hold", "embargo"], separators=(",", ":"))
    record = fold([(3, unreadable(3, key, b'{"type":"hold"}'))])
    assert record is not None and record.holds == {"unreadable:embargo": 3}


# ---------------------------------------------------------------- membership


def said(offset: int, version: int, *parents: str, source: str = "wiki") -> tuple[int, MembershipSet]:
    event = MembershipSet(
        tenant="acme", principal="user:ann", parents=parents, version=version, observed_at=1, source=source
    )
    return offset, event


def bad(offset: int, source: str = "wiki") -> tuple[int, Undecodable]:
    key = membership_key("acme", "user:ann", source)
    found = decode_membership(Record("membership", 0, offset, 0, key, b"?"))
    assert isinstance(found, Undecodable) and found.principal == ("acme", "user:ann")
    return offset, found


MembershipLog = list[tuple[int, MembershipSet | Undecodable]]


def fold_all(log: MembershipLog, record: PrincipalRecord | None = None) -> PrincipalRecord:
    for offset, event in log:
        record = fold_membership(record, event, tenant="acme", principal="user:ann", offset=offset).record
    assert record is not None
    return record


@given(st.data())
@settings(max_examples=60, deadline=None)
@pytest.mark.requirement("I5", "I11", "I12")
def test_memberships_replayed_from_anywhere_end_where_the_log_ends(data: st.DataObject) -> None:
    log: MembershipLog = []
    for offset in range(data.draw(st.integers(1, 8))):
        source = data.draw(st.sampled_from(["wiki", "crm"]))
        if data.draw(st.integers(0, 3)) == 0:
            log.append(bad(offset, source))
        else:
            log.append(said(offset, offset + 1, f"group:{source}/{offset}", source=source))
    straight = fold_all(log)
    record: PrincipalRecord | None = None
    at = 0
    while at < len(log):
        stop = data.draw(st.integers(at + 1, len(log)))
        record = fold_all(log[at:stop], record)
        at = stop if stop == len(log) else data.draw(st.integers(max(0, stop - 3), stop))
    assert record is not None
    assert (record.parents, record.removed, record.parts) == (straight.parents, straight.removed, straight.parts)
    newest = {source_of(event): event for _, event in log}
    assert record.removed is any(isinstance(event, Undecodable) for event in newest.values())


def test_the_wire_form_survives_the_codec() -> None:
    _, event = said(0, 1, "group:wiki/eng")
    record = Record("membership", 0, 0, 0, membership_key("acme", "user:ann", "wiki"), encode(event))
    assert decode_membership(record) == event


@pytest.mark.requirement("I12", "I11")
def test_an_older_readable_event_never_lifts_what_a_later_unreadable_one_closed() -> None:
    """Not even for the moment between two batches of a replay."""
    event = AccessSet(document=DOC, version=5, content_version=1, observed_at=5, rule=AccessRule.any_of("user:ann"))
    closed = fold([(7, unreadable(7))])
    replayed = fold([(3, event)], closed)
    assert replayed is not None and replayed.holds == {"unreadable": 7} and replayed.version == 5
    assert not replayed.rule.admits(Closure(principals=frozenset({"user:ann"})), 0)
    lifted = HoldChanged(document=DOC, hold="legal", active=False, version=5, observed_at=5)
    held = fold([(3, lifted)], fold([(3, lifted), (7, unreadable(7, DOC.hold_key("legal")))]))
    assert held is not None and held.holds == {"unreadable:legal": 7}
    principal = fold_all([said(3, 5, "group:wiki/eng")], fold_all([bad(7)]))
    assert principal.removed and principal.closed == {"wiki": 7}
