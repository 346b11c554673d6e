"""What goes wrong on a machine: each error names what is missing and what to do about it."""

from __future__ import annotations

from pipeline.errors import HeadwaterError


class InfraError(HeadwaterError):
    """A service could not be obtained, started or stopped. ``remedy`` says what the user can do."""

    def __init__(self, problem: str, remedy: str) -> None:
        super().__init__(f"{problem} {remedy}")
        self.problem = problem
        self.remedy = remedy


class ObtainError(InfraError):
    """One way of obtaining a binary failed; the next way may work."""


class DiskFullError(InfraError):
    """Too little free disk space."""


class StartError(InfraError):
    """A process ended, or did not become healthy in time."""
