"""The chart as it is rendered, and what its policies and roles let happen on a real API server."""

import json
import re
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path

import freshgate_chart as chart
import freshgate_northwind_world as northwind
import pytest
import yaml
from freshgate_api import MERGE, connected
from freshgate_clusters import ROOT, SYSTEM, Images
from freshgate_kubectl import Refused, eventually, get, helm, kubectl
from freshgate_northwind_world import NAMESPACE, SERVES

OPERATOR = f"system:serviceaccount:{SYSTEM}:{chart.OPERATOR}"
GOLDEN = ROOT / "tests" / "helm" / "rights.yaml"
ONLY = ("--set=namespaces={acme,globex}", "--set=crds.install=false")
CLUSTER_WIDE = {"ClusterRole", "ClusterRoleBinding", "CustomResourceDefinition"} | {
    f"{kind}AdmissionPolicy{part}" for kind in ("Mutating", "Validating") for part in ("", "Binding")
}


def rights(*options: str) -> dict[str, dict[str, list[str]]]:
    """Of each role, which verbs on what."""
    return {
        f"{role['kind']} {role['metadata'].get('namespace', '')} {role['metadata']['name']}".replace("  ", " "): {
            " ".join((f"{group or 'core'}/{resource}", *rule.get("resourceNames", ()))): sorted(rule["verbs"])
            for rule in role["rules"]
            for group in rule["apiGroups"]
            for resource in rule["resources"]
        }
        for role in chart.render(*options)
        if role["kind"] in ("Role", "ClusterRole")
    }


def test_the_chart_passes_helms_lint() -> None:
    assert "0 chart(s) failed" in helm("lint", "--strict", chart.CHART)


def test_each_role_has_the_rights_that_were_agreed_and_no_other() -> None:
    agreed = yaml.safe_load(GOLDEN.read_text("utf-8"))
    assert {"cluster": rights(), "namespaces": rights(*ONLY)} == agreed


def test_an_install_for_namespaces_makes_nothing_of_the_clusters() -> None:
    """Replay 43: a namespaced install still rendered a ClusterRole."""
    assert not chart.kinds(chart.render(*ONLY)) & CLUSTER_WIDE
    assert {"ClusterRole", "CustomResourceDefinition"} <= chart.kinds(chart.render())


def test_without_mutating_policies_in_v1_no_sidecar_policy_is_rendered() -> None:
    def sidecars(*options: str) -> set[str]:
        found = chart.render(*options)
        return {one["kind"] for one in found if one["metadata"]["name"] == "sidecars.freshgate.dev"}

    assert sidecars("--kube-version=1.35.0", "--api-versions=v1") == set()
    assert len(sidecars(f"--api-versions={chart.MUTATION}")) == 4
    assert sidecars(f"--api-versions={chart.MUTATION}", "--set=sidecars.enabled=false") == set()


@pytest.mark.parametrize("value", ["replicas=2", "images.pullPolicy=Sometimes", "namespaces={Not A Name}"])
def test_a_value_that_the_chart_does_not_know_is_refused(value: str) -> None:
    with pytest.raises(Refused, match=r"values\.schema|don't meet the specifications"):
        chart.render(f"--set={value}")


def test_all_that_is_rendered_is_accepted_by_a_real_api_server(installed: str) -> None:
    namespaced = ["--set=namespaces={default,kube-public}", "--set=crds.install=false"]
    for options in ([f"--api-versions={chart.MUTATION}"], namespaced):
        text = helm("template", chart.RELEASE, chart.CHART, f"--namespace={SYSTEM}", *options)
        kubectl("apply", "--dry-run=server", "--validate=strict", "--filename=-", stdin=text)


def test_the_releases_own_test_passes(installed: str) -> None:
    assert "Succeeded" in helm("test", chart.RELEASE, f"--namespace={SYSTEM}", "--timeout=120s")


