"""What a Workspace's status says of its pods, when it is written, and which events tell of it."""

from datetime import timedelta
from typing import Any

import pytest
from freshgate_kubernetes import START, FakeCluster, Office, Time
from freshgate_written import desk, policy, source, workspace

from freshgate_crds.compiled import Revision
from freshgate_operator.kinds import (
    ENTITLEMENT_POLICY,
    EVENT,
    MEMORY_SOURCE,
    WORKSPACE_KIND,
)
from freshgate_operator.pods import Report, SourceReport

SOURCES = ("accounts", "tickets")


def told(name: str, **changes: Any) -> SourceReport:
    """Of a source that is fresh."""
    good = {"objects": 7, "stale": 0, "last_success": START, "oldest_confirmed": START}
    return SourceReport(name=name, **{**good, **changes})


def report(office: Office, *, behind: int = 0, **changes: Any) -> Report:
    revision = office.publication().config.revision
    loaded = revision.model_copy(update={"counter": revision.counter - behind})
    return Report(ready=True, revision=loaded, sources=tuple(told(name, **changes) for name in SOURCES))


async def settled(office: Office, **changes: Any) -> None:
    """Two pods, both of which say the same."""
    await office.reconcile()
    for name in ("support-1", "support-2"):
        office.pod(name, report=report(office, **changes))
    await office.observer.look_at_all()


def of_workspace(office: Office) -> dict[str, tuple[str, str]]:
    return office.conditions(WORKSPACE_KIND, "support")


# --- conditions ----------------------------------------------------------------------------------------------------


async def test_a_workspace_whose_pods_have_all_loaded_the_revision_is_ready(office: Office):
    await settled(office)
    assert of_workspace(office) == {
        "Accepted": ("True", "Accepted"),
        "ResolvedRefs": ("True", "Resolved"),
        "Programmed": ("True", "Programmed"),
        "Fresh": ("True", "Fresh"),
        "SidecarsOutdated": ("False", "UpToDate"),
        "Ready": ("True", "Ready"),
    }


async def test_a_workspace_without_pods_is_not_ready(office: Office):
    """Replay 38."""
    await settled(office)
    for name in ("support-1", "support-2"):
        office.cluster.objects.pop(f"/api/v1/namespaces/acme/pods/{name}")
    await office.observer.look_at_all()
    assert of_workspace(office)["Ready"] == ("False", "PodsNotReady")
    assert office.message(WORKSPACE_KIND, "support", "Ready") == "0 of 2 pods are ready."


async def test_why_a_pod_does_not_start_is_said_in_the_kubelets_word(office: Office):
    await office.reconcile()
    office.pod("support-1", ready=False)
    waiting = {"waiting": {"reason": "ImagePullBackOff", "message": "from registry.example/secret-path"}}
    pod = office.cluster.objects["/api/v1/namespaces/acme/pods/support-1"]
    pod["status"]["containerStatuses"] = [{"state": waiting}]
    await office.observer.look_at_all()
    assert (
        office.message(WORKSPACE_KIND, "support", "Programmed") == "0 of 2 pods are ready. Waiting: ImagePullBackOff."
    )


async def test_a_pod_that_is_behind_keeps_the_workspace_from_being_programmed(office: Office):
    await settled(office)
    office.pod("support-3", report=report(office, behind=1))
    await office.observer.look_at_all()
    assert of_workspace(office)["Programmed"] == ("False", "PodsBehind")


async def test_the_report_of_a_workspace_of_that_name_that_was_deleted_does_not_count(office: Office):
    await settled(office)
    stranger = Report(ready=True, revision=Revision(workspace_uid="another", counter=10**6))
    office.pod("support-3", report=stranger)
    await office.observer.look_at_all()
    assert of_workspace(office)["Programmed"] == ("False", "PodsBehind")


async def test_a_pod_that_does_not_answer_is_named(office: Office):
    await settled(office)
    office.pod("support-3")
    await office.observer.look_at_all()
    assert of_workspace(office)["Programmed"] == ("False", "PodsSilent")
    assert "support-3" in office.message(WORKSPACE_KIND, "support", "Programmed")


async def test_a_pod_that_misses_an_answer_or_two_is_not_silent_yet(office: Office):
    await settled(office)
    office.reporters.reports.clear()
    for ready in ("True", "True", "False"):
        await office.observer.look_at_all()
        assert of_workspace(office)["Ready"][0] == ready
    assert of_workspace(office)["Programmed"] == ("False", "PodsSilent")


async def test_what_was_known_last_of_the_sources_stays_while_no_pod_answers(office: Office):
    await settled(office, stale=3)
    known = office.status(WORKSPACE_KIND, "support")["sources"]
    office.reporters.reports.clear()
    for _ in range(3):
        await office.observer.look_at_all()
    assert office.status(WORKSPACE_KIND, "support")["sources"] == known
    assert of_workspace(office)["Fresh"] == ("Unknown", "NotObserved")


