"""NetworkPolicies: for each rule a connection that it lets pass, and one that it does not.

That anybody is let in to ask, that services reach their sources and the operator the API server and the pods, all other
stories show.
"""

from collections.abc import Callable

import freshgate_chart as chart
import freshgate_northwind_world as northwind
import pytest
from freshgate_clusters import SYSTEM
from freshgate_kubectl import eventually, get
from freshgate_northwind_world import AGENTS, NAMESPACE, SERVES, WORKSPACE, Agent, connects

SERVICE = f"deployment/{WORKSPACE}-freshgate"
OPERATOR = f"deployment/{chart.OPERATOR}"
API = ("kubernetes.default", 443)
SOURCE = (f"sales-db.{NAMESPACE}", 5432)


@pytest.fixture
def stranger(agents: dict[str, Agent]) -> Callable[[str, int], bool]:
    """From a pod that no policy binds: what it reaches is there."""
    return lambda host, port: connects("stranger", AGENTS, host, port)


def test_who_may_ask_may_not_reach_the_ops_port_of_a_service(stranger: Callable[[str, int], bool]) -> None:
    (pod,) = get("pods", namespace=NAMESPACE, selector=SERVES)["items"]
    address = pod["status"]["podIP"]
    assert stranger(address, 8080)
    assert not stranger(address, 9090)
    assert northwind.conditions("workspace", WORKSPACE)["Programmed"]["status"] == "True"  # the operator reached it


def test_a_service_reaches_its_source_and_no_port_that_its_configuration_does_not_name(
    stranger: Callable[[str, int], bool],
) -> None:
    assert connects(SERVICE, NAMESPACE, *SOURCE)
    assert stranger(*API)
    assert not connects(SERVICE, NAMESPACE, *API)


def test_the_operator_reaches_the_api_server_and_no_database(stranger: Callable[[str, int], bool]) -> None:
    assert connects(OPERATOR, SYSTEM, *API)
    assert stranger(*SOURCE)
    assert not connects(OPERATOR, SYSTEM, *SOURCE)


def test_nobody_but_who_scrapes_and_the_releases_test_reaches_the_operator(
    stranger: Callable[[str, int], bool],
) -> None:
    assert not stranger(f"{chart.OPERATOR}.{SYSTEM}", 9090)


def test_no_rule_lets_anybody_reach_where_machines_keep_credentials(workspace: str) -> None:
    policies = [
        eventually(lambda: get("networkpolicy", f"{WORKSPACE}-freshgate", namespace=NAMESPACE), seconds=5, what="it"),
        get("networkpolicy", chart.OPERATOR, namespace=SYSTEM),
    ]
    blocks = [
        peer["ipBlock"]
        for policy in policies
        for rule in policy["spec"]["egress"]
        for peer in rule.get("to", ())
        if "ipBlock" in peer
    ]
    assert {block["cidr"] for block in blocks} == {"0.0.0.0/0", "::/0"}
    assert all(block["except"] in (["169.254.0.0/16"], ["fe80::/10"]) for block in blocks)