def test_an_upgrade_brings_new_crds_and_leaves_running_what_did_not_change(
    workspace: str, images: Images, tmp_path: Path
) -> None:
    """Replay 44: `helm upgrade` kept the old CRDs."""

    def columns() -> list[str]:
        (version,) = get("crd", "workspaces.freshgate.dev")["spec"]["versions"]
        return [column["name"] for column in version["additionalPrinterColumns"]]

    def running() -> dict[str, str]:
        pods = get("pods", namespace=NAMESPACE)["items"] + get("pods", namespace=SYSTEM)["items"]
        return {pod["metadata"]["uid"]: pod["status"]["containerStatuses"][0]["containerID"] for pod in pods}

    values, before = chart.values_of(images), running()
    chart.install(values, older_chart(tmp_path))
    assert "STALE" not in columns()
    chart.install(values)
    assert "STALE" in columns()
    assert running() == before


def older_chart(folder: Path) -> Path:
    """This chart as a release before it could have been: another version, and a column less in a CRD."""
    older = folder / "freshgate"
    shutil.copytree(chart.CHART, older)
    for name, pattern, instead in (
        ("Chart.yaml", r"^version: .*$", "version: 0.0.1"),
        ("templates/crds/freshgate.dev_workspaces.yaml", r"^    - name: STALE\n(      .*\n)+", ""),
    ):
        text, changes = re.subn(pattern, instead, (older / name).read_text("utf-8"), flags=re.MULTILINE)
        assert changes == 1
        (older / name).write_text(text, "utf-8")
    return older


# --- what the operator may do to pods --------------------------------------------------------------------------------


@pytest.fixture
def pod(workspace: str) -> str:
    return str(get("pods", namespace=NAMESPACE, selector=SERVES)["items"][0]["metadata"]["name"])


def patched_by_operator(pod: str, change: object) -> str:
    """What is said of it. A dry run; kubectl would read the pod first, which the operator may not."""
    with connected() as server:
        path = f"/api/v1/namespaces/{NAMESPACE}/pods/{pod}?dryRun=All"
        status, answer = server.call("PATCH", path, change, {**MERGE, "Impersonate-User": OPERATOR})
    return "done" if status == 200 else str(answer["message"])


def test_the_operator_may_touch_a_pod(pod: str) -> None:
    assert patched_by_operator(pod, {"metadata": {"annotations": {"freshgate.dev/touched": "1.1"}}}) == "done"


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"metadata": {"annotations": {"another": "x"}}}, "no annotation of pods but"),
        ({"metadata": {"labels": {"another": "x"}}}, "labels of pods"),
        ({"metadata": {"labels": {"freshgate.dev/serves": None}}}, "labels of pods"),
        ({"metadata": {"finalizers": ["example.com/x"]}}, "owners or finalizers"),
        ({"spec": {"activeDeadlineSeconds": 1}}, "what pods run"),
    ],
    ids=["annotation", "label", "no label", "finalizer", "deadline"],
)
def test_the_operator_may_change_nothing_else_of_a_pod(pod: str, change: dict[str, object], words: str) -> None:
    assert words in patched_by_operator(pod, change)


def test_the_operator_cannot_swap_a_pods_image(pod: str) -> None:
    (container,) = get("pod", pod, namespace=NAMESPACE)["spec"]["containers"]
    change = {"spec": {"containers": [{**container, "image": "elsewhere/x:1"}]}}
    assert "what pods run" in patched_by_operator(pod, change)


@pytest.mark.parametrize("what", ["delete pods", "create pods", "delete secrets", "get nodes", "update memorysources"])
def test_the_operator_has_no_other_right(installed: str, what: str) -> None:
    with pytest.raises(Refused):
        kubectl("auth", "can-i", *what.split(), f"--as={OPERATOR}", f"--namespace={NAMESPACE}", "--quiet")


# --- people ----------------------------------------------------------------------------------------------------------


@pytest.fixture
def editor(workspace: str) -> Iterator[str]:
    """A person with the role `edit` in Northwind's namespace."""
    where = f"--namespace={NAMESPACE}"
    kubectl("create", "rolebinding", "eddie", "--clusterrole=edit", "--user=eddie", where)
    try:
        yield "eddie"
    finally:
        kubectl("delete", "rolebinding", "eddie", where)


