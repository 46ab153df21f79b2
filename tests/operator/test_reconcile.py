"""A pass over a namespace: what is published, run and told of it, and that a second pass finds nothing to do."""

import asyncio
import base64
import contextlib
import copy
import gzip
import json
from datetime import timedelta
from typing import Any

import pytest
from freshgate_kubernetes import START, FakeCluster, Hook, Killed, Office, Time, secret
from freshgate_written import policy, source, workspace

from freshgate_crds.compiled import Config, Revision
from freshgate_operator import children
from freshgate_operator.errors import ClusterUnavailable, Conflict
from freshgate_operator.kinds import (
    CHILDREN,
    DEPLOYMENT,
    ENTITLEMENT_POLICY,
    EVENT,
    MEMORY_SOURCE,
    NAMESPACE,
    SECRET,
    SERVICE_MONITOR,
    WORKSPACE_KIND,
)
from freshgate_operator.pods import Report
from freshgate_operator.publish import Publication, Publisher


def loaded(office: Office) -> Report:
    return Report(ready=True, revision=office.publication().config.revision, sources=())


# --- what is published ---------------------------------------------------------------------------------------------


async def test_a_workspace_is_published_with_its_credentials_and_run(office: Office, cluster: FakeCluster):
    assert await office.reconcile() == frozenset()
    publication = office.publication()
    assert [each.name for each in publication.config.sources] == ["accounts", "tickets"]
    assert publication.config.cluster_uid == "acme-uid"
    assert publication.files["support-db_dsn"] == b"postgresql://reader:hunter2@db.example:5433/desk"
    assert publication.files["store_dsn"] == b"postgresql://store:hunter3@store.example/freshgate"
    assert len(publication.scrape_token) > 40
    for kind in CHILDREN:
        child = cluster.at(kind, "acme", "support-freshgate")
        (owner,) = child["metadata"]["ownerReferences"]
        assert (owner["kind"], owner["name"], owner["controller"]) == ("Workspace", "support", True)


async def test_a_second_pass_writes_nothing_nor_does_another_process(office: Office, cluster: FakeCluster, time: Time):
    await office.reconcile("support")
    cluster.calls.clear()
    await office.reconcile("support")
    await office.observer.look_at_all()
    another = Office(cluster, time)
    await another.reconcile("support")
    await another.observer.look_at_all()
    assert cluster.written == []


@pytest.mark.promise("CON-1")
async def test_a_refused_source_keeps_its_last_good_form_and_says_why(office: Office, cluster: FakeCluster):
    await office.reconcile()
    broken = source("tickets", postgres={**source()["spec"]["postgres"], "list": "DELETE FROM tickets"})
    cluster.put(MEMORY_SOURCE, broken)
    await office.reconcile()
    assert [each.name for each in office.publication().config.sources] == ["accounts", "tickets"]
    assert office.conditions(MEMORY_SOURCE, "tickets")["Accepted"] == ("False", "InvalidStatement")
    assert "Until then its last good form stays in force." in office.message(MEMORY_SOURCE, "tickets", "Accepted")
    assert office.conditions(WORKSPACE_KIND, "support")["Ready"] == ("False", "SourceRefused")
    assert b'refusals_total{kind="MemorySource"} 1.0' in office.metrics.render()


@pytest.mark.promise("CON-1", "ENT-6")
async def test_a_refused_deny_denies_everything_and_both_statuses_say_so(office: Office, cluster: FakeCluster):
    await office.reconcile()
    rules = [{"sources": ["nowhere"], "everything": True}]
    cluster.put(ENTITLEMENT_POLICY, policy("shield", "Deny", rules=rules))
    await office.reconcile()
    assert office.publication().config.entitlements.denied == ("shield",)
    assert office.conditions(ENTITLEMENT_POLICY, "shield")["Accepted"] == ("False", "SourceNotFound")
    assert office.message(ENTITLEMENT_POLICY, "shield", "Accepted").endswith("Until then it denies everything.")
    assert office.conditions(WORKSPACE_KIND, "support")["Ready"] == ("False", "EverythingDenied")


async def test_an_unlabelled_secret_is_not_found_and_the_reason_names_the_label(office: Office, cluster: FakeCluster):
    cluster.drop(SECRET, "acme", "support-db")
    cluster.put(SECRET, secret("support-db", labelled=False, dsn="postgresql://unlabelled"))
    await office.reconcile()
    assert office.conditions(MEMORY_SOURCE, "tickets") == {
        "Accepted": ("True", "Accepted"),
        "ResolvedRefs": ("False", "CredentialNotFound"),
    }
    assert 'the label freshgate.dev/credential: "true"' in office.message(MEMORY_SOURCE, "tickets", "ResolvedRefs")
    assert b"unlabelled" not in b"".join(office.publication().files.values())


