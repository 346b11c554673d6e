"""``python -m query_service``: the query service as a process."""

from __future__ import annotations

import argparse
import logging
import signal
import sys
from types import FrameType


def _leave(number: int, frame: FrameType | None) -> None:
    """The server shuts down first and then raises the signal again: by now everything is closed."""
    sys.exit(0)


def main() -> int:
    """Serve until a signal comes; the exit status."""
    argparse.ArgumentParser(
        prog="python -m query_service",
        description="Serves the query API and the search page at the address of the settings (query.host, query.port).",
    ).parse_args()
    import uvicorn

    from pipeline import settings as settings_module
    from pipeline.errors import ConfigError
    from pipeline.observe import configure_logging
    from query_service.app import create_app
    from query_service.connections import server_options
    from query_service.wiring import dependencies

    configure_logging("query")
    try:
        settings = settings_module.load()
        app = create_app(dependencies(settings))
    except ConfigError as error:
        print(f"query service: {error}", file=sys.stderr)
        return 2
    logging.getLogger("uvicorn.access").disabled = True
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, _leave)
    uvicorn.run(
        app,
        host=settings.query.host,
        port=settings.query.port,
        **server_options(settings.limits),
    )
    return 0


if __name__ == "__main__":
    sys.exit(main())
