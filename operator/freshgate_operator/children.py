"""What runs a workspace, as plain dicts: the pods of its service and all that belongs around them.

Rendering only: nothing here reads a cluster. A pod gets the published Secret as a whole folder, never file by file
(subPath), since only a folder follows the Secret. No pod gets a token of the API server, and none may do what the
restricted Pod Security Standard forbids.
"""

import json
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from hashlib import sha256
from typing import Any

from freshgate_crds import compiled
from freshgate_crds.v1alpha1 import workspaces as written
from freshgate_operator.kinds import (
    DEPLOYMENT,
    DISRUPTION_BUDGET,
    NETWORK_POLICY,
    SERVICE,
    SERVICE_ACCOUNT,
    SERVICE_MONITOR,
    Kind,
)
from freshgate_operator.names import (
    APPLIED,
    MANAGED_BY,
    OPERATOR_PODS,
    SCRAPE_TOKEN_HASH,
    SERVES,
    SIDECAR_CONTAINER,
)
from freshgate_operator.owners import Owner
from freshgate_operator.publish import SCRAPE_FILE
from freshgate_operator.settings import Settings

Body = dict[str, Any]

MOUNT = "/etc/freshgate/workspace"
QUERY_PORT = 8080
SERVICE_PORT = 80
DRAIN_SECONDS = 5
GRACE_SECONDS = 30
"""Longer than draining and answering take together."""

DNS_PORT, HTTP_PORT, HTTPS_PORT, POSTGRES_PORT = 53, 80, 443, 5432
LINK_LOCAL = {"0.0.0.0/0": "169.254.0.0/16", "::/0": "fe80::/10"}
"""By the range that holds it. Machines keep credentials there."""


@dataclass(frozen=True, slots=True)
class Plan:
    """One workspace to be run."""

    owner: Owner
    service: written.Service
    egress_ports: frozenset[int]
    scrape_token_hash: str


def render(plan: Plan, settings: Settings, *, monitored: bool) -> list[tuple[Kind, Body]]:
    """`monitored`: whether the cluster knows ServiceMonitors."""
    made: list[tuple[Kind, Body]] = [
        (SERVICE_ACCOUNT, {"automountServiceAccountToken": False}),
        (DEPLOYMENT, {"spec": _deployment(plan, settings)}),
        (SERVICE, {"spec": _service(plan, settings)}),
        (DISRUPTION_BUDGET, {"spec": _disruption_budget(plan)}),
        (NETWORK_POLICY, {"spec": _network_policy(plan, settings)}),
    ]
    if monitored:
        made.append((SERVICE_MONITOR, {"spec": _service_monitor(plan)}))
    return [(kind, _object(plan, settings, kind, content)) for kind, content in made]


def _object(plan: Plan, settings: Settings, kind: Kind, content: Body) -> Body:
    extra = settings.monitor_labels if kind is SERVICE_MONITOR else {}
    metadata = plan.owner.metadata({**_labels(plan), **extra})
    body: Body = {"apiVersion": kind.api_version, "kind": kind.name, "metadata": metadata, **content}
    return {**body, "metadata": {**metadata, "annotations": {APPLIED: digest(body)}}}


def digest(body: Mapping[str, Any]) -> str:
    return sha256(json.dumps(body, sort_keys=True).encode()).hexdigest()[:16]


def _selector(plan: Plan) -> dict[str, str]:
    return {SERVES: plan.owner.name}


def _labels(plan: Plan) -> dict[str, str]:
    return {
        "app.kubernetes.io/name": "freshgate",
        "app.kubernetes.io/instance": plan.owner.name,
        **MANAGED_BY,
        **_selector(plan),
    }


# --- pods ----------------------------------------------------------------------------------------------------------