async def test_a_last_good_form_keeps_the_credential_that_it_was_published_with(office: Office, cluster: FakeCluster):
    await office.reconcile()
    cluster.drop(SECRET, "acme", "support-db")
    await office.reconcile()
    assert "support-db_dsn" in office.publication().files


async def test_a_rotated_credential_is_a_new_revision(office: Office, cluster: FakeCluster):
    await office.reconcile()
    before = office.publication()
    cluster.put(SECRET, secret("support-db", dsn="postgresql://reader:hunter4@db.example/desk"))
    await office.reconcile()
    after = office.publication()
    assert after.counter == before.counter + 1
    assert after.files["support-db_dsn"].endswith(b"hunter4@db.example/desk")
    assert after.scrape_token == before.scrape_token


async def test_a_workspace_without_a_store_is_refused_in_a_cluster(office: Office, cluster: FakeCluster):
    cluster.put(WORKSPACE_KIND, workspace(store=None))
    await office.reconcile()
    assert office.conditions(WORKSPACE_KIND, "support")["Accepted"] == ("False", "StoreRequired")
    assert office.conditions(WORKSPACE_KIND, "support")["Programmed"] == ("False", "NotPublished")
    assert "Name one with spec.store.dsn." in office.message(WORKSPACE_KIND, "support", "Ready")
    assert cluster.all(DEPLOYMENT) == []


@pytest.mark.promise("CON-1")
async def test_a_workspace_that_loses_its_store_keeps_the_last_one(office: Office, cluster: FakeCluster):
    await office.reconcile()
    store = office.publication().config.store_dsn
    cluster.put(WORKSPACE_KIND, workspace(store=None))
    await office.reconcile()
    assert office.publication().config.store_dsn == store
    assert office.conditions(WORKSPACE_KIND, "support")["Ready"] == ("False", "StoreRequired")


async def test_keys_of_the_cluster_that_rotate_are_compiled_in(office: Office, cluster: FakeCluster):
    await office.reconcile()
    cluster.issuer_keys.append({"kid": "0", "kty": "RSA"})
    await office.reconcile()
    issuer = next(each for each in office.publication().config.issuers if each.kubernetes)
    assert issuer.url == "https://cluster.example"
    assert issuer.jwks == '{"keys": [{"kid": "0", "kty": "RSA"}, {"kid": "1", "kty": "RSA"}]}'


async def test_only_what_a_change_concerns_is_compiled_again(office: Office, cluster: FakeCluster):
    cluster.put(WORKSPACE_KIND, workspace("billing", sources=["accounts"]))
    await office.reconcile()
    cluster.put(MEMORY_SOURCE, source("tickets", ttl="9m"))
    cluster.calls.clear()
    await office.reconcile()
    published = [path for method, path in cluster.written if "/secrets/" in path]
    assert published == ["/api/v1/namespaces/acme/secrets/support-freshgate"]
    assert not [path for _, path in cluster.calls if path.endswith("billing-freshgate")]


async def test_a_policy_that_names_a_source_before_it_is_there_is_judged_anew_when_it_comes(
    office: Office, cluster: FakeCluster
):
    """Also where the workspace itself does not use that source."""
    cluster.put(ENTITLEMENT_POLICY, policy("wide", rules=[{"sources": ["tickets", "spare"], "everything": True}]))
    await office.reconcile()
    assert office.conditions(ENTITLEMENT_POLICY, "wide")["Accepted"] == ("False", "SourceNotFound")
    cluster.put(MEMORY_SOURCE, source("spare"))
    await office.reconcile()
    assert office.conditions(ENTITLEMENT_POLICY, "wide")["Accepted"] == ("True", "Accepted")
    assert {each.name for each in office.publication().config.entitlements.policies} == {"emea", "wide"}


async def test_a_workspace_that_is_being_deleted_gets_nothing_made_anew(office: Office, cluster: FakeCluster):
    body = workspace()
    body["metadata"]["deletionTimestamp"] = "2026-11-30T10:00:00Z"
    cluster.put(WORKSPACE_KIND, body)
    await office.reconcile("support")
    assert cluster.all(DEPLOYMENT) == []


