"""The UDP feed of a wiki's changes (``$wgRCFeeds`` with the JSON formatter): only a hint to look at once."""

from __future__ import annotations

import json
import socket
import threading
from collections.abc import Callable

from pipeline.errors import ConfigError

LONGEST = 65_535
PAUSE_S = 0.5
"""How long closing may take at most."""


def address_of(udp: str) -> tuple[str, int]:
    """Host and port of the setting."""
    host, _, port = udp.rpartition(":")
    return host, int(port)


def bound(udp: str, field: str) -> socket.socket:
    """A socket that receives the feed. Raises ConfigError where the address cannot be had."""
    receiver = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    try:
        receiver.bind(address_of(udp))
    except (OSError, OverflowError) as error:
        receiver.close()
        remedy = "Name an address of this machine and a free port, and the same in $wgRCFeeds."
        raise ConfigError(field, f"no change feed can be received on {udp} ({error})", remedy) from error
    receiver.settimeout(PAUSE_S)
    return receiver


class Feed:
    """Calls ``heard`` for each change that the wiki tells, from a thread of its own."""

    def __init__(self, receiver: socket.socket, heard: Callable[[], None]) -> None:
        self._receiver, self._heard = receiver, heard
        self._closing = threading.Event()
        self._thread = threading.Thread(target=self._listen, name="mediawiki-feed", daemon=True)
        self._thread.start()

    def close(self) -> None:
        """Stop listening."""
        self._closing.set()
        self._thread.join(4 * PAUSE_S)
        self._receiver.close()

    def _listen(self) -> None:
        while not self._closing.is_set():
            try:
                packet = self._receiver.recv(LONGEST)
            except TimeoutError:
                continue
            except OSError:
                return
            if is_change(packet):
                self._heard()


def is_change(packet: bytes) -> bool:
    """Whether a packet is a change as the wiki tells it; anybody may send one."""
    try:
        told = json.loads(packet)
    except (ValueError, RecursionError):
        return False
    return isinstance(told, dict) and told.get("type") in ("edit", "new", "log")
