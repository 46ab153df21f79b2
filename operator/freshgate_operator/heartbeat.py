"""Proves that the operator hears: it writes a beat through the API and waits to see it through a watch.

A socket that listens proves nothing, and neither does a watch that is merely open. Where no beat came back for too
long the process says that it is not alive, and its kubelet starts another.
"""

import asyncio
from collections.abc import Callable, Mapping
from typing import Any

from freshgate_operator.cluster import Cluster
from freshgate_operator.errors import ClusterError
from freshgate_operator.kinds import LEASE
from freshgate_operator.logs import get_logger
from freshgate_operator.names import LEASE_NAME, MANAGED_BY
from freshgate_operator.snapshots import Clock

SECONDS = 10.0
DEAF_SECONDS = 60.0

log = get_logger(__name__)


class Heartbeat:
    def __init__(
        self, cluster: Cluster, namespace: str, *, holder: str, clock: Clock, now: Callable[[], float]
    ) -> None:
        self._cluster = cluster
        self._namespace = namespace
        self._holder = holder
        self._clock = clock
        self._now = now
        self._seen = now()

    async def run(self) -> None:
        """Until cancelled."""
        while True:
            try:
                await self.beat()
            except ClusterError as error:
                log.warning("no_heartbeat", exc_info=error)
            await asyncio.sleep(SECONDS)

    async def beat(self) -> None:
        """Raises ClusterError."""
        metadata = {"name": LEASE_NAME, "namespace": self._namespace, "labels": MANAGED_BY}
        spec = {
            "holderIdentity": self._holder,
            "leaseDurationSeconds": int(DEAF_SECONDS),
            "renewTime": self._clock().strftime("%Y-%m-%dT%H:%M:%S.%fZ"),
        }
        head = {"apiVersion": LEASE.api_version, "kind": LEASE.name}
        await self._cluster.apply(LEASE, {**head, "metadata": metadata, "spec": spec})

    def see(self, lease: Mapping[str, Any]) -> None:
        """What a watch brought. Somebody else's beat is a second operator's, which must not be."""
        holder = (lease.get("spec") or {}).get("holderIdentity")
        if holder == self._holder:
            self._seen = self._now()
        else:
            log.warning("other_operator", holder=str(holder)[:128])

    def age(self) -> float:
        """Seconds since a beat was seen, or since the start."""
        return self._now() - self._seen

    @property
    def is_heard(self) -> bool:
        return self.age() < DEAF_SECONDS
