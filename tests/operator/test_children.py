"""The pods of a service and what is around them, as they are rendered."""

from dataclasses import replace
from typing import Any

import pytest
from freshgate_kubernetes import SETTINGS, START
from freshgate_written import config, desk, source, workspace

from freshgate_crds.v1alpha1 import Workspace
from freshgate_operator.applying import holds
from freshgate_operator.children import MOUNT, Plan, dsn_ports, egress_ports, render
from freshgate_operator.names import INJECTED
from freshgate_operator.owners import Owner

OWNER = Owner("acme", "support", "uid", 1, START)


def rendered(service: dict[str, Any] | None = None, *, monitored: bool = True, **settings: Any) -> dict[str, Any]:
    """By kind."""
    written = Workspace.model_validate(workspace(service=service)).spec.service
    plan = Plan(OWNER, written, frozenset({443, 5432}), "hash")
    made = render(plan, replace(SETTINGS, **settings), monitored=monitored)
    return {kind.name: body for kind, body in made}


def pod(**arguments: Any) -> dict[str, Any]:
    spec: dict[str, Any] = rendered(**arguments)["Deployment"]["spec"]["template"]["spec"]
    return spec


def test_a_pod_meets_the_restricted_standard_and_gets_no_token():
    spec = pod()
    (container,) = spec["containers"]
    assert spec["securityContext"] == {"runAsNonRoot": True, "seccompProfile": {"type": "RuntimeDefault"}}
    assert container["securityContext"] == {
        "allowPrivilegeEscalation": False,
        "capabilities": {"drop": ["ALL"]},
        "readOnlyRootFilesystem": True,
    }
    assert spec["automountServiceAccountToken"] is False
    assert rendered()["ServiceAccount"]["automountServiceAccountToken"] is False
    assert not {"hostNetwork", "hostPID", "hostIPC"} & spec.keys()


def test_the_published_secret_is_mounted_as_a_whole_folder():
    spec = pod()
    (mount,) = spec["containers"][0]["volumeMounts"]
    assert mount == {"name": "workspace", "mountPath": MOUNT, "readOnly": True}
    assert spec["volumes"] == [{"name": "workspace", "secret": {"secretName": "support-freshgate"}}]


def test_the_services_own_pods_never_ask_for_a_sidecar():
    for body in rendered().values():
        assert INJECTED not in body["metadata"]["labels"]
    assert INJECTED not in rendered()["Deployment"]["spec"]["template"]["metadata"]["labels"]


def test_probes_ask_the_ops_port_and_starting_waits_for_nothing_but_the_process():
    (container,) = pod()["containers"]
    paths = {name: container[name]["httpGet"] for name in ("startupProbe", "livenessProbe", "readinessProbe")}
    assert paths == {
        "startupProbe": {"path": "/livez", "port": "ops"},
        "livenessProbe": {"path": "/livez", "port": "ops"},
        "readinessProbe": {"path": "/readyz", "port": "ops"},
    }


def test_every_argument_is_one_that_the_service_takes():
    (container,) = pod()["containers"]
    assert container["args"] == [
        "service",
        "--config=/etc/freshgate/workspace",
        "--port=8080",
        "--ops-port=9090",
        "--scrape-token-file=/etc/freshgate/workspace/scrape-token",
        "--drain=5s",
    ]


def test_everything_is_owned_by_the_workspace_and_told_apart_by_its_label():
    for kind, body in rendered().items():
        assert body["metadata"]["ownerReferences"][0]["uid"] == "uid", kind
        assert body["metadata"]["labels"]["freshgate.dev/serves"] == "support", kind
        assert body["metadata"]["name"] == "support-freshgate", kind
    selector = rendered()["Deployment"]["spec"]["selector"]["matchLabels"]
    assert selector == {"freshgate.dev/serves": "support"}
    assert rendered()["PodDisruptionBudget"]["spec"]["selector"]["matchLabels"] == selector


def test_what_a_workspace_says_of_its_service_is_in_the_pods():
    service = {
        "replicas": 3,
        "resources": {"requests": {"cpu": "250m"}, "limits": {"memory": "1Gi"}},
        "imagePullSecrets": [{"name": "registry"}],
    }
    spec = pod(service=service, pod={"imagePullSecrets": [{"name": "mirror"}], "nodeSelector": {"disk": "fast"}})
    assert rendered(service)["Deployment"]["spec"]["replicas"] == 3
    assert spec["containers"][0]["resources"] == {"requests": {"cpu": "250m"}, "limits": {"memory": "1Gi"}}
    assert spec["imagePullSecrets"] == [{"name": "mirror"}, {"name": "registry"}]
    assert spec["nodeSelector"] == {"disk": "fast"}


