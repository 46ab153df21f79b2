"""The operator as a whole against a real API server: its watches, its writes, and what it leaves alone."""

import json
from collections.abc import Awaitable, Callable

import pytest
from freshgate_control_plane import Desk, Start, eventually
from freshgate_written import desk as written_desk
from freshgate_written import policy, source, workspace

from freshgate_operator.kinds import (
    CHILDREN,
    DEPLOYMENT,
    ENTITLEMENT_POLICY,
    EVENT,
    MEMORY_SOURCE,
    POD,
    SECRET,
    WORKSPACE_KIND,
)
from freshgate_operator.main import Operator
from freshgate_operator.queue import Work

Pods = Callable[..., Awaitable[None]]
Parts = Callable[[], Awaitable[Operator]]


async def ready(desk: Desk) -> bool:
    return (await desk.conditions(WORKSPACE_KIND, "support")).get("Ready") == ("True", "Ready")


@pytest.fixture
async def serving(desk: Desk, start: Start, service_pods: Pods) -> Operator:
    """A workspace that is ready, and its operator."""
    await desk.put(*written_desk(), policy())
    operator = await start()
    await service_pods("127.0.0.2", "127.0.0.3")
    await eventually(lambda: ready(desk), 15)
    return operator


async def test_what_users_apply_is_published_run_and_ready(serving: Operator, desk: Desk) -> None:
    config = await desk.config()
    assert [each.name for each in config.sources] == ["accounts", "tickets"]
    kubernetes = next(issuer for issuer in config.issuers if issuer.kubernetes)
    assert kubernetes.url == "https://kubernetes.default.svc.cluster.local"
    assert json.loads(kubernetes.jwks or "")["keys"]
    for kind in CHILDREN:
        assert (await desk.at(kind))["metadata"]["ownerReferences"][0]["kind"] == "Workspace"
    assert await desk.conditions(ENTITLEMENT_POLICY, "emea") == {"Accepted": ("True", "Accepted")}
    desk.plane.kubectl(
        "wait", "--for=condition=Ready", "workspace/support", f"--namespace={desk.namespace}", "--timeout=5s"
    )
    columns = desk.plane.kubectl("get", "workspaces", f"--namespace={desk.namespace}").splitlines()
    assert columns[0].split()[:5] == ["NAME", "READY", "REASON", "STALE", "LAST-SUCCESS"]
    assert columns[1].split()[:4] == ["support", "True", "Ready", "0"]


async def test_an_edit_is_published_touched_and_programmed_at_once(serving: Operator, desk: Desk) -> None:
    before = await desk.publication()
    await desk.put(policy("emea", subjects=[{"kind": "User", "name": "ben", "issuer": "corp"}]))

    async def published() -> bool:
        config = await desk.config()
        return config.entitlements.policies[0].subjects[0].name == "ben"

    await eventually(published, 2)
    assert (await desk.publication()).counter == before.counter + 1

    async def touched() -> bool:
        pods = [await desk.at(POD, f"support-{number}") for number in (1, 2)]
        return all(pod["metadata"].get("annotations") for pod in pods) or await ready(desk)

    await eventually(touched, 2)
    await eventually(lambda: ready(desk), 5)


async def test_a_spec_edit_is_observed_by_its_generation(serving: Operator, desk: Desk) -> None:
    """Replay 40."""
    await desk.put(workspace(ranking={"limit": 5}))

    async def observed() -> bool:
        body = await desk.at(WORKSPACE_KIND, "support")
        generations = {row["observedGeneration"] for row in body["status"]["conditions"]}
        return generations == {body["metadata"]["generation"]} == {2}

    await eventually(observed, 5)


async def test_a_rotated_credential_is_published_within_seconds(serving: Operator, desk: Desk) -> None:
    """Replay 39."""
    await desk.secret("support-db", dsn="postgresql://reader:rotated@db.example/desk")

    async def rotated() -> bool:
        return b"rotated" in (await desk.publication()).files["support-db_dsn"]

    await eventually(rotated, 2)


async def test_at_rest_nothing_is_written_but_leases(serving: Operator, desk: Desk, parts: Parts) -> None:
    """Nor by a second process that finds everything done. Replay 41: nor because of what others add."""
    for kind in (*CHILDREN, SECRET):
        await desk.admin.merge(kind, desk.namespace, "support-freshgate", {"metadata": {"annotations": {"a": "b"}}})
    before, written = await desk.versions(), serving.metrics.writes()
    for operator in (serving, await parts(), await parts()):
        for _ in range(3):
            assert await operator.reconciler.reconcile(Work(desk.namespace, frozenset({"support"}))) == frozenset()
            await operator.observer.look_at_all()
        new = {kind for kind, count in operator.metrics.writes().items() if count > written.get(kind, 0)}
        assert new <= {"leases"}
        written = {}
    assert await desk.versions() == before