async def test_a_pod_that_is_leaving_does_not_count(office: Office):
    await settled(office)
    office.pod("support-3", ready=False)
    office.cluster.objects["/api/v1/namespaces/acme/pods/support-3"]["metadata"]["deletionTimestamp"] = "now"
    await office.observer.look_at_all()
    assert of_workspace(office)["Ready"] == ("True", "Ready")


async def test_a_workspace_at_0_replicas_is_paused(office: Office, cluster: FakeCluster):
    cluster.put(WORKSPACE_KIND, workspace(service={"replicas": 0}))
    await office.reconcile()
    assert of_workspace(office)["Ready"] == ("False", "Paused")
    assert of_workspace(office)["Accepted"] == ("True", "Accepted")


@pytest.mark.parametrize(
    ("changes", "after", "condition"),
    [
        ({}, timedelta(minutes=65), ("True", "Fresh")),  # a TTL of 5 minutes and a sweep of an hour
        ({}, timedelta(minutes=66), ("False", "SourcesLate")),
        ({"last_success": START + timedelta(hours=3)}, timedelta(hours=3), ("False", "SourcesLate")),
        ({"objects": 0, "oldest_confirmed": None}, timedelta(0), ("True", "Fresh")),
        ({"oldest_confirmed": None}, timedelta(0), ("Unknown", "NotReported")),
        ({"last_success": None, "oldest_confirmed": None, "objects": 0}, timedelta(0), ("False", "NotReadYet")),
        (
            {"last_success": None, "oldest_confirmed": None, "objects": 0, "last_error": "nobody is there"},
            timedelta(0),
            ("False", "SourcesLate"),
        ),
    ],
)
async def test_fresh_is_what_was_confirmed_within_its_ttl_and_a_sweep(
    office: Office, time: Time, changes: dict[str, Any], after: timedelta, condition: tuple[str, str]
):
    """Replay 37: it ceases to be so although nothing happens."""
    await settled(office, **changes)
    time.move(after.total_seconds())
    await office.observer.look_at_all()
    assert of_workspace(office)["Fresh"] == condition
    assert of_workspace(office)["Ready"][0] == ("False" if condition[0] == "False" else "True")


async def test_a_sidecar_of_another_version_is_named(office: Office):
    await settled(office)
    office.sidecar("agent-1", image="freshgate-service:0")
    office.sidecar("agent-2", image="freshgate-service:1")
    await office.observer.look_at_all()
    assert of_workspace(office)["SidecarsOutdated"] == ("True", "OtherVersion")
    message = office.message(WORKSPACE_KIND, "support", "SidecarsOutdated")
    assert ("agent-1" in message, "agent-2" in message) == (True, False)


async def test_every_condition_names_the_generation_that_it_is_of(office: Office, cluster: FakeCluster):
    """Replay 40."""
    await settled(office)
    cluster.put(WORKSPACE_KIND, workspace(ranking={"limit": 5}))
    await office.reconcile()
    assert {row["observedGeneration"] for row in office.status(WORKSPACE_KIND, "support")["conditions"]} == {2}


async def test_a_transition_time_is_of_the_last_change_of_the_status(office: Office, cluster: FakeCluster, time: Time):
    await office.reconcile()
    time.move(60)
    cluster.put(MEMORY_SOURCE, source("tickets", ttl="9m"))
    await office.reconcile()
    rows = office.status(MEMORY_SOURCE, "tickets")["conditions"]
    assert {row["lastTransitionTime"] for row in rows} == {"2026-11-30T10:00:00Z"}
    assert {row["observedGeneration"] for row in rows} == {2}


async def test_sources_and_policies_that_no_workspace_uses_are_judged_too(office: Office, cluster: FakeCluster):
    cluster.put(MEMORY_SOURCE, source("spare"))
    cluster.put(MEMORY_SOURCE, source("broken", ttl="soon"))
    cluster.put(ENTITLEMENT_POLICY, policy("elsewhere", workspaces=["nowhere"]))
    await office.reconcile()
    assert office.conditions(MEMORY_SOURCE, "spare")["Accepted"] == ("True", "Unused")
    assert office.conditions(MEMORY_SOURCE, "broken")["Accepted"] == ("False", "InvalidValue")
    assert office.conditions(ENTITLEMENT_POLICY, "elsewhere")["Accepted"] == ("True", "Unused")


async def test_many_refusals_are_told_as_far_as_there_is_room(office: Office, cluster: FakeCluster):
    rules = [{"sources": [f"nowhere-{number}" for number in range(60)], "everything": True}]
    cluster.put(ENTITLEMENT_POLICY, policy("wide", rules=rules))
    await office.reconcile()
    message = office.message(ENTITLEMENT_POLICY, "wide", "Accepted")
    assert len(message) <= 4096
    assert message.endswith("more are not shown.")


# --- rows ----------------------------------------------------------------------------------------------------------


async def test_rows_say_how_each_source_is(office: Office):
    await settled(office, objects=7, stale=3, last_error="it took too long\x1b[31m", last_error_at=START)
    status = office.status(WORKSPACE_KIND, "support")
    assert status["sources"][1] == {
        "name": "tickets",
        "objects": 7,
        "stale": 3,
        "lastSuccess": "2026-11-30T10:00:00Z",
        "lastError": {"time": "2026-11-30T10:00:00Z", "message": "it took too long [31m"},
    }
    assert (status["stale"], status["lastSuccess"]) == (6, "2026-11-30T10:00:00Z")