def _deployment(plan: Plan, settings: Settings) -> Body:
    return {
        "replicas": plan.service.replicas,
        "revisionHistoryLimit": 3,
        "selector": {"matchLabels": _selector(plan)},
        "strategy": {"type": "RollingUpdate", "rollingUpdate": {"maxSurge": 1, "maxUnavailable": 0}},
        "template": {
            "metadata": {"labels": _labels(plan), "annotations": {SCRAPE_TOKEN_HASH: plan.scrape_token_hash}},
            "spec": _pod(plan, settings),
        },
    }


def _pod(plan: Plan, settings: Settings) -> Body:
    pull_secrets = [{"name": secret.name} for secret in plan.service.image_pull_secrets or ()]
    pod: Body = {
        "topologySpreadConstraints": [_spread(plan)],
        **settings.pod,
        "serviceAccountName": plan.owner.child,
        "automountServiceAccountToken": False,
        "enableServiceLinks": False,
        "terminationGracePeriodSeconds": GRACE_SECONDS,
        "securityContext": {"runAsNonRoot": True, "seccompProfile": {"type": "RuntimeDefault"}},
        "containers": [_container(plan, settings)],
        "volumes": [{"name": "workspace", "secret": {"secretName": plan.owner.child}}],
    }
    if all_secrets := [*settings.pod.get("imagePullSecrets", ()), *pull_secrets]:
        pod["imagePullSecrets"] = all_secrets
    return pod


def _spread(plan: Plan) -> Body:
    return {
        "maxSkew": 1,
        "topologyKey": "kubernetes.io/hostname",
        "whenUnsatisfiable": "ScheduleAnyway",
        "labelSelector": {"matchLabels": _selector(plan)},
    }


def _container(plan: Plan, settings: Settings) -> Body:
    container: Body = {
        "name": SIDECAR_CONTAINER,
        "image": settings.image,
        "imagePullPolicy": settings.image_pull_policy,
        "args": arguments(settings),
        "ports": [
            {"name": "http", "containerPort": QUERY_PORT, "protocol": "TCP"},
            {"name": "ops", "containerPort": settings.ops_port, "protocol": "TCP"},
        ],
        # Starting, it answers at once; ready is when the store is loaded, however long that takes.
        "startupProbe": _probe("/livez", period=1, failures=60),
        "livenessProbe": _probe("/livez", period=10, failures=3),
        "readinessProbe": _probe("/readyz", period=2, failures=2),
        "securityContext": {
            "allowPrivilegeEscalation": False,
            "capabilities": {"drop": ["ALL"]},
            "readOnlyRootFilesystem": True,
        },
        "volumeMounts": [{"name": "workspace", "mountPath": MOUNT, "readOnly": True}],
    }
    if resources := plan.service.resources.model_dump(exclude_none=True, exclude_defaults=True):
        container["resources"] = resources
    return container


def arguments(settings: Settings) -> list[str]:
    """Of the image's entry point, which is the command `freshgate`."""
    return [
        "service",
        f"--config={MOUNT}",
        f"--port={QUERY_PORT}",
        f"--ops-port={settings.ops_port}",
        f"--scrape-token-file={MOUNT}/{SCRAPE_FILE}",
        f"--drain={DRAIN_SECONDS}s",
    ]


def _probe(path: str, *, period: int, failures: int) -> Body:
    return {
        "httpGet": {"path": path, "port": "ops"},
        "periodSeconds": period,
        "timeoutSeconds": 2,
        "failureThreshold": failures,
    }


# --- around them ---------------------------------------------------------------------------------------------------


def _service(plan: Plan, settings: Settings) -> Body:
    return {
        "type": "ClusterIP",
        "selector": _selector(plan),
        "ports": [
            {"name": "http", "port": SERVICE_PORT, "targetPort": "http", "protocol": "TCP"},
            {"name": "ops", "port": settings.ops_port, "targetPort": "ops", "protocol": "TCP"},
        ],
    }


def _disruption_budget(plan: Plan) -> Body:
    return {
        "maxUnavailable": 1,
        "selector": {"matchLabels": _selector(plan)},
        "unhealthyPodEvictionPolicy": "AlwaysAllow",
    }


