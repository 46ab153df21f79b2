"""A pod's own sidecar answers it, and whatever is down, the pod starts."""

import json
from collections.abc import Callable, Iterator
from typing import Any

import freshgate_chart as chart
import freshgate_northwind_world as northwind
import pytest
from freshgate_clusters import SYSTEM, Images
from freshgate_kubectl import apply, eventually, get, kubectl, wait
from freshgate_northwind_world import NAMESPACE, Agent

SIDECAR = "http://127.0.0.1:8749"
QUERY = "Alfreds Futterkiste"
WHERE = f"--namespace={NAMESPACE}"
CLERK = Agent("deployment/clerk", NAMESPACE)
STATUS_OF = """
import sys, urllib.request, urllib.error
try: print(urllib.request.urlopen(sys.argv[1], timeout=5).status)
except urllib.error.HTTPError as error: print(error.code)
"""


def pod(images: Images, command: list[str], **others: Any) -> dict[str, Any]:
    """Restricted, with an init container and volumes of its own."""
    security = {
        "allowPrivilegeEscalation": False,
        "readOnlyRootFilesystem": True,
        "capabilities": {"drop": ["ALL"]},
        "runAsUser": 1000,
    }
    common = {"image": images.service, "imagePullPolicy": "IfNotPresent", "securityContext": security}
    token = {"serviceAccountToken": {"audience": "freshgate", "expirationSeconds": 3600, "path": "token"}}
    mounts = [{"name": "token", "mountPath": "/token"}, {"name": "ask", "mountPath": "/ask"}]
    return {
        "serviceAccountName": "clerk",
        "automountServiceAccountToken": False,
        "terminationGracePeriodSeconds": 1,
        "securityContext": {"runAsNonRoot": True, "seccompProfile": {"type": "RuntimeDefault"}},
        "initContainers": [{"name": "own", "command": ["true"], **common}],
        "containers": [{"name": "app", "command": command, "volumeMounts": mounts, **common}],
        "volumes": [
            {"name": "token", "projected": {"sources": [token]}},
            {"name": "ask", "configMap": {"name": "ask"}},
        ],
        **others,
    }


def start(images: Images, replicas: int = 1) -> None:
    northwind.create_config_map("ask", NAMESPACE, {"ask.py": northwind.ASK.read_text("utf-8")})
    report = ["python3", "/ask/ask.py", "until", SIDECAR, QUERY]
    values = {
        "REPLICAS": str(replicas),
        "POD": json.dumps(pod(images, ["sleep", "infinity"])),
        "JOB": json.dumps(pod(images, report, restartPolicy="Never")),
    }
    apply(northwind.manifest("sidecars.yaml", **values))


@pytest.fixture(scope="module")
def clerk(workspace: str, images: Images, say: Callable[[str], None]) -> Iterator[Agent]:
    say("starting pods with sidecars")
    start(images)
    kubectl("rollout", "status", "deployment/clerk", WHERE, "--timeout=120s")
    yield CLERK
    kubectl("delete", "deployment/clerk", "job/report", "entitlementpolicy/clerks", WHERE)


def test_an_agent_is_answered_by_its_own_sidecar_what_it_is_entitled_to(clerk: Agent) -> None:
    status, _ = eventually(
        lambda: (answer := clerk.over_rest(QUERY, SIDECAR))[0] == 200 and answer, seconds=60, what="it answers"
    )
    assert status == 200
    results = clerk.over_mcp(QUERY, SIDECAR)
    assert results
    assert {result["source_name"] for result in results} == {"customers"}
    assert {result["id"] for result in results} < {
        result["id"] for result in clerk.over_mcp("Sales Representative", SIDECAR)
    } | {"customers/ALFKI"}


def test_a_job_ends_although_its_sidecar_would_stay(clerk: Agent) -> None:
    wait("condition=Complete", "job/report", namespace=NAMESPACE, seconds=120)
    assert "customers/ALFKI" in kubectl("logs", "job/report", "--container=app", WHERE)


def test_the_app_may_ask_its_sidecar_whether_it_lives_and_not_for_metrics(clerk: Agent) -> None:
    def status_of(path: str) -> str:
        command = ["python3", "-c", STATUS_OF, f"http://127.0.0.1:8750{path}"]
        return kubectl("exec", "deployment/clerk", "--container=app", WHERE, "--", *command).strip()

    assert status_of("/livez") == "200"
    assert status_of("/metrics") == "401"
    assert status_of("/status") == "401"


def test_an_app_starts_while_store_source_and_operator_are_down(clerk: Agent, say: Callable[[str], None]) -> None:
    down = ((NAMESPACE, "store-db"), (NAMESPACE, "sales-db"), (SYSTEM, chart.OPERATOR))
    say("taking store, source and operator away")
    for namespace, name in down:
        kubectl("scale", f"deployment/{name}", "--replicas=0", f"--namespace={namespace}")
    try:
        kubectl("delete", "pod", "--selector=app=clerk", WHERE)
        kubectl("rollout", "status", "deployment/clerk", WHERE, "--timeout=60s")
        status, answer = clerk.over_rest(QUERY, SIDECAR)
        assert (status, answer["error"]["code"]) == (503, "not_ready")
    finally:
        for namespace, name in down:
            kubectl("scale", f"deployment/{name}", "--replicas=1", f"--namespace={namespace}")
        for namespace, name in down:
            kubectl("rollout", "status", f"deployment/{name}", f"--namespace={namespace}", "--timeout=120s")
    say("all is back")
    eventually(lambda: clerk.over_rest(QUERY, SIDECAR)[0] == 200, seconds=60, what="the sidecar answers")
    wait("condition=Ready", f"workspace/{northwind.WORKSPACE}", namespace=NAMESPACE, seconds=90)


def test_the_status_names_no_sidecar_of_another_version(clerk: Agent) -> None:
    found = get("workspace", northwind.WORKSPACE, namespace=NAMESPACE)["status"]["conditions"]
    (outdated,) = [one for one in found if one["type"] == "SidecarsOutdated"]
    assert outdated["status"] == "False"