async def test_a_namespace_that_is_gone_is_forgotten(office: Office, cluster: FakeCluster):
    await office.reconcile()
    cluster.drop(NAMESPACE, None, "acme")
    assert await office.reconcile("support") == frozenset()
    assert list(office.records) == []


# --- revisions and stamps ------------------------------------------------------------------------------------------


@pytest.mark.promise("CON-3")
async def test_of_two_publishers_that_race_the_one_with_older_inputs_loses(
    office: Office, cluster: FakeCluster, time: Time, monkeypatch: pytest.MonkeyPatch
):
    """Replay 46: whether it is newer is decided when it is applied, not when it was begun."""
    await office.reconcile()
    reached, resume = asyncio.Event(), asyncio.Event()
    publish = Publisher.publish

    async def paused(publisher: Publisher, *arguments: Any) -> Publication:
        reached.set()
        await resume.wait()
        return await publish(publisher, *arguments)

    cluster.put(MEMORY_SOURCE, source("tickets", ttl="9m"))
    with monkeypatch.context() as patched:
        patched.setattr(Publisher, "publish", paused)
        older = asyncio.create_task(office.reconcile())
        await asyncio.wait_for(reached.wait(), 5)
    cluster.put(MEMORY_SOURCE, source("tickets", ttl="11m"))
    await Office(cluster, time).reconcile()
    newer = office.publication()
    resume.set()
    assert await older == {"support"}
    assert office.publication().secret == newer.secret
    assert ttl_of(office) == 660.0
    await office.reconcile("support")
    assert office.publication().secret == newer.secret


def ttl_of(office: Office) -> float:
    return next(each.ttl_seconds for each in office.publication().config.sources if each.name == "tickets")


@pytest.mark.promise("CON-3")
async def test_the_inputs_are_listed_after_the_counter_was_read(office: Office, cluster: FakeCluster):
    await office.reconcile()
    cluster.calls.clear()
    await office.reconcile("support")
    read = [path.rpartition("/")[2] for _, path in cluster.calls if "/namespaces/acme/" in path]
    assert read[0] == "secrets"
    assert set(read[1:5]) == {"secrets", "memorysources", "entitlementpolicies", "workspaces"}


@pytest.mark.promise("CON-3")
async def test_a_lost_secret_does_not_take_the_counter_back(office: Office, cluster: FakeCluster, time: Time):
    await office.reconcile()
    for ttl in ("6m", "7m", "8m"):
        time.move(60)
        cluster.put(MEMORY_SOURCE, source("tickets", ttl=ttl))
        await office.reconcile()
    reached = office.publication().counter
    cluster.drop(SECRET, "acme", "support-freshgate")
    await office.reconcile("support")
    assert office.publication().counter > reached


@pytest.mark.promise("CON-3")
async def test_a_configuration_of_an_unknown_form_is_replaced_and_counted_on_from(office: Office, cluster: FakeCluster):
    await office.reconcile()
    strange = gzip.compress(json.dumps({"format": 99, "revision": {"counter": 41}}).encode())
    held = cluster.at(SECRET, "acme", "support-freshgate")
    held["data"]["config.json.gz"] = base64.b64encode(strange).decode()
    await office.reconcile("support")
    assert office.publication().counter == 42


@pytest.mark.promise("CON-2")
async def test_a_stamp_is_when_the_lists_began_that_were_published(office: Office, cluster: FakeCluster, time: Time):
    def slow_lists(method: str, path: str) -> None:
        if path.endswith("/memorysources"):
            time.move(3)

    cluster.hooks.append(slow_lists)
    await office.reconcile()
    assert office.publication().config.entitlements.stamp == START


@pytest.mark.promise("CON-2")
async def test_at_a_quarter_of_its_validity_a_stamp_is_renewed_and_nothing_else(
    office: Office, cluster: FakeCluster, time: Time
):
    cluster.put(WORKSPACE_KIND, workspace(entitlements={"maxAge": "10m"}))
    await office.reconcile()
    before = office.publication()
    time.move(149)
    await office.reconcile("support")
    assert office.publication().secret == before.secret
    time.move(1)
    cluster.calls.clear()
    await office.reconcile("support")
    after = office.publication()
    assert after.config.entitlements.stamp == START + timedelta(seconds=150)
    assert after.config.revision == before.config.revision
    assert [path for _, path in cluster.written] == ["/api/v1/namespaces/acme/secrets/support-freshgate"]
    assert b'publications_total{what="stamp"} 1.0' in office.metrics.render()


