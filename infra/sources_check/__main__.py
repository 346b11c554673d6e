"""``make sources-check``: one JSON line per source; exit status 1 where a step failed or somebody may read wrongly."""

from __future__ import annotations

import sys

from infra.commands.output import progress_console
from infra.files import exclusive
from infra.launcher import Services
from infra.progress import Lines
from infra.sources_check.run import Outcome, check
from infra.sources_check.systems import systems
from pipeline import settings as config


def main(names: list[str]) -> int:
    """Play the named systems, or all."""
    settings = config.load()
    folder = settings.state_dir.absolute() / "sources-check"
    services = Services(folder, cache_dir=settings.cache_dir, settings=settings)
    report = Lines(progress_console())

    def told(outcome: Outcome) -> None:
        sys.stdout.write(outcome.line() + "\n")
        sys.stdout.flush()

    with exclusive(folder / "check.lock", "source check"):
        ran = all(line.state in ("up", "external") for line in services.status())
        try:
            endpoints = services.up(report)
            chosen = [s for s in systems(settings.cache_dir, endpoints) if not names or s.name in names]
            outcomes = check(chosen, endpoints, folder / "worlds", report, told)
        finally:
            if not ran:
                services.down()
    return 0 if all(outcome.good or outcome.skipped for outcome in outcomes) else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
