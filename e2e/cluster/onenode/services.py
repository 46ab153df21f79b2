"""What makes the node a working one: containerd, controllers, kubelet, network and the cluster's DNS."""

import socket
import struct
from pathlib import Path
from string import Template

from . import images, pki, processes
from .commands import run, say, wait_for
from .control_plane import IN_NODE
from .layout import CONFIG, Layout
from .node import ADDRESS, NAME, POD_RANGE, SERVICE_RANGE, Node

_DNS_ADDRESS = "10.96.0.10"


def start(layout: Layout, node: Node) -> None:
    """Returns when pods can be run, reach each other by name, and are kept apart by NetworkPolicies."""
    _start_containerd(layout, node)
    _start_controllers(layout, node)
    _start_kubelet(layout, node)
    _start_proxy(layout, node)
    images.import_archives(layout, node)
    _kubectl(layout, "apply", "--server-side", "--filename", _configured(layout, "coredns.yaml"))
    say("waiting for the node and its DNS")
    _kubectl(layout, "wait", "--for=create", f"node/{NAME}", "--timeout=60s")
    _start_network_policies(layout, node)
    _kubectl(layout, "wait", "--for=condition=Ready", f"node/{NAME}", "--timeout=60s")
    _kubectl(layout, "-n", "kube-system", "rollout", "status", "deployment/coredns", "--timeout=120s")
    wait_for("an answer of the cluster's DNS", lambda: _resolves("kubernetes.default.svc.cluster.local"), seconds=60)
    processes.insist_alive(layout)


def _start_containerd(layout: Layout, node: Node) -> None:
    config = _configured(layout, "containerd.toml")
    processes.start(layout, "containerd", node.inside(layout.bin / "containerd", "--config", config))
    ctr = layout.bin / "ctr"

    def answers() -> bool:
        processes.insist_alive(layout)
        return Path(f"/proc/{node.pid}/root/run/containerd/containerd.sock").exists() and bool(node.run(ctr, "version"))

    wait_for("containerd", answers, seconds=30)


def _start_controllers(layout: Layout, node: Node) -> None:
    secrets = layout.secrets
    common = ["--leader-elect=false", "--secure-port=0"]
    controllers = [
        f"--kubeconfig={_kubeconfig(layout, 'system:kube-controller-manager')}",
        f"--root-ca-file={secrets / 'ca.crt'}",
        f"--service-account-private-key-file={secrets / 'service-accounts.key'}",
        "--use-service-account-credentials",
        "--flex-volume-plugin-dir=/var/lib/kubelet/volume-plugins",
        "--allocate-node-cidrs",
        f"--cluster-cidr={POD_RANGE}",
    ]
    scheduler = [f"--kubeconfig={_kubeconfig(layout, 'system:kube-scheduler')}"]
    for name, flags in (("kube-controller-manager", controllers), ("kube-scheduler", scheduler)):
        processes.start(layout, name, node.inside(layout.bin / name, *common, *flags))


def _start_kubelet(layout: Layout, node: Node) -> None:
    kubelet = [
        f"--config={_configured(layout, 'kubelet.yaml')}",
        f"--kubeconfig={_kubeconfig(layout, f'system:node:{NAME}')}",
        f"--hostname-override={NAME}",
        f"--node-ip={ADDRESS}",
    ]
    processes.start(layout, "kubelet", node.inside(layout.bin / "kubelet", *kubelet))


def _start_proxy(layout: Layout, node: Node) -> None:
    proxy = _configured(layout, "kube-proxy.yaml", kubeconfig=_kubeconfig(layout, "system:kube-proxy"))
    processes.start(layout, "kube-proxy", node.inside(layout.bin / "kube-proxy", f"--config={proxy}"))


def _start_network_policies(layout: Layout, node: Node) -> None:
    """Only once the node is registered: it looks itself up."""
    policies = [
        f"--kubeconfig={_kubeconfig(layout, 'network-policies')}",
        f"--hostname-override={NAME}",
        f"--service-cluster-ip-range={SERVICE_RANGE}",
    ]
    processes.start(layout, "network-policies", node.inside(layout.bin / "network-policies", *policies))


def _kubectl(layout: Layout, *words: str | Path) -> str:
    return run([layout.bin / "kubectl", f"--kubeconfig={layout.kubeconfig}", *words])


def _kubeconfig(layout: Layout, user: str) -> Path:
    path = layout.secrets / f"{user.replace(':', '-')}.kubeconfig"
    pki.write_kubeconfig(layout.secrets, path, user=user, server=IN_NODE.server)
    return path


def _configured(layout: Layout, name: str, **values: str | Path) -> Path:
    known = {
        "address": ADDRESS,
        "bin": layout.bin,
        "config": CONFIG,
        "dns": _DNS_ADDRESS,
        "node": NAME,
        "pods": POD_RANGE,
        "secrets": layout.secrets,
    }
    path = layout.state / name
    path.write_text(Template((CONFIG / name).read_text()).substitute(known | values))
    return path


def _resolves(name: str) -> bool:
    """One question (RFC 1035) to the Service's address: an answer came through the packet filter and from the pod."""
    labels = b"".join(bytes([len(label)]) + label.encode() for label in name.split("."))
    question = struct.pack(">6H", 1, 0x0100, 1, 0, 0, 0) + labels + b"\0" + struct.pack(">2H", 1, 1)
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as asked:
        asked.settimeout(1)
        try:
            asked.sendto(question, (_DNS_ADDRESS, 53))
            header: tuple[int, ...] = struct.unpack(">6H", asked.recv(512)[:12])
        except OSError:
            return False
    _, flags, _, answers, *_ = header
    return flags & 0x000F == 0 and answers > 0
