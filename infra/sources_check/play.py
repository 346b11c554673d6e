"""What is played at one source system, and what must be seen of it in searches."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal, Protocol

from infra.sources_check.stage import Stage
from schemas.keys import DocumentRef

TENANT = "acme"
Way = Literal["push", "poll"]


@dataclass(frozen=True)
class Sees:
    """That a person finds a passage with these words, or finds none."""

    person: str
    words: str
    found: bool = True


def all_see(people: Iterable[str], words: str, found: bool = True) -> tuple[Sees, ...]:
    """The same for each of them."""
    return tuple(Sees(person, words, found) for person in people)


@dataclass(frozen=True)
class Step:
    """Something done at the system, and what follows from it in every one of the play's sources.

    ``slow``: it moves no date there, so that only the sweep sees it; its lag is not counted.
    """

    what: str
    act: Callable[[], object]
    sees: tuple[Sees, ...]
    slow: bool = False


@dataclass(frozen=True)
class Allowed:
    """The system's own answer: whether a person may read a document."""

    person: str
    document: DocumentRef
    may: bool


@dataclass
class Play:
    """Sources of one system by how they hear of changes, with the steps and the system's own word on who may read."""

    name: str
    sources: Mapping[str, Way]
    steps: Callable[[Stage], Iterator[Step]]
    allowed: Callable[[Stage], Iterator[Allowed]]
    begins: tuple[Sees, ...] = ()  # what is found before the first step: the sources are listed
    interval_s: float = 1.0
    settings: list[dict[str, object]] = field(default_factory=list)


class System(Protocol):
    """A real server with what is played on it."""

    name: str

    def available(self) -> str | None:
        """Why it cannot be started here, None where it can."""
        ...

    def start(self, folder: Path) -> Play:
        """Start and seed it. Raises InfraError."""
        ...

    def ready(self, stage: Stage) -> None:
        """The product runs: what needs it may begin."""
        ...

    def stop(self) -> None:
        """End it."""
        ...