def _service_monitor(plan: Plan) -> Body:
    token = {"name": plan.owner.child, "key": SCRAPE_FILE}
    return {
        "selector": {"matchLabels": _selector(plan)},
        "endpoints": [
            {"port": "ops", "path": "/metrics", "authorization": {"type": "Bearer", "credentials": token}},
        ],
    }


def _network_policy(plan: Plan, settings: Settings) -> Body:
    """In: whoever has a token may ask; the ops port is for the operator and for who scrapes. Out: names, and the ports
    that the workspace's own sources, store and issuers have."""
    operators = {"namespaceSelector": _namespace(settings.own_namespace), "podSelector": {"matchLabels": OPERATOR_PODS}}
    scrapers = [{"namespaceSelector": _namespace(name)} for name in settings.scrape_namespaces]
    outside = [{"ipBlock": {"cidr": everything, "except": [local]}} for everything, local in LINK_LOCAL.items()]
    ports = sorted(plan.egress_ports | {*settings.egress_ports})
    return {
        "podSelector": {"matchLabels": _selector(plan)},
        "policyTypes": ["Ingress", "Egress"],
        "ingress": [
            {"ports": [_port(QUERY_PORT)]},
            {"from": [operators, *scrapers], "ports": [_port(settings.ops_port)]},
        ],
        "egress": [
            {"ports": [_port(DNS_PORT, "UDP"), _port(DNS_PORT)]},
            # Some networks do not count pods among the addresses of a block.
            {"to": [{"namespaceSelector": {}}, *outside], "ports": [_port(port) for port in ports]},
        ],
    }


def _namespace(name: str) -> Body:
    return {"matchLabels": {"kubernetes.io/metadata.name": name}}


def _port(port: int, protocol: str = "TCP") -> Body:
    return {"protocol": protocol, "port": port}


# --- where a workspace has to connect to ---------------------------------------------------------------------------


def egress_ports(config: compiled.Config, credentials: Mapping[str, bytes]) -> frozenset[int]:
    """Of the addresses in a configuration, and in the DSNs among its credentials."""
    dsns = {source.postgres.dsn for source in config.sources if source.postgres}
    dsns |= {config.store_dsn} if config.store_dsn else set()
    texts = [credentials.get(dsn.file_name, b"").decode(errors="replace") for dsn in dsns]
    ports = {*_url_ports(_urls(config)), *(port for text in texts for port in dsn_ports(text))}
    return frozenset(ports | ({HTTPS_PORT} if config.condenser.anthropic_model else set()))


def _urls(config: compiled.Config) -> Iterator[str]:
    # The cluster's own keys are compiled in: nobody fetches them.
    yield from (issuer.url for issuer in config.issuers if issuer.jwks is None)
    for source in config.sources:
        connection = source.rest or source.mcp
        if connection is not None:
            yield connection.url
            if isinstance(connection.auth, compiled.OAuth2Auth):
                yield connection.auth.token_url


def _url_ports(urls: Iterable[str]) -> Iterator[int]:
    for url in urls:
        scheme, _, rest = url.partition("://")
        yield _port_of(_authority(rest), HTTPS_PORT if scheme == "https" else HTTP_PORT)


def dsn_ports(dsn: str) -> set[int]:
    """Of a Postgres DSN, as a URL (several hosts are possible) or as keywords."""
    _, is_url, rest = dsn.partition("://")
    if is_url:
        return {_port_of(host, POSTGRES_PORT) for host in _authority(rest).split(",")}
    named = re.findall(r"\bport\s*=\s*'?(\d{1,5})", dsn)
    return {_port_of(f":{port}", POSTGRES_PORT) for port in named} or {POSTGRES_PORT}


def _authority(rest: str) -> str:
    """Of what follows the scheme, without user and password."""
    return re.split(r"[/?#]", rest)[0].rpartition("@")[2]


def _port_of(address: str, default: int) -> int:
    match = re.search(r":(\d{1,5})$", address)
    port = int(match[1]) if match else default
    return port if 0 < port < 65_536 else default
