"""Builds the programs of a cluster from Go modules, each pinned by a go.mod and go.sum under `go/`.

A program is built again only when its module, its build command or the Go version changes.
"""

import hashlib
import os
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from .commands import run, say
from .layout import MODULES, Layout
from .locks import held

_VERSION = "k8s.io/component-base/version"


@dataclass(frozen=True)
class Program:
    name: str
    module: str
    package: str
    tags: str = ""

    @property
    def folder(self) -> Path:
        return MODULES / self.module


def _kubernetes(name: str) -> Program:
    return Program(name, "kubernetes", f"k8s.io/kubernetes/cmd/{name}")


def _containerd(name: str) -> Program:
    package = f"github.com/containerd/containerd/v2/cmd/{name}"
    return Program(name, "containerd", package, tags="no_btrfs,no_devmapper,no_zfs,no_erofs")


PAUSE = Program("pause", "pause", ".")
COREDNS = Program("coredns", "addons", "./coredns")
CONTROL_PLANE = (
    Program("etcd", "etcd", "go.etcd.io/etcd/server/v3"),
    _kubernetes("kube-apiserver"),
    _kubernetes("kubectl"),
)
NODE = (
    _kubernetes("kube-controller-manager"),
    _kubernetes("kube-scheduler"),
    _kubernetes("kubelet"),
    _kubernetes("kube-proxy"),
    _containerd("containerd"),
    _containerd("containerd-shim-runc-v2"),
    _containerd("ctr"),
    PAUSE,
    COREDNS,
    Program("network-policies", "addons", "./network-policies"),
    Program("helm", "addons", "helm.sh/helm/v4/cmd/helm"),
)
ALL = CONTROL_PLANE + NODE


def build(layout: Layout, programs: Sequence[Program]) -> None:
    with held(layout.cache / "build.lock"):
        go = run(["go", "env", "GOVERSION", "GOARCH"])
        for number, program in enumerate(programs, start=1):
            _build_if_changed(layout, program, go, f"{number}/{len(programs)}")


def _build_if_changed(layout: Layout, program: Program, go: str, progress: str) -> None:
    command = _command(program)
    stamp = layout.cache / "stamps" / program.name
    inputs = _digest(program, [go, *command])
    binary = layout.bin / program.name
    if binary.exists() and stamp.exists() and stamp.read_text() == inputs:
        return
    say(f"{progress} building {program.name}")
    began = time.monotonic()
    fresh = layout.bin / f".{program.name}"
    run([*command, "-o", fresh, program.package], cwd=program.folder, env=_environment())
    fresh.replace(binary)
    stamp.parent.mkdir(parents=True, exist_ok=True)
    stamp.write_text(inputs)
    say(f"{progress} built {program.name} in {time.monotonic() - began:.0f} s")


def _command(program: Program) -> list[str]:
    flags = "-s -w"
    if program.module == "kubernetes":
        # Without these the API server reports v0.0.0, and clients refuse or mistake its features.
        version = _required_version(program.folder / "go.mod", "k8s.io/kubernetes")
        major, minor, _ = version.removeprefix("v").split(".")
        flags += f" -X {_VERSION}.gitVersion={version} -X {_VERSION}.gitMajor={major} -X {_VERSION}.gitMinor={minor}"
    return ["nice", "-n", "10", "go", "build", "-trimpath", "-tags", program.tags, "-ldflags", flags]


def _required_version(go_mod: Path, module: str) -> str:
    lines = (line.split() for line in go_mod.read_text().splitlines())
    return next(words[words.index(module) + 1] for words in lines if module in words and "=>" not in words)


def _environment() -> dict[str, str]:
    # go.sum decides: a build never resolves versions anew. Without cgo no C library is needed in an image.
    return {**os.environ, "CGO_ENABLED": "0", "GOFLAGS": "-mod=readonly -buildvcs=false", "GOWORK": "off"}


def _digest(program: Program, command: Sequence[str]) -> str:
    hashed = hashlib.sha256(repr([*command, program.package]).encode())
    for path in sorted(path for path in program.folder.rglob("*") if path.is_file()):
        hashed.update(path.read_bytes())
    return hashed.hexdigest()
