"""What every consumer process does around its loop: arguments, signals, waiting for services, health."""

from __future__ import annotations

import argparse
import logging
import signal
import threading
from collections.abc import Callable, Sequence
from types import FrameType
from typing import TypeVar

from consumers.backoff import Backoff
from consumers.runtime import Runtime
from pipeline.errors import Retry
from pipeline.health import HealthServer

log = logging.getLogger("headwater.process")

T = TypeVar("T")


class Stopped(Exception):
    """The process was asked to stop while it waited for a service."""


class Stopping:
    """Turns SIGTERM and SIGINT into one event. Only the main thread may make one."""

    def __init__(self) -> None:
        self.event = threading.Event()
        self._callbacks: list[Callable[[], None]] = []
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, self._handle)

    def _handle(self, number: int, frame: FrameType | None) -> None:
        self.ask()

    def ask(self) -> None:
        """Stop as on a signal."""
        self.event.set()
        # Not from the handler itself: it may have interrupted a thread that holds the callback's lock.
        for callback in self._callbacks:
            threading.Thread(target=callback, name="stop", daemon=True).start()

    def on_stop(self, callback: Callable[[], None]) -> None:
        """Call when a signal arrives (at once when it has)."""
        self._callbacks.append(callback)
        if self.event.is_set():
            callback()

    def retry(self, what: str, call: Callable[[], T]) -> T:
        """Call until it does not raise Retry; services may start after us. Raises Stopped."""
        backoff = Backoff(first=0.2, most=5.0)
        while True:
            try:
                return call()
            except Retry as error:
                log.warning("waiting for %s: %s", what, error)
            if self.event.wait(backoff.next()):
                raise Stopped


def parse(name: str, arguments: Sequence[str], description: str) -> argparse.Namespace:
    """The arguments common to lanes: ``--member``."""
    return parser_of(name, description).parse_args(list(arguments))


def parser_of(name: str, description: str) -> argparse.ArgumentParser:
    """A parser with the arguments common to lanes, to which a lane adds its own."""
    parser = argparse.ArgumentParser(prog=f"python -m consumers {name}", description=description)
    parser.add_argument(
        "--member",
        help="name of this member in the group; after a crash its successor of the same name takes over at once",
    )
    return parser


def run(runtime: Runtime, stopping: Stopping) -> int:
    """Run a lane with its health pages until a signal comes; the exit status. Raises what stopped the lane."""
    stopping.on_stop(runtime.stop)
    health = HealthServer.from_environment(runtime.health)
    try:
        runtime.run()
    finally:
        if health is not None:
            health.close()
    log.info("left in order")
    return 0
