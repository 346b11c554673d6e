"""The running product as a play needs it: searches as people, and how long until they show something."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING

from infra.asking import QueryApi
from infra.bench.world import World
from infra.errors import InfraError
from schemas.api import SearchFilters
from schemas.keys import DocumentRef

if TYPE_CHECKING:
    from infra.sources_check.play import Sees

PAUSE_S = 0.02
PATIENCE_S = 60.0


class Stage:
    """Asks the query service of a world."""

    def __init__(self, world: World, tenant: str) -> None:
        self.world, self.tenant = world, tenant
        self.api = QueryApi(world.settings)

    def finds(self, person: str, words: str, source: str) -> bool:
        """Whether a person finds a passage of this source that holds these words."""
        found = self.api.search(
            person, self.tenant, words, k=10, filters=SearchFilters(sources=(source,)), rerank="off"
        )
        return any(words in hit.text or words in hit.title for hit in found.hits)

    def holds(self, sees: Sequence[Sees], source: str) -> list[Sees]:
        """What is not as it should be."""
        wrong = []
        for one in sees:
            try:
                if self.finds(one.person, one.words, source) != one.found:
                    wrong.append(one)
            except InfraError:
                wrong.append(one)
        return wrong

    def until(
        self, sees: Sequence[Sees], sources: Sequence[str], seconds: float = PATIENCE_S
    ) -> dict[str, float | None]:
        """Seconds until all of it holds in each source, None where it never does."""
        began = time.monotonic()
        left = dict.fromkeys(sources)
        times: dict[str, float | None] = {}
        while left:
            for source in list(left):
                if not self.holds(sees, source):
                    times[source] = time.monotonic() - began
                    del left[source]
            if left and time.monotonic() - began > seconds:
                return times | dict.fromkeys(left)
            time.sleep(PAUSE_S)
        return times

    def may_read(self, person: str, document: DocumentRef) -> bool:
        """Whether the query service shows a document to a person."""
        return self.api.shows(person, self.tenant, document.uid)

    def wait(self, holds: Callable[[], bool], seconds: float = PATIENCE_S) -> bool:
        """Whether something comes to hold."""
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            with suppress(InfraError):
                if holds():
                    return True
            time.sleep(PAUSE_S)
        return False

    def close(self) -> None:
        """Disconnect."""
        self.api.close()
