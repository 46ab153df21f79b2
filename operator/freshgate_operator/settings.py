"""What is decided by whoever installs the operator. It comes from the command line; `commands` says what it means."""

import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml

from freshgate_operator.errors import SettingsRefused

POD_FIELDS = frozenset(
    {
        "affinity",
        "imagePullSecrets",
        "nodeSelector",
        "priorityClassName",
        "runtimeClassName",
        "tolerations",
        "topologySpreadConstraints",
    }
)
"""Of a pod's spec, what may be given for all services: where they run, and nothing of what they run."""

_MOUNTED_NAMESPACE = Path("/var/run/secrets/kubernetes.io/serviceaccount/namespace")


@dataclass(frozen=True, slots=True)
class Settings:
    """`namespaces`: those that are served; none given means all of the cluster."""

    image: str
    own_namespace: str
    namespaces: tuple[str, ...] = ()
    image_pull_policy: str = "IfNotPresent"
    touch_pods: bool = False
    pod: Mapping[str, Any] = field(default_factory=dict)
    egress_ports: tuple[int, ...] = ()
    scrape_namespaces: tuple[str, ...] = ()
    monitor_labels: Mapping[str, str] = field(default_factory=dict)
    ops_port: int = 9090
    """Of the services' pods."""

    @property
    def scopes(self) -> tuple[str | None, ...]:
        """What to list: each served namespace, or all at once."""
        return self.namespaces or (None,)

    @property
    def lease_namespace(self) -> str:
        """Where the heartbeat is: in a namespaced install nothing outside of the served namespaces can be watched."""
        return self.namespaces[0] if self.namespaces else self.own_namespace


def own_namespace() -> str:
    """Where this runs, as its pod was told."""
    if named := os.environ.get("POD_NAMESPACE"):
        return named
    return _MOUNTED_NAMESPACE.read_text("utf-8").strip() if _MOUNTED_NAMESPACE.exists() else "default"


def pod_defaults(path: Path) -> Mapping[str, Any]:
    """From a YAML file. Raises SettingsRefused."""
    try:
        given = yaml.safe_load(path.read_text("utf-8")) or {}
    except yaml.YAMLError as error:
        raise SettingsRefused(f"{path}: this is no YAML") from error
    if not isinstance(given, dict) or not given.keys() <= POD_FIELDS:
        raise SettingsRefused(f"{path}: give fields of a pod's spec; allowed are {', '.join(sorted(POD_FIELDS))}")
    return given
