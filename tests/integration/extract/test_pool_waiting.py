"""Who does not want to wait is told when to ask again; what waits is bounded, and turns are kept."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from pipeline.errors import DocumentError, StillExtracting
from pipeline.extract.pool import ExtractorPool
from pipeline.extract.pool import pool as pool_module
from tests.integration.extract.conftest import MakePool, deed, said, until

pytestmark = pytest.mark.requirement("A2", "I13")


def asked(pool: ExtractorPool, body: bytes, path: str | None = None) -> StillExtracting:
    with pytest.raises(StillExtracting) as caught:
        pool.extract(body, "text/plain", path=path)
    return caught.value


def fetched(pool: ExtractorPool, body: bytes, again: Callable[[], None] = lambda: None) -> str:
    """The text, asked for as the callbacks say."""
    while True:
        try:
            return said(pool.extract(body, "text/plain"))
        except StillExtracting as still:
            told = threading.Event()
            still.when_done(told.set)
            assert told.wait(30)
            again()


def test_the_result_is_there_when_the_callback_says_so(make_pool: MakePool) -> None:
    pool = make_pool(armed=True, patience_s=0.01)
    body = deed("sleep", 0.4)
    still = asked(pool, body)
    again = asked(pool, body)
    calls: list[str] = []
    told = threading.Event()
    still.when_done(lambda: calls.append("first"))
    again.when_done(lambda: calls.append("second"))
    again.when_done(told.set)
    assert calls == []
    assert told.wait(20)
    assert said(pool.extract(body, "text/plain")) == "slept"
    still.when_done(lambda: calls.append("late"))
    assert calls == ["first", "second", "late"]


def test_other_arguments_are_another_document(make_pool: MakePool, note: Path) -> None:
    pool = make_pool(armed=True, light=2, patience_s=0)
    body = deed("die_once", str(note), 0)  # counts attempts: the one that answers is the third or fourth
    told = [threading.Event(), threading.Event()]
    for event, path in zip(told, ("a", "b"), strict=True):
        asked(pool, body, path).when_done(event.set)
    assert all(event.wait(20) for event in told)
    answers = {said(pool.extract(body, "text/plain", path=path)) for path in ("a", "b")}
    assert len(answers) == 2


def test_patience_that_suffices_needs_no_second_question(make_pool: MakePool) -> None:
    assert said(make_pool(armed=True, patience_s=20).extract(deed("sleep", 0.2), "text/plain")) == "slept"


def test_an_error_is_kept_like_a_result(make_pool: MakePool) -> None:
    pool = make_pool(armed=True, patience_s=0)
    told = threading.Event()
    asked(pool, deed("fail")).when_done(told.set)
    assert told.wait(20)
    with pytest.raises(DocumentError, match="ZeroDivisionError"):
        pool.extract(deed("fail"), "text/plain")


def test_two_who_ask_for_one_document_get_it_read_once(make_pool: MakePool, note: Path) -> None:
    pool = make_pool(armed=True, light=2)
    body = deed("die_once", str(note), 0.3)
    with ThreadPoolExecutor() as threads:
        found = [threads.submit(pool.extract, body, "text/plain") for _ in range(4)]
        assert {said(one.result(20)) for one in found} == {"attempt 2"}


def test_bodies_that_wait_are_bounded_and_turns_are_kept(make_pool: MakePool, note: Path) -> None:
    pool = make_pool(armed=True, light=1, patience_s=0)
    order: list[int] = []
    lock = threading.Lock()
    bodies = [f"document {number}".encode() for number in range(12)]
    asked(pool, deed("signalled", str(note), 60))
    assert until(note.exists)
    asked(pool, b"the second place")
    events = []
    for number, body in enumerate(bodies):  # no room for any of them
        still = asked(pool, body)
        assert "waits for room" in str(still)
        event = threading.Event()
        events.append(event)

        def told(number: int = number, event: threading.Event = event) -> None:
            with lock:
                order.append(number)
            event.set()

        still.when_done(told)
    assert len(pool._jobs) == 2, "no body beyond the places was taken"
    assert order == []
    note.unlink()
    with ThreadPoolExecutor(len(bodies)) as threads:

        def follow(number: int) -> str:
            assert events[number].wait(30)
            return fetched(pool, bodies[number])

        texts = list(threads.map(follow, range(len(bodies))))
    assert texts == [body.decode() for body in bodies]
    assert order == sorted(order)


def test_one_who_never_comes_back_does_not_keep_the_place(make_pool: MakePool, note: Path) -> None:
    pool = make_pool(armed=True, light=1, patience_s=0)
    asked(pool, deed("signalled", str(note), 60))
    assert until(note.exists)
    asked(pool, b"the second place")
    for number in range(10):
        asked(pool, b"never again %d" % number)  # stands in line, and is forgotten by whoever asked
    still, told = asked(pool, b"behind them"), threading.Event()
    still.when_done(told.set)
    note.unlink()
    assert told.wait(20)
    assert fetched(pool, b"behind them") == "behind them"


@pytest.mark.usefixtures("heavy_text")
def test_light_work_does_not_wait_for_heavy_work(make_pool: MakePool, note: Path) -> None:
    pool = make_pool(armed=True, light=1, heavy=1, patience_s=0)
    for number in range(4):
        asked(pool, deed("signalled", str(note), 60 + number))
    pool._patience_s = 20
    document = pool.extract(b"# Light\n", "text/markdown")
    assert [block.text for block in document.blocks] == ["Light"]
    assert note.exists()


@pytest.mark.parametrize(("bound", "value"), [("KEPT", 3), ("KEPT_BYTES", 1000)])
def test_results_that_nobody_fetches_are_dropped(
    make_pool: MakePool, monkeypatch: pytest.MonkeyPatch, bound: str, value: int
) -> None:
    monkeypatch.setattr(pool_module, bound, value)
    pool = make_pool(armed=True, light=1, patience_s=0)
    bodies = [f"{number} ".encode() + b"x" * 300 for number in range(8)]
    for body in bodies:
        told = threading.Event()
        asked(pool, body).when_done(told.set)
        assert told.wait(20)
    assert 1 <= len(pool._jobs) <= 3
    assert fetched(pool, bodies[0]) == bodies[0].decode(), "one that was dropped is read again"


def test_results_that_nobody_fetches_grow_old(make_pool: MakePool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pool_module, "KEPT_S", 0.2)
    monkeypatch.setattr(pool_module, "_LOOK_S", 0.1)
    pool = make_pool(armed=True, light=1, patience_s=0)
    told = threading.Event()
    asked(pool, b"nobody's").when_done(told.set)
    assert told.wait(20)
    assert until(lambda: not pool._jobs)


def test_a_page_costs_little_more_than_in_this_process(make_pool: MakePool) -> None:
    """A bound that a busy machine keeps; the figure itself is in the decision on children."""
    page = (b"# Page\n\n" + b"Words about herons and ibises. " * 20 + b"\n\n- one\n- two\n\n") * 3
    pool = make_pool()
    pool.extract(page, "text/markdown")
    times = []
    for number in range(60):
        body = page + str(number).encode()
        began = time.perf_counter()
        pool.extract(body, "text/markdown")
        times.append(time.perf_counter() - began)
    assert sorted(times)[len(times) // 2] < 0.1
