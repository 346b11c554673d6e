"""A lease ends before the broker can give the partition away, and a write that ended late is told."""

from __future__ import annotations

import pytest

from consumers.lease import EndedLate, JointLease, Lease, NotSent, Rechecks, margin_of, principal_document
from pipeline.clock import ManualClock
from pipeline.errors import BusUnavailable, LeaseLost
from schemas.events import MaintenanceCommand
from schemas.keys import DocumentRef, membership_key, partition_of
from tests.fakes.bus import MemoryBroker, MemoryPublisher


class Heart:
    """When the newest heartbeat was sent."""

    def __init__(self, clock: ManualClock) -> None:
        self.clock = clock
        self.sent: float | None = None

    def beat(self) -> None:
        self.sent = self.clock.elapsed()

    def __call__(self) -> float | None:
        return self.sent


def lease_of(clock: ManualClock, heart: Heart, **options: object) -> Lease:
    return Lease(heart, clock=clock, session_s=6.0, timeout_s=5.0, partition=1, **options)  # type: ignore[arg-type]


@pytest.mark.requirement("I1")
def test_it_counts_from_the_sending_of_the_newest_confirmed_heartbeat() -> None:
    clock = ManualClock()
    heart = Heart(clock)
    lease = lease_of(clock, heart)
    with pytest.raises(NotSent):
        lease.remaining()  # never confirmed
    heart.beat()
    assert lease.left() == pytest.approx(5.0) and lease.remaining() == pytest.approx(5.0)
    clock.advance(3)
    assert lease.remaining() == pytest.approx(2.0)
    heart.beat()
    assert lease.remaining() == pytest.approx(5.0)
    clock.advance(4.99)
    with pytest.raises(NotSent):
        lease.remaining()
    lease.check_ended()
    clock.advance(0.02)
    with pytest.raises(EndedLate):
        lease.check_ended()
    assert issubclass(EndedLate, LeaseLost) and issubclass(NotSent, LeaseLost)


@pytest.mark.requirement("I1")
@pytest.mark.parametrize("session", [1.0, 6.0, 10.0, 45.0])
def test_it_ends_before_the_session_that_the_broker_counts(session: float) -> None:
    assert 0 < margin_of(session) <= 1.0
    clock = ManualClock()
    heart = Heart(clock)
    lease = Lease(heart, clock=clock, session_s=session, timeout_s=60)
    heart.beat()
    clock.advance(session - margin_of(session))
    assert lease.left() <= 0, "the broker counts from the receipt, which is later than the sending"


@pytest.mark.requirement("I1")
def test_a_stop_between_check_and_send_is_found_after_the_write() -> None:
    clock = ManualClock()
    heart = Heart(clock)
    lease = lease_of(clock, heart, before_write=lambda: clock.advance(20))
    heart.beat()
    lease.remaining()  # the process is stopped for 20 s inside
    with pytest.raises(EndedLate, match="partition 1"):
        lease.check_ended()


@pytest.mark.requirement("I1")
def test_a_heartbeat_confirmed_meanwhile_makes_a_slow_write_good() -> None:
    clock = ManualClock()
    heart = Heart(clock)
    lease = lease_of(clock, heart)
    heart.beat()
    clock.advance(4)
    lease.remaining()
    heart.beat()  # the broker still took us for the member
    clock.advance(3)
    lease.check_ended()


@pytest.mark.requirement("I1")
def test_a_given_up_lease_is_over_whatever_the_heart_says() -> None:
    clock = ManualClock()
    heart = Heart(clock)
    lease = lease_of(clock, heart)
    heart.beat()
    lease.give_up()
    assert lease.given_up and lease.left() == 0
    with pytest.raises(NotSent):
        lease.remaining()
    with pytest.raises(EndedLate):
        lease.check_ended()


@pytest.mark.requirement("I1")
def test_a_write_for_several_partitions_has_the_shortest_of_their_leases() -> None:
    clock = ManualClock()
    heart, other = Heart(clock), Heart(clock)
    one, two = lease_of(clock, heart), lease_of(clock, other)
    heart.beat()
    clock.advance(2)
    other.beat()
    joint = JointLease([one, two, one])
    assert joint.remaining() == pytest.approx(3.0)
    two.give_up()
    with pytest.raises(EndedLate):
        joint.check_ended()


@pytest.mark.requirement("I1")
def test_rechecks_stay_owed_until_they_are_on_the_log() -> None:
    clock = ManualClock()
    broker = MemoryBroker(partitions=3, clock=clock)
    rechecks = Rechecks(MemoryPublisher(broker), clock, "-access")
    document = DocumentRef(tenant="acme", source="wiki", id="1")
    rechecks.owe([document, document, principal_document("acme", "user:ann")])
    broker.down = True
    with pytest.raises(BusUnavailable):
        rechecks.settle()
    assert len(rechecks.owed()) == 2
    broker.down = False
    rechecks.settle()
    assert rechecks.owed() == []
    records = broker.records("maintenance")
    commands = [MaintenanceCommand.model_validate_json(r.value or b"") for r in records]
    assert {(c.type, c.document.id, c.generation) for c in commands} == {
        ("recheck", "1", "-access"),
        ("recheck", "user:ann", "-access"),
    }
    by_id = {c.document.id: r.partition for c, r in zip(commands, records, strict=True)}
    assert by_id["1"] == partition_of(document.key, 3)
    assert by_id["user:ann"] == partition_of(membership_key("acme", "user:ann"), 3)
    rechecks.settle()
    assert len(broker.records("maintenance")) == 2