def test_who_edits_a_namespace_may_write_sources_and_workspaces_and_no_policies(editor: str) -> None:
    def may(verb: str, kind: str) -> bool:
        try:
            kubectl(
                "auth", "can-i", verb, f"{kind}.freshgate.dev", f"--as={editor}", f"--namespace={NAMESPACE}", "--quiet"
            )
        except Refused:
            return False
        return True

    eventually(lambda: may("create", "memorysources"), seconds=20, what="the roles are aggregated")
    assert may("update", "workspaces")
    assert may("get", "entitlementpolicies")
    assert not any(may(verb, "entitlementpolicies") for verb in ("create", "update", "patch", "delete"))


# --- sidecars --------------------------------------------------------------------------------------------------------


def sidecar_pod(name: str, workspace: str, **spec: object) -> str:
    container = {"name": "app", "image": "example/app:1"}
    body = {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, "namespace": northwind.PLAIN, "labels": {"freshgate.dev/workspace": workspace}},
        "spec": {"containers": [container], **spec},
    }
    return kubectl("create", "--dry-run=server", "--output=json", "--filename=-", stdin=json.dumps(body))


@pytest.fixture(scope="module")
def allowed(installed: str, say: Callable[[str], None]) -> Iterator[str]:
    """A Workspace that allows sidecars, and one that does not, in a namespace where pods may share processes."""
    northwind.settle_plain()
    eventually(lambda: sidecar_pod("probe", "open"), seconds=20, what="the policies are in force")
    yield "open"
    kubectl("delete", "namespace", northwind.PLAIN, "--wait=false")


def test_a_labelled_pod_gets_the_service_as_its_first_init_container(allowed: str) -> None:
    own = {"name": "own", "image": "example/own:1"}
    made = json.loads(sidecar_pod("one", allowed, initContainers=[own], volumes=[{"name": "v", "emptyDir": {}}]))[
        "spec"
    ]
    assert [container["name"] for container in made["initContainers"]] == ["freshgate", "own"]
    sidecar = made["initContainers"][0]
    assert sidecar["restartPolicy"] == "Always"
    assert sidecar["securityContext"]["runAsNonRoot"] is True
    assert sidecar["resources"]["requests"] == {"cpu": "10m"}
    assert made["imagePullSecrets"] == [{"name": "registry"}]
    assert {volume["name"] for volume in made["volumes"]} >= {"v", "freshgate-workspace"}


@pytest.mark.parametrize("workspace", ["closed", "nowhere", ""])
def test_a_pod_of_a_workspace_that_does_not_exist_or_does_not_allow_it_is_refused(allowed: str, workspace: str) -> None:
    with pytest.raises(Refused, match="has no such Workspace"):
        sidecar_pod("one", workspace)


@pytest.mark.parametrize("field", ["shareProcessNamespace", "hostPID", "hostNetwork", "hostIPC"])
def test_a_pod_that_others_could_look_into_gets_no_sidecar(allowed: str, field: str) -> None:
    with pytest.raises(Refused, match="must not share processes"):
        sidecar_pod("one", allowed, **{field: True})


def test_a_pod_that_runs_cannot_be_labelled_and_any_other_pod_is_left_alone(allowed: str) -> None:
    body = {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": "plain", "namespace": northwind.PLAIN},
        "spec": {"containers": [{"name": "app", "image": "example/app:1"}]},
    }
    made = json.loads(kubectl("create", "--output=json", "--filename=-", stdin=json.dumps(body)))
    assert "initContainers" not in made["spec"]
    with pytest.raises(Refused, match="cannot be changed"):
        kubectl("label", "pod", "plain", f"--namespace={northwind.PLAIN}", f"freshgate.dev/workspace={allowed}")
    kubectl("delete", "pod", "plain", f"--namespace={northwind.PLAIN}", "--now")
