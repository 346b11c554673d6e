"""What the benchmarks of one run share: services, sizes, and the world that is open now."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from infra.bench.sizes import Sizes
from infra.bench.world import World, remove_leftovers
from infra.endpoints import Endpoints
from infra.progress import Reporter
from pipeline.ports import Embedder, Vectors

LIVE = ("control", "access", "index", "gateway", "owner")
SEARCH = ("control", "access", "query")


@dataclass
class Session:
    """``folder`` holds worlds and what is cached between runs. One world is open at a time: they would disturb
    each other's figures."""

    endpoints: Endpoints
    folder: Path
    sizes: Sizes
    report: Reporter
    idle_lag: list[float] = field(default_factory=list)  # of lag_idle, for what is compared with it
    passages: dict[str, tuple[list[str], Vectors]] = field(default_factory=dict)  # by encoder
    _name: str = ""
    _world: World | None = None
    _encoder: Embedder | None = None

    def live(self) -> World:
        """The world that benchmarks of the write path share, each with tenants of its own."""
        return self.world("live", lambda: World(self.endpoints, self.folder / "worlds" / "live", LIVE))

    def world(self, name: str, make: Callable[[], World]) -> World:
        """The world of this name; another one that is open is closed first. Raises InfraError."""
        if self._world is None or self._name != name:
            self.close_world()
            made = make()
            made.open(self.report)
            self._name, self._world = name, made
        return self._world

    def close_world(self) -> None:
        """Stop and erase the open world, for instance because a benchmark leaves a backlog behind."""
        world, self._world = self._world, None
        self._encoder = None
        if world is not None:
            self.report.step("tidying up", self._name)
            world.close()
            self.report.finish("tidying up", self._name)

    def encoder(self, world: World) -> Embedder:
        """The generation's encoder in this process, with the index consumer's settings."""
        if self._encoder is None:
            from pipeline.bootstrap import build_encoder

            self._encoder = build_encoder(world.settings, world.generation())
        return self._encoder

    def progress(self, step: str, done: int, total: int) -> None:
        """Say how far a step is."""
        self.report.step(step, f"{done} of {total}", done / max(1, total))


@contextmanager
def session(endpoints: Endpoints, folder: Path, sizes: Sizes, report: Reporter) -> Iterator[Session]:
    """A session over running services; at its end nothing of it runs any more."""
    remove_leftovers(endpoints, folder / "worlds")
    made = Session(endpoints, folder, sizes, report)
    try:
        yield made
    finally:
        made.close_world()
