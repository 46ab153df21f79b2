"""How a new revision is brought to pods: who is touched, how often, and when it ends."""

import pytest
from freshgate_kubernetes import SETTINGS, FakeCluster, Office, Time, secret
from freshgate_written import source

from freshgate_operator.kinds import MEMORY_SOURCE, POD, SECRET, WORKSPACE_KIND
from freshgate_operator.pods import Report

FOUR_TOUCHES = 14
"""Ticks that pass until a pod was touched four times."""


def report(office: Office) -> Report:
    return Report(ready=True, revision=office.publication().config.revision)


@pytest.fixture
async def running(office: Office) -> Office:
    await office.reconcile()
    for name in ("support-1", "support-2"):
        office.pod(name, report=report(office))
    await office.observer.look_at_all()
    office.cluster.calls.clear()
    office.sleeps.clear()
    return office


def touched(cluster: FakeCluster) -> list[str]:
    return [path.rpartition("/")[2] for method, path in cluster.calls if method == "PATCH" and "/pods/" in path]


def load_after(office: Office, ticks: int) -> None:
    """The pods load what is published once the operator has waited so many times."""

    def load(method: str, path: str) -> None:
        if len(office.sleeps) >= ticks:
            for address in office.reporters.reports:
                office.reporters.reports[address] = report(office)

    office.cluster.hooks.append(load)


async def test_pods_are_touched_until_they_report_the_revision(running: Office, cluster: FakeCluster):
    load_after(running, FOUR_TOUCHES)
    cluster.put(MEMORY_SOURCE, source("tickets", ttl="9m"))
    await running.reconcile()
    assert touched(cluster) == ["support-1", "support-2"] * 5
    assert sum(running.sleeps) == pytest.approx(0.1 + 0.5 * 13)
    assert running.conditions(WORKSPACE_KIND, "support")["Programmed"] == ("True", "Programmed")
    assert cluster.at(POD, "acme", "support-1")["metadata"]["annotations"] == {"freshgate.dev/touched": "2.5"}


async def test_a_pod_that_loads_it_at_once_is_touched_at_once_and_once_again_at_most(
    running: Office, cluster: FakeCluster
):
    load_after(running, 2)
    cluster.put(MEMORY_SOURCE, source("tickets", ttl="9m"))
    await running.reconcile()
    assert touched(cluster) == ["support-1", "support-2"]
    assert running.sleeps == [0.1, 0.5]


async def test_only_those_that_are_behind_are_touched(running: Office, cluster: FakeCluster):
    cluster.put(MEMORY_SOURCE, source("tickets", ttl="9m"))

    def one_loads(method: str, path: str) -> None:
        if running.sleeps:
            first = cluster.at(POD, "acme", "support-1")["status"]["podIP"]
            running.reporters.reports[first] = report(running)

    cluster.hooks.append(one_loads)
    await running.reconcile()
    assert touched(cluster).count("support-1") == 1
    assert touched(cluster).count("support-2") == 30


async def test_a_pod_that_never_loads_it_is_touched_30_times_and_the_status_says_so(
    running: Office, cluster: FakeCluster
):
    cluster.put(MEMORY_SOURCE, source("tickets", ttl="9m"))
    await running.reconcile()
    assert len(touched(cluster)) == 2 * 30
    assert running.conditions(WORKSPACE_KIND, "support")["Programmed"] == ("False", "PodsBehind")


async def test_sidecars_are_touched_a_few_times(running: Office, cluster: FakeCluster):
    running.sidecar("agent-1", image=SETTINGS.image)
    cluster.put(MEMORY_SOURCE, source("tickets", ttl="9m"))
    await running.reconcile()
    assert touched(cluster).count("agent-1") == 3


async def test_a_stamp_alone_touches_nobody(running: Office, cluster: FakeCluster, time: Time):
    time.move(6 * 3600)
    await running.reconcile("support")
    assert touched(cluster) == []


async def test_where_it_is_not_allowed_no_pod_is_touched(cluster: FakeCluster, time: Time):
    from dataclasses import replace

    office = Office(cluster, time, settings=replace(SETTINGS, touch_pods=False))
    await office.reconcile()
    office.pod("support-1", report=report(office))
    cluster.put(SECRET, secret("support-db", dsn="postgresql://rotated"))
    await office.reconcile()
    assert touched(cluster) == []


async def test_a_pod_that_may_not_be_touched_keeps_no_other_one_from_it(running: Office, cluster: FakeCluster):
    from freshgate_operator.errors import Forbidden

    def forbidden(method: str, path: str) -> None:
        if method == "PATCH" and path.endswith("/support-1"):
            raise Forbidden("pods/support-1: an admission policy is against it")

    cluster.hooks.append(forbidden)
    load_after(running, FOUR_TOUCHES)
    cluster.put(MEMORY_SOURCE, source("tickets", ttl="9m"))
    await running.reconcile()
    assert running.conditions(WORKSPACE_KIND, "support")["Programmed"] == ("True", "Programmed")


async def test_a_newer_revision_ends_the_way_of_the_older_one(running: Office, cluster: FakeCluster):
    record = next(iter(running.records))
    running.rollouts.follow(record)
    (older,) = running.rollouts._tasks.values()
    running.rollouts.follow(record)
    (newer,) = running.rollouts._tasks.values()
    await newer
    assert older.cancelled()
