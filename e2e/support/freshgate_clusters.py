"""A cluster to tell stories on, with the project's images in it: this machine's own, kind's, or one that is there.

FRESHGATE_CLUSTER says which: `onenode` (e2e/cluster, the default), `kind`, or `existing`, which is whatever KUBECONFIG
names, with the images of FRESHGATE_IMAGES (a registry's prefix) pushed there before. What this starts, it ends; what it
finds running, it leaves so.
"""

import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
ONENODE = ROOT / "e2e" / "cluster" / "cluster.py"
KIND_NAME = "freshgate-e2e"
KIND_FOLDER = ROOT / "build" / "kind"

RELEASE, SYSTEM = "freshgate", "freshgate-system"
MADE_HERE = "freshgate-e2e"
"""Label on all namespaces that stories make, by which they are found again."""

Say = Callable[[str], None]


@dataclass(frozen=True)
class Image:
    name: str
    dockerfile: str
    context: str = "."


@dataclass(frozen=True)
class Images:
    service: str
    operator: str
    postgres: str


BUILT = (
    Image("freshgate-service:e2e", "images/service/Dockerfile"),
    Image("freshgate-operator:e2e", "images/operator/Dockerfile"),
    Image("freshgate-postgres:e2e", "e2e/support/postgres/Dockerfile", "e2e/support/postgres"),
)


class ClusterFailed(Exception):
    """A cluster could not be had; the message says which command failed."""


@contextmanager
def cluster(say: Say) -> Iterator[Images]:
    """With KUBECONFIG set in the environment, and kubectl and helm on its PATH."""
    kinds = {"onenode": _onenode, "kind": _kind, "existing": _existing}
    chosen = os.environ.get("FRESHGATE_CLUSTER") or "onenode"
    if chosen not in kinds:
        raise ClusterFailed(f"FRESHGATE_CLUSTER is {chosen}: choose one of {', '.join(kinds)}")
    with kinds[chosen](say) as images:
        for program in ("kubectl", "helm"):
            if shutil.which(program) is None:
                raise ClusterFailed(f"{program} is not on the PATH")
        clear()
        yield images
        if chosen == "existing":
            say("removing what was made")
            clear()


def clear() -> None:
    """Of a cluster that stays, what an earlier run left."""
    _run("helm", "uninstall", RELEASE, f"--namespace={SYSTEM}", "--ignore-not-found", "--wait")
    namespaces = _said("kubectl", "get", "namespaces", f"--selector={MADE_HERE}", "--output=name").split()
    _run("kubectl", "delete", "--ignore-not-found", "--timeout=120s", f"namespace/{SYSTEM}", *namespaces)


def _images(prefix: str) -> Images:
    return Images(*(prefix + image.name for image in BUILT))


@contextmanager
def _onenode(say: Say) -> Iterator[Images]:
    was_up = subprocess.run([sys.executable, ONENODE, "status"], capture_output=True, check=False).returncode == 0
    try:
        for image in BUILT:
            say(f"building {image.name}")
            _run(
                sys.executable,
                ONENODE,
                "images",
                f"--context={ROOT / image.context}",
                f"localhost/{image.name}={ROOT / image.dockerfile}",
            )
        say("starting the cluster" if not was_up else "the cluster is up, and stays so")
        _run(sys.executable, ONENODE, "up")
        os.environ["KUBECONFIG"] = _said(sys.executable, ONENODE, "status", "--kubeconfig")
        os.environ["PATH"] = _said(sys.executable, ONENODE, "status", "--bin") + ":" + os.environ["PATH"]
        yield _images("localhost/")
    finally:
        if not was_up:
            say("ending the cluster")
            _run(sys.executable, ONENODE, "down")


@contextmanager
def _kind(say: Say) -> Iterator[Images]:
    kubeconfig = KIND_FOLDER / "kubeconfig"
    was_up = KIND_NAME in _said("kind", "get", "clusters").split()
    try:
        if not was_up:
            say("starting kind")
            KIND_FOLDER.mkdir(parents=True, exist_ok=True)
            _run("kind", "create", "cluster", f"--name={KIND_NAME}", f"--kubeconfig={kubeconfig}", "--wait=120s")
        for image in BUILT:
            say(f"building {image.name}")
            _run("docker", "build", f"--tag={image.name}", f"--file={ROOT / image.dockerfile}", ROOT / image.context)
            _run("kind", "load", "docker-image", f"--name={KIND_NAME}", image.name)
        os.environ["KUBECONFIG"] = str(kubeconfig)
        yield _images("")
    finally:
        if not was_up:
            say("ending kind")
            _run("kind", "delete", "cluster", f"--name={KIND_NAME}", f"--kubeconfig={kubeconfig}")


@contextmanager
def _existing(say: Say) -> Iterator[Images]:
    if "KUBECONFIG" not in os.environ:
        raise ClusterFailed("FRESHGATE_CLUSTER is existing: set KUBECONFIG to it, and FRESHGATE_IMAGES to its registry")
    say(f"using the cluster of {os.environ['KUBECONFIG']}")
    yield _images(os.environ.get("FRESHGATE_IMAGES", ""))


def _run(*words: str | Path) -> str:
    done = subprocess.run(
        list(map(str, words)), stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False
    )
    if done.returncode != 0:
        raise ClusterFailed(f"{' '.join(map(str, words))} failed:\n{done.stdout[-4000:]}")
    return done.stdout


def _said(*words: str | Path) -> str:
    return _run(*words).strip()