def test_pod_defaults_never_weaken_a_pod():
    spec = pod(pod={"topologySpreadConstraints": []})
    assert spec["topologySpreadConstraints"] == []
    assert spec["securityContext"]["runAsNonRoot"] is True


def test_another_scrape_token_makes_other_pods():
    template = rendered()["Deployment"]["spec"]["template"]["metadata"]
    assert template["annotations"] == {"freshgate.dev/scrape-token-hash": "hash"}


def test_the_network_policy_lets_in_askers_and_on_the_ops_port_operator_and_scrapers_alone():
    asked, watched = rendered(scrape_namespaces=("monitoring",))["NetworkPolicy"]["spec"]["ingress"]
    assert asked == {"ports": [{"protocol": "TCP", "port": 8080}]}
    assert watched["ports"] == [{"protocol": "TCP", "port": 9090}]
    assert watched["from"] == [
        {
            "namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": "freshgate-system"}},
            "podSelector": {"matchLabels": {"app.kubernetes.io/name": "freshgate-operator"}},
        },
        {"namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": "monitoring"}}},
    ]


def test_the_network_policy_lets_out_to_names_and_declared_ports_and_never_to_link_local():
    names, declared = rendered(egress_ports=(8000,))["NetworkPolicy"]["spec"]["egress"]
    assert {port["port"] for port in names["ports"]} == {53}
    assert [port["port"] for port in declared["ports"]] == [443, 5432, 8000]
    blocks = [peer["ipBlock"] for peer in declared["to"] if "ipBlock" in peer]
    assert blocks == [
        {"cidr": "0.0.0.0/0", "except": ["169.254.0.0/16"]},
        {"cidr": "::/0", "except": ["fe80::/10"]},
    ]


def test_egress_is_to_the_ports_of_the_workspaces_own_addresses():
    rest = {
        "url": "http://desk.example:8080/api",
        "list": {"path": "/tickets", "items": "results", "id": "id"},
        "fetch": {"path": "/tickets/{id}"},
        "auth": {
            "oauth2": {
                "tokenUrl": "https://login.example:8443/token",
                "clientId": {"secretKeyRef": {"name": "desk", "key": "id"}},
                "clientSecret": {"secretKeyRef": {"name": "desk", "key": "secret"}},
            }
        },
    }
    made = config(desk()[0], source("accounts", postgres=None, rest=rest), desk()[2])
    credentials = {"support-db_dsn": b"postgresql://u:p@db.example:6432/desk", "store_dsn": b"host=store.example"}
    assert egress_ports(made, credentials) == {443, 5432, 6432, 8080, 8443}


@pytest.mark.parametrize(
    ("dsn", "ports"),
    [
        ("postgresql://u:p@db.example/desk", {5432}),
        ("postgresql://u:p%40@db.example:6432/desk?application_name=a@b:1", {6432}),
        ("postgresql://u:p@one.example:1111,two.example/desk", {1111, 5432}),
        ("postgresql://[::1]:6432/desk", {6432}),
        ("postgresql://[2001:db8::1]/desk", {5432}),
        ("host=db.example port=6432 dbname=desk", {6432}),
        ("host=db.example dbname=desk", {5432}),
        ("postgresql://db.example:99999/desk", {5432}),
        ("", {5432}),
    ],
)
def test_the_port_of_a_dsn(dsn: str, ports: set[int]):
    assert dsn_ports(dsn) == ports


@pytest.mark.parametrize(
    ("live", "wanted", "answer"),
    [
        ({"a": 1, "b": 2}, {"a": 1}, True),
        ({"a": 1}, {"a": 2}, False),
        ({"a": None}, {"a": {"b": 1}}, False),
        ({"a": [{"x": 1, "defaulted": True}]}, {"a": [{"x": 1}]}, True),
        ({"a": [{"x": 1}, {"x": 2}]}, {"a": [{"x": 1}]}, False),
        ({"a": []}, {"a": [{"x": 1}]}, False),
        ({}, {"a": False}, False),
    ],
)
def test_what_is_live_holds_what_is_wanted_where_nothing_of_ours_is_missing(live: Any, wanted: Any, answer: bool):
    assert holds(live, wanted) is answer
