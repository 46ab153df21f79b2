"""What has to be known of the cluster itself: who signs its ServiceAccounts' tokens, and which optional kinds it has.

The keys are public, and any ServiceAccount may read them. They are compiled into what services obey, so that a service
verifies tokens without asking anybody.
"""

import json
from collections.abc import Mapping
from dataclasses import dataclass, field

from freshgate_crds.compile import IssuerKeys
from freshgate_crds.compiled import KUBERNETES_ISSUER
from freshgate_operator.cluster import Cluster
from freshgate_operator.errors import ClusterUnavailable, Forbidden, Missing
from freshgate_operator.kinds import SERVICE_MONITOR, WRITTEN, Kind
from freshgate_operator.logs import get_logger

DISCOVERY = "/.well-known/openid-configuration"
KEYS = "/openid/v1/jwks"

log = get_logger(__name__)


@dataclass(frozen=True, slots=True)
class Facts:
    issuer_keys: Mapping[str, IssuerKeys] = field(default_factory=dict)
    knows_monitors: bool = False


class Surroundings:
    """The facts as they were read last."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster
        self.facts = Facts()

    async def refresh(self) -> bool:
        """Whether something is not as it was. Raises ClusterUnavailable."""
        before = self.facts
        self.facts = Facts(await _keys(self._cluster), await knows(self._cluster, SERVICE_MONITOR))
        return self.facts != before


async def _keys(cluster: Cluster) -> dict[str, IssuerKeys]:
    """None where they may not be read; then the workspaces that need them say so."""
    try:
        issuer = (await cluster.raw(DISCOVERY))["issuer"]
        keys = (await cluster.raw(KEYS))["keys"]
    except (Forbidden, Missing) as error:
        log.warning("cluster_keys_unreadable", reason=error.reason)
        return {}
    # In one order, so that only another key is a change.
    keys = sorted(keys, key=lambda key: str(key.get("kid")))
    return {KUBERNETES_ISSUER: IssuerKeys(issuer, json.dumps({"keys": keys}, sort_keys=True))}


async def knows(cluster: Cluster, kind: Kind) -> bool:
    try:
        found = await cluster.raw(kind.root)
    except Missing:
        return False
    return any(resource["name"] == kind.plural for resource in found["resources"])


async def insist_on_kinds(cluster: Cluster) -> None:
    """Raises ClusterUnavailable where the custom resources are not installed (yet): nobody would watch them."""
    for kind in WRITTEN:
        if not await knows(cluster, kind):
            raise ClusterUnavailable(f"the kind {kind.name} is not known to this cluster; install the CRDs")
