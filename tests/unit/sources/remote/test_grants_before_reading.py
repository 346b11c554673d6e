"""What memberships give waits for the documents that left what they open."""

from __future__ import annotations

import json

import pytest

from pipeline.ports import SourceMembership
from pipeline.sources.remote.contract import RateLimited, Touched
from schemas.access import AccessRule
from schemas.events import MembershipSet
from schemas.topics import Topic
from tests.unit.sources.remote.scripted import UNAVAILABLE, Owned, ref

OLD, NEW = "audience:kb/old", "audience:kb/new"


def members(**parents: tuple[str, ...]) -> tuple[SourceMembership, ...]:
    return tuple(SourceMembership("acme", f"user:{who}", of) for who, of in parents.items())


def opened(kb: Owned, secret: str, who: str = "user:bob") -> bool:
    """Whether at some moment on the log bob was in OLD while the secret still had OLD as its reader."""
    rule = ""
    parents: tuple[str, ...] = ()
    for record in kb.log.records:
        if record.topic == Topic.ACCESS:
            value = json.loads(record.value or b"{}")
            if value.get("document", {}).get("id") == secret and "rule" in value:
                rule = json.dumps(value["rule"])
        elif record.topic == Topic.MEMBERSHIP:
            event = MembershipSet.model_validate_json(record.value or b"")
            if event.principal == who:
                parents = () if event.removed else event.parents
        if OLD in parents and OLD in rule:
            return True
    return False


def private(number: int = 1) -> Owned:
    kb = Owned()
    for n in range(number):
        kb.script.put(f"s{n:04}", "secret", AccessRule.any_of(OLD))
    kb.script.members = members(ann=(OLD, NEW), bob=())
    kb.start()
    kb.settle(400)
    assert kb.log.parents()["user:ann"] == (NEW, OLD)
    return kb


def moved_and_opened(kb: Owned) -> tuple[Touched, ...]:
    """All secrets go to NEW; then OLD, which is empty now, is opened to bob."""
    for id_ in list(kb.script.pages):
        kb.script.put(id_, "secret", AccessRule.any_of(NEW))
    kb.script.members = members(ann=(OLD, NEW), bob=(OLD,))
    return tuple(Touched(ref(id_)) for id_ in kb.script.pages)


@pytest.mark.requirement("A8", "I3")
def test_after_a_restart_a_container_opens_only_when_what_left_it_is_read() -> None:
    kb = private()
    moved_and_opened(kb)  # while the owner is away
    kb.start()
    kb.passes(10)
    assert kb.log.parents()["user:bob"] == (OLD,)
    assert not opened(kb, "s0000")


@pytest.mark.requirement("A8", "I3")
def test_many_documents_that_moved_are_read_before_their_old_container_opens() -> None:
    kb = private(150)
    kb.script.tell(*moved_and_opened(kb), cursor="c1")
    kb.passes(10, 300)
    assert kb.log.parents()["user:bob"] == (OLD,)
    assert not opened(kb, "s0149")


@pytest.mark.requirement("A8", "I3")
def test_a_limit_between_a_move_and_the_opening_of_the_old_container_opens_nothing() -> None:
    kb = private()
    kb.script.tell(*moved_and_opened(kb), cursor="c1")
    kb.script.fails = [RateLimited("429", 300)]
    kb.passes(6)
    assert not opened(kb, "s0000")
    for _ in range(5):
        kb.passes(310)
    assert kb.log.parents()["user:bob"] == (OLD,) and not opened(kb, "s0000")


@pytest.mark.requirement("A8", "I3")
def test_an_outage_after_the_feed_opens_nothing() -> None:
    """The look ends, its document waits in the connector's backlog."""
    kb = private()
    touched = moved_and_opened(kb)
    kb.script.tell(*touched, cursor="c1")
    kb.script.fails = [UNAVAILABLE] * 60
    kb.passes(6, 1)
    kb.script.feed = [UNAVAILABLE] * 60
    for _ in range(8):
        kb.passes(31)
    assert not opened(kb, "s0000")
