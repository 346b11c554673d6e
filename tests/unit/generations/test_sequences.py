"""Random commands of several people, kills in between: what always holds of generations."""

from __future__ import annotations

from typing import Any

import hypothesis
import pytest
from hypothesis import strategies as st

from tests.unit.generations.control_world import ControlWorld, Killed

NAMES = st.sampled_from(["g1", "g2", "g3"])
KINDS = st.sampled_from(["create", "ready", "report", "activate", "activate", "rollback", "retire", "drop"])
STEPS = st.tuples(
    KINDS,
    NAMES,
    st.sampled_from([None, None, "g1", "g2"]),  # expected_active
    st.booleans(),  # override
    st.sampled_from([None, None, 0, 1, 2, 3]),  # killed at this step of it
    st.booleans(),  # and then everything is read again from the beginning
    st.booleans(),  # time passes afterwards
)


def always(world: ControlWorld) -> None:
    """After every command that was carried out whole."""
    states = world.states()
    active = [name for name, state in states.items() if state == "active"]
    assert active == ([world.active] if world.active is not None else []), states
    for name, generation in world.known.items():
        standing = f"hot:{name}" in world.store._collections
        assert standing == (generation.dropped_at is None), (name, generation)
        if generation.state == "retired":
            assert generation.drop_after is not None
        else:
            assert generation.freed is None and generation.dropped_at is None
        if generation.state in ("active", "standby"):
            assert generation.activated_at is not None


@pytest.mark.requirement("I7", "A10")
@hypothesis.settings(max_examples=150)
@hypothesis.given(st.lists(STEPS, max_size=14))
def test_one_is_active_and_it_stands(steps: list[tuple[Any, ...]]) -> None:
    world = ControlWorld(retention_days=0.5)
    world.serving()
    told: dict[str, set[str]] = {}
    for kind, name, expected, override, killed, again, idle in steps:
        fields: dict[str, Any] = {}
        if kind == "report":
            fields["report"] = world.summary(world.active or "g1")
        if expected is not None and kind != "create":
            fields["expected_active"] = expected
        if override:
            fields["override"] = "asked for"
        before, active = len(world.commands), world.active
        world.steps.clear()
        world.put(kind, name, **fields)
        world.kill_at = killed
        try:
            world.work()
        except Killed:
            world.restart(0 if again else before)
            world.work()
        world.kill_at = None
        always(world)
        if world.active != active:
            assert kind in ("activate", "rollback") and world.active == name
            assert expected in (None, active)
        if idle:
            world.idle(1, 3600.0 * 6)
            always(world)
    for receipt in world.receipts:
        told.setdefault(str(receipt.request_id), set()).add(receipt.outcome)
    assert all(len(outcomes) == 1 for outcomes in told.values()), told
