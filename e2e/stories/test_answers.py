"""From three kinds of YAML to an answer: agents ask the workspace's Service with their own projected tokens."""

from collections.abc import Callable

import freshgate_northwind_world as northwind
import pytest
from freshgate_kubectl import Refused, eventually, get, kubectl, wait
from freshgate_northwind_world import NAMESPACE, SERVES, Agent

QUERY = "order of Alfreds Futterkiste Berlin"
ONE = "Alfreds Futterkiste"
TTL_SECONDS = 3


def states(agent: Agent) -> set[str]:
    return {result["freshness"]["state"] for result in agent.over_mcp(ONE) if result["source_name"] == "customers"}


def test_an_agent_is_answered_over_mcp_through_the_service_what_its_token_entitles_it_to(
    agents: dict[str, Agent],
) -> None:
    all_of_them = agents["head-office"].over_mcp("Sales Representative")
    german = agents["german-desk"].over_mcp("Sales Representative")
    assert {result["source_name"] for result in german} == {"customers"}
    assert all("Germany" in result["summary"] for result in german)
    assert {result["id"] for result in german} < {result["id"] for result in all_of_them}


def test_an_agent_that_no_policy_names_finds_nothing(agents: dict[str, Agent]) -> None:
    assert agents["stranger"].over_mcp(ONE) == []
    assert agents["stranger"].over_rest(ONE) == (200, {"results": []})


def test_a_token_for_another_audience_is_refused(agents: dict[str, Agent], workspace: str) -> None:
    url = f"{northwind.URL}/api/v1/whoami"
    code = (
        "import subprocess, sys, urllib.request, urllib.error\n"
        "request = urllib.request.Request(sys.argv[1], headers={'Authorization': 'Bearer ' + sys.argv[2]})\n"
        "try: print(urllib.request.urlopen(request).status)\n"
        "except urllib.error.HTTPError as error: print(error.code)\n"
    )
    for audience, status in (("freshgate", "200"), ("elsewhere", "401")):
        token = kubectl("create", "token", "head-office", f"--namespace={northwind.AGENTS}", f"--audience={audience}")
        command = ["python3", "-c", code, url, token.strip()]
        assert kubectl("exec", f"--namespace={northwind.AGENTS}", "stranger", "--", *command).strip() == status


def test_a_stale_record_is_labelled_while_its_source_is_gone_and_refreshed_once_it_is_back(
    agents: dict[str, Agent], say: Callable[[str], None]
) -> None:
    agent = agents["head-office"]
    assert states(agent) <= {"fresh", "refreshed"}
    say("taking the source away")
    kubectl("scale", "deployment/sales-db", "--replicas=0", f"--namespace={NAMESPACE}")
    wait("delete", "pod", "--selector=app=sales-db", namespace=NAMESPACE, seconds=60)
    try:
        eventually(lambda: states(agent) == {"stale_refresh_failed"}, seconds=TTL_SECONDS + 20, what="labelled")
        failed = [result for result in agent.over_mcp(ONE) if result["source_name"] == "customers"]
        assert all(result.keys() == {"id", "source_name", "freshness"} for result in failed)
        assert all("reason" in result["freshness"] for result in failed)
    finally:
        say("bringing it back")
        kubectl("scale", "deployment/sales-db", "--replicas=1", f"--namespace={NAMESPACE}")
        kubectl("rollout", "status", "deployment/sales-db", f"--namespace={NAMESPACE}", "--timeout=120s")
    eventually(lambda: states(agent) == {"refreshed"}, seconds=60, what="refreshed")


def test_the_pods_hold_no_token_of_the_api_server_and_cannot_write_to_their_root(workspace: str) -> None:
    (pod,) = get("pods", namespace=NAMESPACE, selector=SERVES)["items"]
    mounts = [mount["mountPath"] for mount in pod["spec"]["containers"][0]["volumeMounts"]]
    assert not any("kubernetes.io/serviceaccount" in mount for mount in mounts)
    write = "import pathlib; pathlib.Path('/opt/freshgate/x').write_text('x')"
    with pytest.raises(Refused, match="Read-only file system"):
        kubectl("exec", f"--namespace={NAMESPACE}", pod["metadata"]["name"], "--", "python3", "-c", write)