@pytest.mark.promise("CON-2")
async def test_a_stamp_is_due_by_itself(office: Office, cluster: FakeCluster, time: Time):
    cluster.put(WORKSPACE_KIND, workspace(entitlements={"maxAge": "10m"}))
    await office.reconcile()
    time.move(150)
    work = await asyncio.wait_for(office.queue.take(), 5)
    assert work.workspaces == {"support"}


@pytest.mark.promise("CON-2")
async def test_nothing_is_stamped_where_a_list_failed(office: Office, cluster: FakeCluster, time: Time):
    await office.reconcile()
    before = office.publication()
    time.move(86_400)

    def broken(method: str, path: str) -> None:
        if path.endswith("/entitlementpolicies"):
            raise ClusterUnavailable("the API server did not answer")

    cluster.hooks.append(broken)
    with pytest.raises(ClusterUnavailable):
        await office.reconcile("support")
    assert office.publication().secret == before.secret


async def test_a_stamp_out_of_the_future_is_replaced_at_once(office: Office, cluster: FakeCluster, time: Time):
    time.move(86_400)
    await office.reconcile()
    time.move(-86_400)
    await office.reconcile("support")
    assert office.publication().config.entitlements.stamp == START


# --- killed anywhere -----------------------------------------------------------------------------------------------


async def test_whatever_step_the_operator_is_killed_at_the_rerun_comes_to_the_same_end(
    office: Office, cluster: FakeCluster, time: Time
):
    with_two_pods(office)
    untouched = copy.deepcopy(cluster.objects)
    await office.reconcile()
    wanted, steps = essence(office), len(cluster.written)
    assert steps > 10
    for step in range(steps):
        cluster.objects = copy.deepcopy(untouched)
        cluster.calls.clear()
        cluster.hooks[:] = [kill_at(step, cluster)]
        with contextlib.suppress(Killed):
            await Office(cluster, time, reporters=office.reporters).reconcile()
        cluster.hooks.clear()
        if SECRET.path("acme", "support-freshgate") in cluster.objects:
            assert config_of(office) == wanted["config"]
        await Office(cluster, time, reporters=office.reporters).reconcile()
        assert essence(office) == wanted, step


async def test_killed_in_the_midst_of_a_change_the_old_or_the_new_is_published_and_nothing_between(
    office: Office, cluster: FakeCluster, time: Time
):
    with_two_pods(office)
    await office.reconcile()
    untouched, old = copy.deepcopy(cluster.objects), config_of(office)
    change = (
        lambda: cluster.put(MEMORY_SOURCE, source("tickets", ttl="9m")),
        lambda: cluster.put(SECRET, secret("support-db", dsn="postgresql://rotated")),
    )
    for apply in change:
        apply()
    cluster.calls.clear()
    await office.reconcile()
    wanted, steps = essence(office), len(cluster.written)
    for step in range(steps):
        cluster.objects = copy.deepcopy(untouched)
        for apply in change:
            apply()
        cluster.calls.clear()
        cluster.hooks[:] = [kill_at(step, cluster)]
        with contextlib.suppress(Killed):
            await Office(cluster, time, reporters=office.reporters).reconcile()
        cluster.hooks.clear()
        found = config_of(office), office.publication().files["support-db_dsn"] == b"postgresql://rotated"
        assert found in ((old, False), (wanted["config"], True)), step
        await Office(cluster, time, reporters=office.reporters).reconcile()
        assert essence(office) == wanted, step


def with_two_pods(office: Office) -> None:
    """That have loaded whatever is published of the workspace of this UID."""
    uid = office.cluster.at(WORKSPACE_KIND, "acme", "support")["metadata"]["uid"]
    report = Report(ready=True, revision=Revision(workspace_uid=uid, counter=10**6))
    office.pod("support-1", report=report)
    office.pod("support-2", report=report)


def essence(office: Office) -> dict[str, object]:
    """All that is there, but for what each publication has of its own."""
    specs = [office.cluster.at(kind, "acme", "support-freshgate").get("spec") for kind in CHILDREN]
    for spec in specs:
        if spec and "template" in spec:
            del spec["template"]["metadata"]["annotations"]
    return {
        "config": config_of(office),
        "files": {*office.publication().files},
        "children": specs,
        "source": office.conditions(MEMORY_SOURCE, "tickets"),
        "policy": office.conditions(ENTITLEMENT_POLICY, "emea"),
        "workspace": office.conditions(WORKSPACE_KIND, "support"),
    }


