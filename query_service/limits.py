"""What one caller may use: requests a minute, requests at once; and what all together may.

A tenant holds at most as many requests at once as are still free. One alone gets half of the process, two that flood
it a third each: for everybody else something is left. All tables are bounded; the longest unused entries leave first,
which forgives them at most one burst. Operators, who verify with many searches, have no rate but the other limits.
"""

from __future__ import annotations

import ipaddress
import math
import time
from collections import Counter, OrderedDict
from collections.abc import Callable, Hashable
from dataclasses import dataclass

from pipeline.settings_query import LimitSettings
from query_service.scope import Scope

MAX_CALLERS = 20_000
BUSY_S = 1


class Limited(Exception):
    """Too much at the moment. ``detail`` is safe to show; ``retry_after`` is whole seconds."""

    def __init__(self, detail: str, retry_after: int, allowance: Allowance | None = None) -> None:
        super().__init__(detail)
        self.detail, self.retry_after, self.allowance = detail, max(1, retry_after), allowance


@dataclass(frozen=True)
class Allowance:
    """What is left to a caller: ``remaining`` of ``limit`` requests in one go; all of them in ``reset`` seconds."""

    limit: int
    remaining: int
    reset: int

    def headers(self) -> dict[str, str]:
        """As ``RateLimit-*`` headers."""
        return {
            "RateLimit-Limit": str(self.limit),
            "RateLimit-Remaining": str(self.remaining),
            "RateLimit-Reset": str(self.reset),
        }


class Buckets:
    """Token buckets by name: ``burst`` at once, ``per_minute`` on the long run. 0 per minute switches them off."""

    def __init__(self, per_minute: int, burst: int, clock: Callable[[], float], most: int = MAX_CALLERS) -> None:
        self._rate, self._burst, self._clock, self._most = per_minute / 60, burst, clock, most
        self._levels: OrderedDict[Hashable, tuple[float, float]] = OrderedDict()

    def take(self, name: Hashable) -> tuple[bool, int, Allowance | None]:
        """Whether one more is allowed, seconds until it would be, and what is left. Never raises."""
        if not self._rate:
            return True, 0, None
        now = self._clock()
        level, at = self._levels.pop(name, (float(self._burst), now))
        level = min(float(self._burst), level + (now - at) * self._rate)
        allowed = level >= 1
        level -= allowed
        self._levels[name] = level, now
        while len(self._levels) > self._most:
            self._levels.popitem(last=False)
        wait = 0 if allowed else math.ceil((1 - level) / self._rate)
        return allowed, wait, Allowance(self._burst, int(level), math.ceil((self._burst - level) / self._rate))

    def __len__(self) -> int:
        return len(self._levels)


class Lease:
    """One request under way; give it back once."""

    def __init__(self, limits: Limits, caller: Hashable, tenant: str, allowance: Allowance | None) -> None:
        self._limits, self._caller, self._tenant = limits, caller, tenant
        self.allowance = allowance

    def __enter__(self) -> Lease:
        return self

    def __exit__(self, *error: object) -> None:
        self._limits.ended(self._caller, self._tenant)


class Limits:
    """All limits of one process; used from the event loop alone."""

    def __init__(self, settings: LimitSettings, clock: Callable[[], float] = time.monotonic) -> None:
        self._settings = settings
        self._callers = Buckets(settings.requests_per_minute, settings.burst, clock)
        self._refused = Buckets(settings.refused_per_minute, max(1, settings.refused_per_minute // 2), clock)
        self._by_caller: Counter[Hashable] = Counter()
        self._by_tenant: Counter[str] = Counter()
        self._all = 0

    @property
    def running(self) -> int:
        """Requests under way."""
        return self._all

    def begin(self, scope: Scope) -> Lease:
        """Admit a request of a verified caller. Raises Limited."""
        caller = (scope.tenant, scope.key_id or "", scope.subject)
        allowed, wait, allowance = (True, 0, None) if scope.operator else self._callers.take(caller)
        if not allowed:
            raise Limited("You have sent too many requests; slow down.", wait, allowance)
        s = self._settings
        if s.concurrent and self._by_caller[caller] >= s.concurrent:
            raise Limited(f"At most {s.concurrent} of your requests run at once; wait for one.", BUSY_S, allowance)
        if s.total and self._by_tenant[scope.tenant] >= s.total - self._all:
            raise Limited("The service is busy; try again shortly.", BUSY_S, allowance)
        self._by_caller[caller] += 1
        self._by_tenant[scope.tenant] += 1
        self._all += 1
        return Lease(self, caller, scope.tenant, allowance)

    def ended(self, caller: Hashable, tenant: str) -> None:
        """A request is over."""
        self._all -= 1
        self._by_caller[caller] -= 1
        if not self._by_caller[caller]:
            del self._by_caller[caller]
        self._by_tenant[tenant] -= 1
        if not self._by_tenant[tenant]:
            del self._by_tenant[tenant]

    def refused(self, address: str | None) -> None:
        """Count a request without a valid token. Raises Limited where its address has sent too many.

        Only those are held back: others who share the address, behind a proxy, are not.
        """
        allowed, wait, _ = self._refused.take(_network(address))
        if not allowed:
            raise Limited("Too many requests without a valid token came from this address.", wait)


def _network(address: str | None) -> str:
    """An IPv4 address, or the network of 64 bits that one subscriber of IPv6 has."""
    try:
        found = ipaddress.ip_address(address or "")
    except ValueError:
        return address or "unknown"
    if isinstance(found, ipaddress.IPv6Address):
        if found.ipv4_mapped is not None:
            return str(found.ipv4_mapped)
        return str(ipaddress.ip_network((found, 64), strict=False))
    return str(found)
