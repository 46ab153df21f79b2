"""The node: namespaces of its own for processes, mounts, network and name, so that one signal removes every trace.

Ending its process 1 makes the kernel end all that runs in it and drop its mounts, interfaces, routes and packet filter.
Two things are the machine's and not a namespace's: cgroups, and the kernel settings that a kubelet insists on. `remove`
puts those back.
"""

import json
import os
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from . import processes
from .commands import run, wait_for
from .errors import ClusterError, CommandFailed
from .layout import Layout

NAME = "freshgate-node"
ADDRESS = "10.243.0.2"
HOST_ADDRESS = "10.243.0.1"
POD_RANGE = "10.244.0.0/16"
SERVICE_RANGE = "10.96.0.0/16"

_LINK = "freshgate0"
_NAMESPACES = ("--mount", "--net", "--pid", "--uts", "--ipc")
# What kubelet, containerd and the network plugins keep here is hard to move, so the node gets folders of its own there.
_OWN_FOLDERS = ("/var/lib", "/var/log")
_CGROUPS = Path("/sys/fs/cgroup")
_SETTINGS = tuple(
    Path("/proc/sys", setting)
    for setting in (
        "vm/overcommit_memory",
        "vm/panic_on_oom",
        "kernel/panic",
        "kernel/panic_on_oops",
        "kernel/keys/root_maxkeys",
        "kernel/keys/root_maxbytes",
    )
)


@dataclass(frozen=True)
class Node:
    pid: int
    """Of its process 1, as the machine sees it."""

    def inside(self, *argv: str | Path) -> list[str | Path]:
        return ["nsenter", "--target", str(self.pid), *_NAMESPACES, "--", *argv]

    def run(self, *argv: str | Path) -> str:
        return run(self.inside(*argv), cwd=Path("/"))


def create(layout: Layout) -> Node:
    _refuse_what_cannot_work(layout)
    _remember_settings(layout)
    init = Path(__file__).with_name("init.py")
    argv: list[str | Path] = ["unshare", *_NAMESPACES, "--fork", "--kill-child", "--mount-proc", sys.executable, init]
    parent = processes.start(layout, "node", argv)
    wait_for("process 1 of the node", lambda: bool(_children(parent.pid)), seconds=10)
    node = Node(_children(parent.pid)[0])
    wait_for("the node's namespaces", lambda: _entered(layout, node), seconds=10)
    _mount(layout, node)
    _connect(node)
    return node


def running(layout: Layout) -> Node | None:
    for process in processes.known(layout):
        if process.name == "node" and process.alive:
            return Node(_children(process.pid)[0])
    return None


def remove(layout: Layout) -> None:
    """Ends every process of the cluster and puts back what is the machine's. Safe to repeat, and where nothing runs."""
    processes.stop_all(layout)
    settings = layout.state / "settings.json"
    if not settings.exists():
        return
    _unlink()
    for group in [*_CGROUPS.glob("kubepods"), *_CGROUPS.glob("*/kubepods")]:
        wait_for(f"the removal of {group}", partial(_without_groups, group), seconds=10)
    _restore(settings)


def _refuse_what_cannot_work(layout: Layout) -> None:
    if os.geteuid() != 0:
        raise ClusterError("a full cluster needs root; `up --control-plane-only` does not")
    if _linked():
        raise ClusterError(f"another cluster of this kind runs on this machine: the interface {_LINK} exists")
    for path in (layout.cache, layout.state, Path(__file__)):
        if any(path.is_relative_to(folder) for folder in (*_OWN_FOLDERS, "/run")):
            raise ClusterError(f"{path} would be hidden inside of the node: move it out of /var/lib, /var/log and /run")


def _entered(layout: Layout, node: Node) -> bool:
    """True once process 1 runs the node's own program, with its own /proc: the namespaces are complete then."""
    processes.insist_alive(layout)
    return Path(f"/proc/{node.pid}/cmdline").read_bytes().startswith(sys.executable.encode() + b"\0")


def _mount(layout: Layout, node: Node) -> None:
    node.run("mount", "--make-rshared", "/")
    node.run("mount", "-t", "tmpfs", "-o", "mode=0755", "run", "/run")
    for folder in _OWN_FOLDERS:
        own = layout.state / "node" / folder.replace("/", "-").strip("-")
        own.mkdir(parents=True)
        node.run("mount", "--bind", own, folder)
    # Images in memory: they are imported in a third of the time, and gone at once. Volumes and logs are on the disk.
    node.run("mkdir", "/var/lib/containerd")
    node.run("mount", "-t", "tmpfs", "-o", "mode=0711", "images", "/var/lib/containerd")


def _connect(node: Node) -> None:
    """A link to this machine alone: the node reaches nothing else, and this machine reaches its pods and services."""
    run(["ip", "link", "add", _LINK, "type", "veth", "peer", "name", "eth0", "netns", str(node.pid)])
    run(["ip", "address", "add", f"{HOST_ADDRESS}/30", "dev", _LINK])
    run(["ip", "link", "set", _LINK, "up"])
    for destination in (POD_RANGE, SERVICE_RANGE):
        run(["ip", "route", "add", destination, "via", ADDRESS, "dev", _LINK])
    node.run("hostname", NAME)
    node.run("ip", "link", "set", "lo", "up")
    node.run("ip", "address", "add", f"{ADDRESS}/30", "dev", "eth0")
    node.run("ip", "link", "set", "eth0", "up")
    # So that a Service without endpoints is refused by kube-proxy, as elsewhere, instead of being unreachable.
    node.run("ip", "route", "add", SERVICE_RANGE, "dev", "eth0")
    node.run("sysctl", "-qw", "net.ipv4.ip_forward=1", "net.bridge.bridge-nf-call-iptables=1")


def _linked() -> bool:
    return Path("/sys/class/net", _LINK).exists()


def _unlink() -> None:
    """The kernel does it too, but a connection that was cut in mid-sentence can keep the node's network for minutes."""
    if not _linked():
        return
    try:
        run(["ip", "link", "delete", _LINK])
    except CommandFailed:
        if _linked():
            raise


def _children(pid: int) -> Sequence[int]:
    return [int(path.parent.name) for path in Path("/proc").glob("[0-9]*/stat") if _parent(path) == pid]


def _parent(status: Path) -> int:
    try:
        return int(status.read_text().rpartition(")")[2].split()[1])
    except (FileNotFoundError, ProcessLookupError):
        return 0


def _remember_settings(layout: Layout) -> None:
    values = {str(path): path.read_text().strip() for path in _SETTINGS}
    (layout.state / "settings.json").write_text(json.dumps(values))


def _restore(settings: Path) -> None:
    for path, value in json.loads(settings.read_text()).items():
        if Path(path).read_text().strip() != value:
            Path(path).write_text(value)
    settings.unlink()


def _without_groups(group: Path) -> bool:
    """Their processes may take a moment to go; a group that holds one cannot be removed yet."""
    try:
        for folder, _, _ in os.walk(group, topdown=False):
            Path(folder).rmdir()
    except OSError:
        return False
    return True