async def test_counts_alone_are_written_once_in_five_minutes(office: Office, time: Time):
    await settled(office)
    for address in office.reporters.reports:
        office.reporters.reports[address] = report(office, stale=5)
    for _ in range(29):
        time.move(10)
        await office.observer.look_at_all()
        assert office.status(WORKSPACE_KIND, "support")["stale"] == 0
    time.move(10)
    await office.observer.look_at_all()
    assert office.status(WORKSPACE_KIND, "support")["stale"] == 10


async def test_a_new_error_is_written_at_once(office: Office):
    await settled(office)
    for address in office.reporters.reports:
        office.reporters.reports[address] = report(office, last_error="nobody is there")
    await office.observer.look_at_all()
    assert office.status(WORKSPACE_KIND, "support")["sources"][0]["lastError"]["message"] == "nobody is there"


async def test_an_error_without_a_time_has_that_of_when_it_was_first_seen(office: Office, time: Time):
    await settled(office, last_error="nobody is there")
    time.move(600)
    for address in office.reporters.reports:
        office.reporters.reports[address] = report(office, last_error="nobody is there", stale=1)
    await office.observer.look_at_all()
    row = office.status(WORKSPACE_KIND, "support")["sources"][0]
    assert (row["stale"], row["lastError"]["time"]) == (1, "2026-11-30T10:00:00Z")


async def test_a_pod_cannot_add_rows_of_sources_that_are_not_the_workspaces(office: Office):
    await office.reconcile()
    everything = report(office)
    foreign = everything.model_copy(update={"sources": (*everything.sources, told("salaries"))})
    office.pod("support-1", report=foreign)
    await office.observer.look_at_all()
    assert [row["name"] for row in office.status(WORKSPACE_KIND, "support")["sources"]] == ["accounts", "tickets"]


# --- when it is written, and events --------------------------------------------------------------------------------


async def test_another_process_does_not_change_what_it_has_not_looked_at_yet(
    office: Office, cluster: FakeCluster, time: Time
):
    await settled(office)
    before = office.status(WORKSPACE_KIND, "support")
    another = Office(cluster, time, reporters=office.reporters)
    await another.reconcile()
    assert office.status(WORKSPACE_KIND, "support") == before


async def test_what_was_looked_at_earlier_never_overwrites_what_was_looked_at_later(office: Office):
    await settled(office)
    record = next(iter(office.records))
    record.looked += 100
    office.reporters.reports.clear()
    await office.observer.look(record)
    assert of_workspace(office)["Ready"] == ("True", "Ready")


async def test_a_resource_that_was_made_anew_meanwhile_is_not_told_of_the_old_one(office: Office, cluster: FakeCluster):
    await settled(office)
    cluster.drop(WORKSPACE_KIND, "acme", "support")
    cluster.put(WORKSPACE_KIND, {**workspace(), "metadata": {"name": "support", "namespace": "acme", "uid": "new"}})
    office.reporters.reports.clear()
    await office.observer.look_at_all()
    assert office.status(WORKSPACE_KIND, "support") == {}


def events(cluster: FakeCluster) -> list[tuple[str, str, str]]:
    return [(one["regarding"]["name"], one["reason"], one["type"]) for one in cluster.all(EVENT)]


async def test_a_start_without_trouble_ends_in_one_event(office: Office, cluster: FakeCluster):
    await settled(office)
    assert events(cluster) == [("support", "Programmed", "Normal"), ("support", "Fresh", "Normal")]


async def test_events_tell_of_transitions_and_of_nothing_else(office: Office, cluster: FakeCluster, time: Time):
    await settled(office)
    for event in cluster.all(EVENT):
        cluster.drop(EVENT, "acme", event["metadata"]["name"])
    for _ in range(3):
        time.move(10)
        await office.reconcile("support")
        await office.observer.look_at_all()
    assert events(cluster) == []
    for reported in office.reporters.reports.copy():
        office.reporters.reports[reported] = report(office, oldest_confirmed=START - timedelta(days=1))
    for _ in range(3):
        await office.observer.look_at_all()
    assert events(cluster) == [("support", "SourcesLate", "Warning")]


async def test_a_refusal_is_told_in_an_event_of_the_resource(office: Office, cluster: FakeCluster):
    cluster.put(MEMORY_SOURCE, source("tickets", ttl="soon"))
    await office.reconcile()
    assert ("tickets", "InvalidValue", "Warning") in events(cluster)


async def test_what_was_refused_and_is_mended_is_told_too(office: Office, cluster: FakeCluster):
    cluster.put(MEMORY_SOURCE, source("tickets", ttl="soon"))
    await office.reconcile()
    cluster.put(MEMORY_SOURCE, desk()[0])
    await office.reconcile()
    assert ("tickets", "Accepted", "Normal") in events(cluster)
