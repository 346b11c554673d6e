"""What is looked at again after the store was away."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import closing

from pipeline.operate.audit.checks import examine, looking
from pipeline.operate.audit.mending import mend_all, unmended
from pipeline.settings import Settings

WRITTEN = ("building", "ready", "active", "standby")
AFTER_RESTART = ("recent_deletes",)


def verify_after_restart(settings: Settings, stop: Callable[[], bool] = lambda: False) -> tuple[int, int, int]:
    """Verify recent deletes in every generation that is written, and have those that came undone carried out again.

    (Documents verified, of these undone, of these not mended.) Raises StoreUnavailable, BusUnavailable.
    """
    from pipeline.index.store import WeaviateStore

    with closing(WeaviateStore(settings)) as store:
        names = [name for name, g in sorted(store.read_generations().items()) if g.state in WRITTEN]
    examined = back = left = 0
    for name in names:
        if stop():
            break
        with looking(settings, generation=name) as sight:
            report = examine(sight, AFTER_RESTART)
        examined += sum(found.examined for found in report.results)
        back += sum(found.count for found in report.results)
        left += unmended(mend_all(settings, report, requested_by="return of the store", stop=stop))
    return examined, back, left
