"""The session with a wiki: signing in, patience, and what its errors mean; the feed's packets."""

from __future__ import annotations

from typing import Any

import httpx
import pytest
from pydantic import SecretStr

from pipeline.clock import ManualClock
from pipeline.errors import ConfigError
from pipeline.sources.connector import SourceUnavailable
from pipeline.sources.mediawiki.feed import is_change
from pipeline.sources.remote.contract import RateLimited
from tests.unit.sources.mediawiki.fake import START, FakeWiki, connect, error, ref

ACCOUNT: dict[str, Any] = {"username": "Connector@sync", "password": SecretStr("s3cret-of-the-bot")}


@pytest.mark.requirement("I8")
def test_a_session_is_opened_once_and_renewed_once() -> None:
    wiki = FakeWiki()
    wiki.page(1, "Harbour")
    system = connect(wiki, **ACCOUNT)
    system.listing(None)
    system.fetch(ref(1))
    assert [q["action"] for q in wiki.asked].count("login") == 1
    wiki.signed_in = False  # the wiki forgot it
    system.fetch(ref(1))
    assert [q["action"] for q in wiki.asked].count("login") == 2
    assert not any("s3cret" in str(q) for q in wiki.asked if q["action"] != "login")
    wiki.errors = [error("assertuserfailed"), httpx.Response(200, json={"query": {"tokens": {"logintoken": "token"}}})]
    wiki.errors += [httpx.Response(200, json={"login": {"result": "Success"}}), error("assertuserfailed")]
    with pytest.raises(SourceUnavailable):
        system.fetch(ref(1))


@pytest.mark.requirement("E5")
def test_a_refused_password_names_the_setting_and_not_the_password() -> None:
    wiki = FakeWiki()
    wiki.login = {"result": "Failed", "reason": "Incorrect username or password"}
    with pytest.raises(ConfigError) as raised:
        connect(wiki, **ACCOUNT).start()
    assert raised.value.field == "sources.wiki.password" and "s3cret" not in str(raised.value)


@pytest.mark.requirement("I8")
@pytest.mark.parametrize("code", ["ratelimited", "maxlag", "readonly"])
def test_the_wiki_asks_for_patience(code: str) -> None:
    wiki = FakeWiki()
    clock = ManualClock(START)
    system = connect(wiki, clock=clock)
    wiki.errors = [error(code, **{"Retry-After": "7"})]
    with pytest.raises(RateLimited) as raised:
        system.start()
    assert raised.value.retry_after == 7 and system.reach.limited == 1
    with pytest.raises(RateLimited):
        system.start()
    assert len(wiki.asked) == 1, "not asked again before"
    clock.advance(8)
    assert system.start()
    assert all(q["maxlag"] == "5" for q in wiki.asked)


@pytest.mark.requirement("I8")
def test_too_many_sign_ins_are_a_limit() -> None:
    wiki = FakeWiki()
    wiki.login = {"result": "Throttled", "wait": 120}
    with pytest.raises(RateLimited) as raised:
        connect(wiki, **ACCOUNT).start()
    assert raised.value.retry_after == 120


@pytest.mark.requirement("I8")
def test_an_answer_that_is_no_json_is_an_outage() -> None:
    wiki = FakeWiki()
    wiki.errors = [httpx.Response(200, text="<html>Sign in to the network</html>")]
    with pytest.raises(SourceUnavailable) as raised:
        connect(wiki).start()
    assert "url in the settings" in str(raised.value)


@pytest.mark.requirement("I8")
def test_an_answer_without_what_it_must_hold_is_an_outage() -> None:
    wiki = FakeWiki()
    answers: list[dict[str, Any]] = [{}, {"query": []}, {"query": {"namespaces": 5}}]
    for answer in answers:
        wiki.errors = [httpx.Response(200, json=answer)]
        with pytest.raises(SourceUnavailable):
            connect(wiki).listing(None)


@pytest.mark.requirement("A1")
def test_only_changes_are_heard_on_the_feed() -> None:
    assert is_change(b'{"id":40,"type":"edit","namespace":0,"title":"Latency","wiki":"wiki"}')
    for packet in (b"", b"[]", b"\xff\xfe", b'{"type":"categorize"}', b"[" * 60_000, b"null"):
        assert not is_change(packet)
