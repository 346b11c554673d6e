"""The canary's rounds, alarms and patience, in a simulated world that it reaches over HTTP."""

from __future__ import annotations

import pytest

from consumers.canary import Canary, main
from consumers.canary_client import GatewayClient, QueryClient, address
from consumers.canary_round import BOUND_S, Runner, slots
from pipeline.errors import ConfigError
from pipeline.observe import Metrics
from schemas.api_changes import AccessChange, DeleteChange, MembershipChange, UpsertChange
from schemas.keys import membership_key, partition_of
from tests.unit.canary.world import World


def _canary(world: World, observed: Metrics | None = None) -> Canary:
    settings, transport = world.settings, world.transport()
    runner = Runner(
        settings.canary.tenant,
        settings.gateway.source,
        GatewayClient(settings, transport),
        QueryClient(settings, settings.canary.tenant, transport),
        world.clock,
        world.wait,
    )
    return Canary(settings, runner, world.clock, observed if observed is not None else Metrics())


def _last(canary: Canary) -> dict[str, object]:
    last = canary.health()["last"]
    assert isinstance(last, dict)
    return last


@pytest.mark.requirement("A11", "I10")
def test_a_round_measures_each_step_from_request_to_observation() -> None:
    world, observed = World(lag=0.3), Metrics()
    canary = _canary(world, observed)
    pause = canary.once()
    last = _last(canary)
    assert last["outcome"] == "ok"
    assert last["seconds"] == {step: pytest.approx(0.3, abs=0.03) for step in ("found", "hidden", "gone")}
    assert canary.health()["state"] == "running"
    assert observed.value("headwater_canary_last_success") == pytest.approx(world.clock.now() / 1e6)
    for step in ("found", "hidden", "gone"):
        assert observed.registry.get_sample_value("headwater_canary_seconds_count", {"step": step}) == 1
    assert 50 < pause < 60  # the next round begins a minute after this one began


@pytest.mark.requirement("A11", "A8", "I10")
def test_nothing_is_left_behind_and_all_partitions_take_their_turn_in_both_ways() -> None:
    world = World()
    canary = _canary(world)
    for _ in range(6):
        world.clock.advance(canary.once())
    assert world.documents == {}
    partitions = world.settings.kafka.partitions
    upserts = [c.ref("gateway") for c in world.accepted if isinstance(c, UpsertChange)]
    assert [partition_of(ref.key, partitions) for ref in upserts[:3]] == [
        partition_of(ref.key, partitions) for ref in upserts[3:]
    ]
    assert {partition_of(ref.key, partitions) for ref in upserts} == {0, 1, 2}
    readers = {c.principal for c in world.accepted if isinstance(c, MembershipChange) and c.removed}
    assert {partition_of(membership_key("birds", reader), partitions) for reader in readers} == {0, 1, 2}
    assert sum(isinstance(c, AccessChange) for c in world.accepted) == 3  # one whole turn of the six rounds
    assert len({ref.id for ref in upserts}) == 3  # a fixed set: no tombstones pile up


@pytest.mark.parametrize(
    ("lost", "step"), [("upsert", "found"), ("delete", "gone")], ids=["never searchable", "never deleted"]
)
@pytest.mark.requirement("A11", "I10")
def test_what_does_not_happen_in_time_is_an_alarm_and_counted(
    lost: str, step: str, caplog: pytest.LogCaptureFixture
) -> None:
    world, observed = World(lost={lost}), Metrics()
    canary = _canary(world, observed)
    canary.once()
    last = _last(canary)
    assert last["outcome"] == "failed"
    assert isinstance(last["seconds"], dict)
    assert last["seconds"][step] is None
    assert observed.value("headwater_canary_failures_total", step=step) == 1
    assert observed.value("headwater_canary_last_success") == 0
    assert canary.health()["state"] == "alarm"
    assert f"alarm: {step}: not within {BOUND_S:.0f} s" in caplog.text


@pytest.mark.requirement("A8")
@pytest.mark.parametrize("way", ["membership", "access"])
def test_a_revocation_that_does_not_take_effect_is_an_alarm(way: str) -> None:
    world, observed = World(), Metrics()
    canary = _canary(world, observed)
    wanted = 0 if way == "membership" else 3
    while canary._turn // 3 % 2 != wanted // 3:
        canary.once()

    original = world._effect

    def keeps(change: object) -> object:
        revokes = isinstance(change, AccessChange) or (
            isinstance(change, MembershipChange) and not change.parents and "reader-" in change.principal
        )
        return (lambda: None) if revokes else original(change)

    world._effect = keeps  # type: ignore[method-assign, assignment]
    canary.once()
    assert _last(canary)["outcome"] == "failed"
    assert observed.value("headwater_canary_failures_total", step="hidden") == 1


@pytest.mark.requirement("A8")
def test_a_revocation_that_hides_too_much_is_an_alarm() -> None:
    world, observed = World(), Metrics()
    canary = _canary(world, observed)
    original = world._effect

    def hides_all(change: object) -> object:
        revoked = isinstance(change, MembershipChange) and not change.parents and "reader-" in change.principal
        return world.documents.clear if revoked else original(change)

    world._effect = hides_all  # type: ignore[method-assign, assignment]
    canary.once()
    assert observed.value("headwater_canary_failures_total", step="kept") == 1
    assert observed.value("headwater_canary_failures_total", step="hidden") == 0


