"""``python -m dagster_project NAME``: start one of Dagster's processes.

Names: code (serves the definitions, and is the parent of every run), daemon (schedules, sensors, run queue) and
webserver. SIGTERM and SIGINT leave in order: runs are interrupted and stop what they started. Exit status: 0 left in
order, 1 crashed, 2 wrong settings or arguments.
"""

from __future__ import annotations

import logging
import os
import sys
from collections.abc import Sequence

from pipeline.errors import ConfigError, HeadwaterError
from pipeline.observe import configure_logging

log = logging.getLogger("headwater.dagster")


def main(arguments: Sequence[str]) -> int:
    """Dispatch; the exit status."""
    from dagster_project import processes
    from pipeline import settings as config

    if len(arguments) != 1 or arguments[0] not in processes.NAMES:
        sys.stderr.write(f"usage: python -m dagster_project {{{','.join(processes.NAMES)}}}\n")
        return 2
    configure_logging(f"dagster-{arguments[0]}", os.environ.get("HEADWATER_LOG_LEVEL", "INFO").upper())
    try:
        return processes.start(arguments[0], config.load())
    except ConfigError as error:
        log.error(str(error), extra={"fields": {"field": error.field, "remedy": error.remedy}})
        return 2
    except HeadwaterError as error:
        log.error("%s: %s", type(error).__name__, error)
        return 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
