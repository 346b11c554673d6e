"""The checks by name, and running them."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass

from pipeline.errors import ConfigError
from pipeline.operate.audit import deletes, health, objects, records
from pipeline.operate.audit.logview import KafkaLog
from pipeline.operate.audit.model import AuditReport, CheckResult
from pipeline.operate.audit.sight import Sight
from pipeline.ports import ProgressBar
from pipeline.settings import Settings


@dataclass(frozen=True)
class Check:
    """One check. ``title`` says what holds when it passes."""

    name: str
    title: str
    look: Callable[[Sight], CheckResult]
    generation: bool = True  # needs a generation


_ALL = (
    Check("orphan_chunks", "every chunk that stands is listed by a manifest", objects.orphan_chunks),
    Check("orphan_sections", "every section that stands is listed by a manifest", objects.orphan_sections),
    Check("missing_chunks", "every chunk and section that a manifest lists can be found", objects.missing_chunks),
    Check("unsearchable_chunks", "every chunk is found by its own vector", objects.unsearchable_chunks),
    Check("prefilter_drift", "pre-filters say what the rules say", objects.prefilter_drift),
    Check("manifests_without_access", "every live document has an access record", records.manifests_without_access),
    Check("access_without_manifest", "every readable document is indexed", records.access_without_manifest),
    Check("superseded_events", "the last event of each key is its newest", records.superseded_events, False),
    Check("tombstones_not_emptied", "nothing of deleted documents stands", records.tombstones_not_emptied),
    Check("recent_deletes", "what was deleted of late stayed deleted", deletes.recent_deletes),
    Check("lag", "live changes become visible within the target", health.lag),
    Check("dead_letters", "no more unsettled dead letters than allowed", health.dead_letters, False),
    Check("canary", "the canary's documents pass through", health.canary),
    Check("store", "the store takes writes and has room", health.store, False),
    Check("churn", "tiers hold about as much as was written to them", health.churn),
)
CHECKS: dict[str, Check] = {check.name: check for check in _ALL}


def names() -> tuple[str, ...]:
    """Of all checks, in the order in which they run."""
    return tuple(CHECKS)


def examine(sight: Sight, wanted: Sequence[str] | None = None) -> AuditReport:
    """Run checks, all of them or those named. Raises ConfigError, StoreUnavailable, BusUnavailable."""
    chosen = [_named(name) for name in (wanted or CHECKS)]
    at = sight.clock.now()
    results = []
    for number, check in enumerate(chosen):
        if sight.progress is not None:
            sight.progress(check.name, number, len(chosen))
        results.append(_run(check, sight))
    return AuditReport(
        at=at, generation=sight.generation.name if sight.generation is not None else None, results=tuple(results)
    )


def _named(name: str) -> Check:
    if name not in CHECKS:
        raise ConfigError("check", f"there is none of the name {name!r}", f"Name one of {', '.join(CHECKS)}.")
    return CHECKS[name]


def _run(check: Check, sight: Sight) -> CheckResult:
    start = time.monotonic()
    if check.generation and sight.generation is None:
        found = CheckResult(name=check.name, title=check.title, note="no generation is active yet")
    else:
        found = check.look(sight)
    return found.model_copy(
        update={
            "name": check.name,
            "title": check.title,
            "generation": sight.generation.name if check.generation and sight.generation is not None else None,
            "seconds": round(time.monotonic() - start, 3),
        }
    )


def audit(
    settings: Settings,
    wanted: Sequence[str] | None = None,
    *,
    generation: str | None = None,
    tenants: Sequence[str] | None = None,
    progress: ProgressBar | None = None,
) -> AuditReport:
    """Run checks over the named generation, else the active one.

    Raises ConfigError, StoreUnavailable, BusUnavailable.
    """
    with looking(settings, generation=generation, tenants=tenants, progress=progress) as sight:
        return examine(sight, wanted)


@contextmanager
def looking(
    settings: Settings,
    *,
    generation: str | None = None,
    tenants: Sequence[str] | None = None,
    progress: ProgressBar | None = None,
) -> Iterator[Sight]:
    """A sight on the real services for the block."""
    from pipeline.clock import SystemClock
    from pipeline.index.store import WeaviateStore

    with closing(WeaviateStore(settings)) as store:
        store.ensure_base()
        known = store.read_generations()
        name = generation if generation is not None else store.active_generation()
        if name is not None and name not in known:
            raise ConfigError("generation", f"there is none of the name {name!r}", f"Name one of {sorted(known)}.")
        chosen = known[name] if name is not None else None
        yield Sight(
            settings, store, KafkaLog(settings), SystemClock(), chosen, tenants=tenants, progress=progress,
            pause=time.sleep,
        )  # fmt: skip
