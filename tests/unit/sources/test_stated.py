"""What a batch of changes comes to: the last state of each document and principal."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pipeline.clock import ManualClock
from pipeline.ports import SourceAccess, SourceDeletion, SourceDocument, SourceMembership
from pipeline.sources.bodies import BodyPlacer
from pipeline.sources.connector import Seen, SourceHidden
from pipeline.sources.ledger import Ledger
from pipeline.sources.stated import newest
from schemas.access import AccessRule
from schemas.keys import DocumentRef

A, B = (DocumentRef(tenant="acme", source="app", id=id_) for id_ in "ab")
ANN, BOB = AccessRule.any_of("user:ann"), AccessRule.any_of("user:bob")


def doc(ref: DocumentRef, text: str, rule: AccessRule | None = None, *, redacted: bool = False) -> SourceDocument:
    return SourceDocument(ref, "t", text.encode(), "text/plain", rule, redacted=redacted)


@pytest.mark.requirement("A8", "I12")
def test_only_the_last_state_of_each_is_told() -> None:
    member: list[Seen] = [
        SourceMembership("acme", "user:ann", ("group:app/x",)),
        SourceMembership("acme", "user:ann", ()),
    ]
    cases: list[tuple[list[Seen], list[Seen]]] = [
        ([doc(A, "1", ANN), doc(B, "2"), doc(A, "3")], [doc(B, "2"), doc(A, "3", ANN)]),
        ([doc(A, "1", ANN), SourceAccess(A, BOB)], [doc(A, "1", BOB)]),
        ([SourceAccess(A, ANN), SourceAccess(A, BOB)], [SourceAccess(A, BOB)]),
        ([SourceAccess(A, ANN), doc(A, "1")], [SourceAccess(A, ANN), doc(A, "1")]),
        ([SourceAccess(A, ANN), doc(A, "1"), doc(A, "2")], [SourceAccess(A, ANN), doc(A, "2")]),
        ([SourceAccess(A, ANN), doc(A, "1"), doc(A, "2", BOB)], [doc(A, "2", BOB)]),
        ([SourceAccess(A, ANN), doc(A, "1"), SourceAccess(A, BOB)], [doc(A, "1", BOB)]),
        ([SourceAccess(A, ANN), doc(A, "1"), SourceDeletion(A)], [SourceDeletion(A)]),
        ([doc(A, "1", ANN, redacted=True), doc(A, "2")], [doc(A, "2", ANN, redacted=True)]),
        ([doc(A, "1", ANN), SourceDeletion(A)], [SourceDeletion(A)]),
        ([SourceDeletion(A), doc(A, "1")], [SourceDeletion(A), doc(A, "1")]),
        ([SourceDeletion(A), SourceAccess(A, ANN), doc(A, "1")], [SourceDeletion(A), doc(A, "1")]),
        ([doc(A, "1"), SourceHidden(A, "x"), doc(A, "2")], [doc(A, "1"), SourceHidden(A, "x"), doc(A, "2")]),
        ([SourceHidden(A, "x"), SourceDeletion(A)], [SourceDeletion(A)]),
        (member, member[1:]),
    ]
    for seen, expected in cases:
        assert newest(seen) == expected


_changes = st.lists(
    st.one_of(
        st.builds(doc, st.sampled_from((A, B)), st.sampled_from("xyz"), st.sampled_from((None, ANN, BOB))),
        st.builds(SourceDeletion, st.sampled_from((A, B))),
        st.builds(SourceAccess, st.sampled_from((A, B)), st.sampled_from((ANN, BOB))),
        st.builds(SourceHidden, st.sampled_from((A, B)), st.just("x")),
    ),
    max_size=8,
)


def _state(batches: list[list[Seen]]) -> list[object]:
    ledger = Ledger("acme", "app", ManualClock(), BodyPlacer(None))
    for one in (one for batch in batches for one in batch):
        if isinstance(one, SourceHidden):
            ledger.hold(one.document, active=True, reason=one.reason)
        else:
            ledger.observe(one)
    states = {d.id: s for d, s in ledger.states()}
    return [
        (id_, s.deleted or (s.content_hash, s.rule.model_copy(update={"reason": None}) if s.rule else None, s.holds))
        for id_, s in sorted(states.items())
        if not s.deleted
    ]


@pytest.mark.requirement("A8", "I12", "A6")
@given(_changes, _changes, _changes)
def test_a_batch_comes_to_what_its_changes_come_to_one_by_one(a: list[Seen], b: list[Seen], c: list[Seen]) -> None:
    assert _state([newest(a), newest(b + c)]) == _state([a, b, c])


@pytest.mark.requirement("A8", "I12", "A6")
def test_readers_told_after_a_deletion_in_an_earlier_batch_are_not_those_of_what_comes_back() -> None:
    gone: list[Seen] = [SourceDeletion(A)]
    back: list[Seen] = [SourceAccess(A, ANN), doc(A, "x")]
    known: list[Seen] = [doc(A, "k", BOB)]
    assert _state([known, newest(gone), newest(back)]) == _state([known, gone, back])


@pytest.mark.requirement("A8", "I9")
@given(_changes, st.integers(0, 8))
def test_reading_an_interrupted_batch_again_changes_no_end(a: list[Seen], at: int) -> None:
    known: list[Seen] = [doc(A, "k", ANN), doc(B, "k", ANN)]  # nothing can be hidden that is not there
    assert _state([known, newest(a)[:at], newest(a)]) == _state([known, newest(a)])


@pytest.mark.requirement("A8", "I12")
def test_readers_of_what_was_deleted_do_not_come_back_past_a_hold() -> None:
    seen: list[Seen] = [SourceDeletion(A), SourceHidden(A, "x"), SourceAccess(A, rule=ANN), doc(A, "x", None)]
    assert _state([newest(seen)]) == _state([seen])
