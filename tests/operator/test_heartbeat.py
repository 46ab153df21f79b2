"""The operator is alive where its own beat comes back to it through a watch."""

from freshgate_kubernetes import FakeCluster, Office, Time

from freshgate_operator.heartbeat import Heartbeat
from freshgate_operator.kinds import LEASE


def heart(cluster: FakeCluster, time: Time) -> Heartbeat:
    return Heartbeat(cluster, "freshgate-system", holder="me", clock=lambda: time.wall, now=lambda: time.process)


async def test_an_operator_that_does_not_hear_itself_is_not_alive(cluster: FakeCluster, time: Time):
    """Replay 33: what is written arrives, the socket listens, and no watch brings anything."""
    beating = heart(cluster, time)
    for _ in range(6):
        assert beating.is_heard
        await beating.beat()
        time.move(10)
    assert not beating.is_heard
    assert beating.age() == 60.0


async def test_an_operator_that_hears_itself_is_alive(cluster: FakeCluster, time: Time):
    beating = heart(cluster, time)
    for _ in range(20):
        await beating.beat()
        time.move(10)
        beating.see(cluster.at(LEASE, "freshgate-system", "freshgate-operator"))
    assert beating.is_heard


async def test_another_operators_beat_proves_nothing(cluster: FakeCluster, time: Time):
    beating = heart(cluster, time)
    time.move(60)
    beating.see({"spec": {"holderIdentity": "another"}})
    assert not beating.is_heard


async def test_the_age_is_a_gauge_that_rises_by_itself(office: Office, time: Time):
    beating = heart(office.cluster, time)
    office.metrics.watch_heartbeat(beating.age)
    time.move(25)
    assert b"freshgate_operator_heartbeat_age_seconds 25.0" in office.metrics.render()
