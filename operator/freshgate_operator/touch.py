"""Brings a new revision to pods in seconds: a touched annotation makes a pod's kubelet look at its Secret at once.

One touch can be faster than the kubelet's own news of the Secret, so it is repeated until the pod reports the revision.
What sidecars have loaded is not reported here; they are touched a few times and left to their kubelet then.
"""

import asyncio
from collections.abc import Awaitable, Callable

from freshgate_crds.compiled import Revision
from freshgate_operator.cluster import Cluster
from freshgate_operator.errors import ClusterError
from freshgate_operator.kinds import POD
from freshgate_operator.logs import get_logger
from freshgate_operator.names import INJECTED, TOUCHED
from freshgate_operator.observing import Observer
from freshgate_operator.queue import Key
from freshgate_operator.records import Record, Records
from freshgate_operator.snapshots import is_leaving

FIRST_SECONDS = 0.1
"""For the kubelets to hear of the Secret."""

TICK_SECONDS = 0.5
TICKS_A_TOUCH = 4
MOST_TOUCHES = 30
SIDECAR_TOUCHES = 3

Sleep = Callable[[float], Awaitable[None]]

log = get_logger(__name__)


class Rollouts:
    def __init__(
        self, cluster: Cluster, observer: Observer, records: Records, *, touch: bool, sleep: Sleep = asyncio.sleep
    ) -> None:
        """`touch`: whether pods may be touched; if not, nobody but their kubelets brings them anything."""
        self._cluster = cluster
        self._observer = observer
        self._records = records
        self._may_touch = touch
        self._sleep = sleep
        self._tasks: dict[Key, asyncio.Task[None]] = {}

    def follow(self, record: Record) -> None:
        """Until all its pods have loaded what is published, or for a minute, or until there is another revision."""
        if (known := self._tasks.get(record.key)) is not None:
            known.cancel()
        task = self._tasks[record.key] = asyncio.create_task(self._follow(record), name=f"rollout {record.key}")
        task.add_done_callback(lambda done: self._forget(record.key, done))

    async def close(self) -> None:
        tasks = list(self._tasks.values())
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    def _forget(self, key: Key, done: asyncio.Task[None]) -> None:
        if self._tasks.get(key) is done:
            del self._tasks[key]
        if not done.cancelled() and (error := done.exception()) is not None:
            log.error("rollout_broke", exc_info=error)

    async def _follow(self, record: Record) -> None:
        touches = 0
        for tick in range(TICKS_A_TOUCH * (MOST_TOUCHES - 1)):
            await self._sleep(TICK_SECONDS if tick else FIRST_SECONDS)
            revision = self._revision(record)
            if revision is None:
                return
            try:
                if (tick or record.observation is None) and await self._has_arrived(record, revision):
                    return
                if self._may_touch and (tick == 1 or tick % TICKS_A_TOUCH == 0):
                    touches += 1
                    await self._touch(record, revision, touches)
            except ClusterError as error:
                log.warning("not_followed", exc_info=error)

    def _revision(self, record: Record) -> Revision | None:
        """None where there is nothing to follow any more."""
        publication = record.publication if self._records.get(record.key) is record else None
        return publication.config.revision if publication and publication.config else None

    async def _has_arrived(self, record: Record, revision: Revision) -> bool:
        await self._observer.look(record)
        replicas = record.service.replicas if record.service else 1
        return record.observation is not None and record.observation.has_arrived(revision, replicas)

    async def _touch(self, record: Record, revision: Revision, number: int) -> None:
        names = record.observation.behind(revision) if record.observation else []
        if number <= SIDECAR_TOUCHES:
            names += await self._sidecars(record.key)
        change = {"metadata": {"annotations": {TOUCHED: f"{revision.counter}.{number}"}}}
        touches = (self._cluster.merge(POD, record.key.namespace, name, change) for name in names)
        for result in await asyncio.gather(*touches, return_exceptions=True):
            if isinstance(result, BaseException):
                log.warning("not_touched", exc_info=result)

    async def _sidecars(self, key: Key) -> list[str]:
        pods = await self._cluster.list(POD, key.namespace, labels=f"{INJECTED}={key.workspace}", metadata_only=True)
        return [pod["metadata"]["name"] for pod in pods if not is_leaving(pod)]
