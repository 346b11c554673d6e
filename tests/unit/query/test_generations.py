"""Encoders of several generations, the switch between them, and what the process says of itself (invariant 7)."""

from __future__ import annotations

import asyncio
import threading
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from pipeline.errors import BusUnavailable, EncoderUnavailable
from pipeline.ports import IndexReader
from query_service.app import Dependencies
from query_service.state import REFRESH_S
from schemas.generation import EncoderSpec, Generation, GenerationState
from schemas.instances import InstanceHeartbeat
from schemas.receipts import Receipt
from schemas.topics import Topic
from tests.unit.query.world import DIMENSION, GENERATION, WordsEncoder, World


class Pulse:
    """Keeps the heartbeats."""

    def __init__(self) -> None:
        self.beats: list[InstanceHeartbeat] = []
        self.down = False
        self.closed = False

    def send(self, beat: InstanceHeartbeat) -> None:
        if self.down:
            raise BusUnavailable("no broker")
        self.beats.append(beat)

    def close(self) -> None:
        self.closed = True

    @property
    def last(self) -> InstanceHeartbeat:
        return self.beats[-1]


class GatedReader:
    """A reader whose searches wait while the gate is closed; everything else passes through."""

    def __init__(self, reader: IndexReader) -> None:
        self._reader = reader
        self.gate = asyncio.Event()
        self.gate.set()
        self.waiting = 0
        self.forgotten: list[str] = []

    def __getattr__(self, name: str) -> Any:
        return getattr(self._reader, name)

    def forget(self, generation: str) -> None:
        self.forgotten.append(generation)

    async def dense(self, *arguments: Any) -> Any:
        self.waiting += 1
        await self.gate.wait()
        self.waiting -= 1
        return await self._reader.dense(*arguments)


class GenerationsWorld(World):
    """Generations with encoders of one dimension, told apart by their model."""

    def __init__(self, tmp_path: Path) -> None:
        self.pulse = Pulse()
        self.unloadable: set[str] = set()
        self.slow: dict[str, threading.Event] = {}
        super().__init__(tmp_path)
        self.gated: GatedReader | None = None

    def other(self, name: str, state: GenerationState = "ready") -> Generation:
        made = (
            super()
            .generation(name)
            .model_copy(update={"encoder": EncoderSpec(model=f"test/{name}", dimension=DIMENSION), "state": state})
        )
        self.store.write_generation(made)
        return made

    def moved(self, name: str, **changes: Any) -> None:
        self.store.write_generation(self.store.read_generations()[name].model_copy(update=changes))

    def load_encoder(self, generation: Generation) -> WordsEncoder:
        if generation.name in self.slow:
            assert self.slow[generation.name].wait(10)
        if generation.name in self.unloadable:
            raise EncoderUnavailable("no weights here")
        return super().load_encoder(generation)

    def dependencies(self) -> Dependencies:
        self.gated = GatedReader(self.store.reader())
        return replace(super().dependencies(), reader=self.gated, pulse=self.pulse)

    def queries(self, model: str) -> list[str]:
        """What encoders of a model were asked, warm-ups aside."""
        return [q for e in self.encoders if e.spec.model == model for q in e.queries if q != "warm up"]

    @asynccontextmanager
    async def beating(self) -> Any:
        async with self.running() as run:
            await run.until(lambda: bool(self.pulse.beats))
            yield run

    async def switched(self, run: Any, name: str) -> None:
        self.store.set_active_generation(name)
        self.told("activate", name)
        await run.until(lambda: run.parts.state.active == name)

    def told(self, kind: str, name: str) -> None:
        """Control's receipt on the log."""
        receipt = Receipt(
            lane="control", generation=name, tenant="", event_type=f"control.{kind}", version=1, outcome="done"
        )
        self.log.append(Topic.RECEIPTS, name, receipt.model_dump_json(exclude_none=True).encode())


pytestmark = pytest.mark.anyio


@pytest.fixture
def world(tmp_path: Path) -> GenerationsWorld:
    world = GenerationsWorld(tmp_path)
    world.principal("user:ann")
    return world


@pytest.mark.requirement("I7", "A10")
async def test_requests_in_flight_finish_on_the_generation_that_they_began_with(world: GenerationsWorld) -> None:
    old = world.document("old", "the plan of spring", "the plan of autumn")
    world.other("g2")
    world.document("new", "the plan of winter", generation="g2")
    async with world.beating() as run:
        assert world.gated is not None
        await run.until(lambda: "g2" in run.parts.state.warm())
        world.gated.gate.clear()
        begun = [asyncio.create_task(run.search(f"the plan number {n}")) for n in range(5)]
        await run.until(lambda: world.gated.waiting >= 5)
        world.store.trace.clear()
        await world.switched(run, "g2")
        late = asyncio.create_task(run.search("the plan of whom"))
        await run.until(lambda: world.gated.waiting >= 6)
        await run.until(lambda: world.pulse.last.in_flight == {GENERATION: 5, "g2": 1})
        assert world.pulse.last.active == "g2"
        world.gated.gate.set()
        for answer in await asyncio.gather(*begun):
            assert answer["generation"] == GENERATION
            assert {hit["document_id"] for hit in answer["hits"]} == {"old"}
        after = await late
        assert (after["generation"], {hit["document_id"] for hit in after["hits"]}) == ("g2", {"new"})
        assert world.queries("test/g2") == ["the plan of whom"]
        assert sorted(world.queries(EncoderSpec().model)) == [f"the plan number {n}" for n in range(5)]
        reply = await run.get(f"/v1/documents/{old.document.uid}")
        assert reply.status_code == 404  # it stands in the former generation only
        await run.until(lambda: world.pulse.last.in_flight == {})


