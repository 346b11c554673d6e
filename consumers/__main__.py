"""``python -m consumers NAME [--member M]``: start one consumer process.

Names: access, index, fleet, owner, gateway, control, canary. Each is the function ``main`` of ``consumers.NAME``,
called with the remaining arguments; it returns the exit status. Logs go to standard error as one-line JSON. SIGTERM
and SIGINT leave in order. Exit status: 0 left in order, 1 crashed, 2 wrong settings or arguments.
"""

from __future__ import annotations

import importlib
import logging
import os
import sys
from collections.abc import Callable, Sequence

from pipeline.errors import ConfigError, Crash, HeadwaterError
from pipeline.observe import configure_logging

NAMES = ("access", "index", "fleet", "owner", "gateway", "control", "canary")

log = logging.getLogger("headwater.main")


def main(arguments: Sequence[str]) -> int:
    """Dispatch; the exit status."""
    if not arguments or arguments[0] not in NAMES:
        sys.stderr.write(f"usage: python -m consumers {{{','.join(NAMES)}}} [options]\n")
        return 2
    name = arguments[0]
    configure_logging(name, os.environ.get("HEADWATER_LOG_LEVEL", "INFO").upper())
    start: Callable[[list[str]], int] = importlib.import_module(f"consumers.{name}").main
    try:
        return start(list(arguments[1:]))
    except ConfigError as error:
        log.error(str(error), extra={"fields": {"field": error.field, "remedy": error.remedy}})
        return 2
    except Crash as error:
        log.error("stopped without committing: %s", error)
        return 1
    except HeadwaterError as error:
        log.error("%s: %s", type(error).__name__, error)
        return 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
