"""The fleet over consumers that are told when to answer and when to die."""

from __future__ import annotations

from dataclasses import dataclass, field

import pytest

from consumers.fleet import LEAVE_S, SETTLED_S, Fleet, merged
from consumers.priority import LOW
from pipeline.clock import ManualClock
from schemas.generation import BackendChoice, Generation, GenerationState


@dataclass
class Consumer:
    """A child of the fleet."""

    generation: str
    member: str
    pid: int
    clock: ManualClock
    answers: bool = False
    ended: int | None = None
    nice: int = 0
    asked_to_leave: bool = False
    obeys: bool = True
    privileged: bool = False  # may raise its priority again
    since: float = field(init=False)

    def __post_init__(self) -> None:
        self.since = self.clock.elapsed()

    def status(self) -> int | None:
        return self.ended

    def age(self) -> float:
        return self.clock.elapsed() - self.since

    def page(self) -> dict[str, object] | None:
        return {"state": "running"} if self.answers and self.ended is None else None

    def metrics(self) -> str:
        return ""

    def lower(self, nice: int) -> None:
        self.nice = max(self.nice, nice)

    def restore(self) -> bool:
        if self.privileged:
            self.nice = 0
        return self.privileged

    def leave(self) -> None:
        self.asked_to_leave = True
        if self.obeys:
            self.ended = 0

    def kill(self) -> None:
        self.ended = -9


class World:
    """A fleet with the records that it looks at."""

    def __init__(self) -> None:
        self.clock = ManualClock(1_000_000)
        self.started: list[Consumer] = []
        self.fleet = Fleet(self._launch, "a", self.clock)
        self.known: dict[str, Generation] = {}
        self.active: str | None = None

    def _launch(self, generation: str, member: str) -> Consumer:
        made = Consumer(generation, member, len(self.started) + 1, self.clock)
        self.started.append(made)
        return made

    def set(self, **states: GenerationState) -> None:
        backend = BackendChoice(name="stub", agreement=1)
        self.known = {n: Generation(name=n, state=s, backend=backend, created_at=1) for n, s in states.items()}
        self.active = next((n for n, s in states.items() if s == "active"), None)

    def tick(self, seconds: float = 1.0) -> None:
        self.clock.advance(seconds)
        self.fleet.tick(self.known, self.active)

    def running(self) -> dict[str, list[int]]:
        """Pids of living consumers by generation."""
        found: dict[str, list[int]] = {}
        for child in self.started:
            if child.ended is None:
                found.setdefault(child.generation, []).append(child.pid)
        return found


@pytest.fixture
def world() -> World:
    return World()


@pytest.mark.requirement("A10", "I11")
def test_every_generation_that_is_kept_up_has_one_consumer_and_only_the_active_one_goes_first(world: World) -> None:
    world.set(old="standby", now="active", new="ready", unborn="building", gone="retired")
    for _ in range(3):
        world.tick()
    assert world.running() == {"new": [1], "now": [2], "old": [3]}
    assert {c.generation: c.nice for c in world.started} == {"new": LOW, "now": 0, "old": LOW}
    assert {c.member for c in world.started} == {"a"}


@pytest.mark.requirement("A10")
def test_a_first_generation_is_built_by_the_fleet_itself(world: World) -> None:
    world.tick()
    assert world.fleet.health()["state"] == "unready"
    world.set(first="building")
    world.tick()
    assert world.running() == {"first": [1]} and world.started[0].nice == 0
    assert world.fleet.health()["state"] == "unready"
    world.started[0].answers = True
    world.tick()
    assert world.fleet.health()["state"] == "running"
    world.set(first="active")
    world.tick()
    world.set(first="active", second="building")
    world.tick()
    assert world.running() == {"first": [1]}


@pytest.mark.requirement("I11")
def test_a_dead_consumer_is_started_again_and_later_each_time_it_dies_at_once(world: World) -> None:
    world.set(now="active")
    world.tick()
    waits = []
    for _ in range(6):
        world.started[-1].ended = -9
        before, began = len(world.started), world.clock.elapsed()
        while len(world.started) == before:
            world.tick(0.1)
        waits.append(world.clock.elapsed() - began)
    assert waits[0] < 1 and waits[-1] > 5, waits
    told = world.fleet.health()["consumers"]
    assert isinstance(told, dict) and told["now"]["starts"] == 7 and told["now"]["last_end"] == "signal 9"
    world.tick(SETTLED_S)
    world.started[-1].ended = 1
    world.tick(0.1)
    world.tick(0.6)
    assert world.running() == {"now": [8]}, "one that lived long is started at once"


