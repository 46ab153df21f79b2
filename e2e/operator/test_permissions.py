"""The operator as the ServiceAccount that a chart makes: with these verbs it works, and asks for no others."""

import asyncio
import json
from collections.abc import Awaitable, Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from freshgate_control_plane import SETTINGS, ControlPlane, Desk, Start, eventually
from freshgate_written import desk as written_desk
from freshgate_written import policy

from freshgate_operator import cluster, main
from freshgate_operator.kinds import LEASE, WORKSPACE_KIND
from freshgate_operator.main import Operator
from freshgate_operator.metrics import Metrics
from freshgate_operator.names import LEASE_NAME

WATCH, APPLY = ["list", "watch"], ["get", "list", "create", "patch"]

IN_EVERY_SERVED_NAMESPACE = [
    {
        "apiGroups": ["freshgate.dev"],
        "resources": ["memorysources", "entitlementpolicies", "workspaces"],
        "verbs": WATCH,
    },
    {
        "apiGroups": ["freshgate.dev"],
        "resources": ["memorysources/status", "entitlementpolicies/status", "workspaces/status"],
        "verbs": ["patch"],
    },
    {"apiGroups": [""], "resources": ["secrets"], "verbs": [*WATCH, "get", "create", "update"]},
    {"apiGroups": [""], "resources": ["serviceaccounts", "services"], "verbs": APPLY},
    {"apiGroups": ["apps"], "resources": ["deployments"], "verbs": APPLY},
    {"apiGroups": ["policy"], "resources": ["poddisruptionbudgets"], "verbs": APPLY},
    {"apiGroups": ["networking.k8s.io"], "resources": ["networkpolicies"], "verbs": APPLY},
    {"apiGroups": ["monitoring.coreos.com"], "resources": ["servicemonitors"], "verbs": APPLY},
    {"apiGroups": [""], "resources": ["pods"], "verbs": ["list"]},
    {"apiGroups": [""], "resources": ["namespaces"], "verbs": ["get"]},
    {"apiGroups": ["events.k8s.io"], "resources": ["events"], "verbs": ["create"]},
]
TOUCHING = {"apiGroups": [""], "resources": ["pods"], "verbs": ["patch"]}
LEASES = {"apiGroups": ["coordination.k8s.io"], "resources": ["leases"]}
HEARING = {**LEASES, "resourceNames": [LEASE_NAME], "verbs": WATCH}
BEATING = [{**LEASES, "verbs": ["create"]}, {**LEASES, "resourceNames": [LEASE_NAME], "verbs": ["patch"]}]
"""Where the lease is: in the operator's own namespace, or in the first that is served."""

Pods = Callable[..., Awaitable[None]]


