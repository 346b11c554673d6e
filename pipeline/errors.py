"""Exceptions are instructions to the loop: four verbs, known everywhere.

HeadwaterError
├── Reject        the record goes to the dead letters, its partition goes on
│   └── DocumentError   a document that cannot be processed (stage, kind)
├── Hold          wait for something that will come (an access event, a lease), try the same record again
│   └── StillExtracting   a document is being read elsewhere: go on with others until it says so
├── Retry         infrastructure failed: hold the partition, back off, lose nothing (invariant 8)
│   ├── StoreUnavailable, BusUnavailable, EncoderUnavailable
│   └── LeaseLost       this process may no longer write for the partition
├── BodyGone      a claim check's body is missing: neither poison nor outage
├── ConfigError   settings that cannot work; names the field and the remedy
└── Crash         stop the process without committing
"""

from __future__ import annotations

from collections.abc import Callable


class HeadwaterError(Exception):
    """Root of all errors raised on purpose."""


class Reject(HeadwaterError):
    """This record cannot be processed, now or later. ``final``: another attempt would end alike."""

    final = False

    def __init__(self, reason: str, *, stage: str = "decode", kind: str = "invalid") -> None:
        super().__init__(reason)
        self.reason = reason
        self.stage = stage
        self.kind = kind


class DocumentError(Reject):
    """A document that a stage cannot process."""


class Hold(HeadwaterError):
    """Not yet: try again after ``seconds``."""

    def __init__(self, reason: str, *, seconds: float = 0.05) -> None:
        super().__init__(reason)
        self.seconds = seconds


class StillExtracting(Hold):
    """The document is being read elsewhere; asking again with the same arguments gets the result once it is there."""

    def __init__(self, reason: str, when_done: Callable[[Callable[[], None]], None], *, seconds: float = 0.05) -> None:
        super().__init__(reason, seconds=seconds)
        self._when_done = when_done

    def when_done(self, callback: Callable[[], None]) -> None:
        """Call back once, from any thread, when asking again is worthwhile: at once where it is already."""
        self._when_done(callback)


class Retry(HeadwaterError):
    """Infrastructure failed; nothing is lost by waiting."""


class StoreUnavailable(Retry):
    """Weaviate did not answer, or did not acknowledge."""


class BusUnavailable(Retry):
    """Kafka did not answer, or did not acknowledge."""


class EncoderUnavailable(Retry):
    """The encoder did not answer."""


class QueryRefused(EncoderUnavailable):
    """The encoder's server does not take this query; it may take others."""


class LeaseLost(Retry):
    """The partition's lease ended: the write was not sent, or ended too late."""


class BodyGone(HeadwaterError):
    """A claim check's body is no longer there."""


class ConfigError(HeadwaterError):
    """Settings that cannot work. ``field`` names the setting, ``remedy`` says what to do."""

    def __init__(self, field: str, problem: str, remedy: str) -> None:
        super().__init__(f"{field}: {problem}. {remedy}")
        self.field = field
        self.problem = problem
        self.remedy = remedy


class Crash(HeadwaterError):
    """Stop the process without committing."""
