"""Looks at what runs: pods and their reports, and whether the children are still as they were applied.

All of it by asking, every few seconds, so that nothing depends on a watch that may have gone deaf.
"""

import asyncio
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from itertools import chain, count

from freshgate_operator.applying import version
from freshgate_operator.cluster import Body, Cluster
from freshgate_operator.errors import ClusterError
from freshgate_operator.facts import Surroundings
from freshgate_operator.kinds import CHILDREN, POD, SECRET, SERVICE_MONITOR, Kind
from freshgate_operator.logs import get_logger
from freshgate_operator.names import INJECTED, SECRET_TYPE, SERVES
from freshgate_operator.pods import Observation, Reporters, outdated_sidecars, patient
from freshgate_operator.queue import Key, Queue
from freshgate_operator.records import Record, Records
from freshgate_operator.settings import Settings
from freshgate_operator.status import Statuses

SECONDS = 10.0

Versions = dict[str, str]
"""Of a workspace's children, by kind."""

log = get_logger(__name__)


class Observer:
    def __init__(
        self,
        cluster: Cluster,
        settings: Settings,
        *,
        surroundings: Surroundings,
        records: Records,
        reporters: Reporters,
        statuses: Statuses,
        queue: Queue,
    ) -> None:
        self._cluster = cluster
        self._settings = settings
        self._surroundings = surroundings
        self._records = records
        self._reporters = reporters
        self._statuses = statuses
        self._queue = queue
        self._tickets = count(1)
        self._drifts: dict[Key, Versions] = {}

    async def run(self) -> None:
        """Until cancelled."""
        while True:
            try:
                await self.look_at_all()
            except ClusterError as error:
                log.warning("not_observed", exc_info=error)
            await asyncio.sleep(SECONDS)

    async def look_at_all(self) -> None:
        """Raises ClusterError."""
        ticket = next(self._tickets)
        serving, injected, found = await asyncio.gather(self._pods(SERVES), self._pods(INJECTED), self._children())
        records = list(self._records)
        looks = (self._take_in(one, ticket, serving.get(one.key, ()), injected.get(one.key, ())) for one in records)
        for result in await asyncio.gather(*looks, return_exceptions=True):
            if isinstance(result, BaseException):
                if not isinstance(result, ClusterError):
                    raise result
                log.warning("not_observed", exc_info=result)
        for record in records:
            self._mark_drift(record, found.get(record.key, {}))

    async def look(self, record: Record) -> None:
        """At one workspace's pods alone. Raises ClusterError."""
        ticket, key = next(self._tickets), record.key
        serving, injected = await asyncio.gather(
            self._cluster.list(POD, key.namespace, labels=f"{SERVES}={key.workspace}"),
            self._cluster.list(POD, key.namespace, labels=f"{INJECTED}={key.workspace}"),
        )
        await self._take_in(record, ticket, serving, injected)

    async def _take_in(self, record: Record, ticket: int, serving: Iterable[Body], injected: Iterable[Body]) -> None:
        if record.publication is not None:
            pods = await self._reporters.look(serving, record.publication.scrape_token)
            if ticket > record.looked:  # else somebody who began later has looked already
                record.looked = ticket
                before = record.observation.pods if record.observation else ()
                sidecars = outdated_sidecars(injected, self._settings.image)
                record.observation = Observation(patient(pods, before), sidecars)
        await self._statuses.tell_workspace(record)

    # drift

    def _mark_drift(self, record: Record, found: Versions) -> None:
        """Once for each drift: what cannot be put right is tried again by the queue's own measure."""
        if not record.versions or found == record.versions:
            self._drifts.pop(record.key, None)
        elif self._drifts.get(record.key) != found:
            self._drifts[record.key] = found
            self._queue.mark(record.key)

    async def _children(self) -> dict[Key, Versions]:
        kinds = (*CHILDREN, SERVICE_MONITOR) if self._surroundings.facts.knows_monitors else CHILDREN
        lists = [self._metadata(kind, labels=SERVES) for kind in kinds]
        lists.append(self._metadata(SECRET, labels=SERVES, fields=f"type={SECRET_TYPE}"))
        found: defaultdict[Key, Versions] = defaultdict(dict)
        for kind, bodies in await asyncio.gather(*lists):
            for key, body in _keyed(bodies, SERVES):
                found[key][kind.name] = version(body)
        return found

    async def _metadata(self, kind: Kind, *, labels: str, fields: str = "") -> tuple[Kind, list[Body]]:
        lists = (
            self._cluster.list(kind, scope, labels=labels, fields=fields, metadata_only=True)
            for scope in self._settings.scopes
        )
        return kind, list(chain.from_iterable(await asyncio.gather(*lists)))

    async def _pods(self, label: str) -> Mapping[Key, list[Body]]:
        lists = (self._cluster.list(POD, scope, labels=label) for scope in self._settings.scopes)
        found: defaultdict[Key, list[Body]] = defaultdict(list)
        for key, pod in _keyed(chain.from_iterable(await asyncio.gather(*lists)), label):
            found[key].append(pod)
        return found


def _keyed(bodies: Iterable[Body], label: str) -> Iterator[tuple[Key, Body]]:
    for body in bodies:
        metadata = body["metadata"]
        yield Key(metadata["namespace"], metadata["labels"][label]), body
