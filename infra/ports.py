"""Free ports on the loopback interface."""

from __future__ import annotations

import secrets
import socket
import time
from collections.abc import Iterable, Mapping

LOOPBACK = "127.0.0.1"
FIRST, LAST = 20_000, 32_000


def is_free(port: int, host: str = LOOPBACK) -> bool:
    """Whether a server could listen on ``port`` now, on ``host`` and on every interface."""
    for address in {host, "0.0.0.0"}:  # a gRPC server may bind all interfaces whatever we ask
        with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            try:
                probe.bind((address, port))
            except OSError:
                return False
    return True


def free_port(taken: Iterable[int] = (), width: int = 1) -> int:
    """First of ``width`` consecutive free ports, none of them in ``taken``. Raises OSError if none is found.

    Below the range from which systems give ports to outgoing connections: a client that keeps knocking at a
    stopped server could otherwise be given the very port, connect to itself and lock the server out.
    """
    refused = set(taken)
    for _ in range(500):
        first = secrets.randbelow(LAST - FIRST - width) + FIRST
        wanted = range(first, first + width)
        if not refused & set(wanted) and all(is_free(p) for p in wanted):
            return first
    raise OSError("no free port on 127.0.0.1: stop programs that hold many ports")


def choose(names: Mapping[str, int], remembered: Mapping[str, int], taken: Iterable[int] = ()) -> dict[str, int]:
    """A port for each name (name → how many consecutive ports it needs), none of them in ``taken``.

    A remembered port is kept while it is free, so that addresses survive a restart; a taken one is replaced.
    """
    chosen: dict[str, int] = {}
    used = set(taken)
    for name, width in names.items():
        port = remembered.get(name)
        wanted = range(port, port + width) if port else range(0)
        if not port or used & set(wanted) or not all(becomes_free(p) for p in wanted):
            port = free_port(used | set(remembered.values()), width)
        chosen[name] = port
        used |= set(range(port, port + width))
    return chosen


def becomes_free(port: int, seconds: float = 1.0) -> bool:
    """Whether the port is free, allowing a process that was just killed a moment to let go of it."""
    end = time.monotonic() + seconds
    while not is_free(port):
        if time.monotonic() > end:
            return False
        time.sleep(0.05)
    return True
