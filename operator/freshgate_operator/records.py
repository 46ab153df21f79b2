"""What this process knows of each workspace. All of it can be found out again: nothing is lost with the process."""

import asyncio
import math
from collections.abc import Hashable, Iterator
from dataclasses import dataclass, field
from typing import Any

from freshgate_crds.compile import Outcome
from freshgate_crds.v1alpha1 import workspaces as written
from freshgate_operator.owners import Owner
from freshgate_operator.pods import Observation
from freshgate_operator.publish import Publication
from freshgate_operator.queue import Key

Body = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Problem:
    """Why the pods cannot be brought to what was written. `reason` is in CamelCase; `message` holds no secret."""

    reason: str
    message: str


@dataclass(slots=True)
class Record:
    """`basis` is what it was compiled from when it was last brought all the way. `outcomes` are of all that compiling
    spoke of, `outcome` is its own. `service` is None where the Workspace cannot be read. `versions` are those of its
    children, by kind, when they were last right."""

    owner: Owner
    basis: Hashable
    outcome: Outcome
    outcomes: tuple[Outcome, ...]
    service: written.Service | None
    status: Body
    publication: Publication | None = None
    problem: Problem | None = None
    versions: dict[str, str] = field(default_factory=dict)
    observation: Observation | None = None
    looked: int = 0
    """Rises with each look at its pods."""
    rows_told: float = -math.inf
    """When its rows were written last, in seconds of this process."""
    telling: asyncio.Lock = field(default_factory=asyncio.Lock)

    @property
    def key(self) -> Key:
        return Key(self.owner.namespace, self.owner.name)

    @property
    def to_be_observed(self) -> bool:
        """It has pods, or should have, and nobody looked yet."""
        published = self.publication is not None and self.publication.config is not None
        return published and self.observation is None and self.problem is None and not self.paused

    @property
    def paused(self) -> bool:
        return self.service is not None and self.service.replicas == 0


class Records:
    def __init__(self) -> None:
        self._by_namespace: dict[str, dict[str, Record]] = {}

    def of(self, namespace: str) -> dict[str, Record]:
        return self._by_namespace.setdefault(namespace, {})

    def get(self, key: Key) -> Record | None:
        return self._by_namespace.get(key.namespace, {}).get(key.workspace)

    def forget(self, namespace: str) -> None:
        self._by_namespace.pop(namespace, None)

    def __iter__(self) -> Iterator[Record]:
        return iter([record for records in self._by_namespace.values() for record in records.values()])
