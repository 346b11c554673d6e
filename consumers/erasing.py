"""Whether a tenant is being erased: then its gateway takes nothing, and gives its sources up."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable

from pipeline.errors import HeadwaterError
from pipeline.ports import IndexStore
from schemas.access import ERASING, EVERYONE

log = logging.getLogger("headwater.gateway")

KEPT_S = 2.0
MAX_KNOWN = 10_000


class Erasing:
    """Asks the store at most every two seconds a tenant. A store that is away changes nothing that was known: what the
    gateway appends meanwhile is kept out by the erasure itself, which takes the sources over. Any thread."""

    def __init__(self, store: IndexStore, elapsed: Callable[[], float]) -> None:
        self._store, self._elapsed = store, elapsed
        self._known: dict[str, tuple[float, bool]] = {}
        self._lock = threading.Lock()

    def fresh(self, tenant: str) -> bool | None:
        """What was asked within the last two seconds; None where it must be asked."""
        at, known = self._known.get(tenant, (-KEPT_S, False))
        return known if self._elapsed() - at < KEPT_S else None

    def __call__(self, tenant: str) -> bool:
        """Whether the tenant is being erased; may wait for the store."""
        fresh = self.fresh(tenant)
        if fresh is not None:
            return fresh
        before = self._known.get(tenant, (0.0, False))[1]
        try:
            record = self._store.read_principals(tenant, [EVERYONE]).get(EVERYONE)
            found = record is not None and ERASING in record.parents
        except HeadwaterError as error:
            log.warning("tenant %s: the store does not say whether it is being erased: %s", tenant, error)
            found = before
        with self._lock:
            if len(self._known) >= MAX_KNOWN:
                self._known.clear()
            self._known[tenant] = (self._elapsed(), found)
        return found
