"""Shows that a cluster has what the stories build on, before a story fails for the want of it.

It asks whatever cluster KUBECONFIG names, with the images of `cluster.py images` in it, and leaves nothing there.
"""

import base64
import json
import subprocess
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

HERE = Path(__file__).parent
GET = "import sys, urllib.request; print(urllib.request.urlopen(sys.argv[1], timeout=2).read().decode())"


class Refused(Exception):
    pass


def kubectl(*words: str | Path, stdin: str | None = None) -> str:
    command = ["kubectl", "--namespace=cluster-test", *map(str, words)]
    done = subprocess.run(command, input=stdin, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise Refused(done.stderr)
    return done.stdout


def create(document: dict[str, Any], *options: str) -> str:
    return kubectl("create", "--filename=-", *options, stdin=json.dumps(document))


def helper(image: str) -> dict[str, Any]:
    metadata = {"name": "greeter", "namespace": "cluster-test"}
    return {"apiVersion": "cluster-test.example/v1", "kind": "Helper", "metadata": metadata, "spec": {"image": image}}


def pod(name: str) -> dict[str, Any]:
    metadata = {"name": name, "namespace": "cluster-test", "labels": {"helper": "greeter"}}
    container = {"name": "app", "image": "localhost/freshgate-base:bookworm"}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": {"containers": [container]}}


def answer_to(name: str) -> str:
    return kubectl("exec", name, "--", "python3", "-c", GET, "http://web.cluster-test.svc.cluster.local/")


def eventually_refused(attempt: Callable[[], object]) -> str:
    """A policy reaches the node, or the API server's admission, a moment after it is accepted."""
    deadline = time.monotonic() + 10
    while time.monotonic() < deadline:
        try:
            attempt()
        except Refused as refusal:
            return str(refusal)
    pytest.fail("nothing was refused within 10 s")


@pytest.fixture(scope="module", autouse=True)
def pods() -> Iterator[None]:
    try:
        kubectl("apply", "--filename", HERE / "pods.yaml")
        kubectl("wait", "--for=condition=Ready", "pod", "--all", "--timeout=60s")
        yield
    finally:
        kubectl("delete", "--ignore-not-found", "--now", "--filename", HERE / "policies.yaml")
        kubectl("delete", "--ignore-not-found", "--now", "--filename", HERE / "pods.yaml")


def test_a_service_is_reached_by_its_name_and_answered_by_a_native_sidecar() -> None:
    assert answer_to("stranger") == "written by the app\n\n"


def test_logs_of_each_container_can_be_read() -> None:
    assert kubectl("logs", "web", "--container=app") == "started\n"
    assert "GET / HTTP/1.1" in kubectl("logs", "web", "--container=sidecar")


def test_a_projected_token_names_its_pod_and_is_signed_by_a_published_key() -> None:
    parts = kubectl("exec", "friend", "--", "cat", "/token/token").split(".")
    header, claims = (json.loads(base64.urlsafe_b64decode(part + "===")) for part in parts[:2])
    published = json.loads(kubectl("get", "--raw", "/openid/v1/jwks"))["keys"]
    assert header["kid"] in [key["kid"] for key in published]
    assert claims["aud"] == ["freshgate"]
    assert claims["kubernetes.io"]["pod"]["name"] == "friend"


def test_a_network_policy_lets_in_whom_it_names_and_nobody_else() -> None:
    kubectl("apply", "--filename", HERE / "network-policy.yaml")
    eventually_refused(lambda: answer_to("stranger"))
    assert answer_to("friend") == "written by the app\n\n"


def test_a_rule_of_a_custom_resource_and_a_mutating_policy_with_it_as_parameter_are_in_force() -> None:
    kubectl("apply", "--filename", HERE / "policies.yaml")
    kubectl("wait", "--for=condition=Established", "crd/helpers.cluster-test.example")
    assert "no params found" in eventually_refused(lambda: create(pod("early"), "--dry-run=server"))

    with pytest.raises(Refused, match="only images of this machine"):
        create(helper("elsewhere.example/pause:1"))
    create(helper("localhost/pause:e2e"))

    create(pod("late"))
    made = json.loads(kubectl("get", "pod", "late", "--output=json"))
    assert [container["name"] for container in made["spec"]["initContainers"]] == ["greeter"]
