"""HTTP to a source system: what is an answer, what is patience, what is an outage."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from email.utils import format_datetime

import httpx
import pytest

from pipeline.clock import ManualClock
from pipeline.sources.connector import SourceUnavailable
from pipeline.sources.remote import http
from pipeline.sources.remote.contract import RateLimited
from pipeline.sources.remote.http import HttpApi


class Answers(httpx.MockTransport):
    def __init__(self, *answers: httpx.Response | Exception) -> None:
        self.answers, self.requests = list(answers), list[httpx.Request]()
        super().__init__(self._next)

    def _next(self, request: httpx.Request) -> httpx.Response:
        self.requests.append(request)
        answer = self.answers.pop(0)
        if isinstance(answer, Exception):
            raise answer
        return answer


def api(*answers: httpx.Response | Exception, clock: ManualClock | None = None, per_second: float = 1000.0) -> HttpApi:
    return HttpApi("http://wiki.test/w/", clock or ManualClock(), transport=Answers(*answers), per_second=per_second)


@pytest.mark.requirement("I8")
@pytest.mark.parametrize("status", [200, 304, 400, 403, 404, 409, 410, 412, 422])
def test_these_statuses_are_answers(status: int) -> None:
    assert api(httpx.Response(status, text="x")).get("/page").status_code == status


@pytest.mark.requirement("I8")
@pytest.mark.parametrize("status", [401, 500, 502, 504, 418])
def test_these_say_nothing_of_what_was_asked_for(status: int) -> None:
    with pytest.raises(SourceUnavailable):
        api(httpx.Response(status)).get("/page")


@pytest.mark.requirement("I8")
def test_a_lost_connection_is_an_outage() -> None:
    with pytest.raises(SourceUnavailable, match="ConnectError"):
        api(httpx.ConnectError("refused")).get("/page")
    with pytest.raises(SourceUnavailable, match="ReadTimeout"):
        api(httpx.ReadTimeout("")).get("/page")


@pytest.mark.requirement("I8")
@pytest.mark.parametrize("status", [429, 503, 403])
def test_retry_after_in_seconds_is_respected_before_anything_else_is_asked(status: int) -> None:
    clock = ManualClock()
    asked = api(httpx.Response(status, headers={"Retry-After": "7"}), httpx.Response(200), clock=clock)
    with pytest.raises(RateLimited) as caught:
        asked.get("/page")
    assert caught.value.retry_after == 7 and asked.reach.limited == 1
    clock.advance(6.5)
    with pytest.raises(RateLimited):
        asked.get("/page")
    clock.advance(0.6)
    assert asked.get("/page").status_code == 200


@pytest.mark.requirement("I8")
def test_retry_after_as_a_date() -> None:
    at = format_datetime(datetime.now(UTC) + timedelta(seconds=20), usegmt=True)
    with pytest.raises(RateLimited) as caught:
        api(httpx.Response(503, headers={"Retry-After": at})).get("/page")
    assert 17 <= caught.value.retry_after <= 20


@pytest.mark.requirement("I8")
def test_a_limit_without_a_time_grows_with_each_in_a_row() -> None:
    clock = ManualClock()
    asked = api(*[httpx.Response(429)] * 3, httpx.Response(200), httpx.Response(429), clock=clock)
    waits = []
    for _ in range(3):
        with pytest.raises(RateLimited) as caught:
            asked.get("/page")
        waits.append(caught.value.retry_after)
        clock.advance(caught.value.retry_after + 0.1)
    assert waits == [2, 4, 8]
    asked.get("/page")
    with pytest.raises(RateLimited) as caught:
        asked.get("/page")
    assert caught.value.retry_after == 2


@pytest.mark.requirement("I8")
def test_a_wait_is_bounded() -> None:
    with pytest.raises(RateLimited) as caught:
        api(httpx.Response(429, headers={"Retry-After": "999999"})).get("/page")
    assert caught.value.retry_after == http.MOST_PATIENCE_S


@pytest.mark.requirement("A8")
def test_a_redirect_is_not_followed_with_our_credentials() -> None:
    asked = api(httpx.Response(302, headers={"Location": "http://elsewhere.test/"}))
    with pytest.raises(SourceUnavailable, match=r"elsewhere\.test"):
        asked.get("/page")


@pytest.mark.requirement("D7", "F22")
def test_a_file_is_read_no_further_than_its_limit() -> None:
    parts = iter([b"x" * 1000] * 1000)
    asked = api(httpx.Response(200, content=parts))
    response, body = asked.body("/file", 2500)
    assert response.status_code == 200 and len(body) == 2501
    assert len(list(parts)) > 900  # the rest was never asked for


@pytest.mark.requirement("D7")
def test_an_answer_without_end_is_cut_off(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(http, "MAX_ANSWER", 5000)
    with pytest.raises(SourceUnavailable, match="more than 5000 bytes"):
        api(httpx.Response(200, content=iter([b"x" * 1000] * 1000))).get("/page")


@pytest.mark.requirement("I8")
def test_requests_keep_their_pace(monkeypatch: pytest.MonkeyPatch) -> None:
    slept: list[float] = []
    monkeypatch.setattr("pipeline.sources.remote.http.time.sleep", slept.append)
    asked = api(*[httpx.Response(200)] * 3, per_second=4.0)
    for _ in range(3):
        asked.get("/page")
    assert slept == pytest.approx([0.25, 0.25])
