"""The rest of the operator: the facts of a cluster, its own settings and its command."""

import subprocess
import sys
from pathlib import Path

import pytest
from click.testing import CliRunner
from freshgate_kubernetes import FakeCluster

from freshgate_operator import cluster as clusters
from freshgate_operator.cluster import _error
from freshgate_operator.commands import operator
from freshgate_operator.errors import ClusterUnavailable, Conflict, Forbidden, Missing, Refused, SettingsRefused
from freshgate_operator.facts import Surroundings, insist_on_kinds
from freshgate_operator.settings import Settings, pod_defaults


async def test_facts_that_did_not_change_are_no_news(cluster: FakeCluster):
    surroundings = Surroundings(cluster)
    assert await surroundings.refresh()
    cluster.issuer_keys.reverse()
    assert not await surroundings.refresh()
    cluster.issuer_keys.append({"kid": "2"})
    assert await surroundings.refresh()


async def test_keys_that_may_not_be_read_are_not_known_and_nothing_else_fails(cluster: FakeCluster):
    def forbidden(method: str, path: str) -> None:
        if path == "/openid/v1/jwks":
            raise Forbidden("/openid/v1/jwks: not for you")

    cluster.hooks.append(forbidden)
    surroundings = Surroundings(cluster)
    await surroundings.refresh()
    assert surroundings.facts.issuer_keys == {}


async def test_without_the_custom_resources_nothing_is_watched(cluster: FakeCluster):
    await insist_on_kinds(cluster)
    cluster.kinds.clear()
    with pytest.raises(ClusterUnavailable, match="install the CRDs"):
        await insist_on_kinds(cluster)


@pytest.mark.parametrize(
    ("status", "error"),
    [
        (400, Refused),
        (401, ClusterUnavailable),
        (403, Forbidden),
        (404, Missing),
        (409, Conflict),
        (410, ClusterUnavailable),
        (422, Refused),
        (429, ClusterUnavailable),
        (500, ClusterUnavailable),
        (503, ClusterUnavailable),
    ],
)
def test_what_an_api_server_answers_is_an_error_of_ours(status: int, error: type[Exception]):
    assert type(_error(status, b"<html>", "/api/v1/namespaces/acme/pods/x", may_quote=True)) is error


def test_of_a_secret_the_servers_own_words_are_not_passed_on():
    content = b'{"message": "Invalid value: hunter2", "reason": "Invalid"}'
    path = "/api/v1/namespaces/acme/secrets/support-freshgate?fieldManager=x"
    assert str(_error(422, content, path, may_quote=False)) == "acme/secrets/support-freshgate: Invalid"
    assert "hunter2" in str(_error(422, content, path, may_quote=True))


async def test_without_a_cluster_the_mend_is_said(monkeypatch: pytest.MonkeyPatch, tmp_path: Path):
    monkeypatch.delenv("KUBERNETES_SERVICE_HOST", raising=False)
    with pytest.raises(SettingsRefused, match="give --kubeconfig"):
        await clusters.configuration(None)


def test_a_namespaced_install_lists_its_namespaces_and_has_its_lease_in_one():
    chosen = Settings(image="service:1", own_namespace="freshgate-system", namespaces=("acme", "globex"))
    assert (chosen.scopes, chosen.lease_namespace) == (("acme", "globex"), "acme")
    everywhere = Settings(image="service:1", own_namespace="freshgate-system")
    assert (everywhere.scopes, everywhere.lease_namespace) == ((None,), "freshgate-system")


def test_pod_defaults_are_where_pods_run_and_not_what_they_run(tmp_path: Path):
    path = tmp_path / "pod.yaml"
    path.write_text("nodeSelector: {disk: fast}\n")
    assert pod_defaults(path) == {"nodeSelector": {"disk": "fast"}}
    path.write_text("containers: []\n")
    with pytest.raises(SettingsRefused, match="allowed are affinity"):
        pod_defaults(path)


def test_the_command_explains_itself_and_refuses_what_it_cannot_read():
    runner = CliRunner()
    helped = runner.invoke(operator, ["--help"])
    assert helped.exit_code == 0
    assert "--touch-pods" in helped.output
    assert runner.invoke(operator, []).exit_code == 2
    assert runner.invoke(operator, ["--image=x", "--monitor-label=nonsense"]).exit_code == 2


def test_its_help_needs_neither_kopf_nor_kubernetes():
    code = (
        "import sys; from freshgate_operator.commands import operator; operator(['--help'], standalone_mode=False);"
        "sys.exit(bool({'kopf', 'kubernetes', 'aiohttp'} & sys.modules.keys()))"
    )
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, check=False).returncode == 0