@pytest.mark.requirement("A8")
def test_a_deleted_document_that_comes_back_is_an_alarm() -> None:
    world, observed = World(), Metrics()
    canary = _canary(world, observed)
    original = world._effect

    def revives(change: object) -> object:
        if not isinstance(change, DeleteChange):
            return original(change)
        uid = change.ref("gateway").uid

        def apply() -> None:
            kept = world.documents.pop(uid)
            world._due.append((world.clock.elapsed() + 0.5, lambda: world.documents.update({uid: kept})))

        return apply

    world._effect = revives  # type: ignore[method-assign, assignment]
    canary.once()
    assert observed.value("headwater_canary_failures_total", step="gone") == 1
    assert any("came back" in str(failure) for failure in _last(canary)["failures"])  # type: ignore[attr-defined]


@pytest.mark.requirement("I8")
@pytest.mark.parametrize("fault", ["refused connections", "gateway not ready", "query service not ready"])
def test_while_a_service_is_away_it_waits_ever_longer_and_counts_no_failure(fault: str) -> None:
    world, observed = World(), Metrics()
    canary = _canary(world, observed)
    if fault == "refused connections":
        world.broken = True
    else:
        world.status = {"/v1/changes" if fault.startswith("gateway") else "/v1/search": 503}
    pauses = [canary.once() for _ in range(8)]
    assert canary.health()["state"] == "waiting"
    assert canary.health()["waiting_for"]
    assert max(pauses[:2]) < 3 < min(pauses[6:])
    assert max(pauses) <= 30
    assert not any(
        observed.value("headwater_canary_failures_total", step=s) for s in ("found", "hidden", "gone", "unexpected")
    )
    world.broken, world.status = False, {}
    canary.once()
    assert canary.health()["state"] == "running"
    assert world.documents == {}


@pytest.mark.requirement("I8")
def test_a_service_that_is_away_for_a_moment_costs_time_not_the_round() -> None:
    world = World(lag=0.2)
    canary = _canary(world)
    original, asked = world._query, 0

    def flaky(request: object) -> object:
        nonlocal asked
        asked += 1
        if asked < 4:
            import httpx

            return httpx.Response(503, json={"detail": "starting"})
        return original(request)  # type: ignore[arg-type]

    world._query = flaky  # type: ignore[method-assign, assignment]
    canary.once()
    assert _last(canary)["outcome"] == "ok"


def test_a_refused_signature_is_an_alarm_and_the_process_lives() -> None:
    world, observed = World(status={"/v1/changes": 401}), Metrics()
    canary = _canary(world, observed)
    assert canary.once() > 0
    assert canary.health()["state"] == "alarm"
    assert "401" in str(canary.health()["waiting_for"])
    assert observed.value("headwater_canary_failures_total", step="refused") == 1


def test_an_unexpected_error_is_an_alarm_and_the_process_lives() -> None:
    world, observed = World(), Metrics()
    canary = _canary(world, observed)

    def broken(request: object) -> object:
        raise RuntimeError("no")

    world._query = broken  # type: ignore[method-assign, assignment]
    assert canary.once() > 0
    assert observed.value("headwater_canary_failures_total", step="unexpected") == 1


def test_asked_to_stop_it_leaves_at_once_and_takes_its_document_away() -> None:
    world = World(lag=0.3, stop_after=0.1)
    canary = _canary(world)
    canary.run(world.wait)
    assert world.clock.elapsed() < 0.3
    assert isinstance(world.accepted[-2], DeleteChange)
    assert canary.health()["last"] is None


@pytest.mark.parametrize("partitions", [1, 3, 12])
def test_each_partition_has_its_document_and_its_reader(partitions: int) -> None:
    found = slots("birds", "gateway", partitions)
    assert [partition_of(s.document.key, partitions) for s in found] == list(range(partitions))
    assert [partition_of(membership_key("birds", s.reader), partitions) for s in found] == list(range(partitions))
    assert found == slots("birds", "gateway", partitions)


@pytest.mark.parametrize(("changed", "field"), [({"auth": {}}, "auth.jwt_secret"), ({"gateway": {}}, "gateway.secret")])
def test_missing_keys_are_named_with_the_remedy(
    changed: dict[str, object], field: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    from pipeline.settings import Settings

    given = {"auth": {"jwt_secret": "j" * 48}, "gateway": {"secret": "g" * 48}} | changed
    monkeypatch.setattr("consumers.canary.load", lambda: Settings.model_validate(given))
    with pytest.raises(ConfigError) as error:
        main([])
    assert error.value.field == field
    assert error.value.remedy


def test_a_server_that_listens_everywhere_is_reached_here() -> None:
    assert address("0.0.0.0", 80) == "http://127.0.0.1:80"
    assert address("::", 80) == "http://[::1]:80"
    assert address("search.internal", 80) == "http://search.internal:80"