def config_of(office: Office) -> Config:
    return office.publication().config.model_copy(update={"revision": None})


def kill_at(step: int, cluster: FakeCluster) -> Hook:
    """Before a write: between two of them nothing changes, so whatever else is killed comes to the same."""

    def kill(method: str, path: str) -> None:
        if len(cluster.written) > step:
            raise Killed

    return kill


# --- what goes wrong -----------------------------------------------------------------------------------------------


async def test_a_configuration_that_is_too_large_is_refused_and_the_last_one_stays(
    office: Office, cluster: FakeCluster, monkeypatch: pytest.MonkeyPatch
):
    await office.reconcile()
    before = office.publication()
    monkeypatch.setattr("freshgate_operator.publish.MAX_BYTES", 100)
    cluster.put(MEMORY_SOURCE, source("tickets", ttl="9m"))
    assert await office.reconcile() == {"support"}
    assert office.publication().secret == before.secret
    assert office.conditions(WORKSPACE_KIND, "support")["Programmed"] == ("False", "ConfigTooLarge")
    assert "divide the workspace" in office.message(WORKSPACE_KIND, "support", "Programmed")


async def test_a_name_that_belongs_to_something_else_is_left_alone(office: Office, cluster: FakeCluster):
    foreign = {"metadata": {"name": "support-freshgate", "namespace": "acme"}, "data": {}, "type": "Opaque"}
    cluster.put(SECRET, foreign)
    assert await office.reconcile() == {"support"}
    assert cluster.at(SECRET, "acme", "support-freshgate")["data"] == {}
    assert office.conditions(WORKSPACE_KIND, "support")["Programmed"] == ("False", "NameTaken")


async def test_a_deployment_of_another_owner_is_left_alone(office: Office, cluster: FakeCluster):
    body = {"metadata": {"name": "support-freshgate", "namespace": "acme"}, "spec": {"replicas": 7}}
    cluster.put(DEPLOYMENT, body)
    assert await office.reconcile() == {"support"}
    assert cluster.at(DEPLOYMENT, "acme", "support-freshgate")["spec"] == {"replicas": 7}
    assert "Deployment support-freshgate belongs to something else" in office.message(
        WORKSPACE_KIND, "support", "Programmed"
    )


async def test_a_passing_failure_is_tried_again_and_told_to_nobody(office: Office, cluster: FakeCluster):
    await office.reconcile()
    office.pod("support-1", report=loaded(office))
    await office.observer.look_at_all()
    told = office.conditions(WORKSPACE_KIND, "support")
    cluster.put(MEMORY_SOURCE, source("tickets", ttl="9m"))

    def gone(method: str, path: str) -> None:
        if method == "PUT":
            raise ClusterUnavailable("the API server did not answer")

    cluster.hooks.append(gone)
    assert await office.reconcile() == {"support"}
    assert office.conditions(WORKSPACE_KIND, "support") == told


async def test_one_workspace_that_cannot_be_published_holds_no_other_one_back(office: Office, cluster: FakeCluster):
    cluster.put(WORKSPACE_KIND, workspace("billing", sources=["accounts"]))
    foreign = {"metadata": {"name": "billing-freshgate", "namespace": "acme"}, "data": {}, "type": "Opaque"}
    cluster.put(SECRET, foreign)
    assert await office.reconcile() == {"billing"}
    assert office.publication("support").config is not None


async def test_what_nobody_foresaw_breaks_one_workspace_alone_and_only_until_it_is_mended(
    office: Office, cluster: FakeCluster, monkeypatch: pytest.MonkeyPatch
):
    cluster.put(WORKSPACE_KIND, workspace("billing", sources=["accounts"]))
    render = children.render

    def broken(plan: children.Plan, *arguments: Any, **options: Any) -> Any:
        if plan.owner.name == "billing":
            raise KeyError("a mistake of ours")
        return render(plan, *arguments, **options)

    with monkeypatch.context() as patched:
        patched.setattr(children, "render", broken)
        assert await office.reconcile() == {"billing"}
    assert cluster.at(DEPLOYMENT, "acme", "support-freshgate")
    assert office.conditions(MEMORY_SOURCE, "tickets")["Accepted"] == ("True", "Accepted")
    assert await office.reconcile() == frozenset()
    assert cluster.at(DEPLOYMENT, "acme", "billing-freshgate")


