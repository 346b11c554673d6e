"""Health of a process over HTTP: ``/healthz`` (JSON) and ``/metrics`` (Prometheus)."""

from __future__ import annotations

import json
import logging
import os
import threading
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Protocol

from pipeline.errors import ConfigError
from pipeline.observe import metrics

log = logging.getLogger("headwater.health")

PORT_VARIABLE = "HEADWATER_HEALTH_PORT"

Report = Callable[[], dict[str, object]]


class Rendered(Protocol):
    """Metrics in Prometheus' text format."""

    def render(self) -> bytes: ...


class HealthServer:
    """Serves on the loopback interface unless told otherwise. Port 0 takes a free one (see ``port``).

    ``/healthz`` answers 200 while ``state`` of the report is not "unready", "stopping" or "failed", else 503.
    ``observed`` gives ``/metrics``: the process's own where None.
    """

    def __init__(self, report: Report, port: int, *, host: str = "127.0.0.1", observed: Rendered | None = None) -> None:
        shown = observed if observed is not None else metrics()

        class Handler(BaseHTTPRequestHandler):
            """Two pages."""

            def do_GET(self) -> None:
                """Answer."""
                if self.path == "/healthz":
                    status, body = _health(report)
                    self._answer(status, "application/json", body)
                elif self.path == "/metrics":
                    self._answer(200, "text/plain; version=0.0.4; charset=utf-8", shown.render())
                else:
                    self._answer(404, "text/plain", b"/healthz or /metrics\n")

            def _answer(self, status: int, kind: str, body: bytes) -> None:
                self.send_response(status)
                self.send_header("Content-Type", kind)
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

            def log_message(self, format: str, *args: object) -> None:
                """Probes are not worth a line each."""

        try:
            self._server = ThreadingHTTPServer((host, port), Handler)
        except OSError as error:
            raise ConfigError(PORT_VARIABLE, f"port {port}: {error}", "Choose a free port.") from error
        self._server.daemon_threads = True
        self._thread = threading.Thread(target=self._server.serve_forever, name="health", daemon=True)
        self._thread.start()

    @property
    def port(self) -> int:
        """The port that is listened on."""
        return int(self._server.server_address[1])

    def close(self) -> None:
        """Stop answering."""
        self._server.shutdown()
        self._server.server_close()
        self._thread.join(2)

    @staticmethod
    def from_environment(report: Report, observed: Rendered | None = None) -> HealthServer | None:
        """The server on the port named by HEADWATER_HEALTH_PORT, or None where it is not set."""
        named = os.environ.get(PORT_VARIABLE)
        if not named:
            return None
        if not named.isdigit() or int(named) > 65535:
            raise ConfigError(PORT_VARIABLE, f"{named!r} is no port", "Name a number from 0 to 65535.")
        host = os.environ.get("HEADWATER_HEALTH_HOST", "127.0.0.1")
        return HealthServer(report, int(named), host=host, observed=observed)


def _health(report: Report) -> tuple[int, bytes]:
    try:
        page = report()
    except Exception as error:  # a page that fails must not look healthy
        log.warning("health report failed", exc_info=True)
        return 503, json.dumps({"state": "failed", "error": str(error)}).encode()
    down = page.get("state") in ("unready", "stopping", "failed")
    return (503 if down else 200), json.dumps(page, default=str).encode()