@pytest.fixture
def forbidden(control_plane: ControlPlane, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """What the operator asked for and may not do."""
    asked: list[str] = []
    error = cluster._error  # noqa: SLF001

    def noted(status: int, content: bytes, path: str, *, may_quote: bool) -> Any:
        if status == 403:
            asked.append(path)
        return error(status, content, path, may_quote=may_quote)

    monkeypatch.setattr(cluster, "_error", noted)
    return asked


def account(desk: Desk, folder: Path, *documents: dict[str, Any]) -> Path:
    """A kubeconfig of a ServiceAccount that has these roles and no other ones."""
    body = {
        "apiVersion": "v1",
        "kind": "List",
        "items": [
            {
                "apiVersion": "v1",
                "kind": "ServiceAccount",
                "metadata": {"name": "operator", "namespace": desk.namespace},
            },
            *documents,
        ],
    }
    desk.plane.kubectl("apply", "--filename=-", given=json.dumps(body))
    token = desk.plane.kubectl("create", "token", "operator", f"--namespace={desk.namespace}", "--duration=600s")
    config = json.loads(desk.plane.kubeconfig.read_text("utf-8"))
    config["users"][0]["user"] = {"token": token.strip()}
    path = folder / "kubeconfig"
    path.write_text(json.dumps(config), "utf-8")
    return path


def role(desk: Desk, kind: str, name: str, rules: list[dict[str, Any]], bound: str) -> list[dict[str, Any]]:
    """`bound` is the kind of the binding."""
    api = "rbac.authorization.k8s.io"
    where = {} if kind == "ClusterRole" else {"namespace": desk.namespace}
    binding_where = {} if bound == "ClusterRoleBinding" else {"namespace": desk.namespace}
    subject = {"kind": "ServiceAccount", "name": "operator", "namespace": desk.namespace}
    return [
        {"apiVersion": f"{api}/v1", "kind": kind, "metadata": {"name": name, **where}, "rules": rules},
        {
            "apiVersion": f"{api}/v1",
            "kind": bound,
            "metadata": {"name": name, **binding_where},
            "roleRef": {"apiGroup": api, "kind": kind, "name": name},
            "subjects": [subject],
        },
    ]


async def is_ready(desk: Desk) -> bool:
    return (await desk.conditions(WORKSPACE_KIND, "support")).get("Ready") == ("True", "Ready")


async def test_a_namespaced_install_works_with_a_role_and_without_any_cluster_role(
    desk: Desk, start: Start, service_pods: Pods, tmp_path: Path, forbidden: list[str]
) -> None:
    """Replay 43."""
    rules = [*IN_EVERY_SERVED_NAMESPACE, HEARING, *BEATING]
    kubeconfig = account(desk, tmp_path, *role(desk, "Role", "operator", rules, "RoleBinding"))
    await desk.put(*written_desk(), policy())
    operator = await start(kubeconfig, touch_pods=False)
    await service_pods("127.0.0.4", "127.0.0.5")
    await eventually(lambda: is_ready(desk), 15)
    await operator.mark_all()
    await hears_itself(operator)
    assert forbidden == []


async def test_an_install_for_all_of_the_cluster_works_with_these_verbs(
    desk: Desk, start: Start, service_pods: Pods, tmp_path: Path, forbidden: list[str]
) -> None:
    name = f"operator-{desk.namespace}"
    # Watches are for all of the cluster or for given namespaces: of leases, one name is all that it may see.
    rules = [*IN_EVERY_SERVED_NAMESPACE, TOUCHING, HEARING]
    everywhere = role(desk, "ClusterRole", name, rules, "ClusterRoleBinding")
    beating = role(desk, "Role", "operator", BEATING, "RoleBinding")
    kubeconfig = account(desk, tmp_path, *everywhere, *beating)
    await desk.put(*written_desk(), policy())
    operator = await start(kubeconfig, namespaces=(), own_namespace=desk.namespace)
    await service_pods("127.0.0.6", "127.0.0.7")
    await eventually(lambda: is_ready(desk), 15)
    await desk.put(policy("emea", subjects=[{"kind": "User", "name": "ben", "issuer": "corp"}]))
    await eventually(lambda: is_ready(desk), 15)
    await operator.mark_all()
    await hears_itself(operator)
    assert (await desk.at(LEASE, LEASE_NAME))["spec"]["holderIdentity"]
    assert forbidden == []


async def test_an_operator_that_may_not_watch_ends_and_is_not_merely_deaf(
    desk: Desk, control_plane: ControlPlane, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    rules = [rule for rule in IN_EVERY_SERVED_NAMESPACE if "secrets" not in rule["resources"]]
    kubeconfig = account(desk, tmp_path, *role(desk, "Role", "operator", [*rules, *BEATING], "RoleBinding"))
    configured = await cluster.configuration(kubeconfig)
    settings = replace(SETTINGS, namespaces=(desk.namespace,))
    async with main.operating(configured, settings, Metrics()) as operator:
        with pytest.raises(ExceptionGroup) as ended:
            await asyncio.wait_for(operator.run(), 30)
    assert str(ended.value.exceptions[0]) == "the watches ended"


async def hears_itself(operator: Operator) -> None:
    age = operator.heartbeat.age()

    async def younger() -> bool:
        return operator.heartbeat.age() < age

    await eventually(younger, 15)