# --- children ------------------------------------------------------------------------------------------------------


async def test_what_others_add_to_the_children_stays_and_causes_no_write(office: Office, cluster: FakeCluster):
    """Replay 41."""
    await office.reconcile()
    for kind in CHILDREN:
        cluster.at(kind, "acme", "support-freshgate")["metadata"]["annotations"]["from-outside"] = "yes"
        cluster.at(kind, "acme", "support-freshgate")["metadata"]["resourceVersion"] += "1"
    cluster.calls.clear()
    for _ in range(3):
        await office.observer.look_at_all()
        await office.reconcile("support")
    assert cluster.written == []


async def test_what_others_change_of_ours_is_put_back(office: Office, cluster: FakeCluster, time: Time):
    await office.reconcile()
    cluster.at(DEPLOYMENT, "acme", "support-freshgate")["spec"]["replicas"] = 0
    cluster.at(DEPLOYMENT, "acme", "support-freshgate")["metadata"]["generation"] += 1
    await office.observer.look_at_all()
    time.move(1)
    assert (await asyncio.wait_for(office.queue.take(), 5)).workspaces == {"support"}
    await office.reconcile("support")
    assert cluster.at(DEPLOYMENT, "acme", "support-freshgate")["spec"]["replicas"] == 2


async def test_a_deleted_child_is_noticed_and_made_anew(office: Office, cluster: FakeCluster):
    await office.reconcile()
    cluster.drop(DEPLOYMENT, "acme", "support-freshgate")
    await office.observer.look_at_all()
    assert office.queue.dirty() == 1
    await office.reconcile("support")
    assert cluster.all(DEPLOYMENT)


async def test_what_the_cluster_itself_changes_is_not_fought_over(office: Office, cluster: FakeCluster):
    """An admission webhook that rewrites what is applied, each time."""
    store = cluster._store

    def rewriting(path, body, before):
        if path.endswith("deployments/support-freshgate"):
            body["spec"]["template"]["spec"]["containers"][0]["imagePullPolicy"] = "Always"
        return store(path, body, before)

    cluster._store = rewriting
    await office.reconcile()
    cluster.calls.clear()
    await office.reconcile("support")
    assert cluster.written == []


async def test_a_setting_that_was_taken_out_is_applied_too(office: Office, cluster: FakeCluster):
    cluster.put(WORKSPACE_KIND, workspace(service={"resources": {"limits": {"memory": "1Gi"}}}))
    await office.reconcile()
    cluster.put(WORKSPACE_KIND, workspace())
    cluster.calls.clear()
    await office.reconcile()
    assert ("PATCH", "/apis/apps/v1/namespaces/acme/deployments/support-freshgate") in cluster.written


async def test_a_service_monitor_is_made_where_the_cluster_knows_them(office: Office, cluster: FakeCluster):
    await office.reconcile()
    assert cluster.all(SERVICE_MONITOR) == []
    cluster.kinds[SERVICE_MONITOR.plural] = SERVICE_MONITOR
    await office.reconcile("support")
    (monitor,) = cluster.all(SERVICE_MONITOR)
    assert monitor["spec"]["endpoints"][0]["authorization"]["credentials"] == {
        "name": "support-freshgate",
        "key": "scrape-token",
    }


# --- redaction -----------------------------------------------------------------------------------------------------


async def test_no_secret_is_in_a_status_an_event_a_metric_or_a_log(
    office: Office, cluster: FakeCluster, capfd: pytest.CaptureFixture[str]
):
    cluster.put(SECRET, secret("support-db", dsn="hunter2 is no DSN"))
    await office.reconcile()
    office.pod("support-1", report=loaded(office))
    await office.observer.look_at_all()

    def refusing(method: str, path: str) -> None:
        if method == "PUT":
            raise Conflict("secrets/support-freshgate: Conflict")

    cluster.hooks.append(refusing)
    cluster.put(SECRET, secret("support-db", dsn="hunter5"))
    await office.reconcile("support")
    told = str([body.get("status") for body in cluster.objects.values()]) + str(cluster.all(EVENT))
    output = capfd.readouterr()
    everything = told + office.metrics.render().decode() + output.out + output.err + repr(office.records.of("acme"))
    files = {*office.publication().files.values(), b"hunter2 is no DSN", b"hunter5"}
    assert office.reporters.tokens == {office.publication().scrape_token}
    for value in files:
        assert repr(value)[2:-1] not in everything
        assert base64.b64encode(value).decode() not in everything
