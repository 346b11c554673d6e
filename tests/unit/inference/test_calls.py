"""A call has one deadline for the whole of it."""

from __future__ import annotations

import asyncio
import threading

import pytest

from pipeline.calls import Calls


def test_what_goes_on_for_ever_in_small_steps_ends_in_time() -> None:
    calls, steps = Calls("test"), 0

    async def drip() -> None:
        nonlocal steps
        while True:  # each step is short, as each byte of a server that drips
            await asyncio.sleep(0.01)
            steps += 1

    with pytest.raises(TimeoutError):
        calls.run(drip, 0.2)
    ended = steps
    assert calls.run(lambda: asyncio.sleep(0.05, "next"), 5.0) == "next"
    assert steps == ended, "it was cancelled, not left alone"

    async def closed() -> None:
        return

    calls.close(closed)
    assert not [t for t in threading.enumerate() if t.name == "test"]


def test_errors_are_the_works_own_and_calls_run_side_by_side() -> None:
    calls = Calls("test")

    async def fails() -> None:
        raise KeyError("own")

    with pytest.raises(KeyError, match="own"):
        calls.run(fails, 1.0)
    both = threading.Barrier(2)

    async def meets() -> int:
        return await asyncio.to_thread(both.wait, 10)

    found: list[int] = []
    threads = [threading.Thread(target=lambda: found.append(calls.run(meets, 20))) for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(found) == [0, 1]
    calls.close(lambda: asyncio.sleep(0))


def test_closing_does_not_wait_for_ever(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("pipeline.calls.CLOSE_S", 0.1)
    calls = Calls("test")
    calls.run(lambda: asyncio.sleep(0), 1.0)
    calls.close(lambda: asyncio.sleep(60))
    calls.close(lambda: asyncio.sleep(60))  # a second time does nothing
    assert calls.run(lambda: asyncio.sleep(0, "again"), 1.0) == "again"
    calls.close(lambda: asyncio.sleep(0))