@pytest.mark.requirement("I7")
async def test_a_switch_that_control_tells_of_is_seen_at_once(world: GenerationsWorld) -> None:
    world.other("g2")
    async with world.beating() as run:
        await run.until(lambda: "g2" in run.parts.state.warm())
        for name in ("g2", GENERATION, "g2"):
            started = asyncio.get_running_loop().time()
            await world.switched(run, name)
            assert asyncio.get_running_loop().time() - started < REFRESH_S / 2
            await run.until(lambda name=name: world.pulse.last.active == name, 0.5)


@pytest.mark.requirement("I7")
async def test_encoders_are_loaded_ahead_and_released_in_the_end(world: GenerationsWorld) -> None:
    for name, state in (("g2", "standby"), ("g3", "building"), ("g4", "retired")):
        world.other(name, state)  # type: ignore[arg-type]
    async with world.beating() as run:
        await run.until(lambda: world.pulse.last.warm == (GENERATION, "g2", "g3"), 15)
        assert {e.spec.model for e in world.encoders} == {EncoderSpec().model, "test/g2", "test/g3"}
        await world.switched(run, "g2")
        await run.search("the plan")
        await world.switched(run, GENERATION)
        encoders = run.parts.encoders
        assert any("test/g2" in key for key, _ in encoders._cache)
        world.moved("g2", state="retired")
        world.told("retire", "g2")
        await run.until(lambda: world.pulse.last.warm == (GENERATION, "g3"))
        assert not any("test/g2" in key for key in encoders._loaded)
        assert not any("test/g2" in key for key, _ in encoders._cache)
        world.moved("g2", dropped_at=world.clock.now())
        await run.until(lambda: "g2" in world.gated.forgotten)  # type: ignore[union-attr]


@pytest.mark.requirement("I7")
async def test_the_next_encoder_delays_no_search(world: GenerationsWorld) -> None:
    world.document("a", "plan")
    world.slow["g2"] = threading.Event()
    world.other("g2")
    async with world.beating() as run:
        assert await run.ids("plan") == ["a"]  # g2 is being loaded meanwhile
        assert "g2" not in world.pulse.last.warm
        world.slow["g2"].set()
        await run.until(lambda: world.pulse.last.warm == (GENERATION, "g2"))


@pytest.mark.requirement("I7", "I8")
async def test_an_encoder_that_cannot_be_loaded_is_not_warm_and_hurts_nobody(world: GenerationsWorld) -> None:
    world.document("a", "plan")
    world.unloadable.add("g2")
    world.other("g2")
    world.other("g3")
    async with world.beating() as run:
        await run.until(lambda: world.pulse.last.warm == (GENERATION, "g3"))
        assert await run.ids("plan") == ["a"]
        assert run.parts.state.reasons() == ()
        world.unloadable.clear()
        world.clock.advance(11)
        world.progress()
        await run.until(lambda: world.pulse.last.warm == (GENERATION, "g2", "g3"))


@pytest.mark.requirement("I7")
async def test_a_slow_look_does_not_undo_a_switch(world: GenerationsWorld) -> None:
    world.other("g2")
    async with world.beating() as run:
        state = run.parts.state
        assert world.gated is not None
        read, gate = world.gated._reader.generations, asyncio.Event()

        async def slowly() -> Any:
            found = await read()
            await gate.wait()
            return found

        world.gated.generations = slowly  # type: ignore[attr-defined]
        slow = asyncio.create_task(state.refresh())
        await asyncio.sleep(0.05)
        world.gated.generations = read  # type: ignore[attr-defined]
        world.clock.advance(0.1)
        await world.switched(run, "g2")
        gate.set()
        await slow
        assert state.active == "g2"


@pytest.mark.requirement("I7", "I8")
async def test_heartbeats_go_on_after_an_outage_and_end_with_a_farewell(world: GenerationsWorld) -> None:
    async with world.beating() as run:
        first = world.pulse.last
        assert (first.stopping, first.in_flight) == (False, {})
        world.pulse.down = True
        await asyncio.sleep(1.2)
        before = len(world.pulse.beats)
        world.pulse.down = False
        await run.until(lambda: len(world.pulse.beats) > before, 3)
        assert len({b.instance for b in world.pulse.beats}) == 1
    assert world.pulse.last.stopping
    assert [b.stopping for b in world.pulse.beats].count(True) == 1