@pytest.mark.requirement("A10", "D4")
def test_the_consumer_of_an_activated_generation_leaves_only_when_its_successor_answers(world: World) -> None:
    world.set(now="active", new="ready")
    world.tick()
    new, now = world.started
    world.set(now="standby", new="active")
    for _ in range(3):
        world.tick()
    assert world.running() == {"new": [new.pid, 3], "now": [now.pid]}
    assert now.nice == LOW, "the former one is lowered where it is"
    successor = world.started[2]
    assert successor.member != new.member, "two members of one name would fence each other"
    successor.answers = True
    world.tick()
    assert new.asked_to_leave and world.running() == {"new": [3], "now": [now.pid]}
    assert successor.nice == 0
    world.set(now="active", new="standby")
    world.tick()
    world.started[-1].answers = True
    world.tick()
    assert now.asked_to_leave and not successor.asked_to_leave and successor.nice == LOW


@pytest.mark.requirement("A10", "D4")
def test_the_consumer_of_an_activated_generation_stays_where_its_priority_may_be_raised(world: World) -> None:
    world.set(now="active", new="ready")
    world.tick()
    new, now = world.started
    assert new.nice == LOW
    new.privileged = True
    world.set(now="standby", new="active")
    world.tick()
    world.tick()
    assert len(world.started) == 2 and not new.asked_to_leave
    assert (new.nice, now.nice) == (0, LOW)


@pytest.mark.requirement("A10")
def test_a_successor_that_dies_leaves_the_old_consumer_in_place_and_is_tried_again(world: World) -> None:
    world.set(now="active", new="ready")
    world.tick()
    world.set(now="standby", new="active")
    world.tick()
    world.started[2].ended = 1
    world.tick()
    world.tick()
    assert not world.started[0].asked_to_leave
    assert [c.pid for c in world.started if c.generation == "new" and c.ended is None] == [1, 4]


@pytest.mark.requirement("A10")
def test_the_consumer_of_a_retired_generation_is_stopped_and_killed_if_it_does_not_leave(world: World) -> None:
    world.set(now="active", old="standby")
    world.tick()
    old = world.started[1]
    old.obeys = False
    world.set(now="active", old="retired")
    world.tick()
    assert old.asked_to_leave and old.ended is None
    world.tick(LEAVE_S + 1)
    assert old.ended == -9 and world.running() == {"now": [1]}
    for _ in range(5):
        world.tick(30)
    assert len(world.started) == 2


@pytest.mark.requirement("I8")
def test_consumers_stay_and_are_restarted_while_the_records_cannot_be_read(world: World) -> None:
    world.set(now="active", old="standby")
    world.tick()
    world.started[0].ended = -9
    world.clock.advance(1)
    world.fleet.look()
    world.clock.advance(1)
    world.fleet.look()
    assert world.running() == {"now": [3], "old": [2]}
    world.known = {}  # an emptied store says nothing about who is retired
    world.tick()
    assert world.running() == {"now": [3], "old": [2]}


def test_stop_asks_all_and_waits_until_they_are_gone(world: World) -> None:
    world.set(now="active", old="standby")
    world.tick()
    world.started[0].obeys = False
    world.fleet.stop(lambda: world.clock.advance(1))
    assert [c.ended for c in world.started] == [-9, 0]
    assert world.fleet.health()["state"] == "stopping"


def test_metrics_of_several_consumers_are_one_page_without_doubled_series() -> None:
    page = (
        "# HELP headwater_outcomes_total Receipts.\n# TYPE headwater_outcomes_total counter\n"
        'headwater_outcomes_total{lane="index",outcome="indexed"} 3.0\n'
        "# HELP headwater_ready Ready.\n# TYPE headwater_ready gauge\nheadwater_ready 1.0\n"
        '# HELP c_total C.\n# TYPE c_total counter\nc_total{generation="one"} 2.0\n'
    )
    lines = merged({"two": page.replace('"one"', '"two"'), "one": page}).decode().splitlines()
    assert lines == [
        "# HELP headwater_outcomes_total Receipts.",
        "# TYPE headwater_outcomes_total counter",
        'headwater_outcomes_total{lane="index",outcome="indexed",generation="one"} 3.0',
        'headwater_outcomes_total{lane="index",outcome="indexed",generation="two"} 3.0',
        "# HELP headwater_ready Ready.",
        "# TYPE headwater_ready gauge",
        'headwater_ready{generation="one"} 1.0',
        'headwater_ready{generation="two"} 1.0',
        "# HELP c_total C.",
        "# TYPE c_total counter",
        'c_total{generation="one"} 2.0',
        'c_total{generation="two"} 2.0',
    ]
    assert merged({}) == b""
