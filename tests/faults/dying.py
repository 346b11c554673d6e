"""A consumer that kills or stops itself at a named point: ``python -m tests.faults.dying LANE HOW POINT``.

HOW is ``kill`` (SIGKILL) or ``stop`` (SIGSTOP, once). POINT is a step of ``pipeline.flow`` (sections, chunks, allow,
manifest, removed, copied), of ``consumers.control`` (collections, group, written, switched, counted, dropped, carried
out, answered) or ``write``: between the check of a lease and the sending of the write. It acts the first time it gets
there after the file named by HEADWATER_DYING_ARMED exists.
"""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Callable
from pathlib import Path

from pipeline.observe import configure_logging
from pipeline.settings import load


def trap(how: str, point: str) -> Callable[[str], None]:
    """A function that acts once when it is called with ``point`` while the trap is armed."""
    armed = Path(os.environ["HEADWATER_DYING_ARMED"])

    def reached(step: str) -> None:
        if step == point and armed.exists():
            armed.unlink()
            os.kill(os.getpid(), signal.SIGKILL if how == "kill" else signal.SIGSTOP)

    return reached


def main() -> int:
    """Run the lane with the trap in it."""
    lane, how, point = sys.argv[1:4]
    configure_logging(f"dying-{lane}")
    from consumers.runtime import Hooks

    reached = trap(how, point)
    hooks = Hooks(before_write=lambda: reached("write"))
    if lane == "control":
        from consumers.control import serve as serve_control

        return serve_control(load(), crash_point=reached)
    if lane == "index":
        from consumers.index import serve

        return serve(load(), hooks=hooks, crash_point=reached)
    from consumers.access import serve as serve_access

    return serve_access(load(), hooks=hooks)


if __name__ == "__main__":
    sys.exit(main())
