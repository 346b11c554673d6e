"""One index consumer as a child process of the fleet: started, asked how it is, told to leave."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import time
import urllib.request
from typing import Protocol

from consumers.priority import lower, restore
from pipeline.health import PORT_VARIABLE

ASK_S = 2.0


class Child(Protocol):
    """What the fleet knows of a consumer."""

    member: str
    pid: int

    def status(self) -> int | None:
        """Exit status, negative for a signal; None while it runs."""
        ...

    def age(self) -> float:
        """Seconds since its start."""
        ...

    def page(self) -> dict[str, object] | None:
        """Its health page; None while it does not answer, or answers that it is not well."""
        ...

    def metrics(self) -> str:
        """Its metrics in Prometheus' text format; '' while it does not answer."""
        ...

    def lower(self, nice: int) -> None:
        """Lower its priority; repeat it, since new threads come."""
        ...

    def restore(self) -> bool:
        """Bring it back to normal priority; False where that is not permitted."""
        ...

    def leave(self) -> None:
        """Ask it to leave in order."""
        ...

    def kill(self) -> None:
        """End it at once."""
        ...


class Process:
    """``Child`` as a process; logs go where the parent's go."""

    def __init__(self, generation: str, member: str) -> None:
        self.member = member
        self._port = _free_port()
        self._since = time.monotonic()
        self._opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))  # never by way of a proxy
        command = [sys.executable, "-m", "consumers", "index", "--generation", generation, "--member", member]
        self._popen = subprocess.Popen(
            [*command, "--parent", str(os.getpid())],
            env=os.environ | {PORT_VARIABLE: str(self._port)},
            stdin=subprocess.DEVNULL,
        )
        self.pid = self._popen.pid

    def status(self) -> int | None:
        """See Child."""
        return self._popen.poll()

    def age(self) -> float:
        """See Child."""
        return time.monotonic() - self._since

    def page(self) -> dict[str, object] | None:
        """See Child."""
        try:
            found: dict[str, object] = json.loads(self._ask("/healthz"))
        except (OSError, ValueError):
            return None
        return found

    def metrics(self) -> str:
        """See Child."""
        try:
            return self._ask("/metrics").decode("utf-8")
        except (OSError, ValueError):
            return ""

    def _ask(self, path: str) -> bytes:
        host = os.environ.get("HEADWATER_HEALTH_HOST", "127.0.0.1")
        with self._opener.open(f"http://{host}:{self._port}{path}", timeout=ASK_S) as reply:
            return bytes(reply.read())

    def lower(self, nice: int) -> None:
        """See Child."""
        lower(self.pid, nice)

    def restore(self) -> bool:
        """See Child."""
        return restore(self.pid)

    def leave(self) -> None:
        """See Child."""
        self._popen.send_signal(signal.SIGCONT)  # a stopped process cannot answer SIGTERM
        self._popen.send_signal(signal.SIGTERM)

    def kill(self) -> None:
        """See Child."""
        self._popen.kill()
        self._popen.wait()


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])