async def test_quantities_in_any_spelling_are_applied_once(desk: Desk, parts: Parts) -> None:
    resources = {"requests": {"cpu": "0.25", "memory": "1024Mi"}, "limits": {"cpu": "1000m"}}
    await desk.put(*written_desk()[:2], workspace(service={"resources": resources}))
    operator = await parts()
    for _ in range(3):
        await operator.reconciler.reconcile(Work(desk.namespace, frozenset({"support"})))
    assert operator.metrics.writes()["deployments"] == 1
    version = (await desk.at(DEPLOYMENT))["metadata"]["resourceVersion"]
    await (await parts()).reconciler.reconcile(Work(desk.namespace, frozenset()))
    assert (await desk.at(DEPLOYMENT))["metadata"]["resourceVersion"] == version


async def test_a_child_that_somebody_deletes_or_changes_is_put_right(serving: Operator, desk: Desk) -> None:
    await desk.delete(DEPLOYMENT)
    await serving.observer.look_at_all()
    await eventually(lambda: desk.get(DEPLOYMENT))
    await desk.admin.merge(DEPLOYMENT, desk.namespace, "support-freshgate", {"spec": {"replicas": 9}})
    await serving.observer.look_at_all()

    async def put_back() -> bool:
        return (await desk.at(DEPLOYMENT))["spec"]["replicas"] == 2

    await eventually(put_back)


async def test_a_lost_secret_is_published_anew_with_a_higher_counter(serving: Operator, desk: Desk) -> None:
    before = (await desk.config()).revision
    await desk.delete(SECRET)
    await serving.observer.look_at_all()
    await eventually(lambda: desk.get(SECRET))
    after = (await desk.config()).revision
    assert after.workspace_uid == before.workspace_uid
    assert after.counter > before.counter


async def test_nothing_of_kopf_is_ever_on_a_resource(serving: Operator, desk: Desk) -> None:
    """Replays 35 and 36: no finalizer that holds a namespace back, no annotation that grows with a spec."""
    for kind, name in ((MEMORY_SOURCE, "tickets"), (ENTITLEMENT_POLICY, "emea"), (WORKSPACE_KIND, "support")):
        metadata = (await desk.at(kind, name))["metadata"]
        assert "finalizers" not in metadata
        assert "annotations" not in metadata
        assert {entry["manager"] for entry in metadata["managedFields"]} == {"freshgate-operator"}


async def test_a_large_policy_works(serving: Operator, desk: Desk) -> None:
    """Replay 36: over 256 KiB, which no annotation could hold."""
    values = [f"{number:>0250}" for number in range(256)]
    where = [{"attribute": "region", "operator": "In", "values": values}] * 2
    rules = [{"sources": ["tickets"], "where": where}] * 4
    large = policy("large", rules=rules)
    assert len(json.dumps(large)) > 256 * 1024
    await desk.put(large)

    async def accepted() -> bool:
        return (await desk.conditions(ENTITLEMENT_POLICY, "large")).get("Accepted") == ("True", "Accepted")

    await eventually(accepted)


async def test_a_refused_source_is_told_in_its_status_and_an_event(serving: Operator, desk: Desk) -> None:
    broken = {**source()["spec"]["postgres"], "list": "DELETE FROM tickets"}
    await desk.put(source("tickets", postgres=broken))

    async def refused() -> bool:
        return (await desk.conditions(MEMORY_SOURCE, "tickets"))["Accepted"] == ("False", "InvalidStatement")

    await eventually(refused)

    async def announced() -> bool:
        events = await desk.admin.list(EVENT, desk.namespace)
        return ("tickets", "InvalidStatement", "Warning") in {
            (event["regarding"]["name"], event["reason"], event["type"]) for event in events
        }

    await eventually(announced)
    assert [each.name for each in (await desk.config()).sources] == ["accounts", "tickets"]


async def test_its_pods_are_let_in_by_the_restricted_standard(serving: Operator, desk: Desk) -> None:
    label = "pod-security.kubernetes.io/enforce=restricted"
    desk.plane.kubectl("label", "namespace", desk.namespace, label)
    template = (await desk.at(DEPLOYMENT))["spec"]["template"]
    metadata = {**template["metadata"], "name": "probe", "namespace": desk.namespace}
    body = {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": template["spec"]}
    await desk.admin.create(POD, body)


async def test_a_workspace_made_anew_waits_for_what_the_old_one_left(serving: Operator, desk: Desk) -> None:
    """Nothing is collected here, as if the collector were late."""
    await desk.delete(WORKSPACE_KIND, "support")
    await desk.put(workspace())

    async def waits() -> bool:
        return (await desk.conditions(WORKSPACE_KIND, "support")).get("Programmed") == ("False", "NameTaken")

    await eventually(waits)
    for kind in (*CHILDREN, SECRET):
        await desk.delete(kind)
    await eventually(lambda: desk.get(DEPLOYMENT), 20)
