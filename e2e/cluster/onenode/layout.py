"""Where everything lies. Nothing is written outside of the two folders named here, but for what `node` mounts."""

import os
from dataclasses import dataclass
from pathlib import Path

TOOLS = Path(__file__).resolve().parents[1]
CHECKOUT = TOOLS.parents[1]
CONFIG = TOOLS / "config"
MODULES = TOOLS / "go"


@dataclass(frozen=True)
class Layout:
    cache: Path
    """What was built: it outlives a cluster and is never part of the tree."""
    state: Path
    """One running cluster; its logs stay when it is taken down."""

    @property
    def bin(self) -> Path:
        return self.cache / "bin"

    @property
    def images(self) -> Path:
        return self.cache / "images"

    @property
    def kubeconfig(self) -> Path:
        return self.state / "kubeconfig"

    @property
    def logs(self) -> Path:
        return self.state / "logs"

    @property
    def pids(self) -> Path:
        return self.state / "pids"

    @property
    def secrets(self) -> Path:
        return self.state / "secrets"

    @property
    def ready(self) -> Path:
        """Exists once a cluster was seen to work."""
        return self.state / "ready"

    @property
    def lock(self) -> Path:
        return self.state.with_name(f"{self.state.name}.lock")


def layout(state: Path | None = None, *, alone: bool = False) -> Layout:
    """`alone`: a control plane without a node has a folder of its own, so that both can be up."""
    cache = Path(os.environ.get("FRESHGATE_CLUSTER_CACHE", CHECKOUT / "build" / "cluster")).resolve()
    return Layout(cache=cache, state=(state or cache / ("run-control-plane" if alone else "run")).resolve())
