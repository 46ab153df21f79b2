"""etcd and the API server: alone on loopback for tests of schemas and policies, or as a part of the node."""

import socket
import ssl
import urllib.error
import urllib.request
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from . import node, pki, processes
from .commands import wait_for
from .layout import Layout

Inside = Callable[..., Sequence[str | Path]]
"""Puts the words of a command into the place where it shall run."""

_ISSUER = "https://kubernetes.default.svc.cluster.local"
_API_SERVICE_ADDRESS = "10.96.0.1"


@dataclass(frozen=True)
class Endpoints:
    address: str
    api_port: int
    etcd_port: int
    etcd_peer_port: int

    @property
    def server(self) -> str:
        return f"https://{self.address}:{self.api_port}"

    @property
    def etcd(self) -> str:
        return f"http://127.0.0.1:{self.etcd_port}"


IN_NODE = Endpoints(node.ADDRESS, api_port=6443, etcd_port=2379, etcd_peer_port=2380)


def on_free_ports() -> Endpoints:
    sockets = [socket.create_server(("127.0.0.1", 0)) for _ in range(3)]
    ports: list[int] = [held.getsockname()[1] for held in sockets]
    for held in sockets:
        held.close()
    return Endpoints("127.0.0.1", *ports)


def start(layout: Layout, endpoints: Endpoints, inside: Inside) -> None:
    pki.create(layout.secrets, node=node.NAME, addresses=(endpoints.address, "127.0.0.1", _API_SERVICE_ADDRESS))
    processes.start(layout, "etcd", inside(layout.bin / "etcd", *_etcd_flags(layout, endpoints)))
    apiserver = inside(layout.bin / "kube-apiserver", *_apiserver_flags(layout, endpoints))
    processes.start(layout, "kube-apiserver", apiserver)
    wait_for("the API server", lambda: _answers_ready(layout, endpoints), seconds=120)
    # Last, so that whoever finds this file finds an API server that answers.
    pki.write_kubeconfig(layout.secrets, layout.kubeconfig, user="admin", server=endpoints.server)


def _etcd_flags(layout: Layout, endpoints: Endpoints) -> list[str]:
    peer = f"http://127.0.0.1:{endpoints.etcd_peer_port}"
    return [
        f"--data-dir={layout.state / 'etcd'}",
        "--name=only",
        f"--initial-cluster=only={peer}",
        f"--initial-advertise-peer-urls={peer}",
        f"--listen-peer-urls={peer}",
        f"--listen-client-urls={endpoints.etcd}",
        f"--advertise-client-urls={endpoints.etcd}",
        "--unsafe-no-fsync",
        "--log-level=warn",
    ]


def _apiserver_flags(layout: Layout, endpoints: Endpoints) -> list[str]:
    secrets = layout.secrets
    flags = [
        f"--etcd-servers={endpoints.etcd}",
        f"--bind-address={endpoints.address}",
        f"--advertise-address={endpoints.address}",
        f"--secure-port={endpoints.api_port}",
        f"--service-cluster-ip-range={node.SERVICE_RANGE}",
        f"--tls-cert-file={secrets / 'apiserver.crt'}",
        f"--tls-private-key-file={secrets / 'apiserver.key'}",
        f"--token-auth-file={secrets / 'tokens.csv'}",
        "--authorization-mode=Node,RBAC",
        "--enable-admission-plugins=NodeRestriction",
        f"--service-account-issuer={_ISSUER}",
        f"--service-account-signing-key-file={secrets / 'service-accounts.key'}",
        f"--service-account-key-file={secrets / 'service-accounts.key'}",
        f"--kubelet-client-certificate={secrets / 'kubelet-client.crt'}",
        f"--kubelet-client-key={secrets / 'kubelet-client.key'}",
        "--kubelet-preferred-address-types=InternalIP",
        "--allow-privileged",
        "--profiling=false",
    ]
    if endpoints.address.startswith("127."):
        # A loopback address cannot be an Endpoint; nothing but tests on this machine asks such a server.
        flags.append("--endpoint-reconciler-type=none")
    return flags


def _answers_ready(layout: Layout, endpoints: Endpoints) -> bool:
    processes.insist_alive(layout)
    context = ssl.create_default_context(cafile=str(layout.secrets / "ca.crt"))
    # Never through a proxy that the environment names: the address is this machine's.
    direct = urllib.request.build_opener(urllib.request.ProxyHandler({}), urllib.request.HTTPSHandler(context=context))
    try:
        with direct.open(f"{endpoints.server}/readyz", timeout=5) as answer:
            return bool(answer.status == 200)
    except (urllib.error.URLError, TimeoutError, ConnectionError):
        return False
