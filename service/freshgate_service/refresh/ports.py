"""What refreshing needs of its surroundings. The runtime fits the store, the sources and the memory to it."""

from collections.abc import AsyncIterator, Awaitable, Callable, Collection, Iterable, Mapping, Sequence
from typing import Protocol

from freshgate_crds import compiled
from freshgate_service.domain import (
    Batch,
    Change,
    Lease,
    Listed,
    MemoryObject,
    ObjectKey,
    Record,
    SourceState,
)
from freshgate_service.errors import SourceError


class Reader(Protocol):
    """One source, guarded and mapped."""

    @property
    def spec(self) -> compiled.Source: ...

    @property
    def page(self) -> int:
        """How many records the loop asks for in one read."""

    @property
    def patience(self) -> float:
        """Seconds after which a read has surely ended."""

    def list(self) -> AsyncIterator[Sequence[Listed]]: ...

    async def fetch(self, record_ids: Sequence[str], *, background: bool) -> Mapping[str, Record | SourceError]: ...


class Journal(Protocol):
    """The store, as far as refreshing writes it."""

    async def claim(self, names: Sequence[str], seconds: float) -> Mapping[str, Lease]: ...

    async def renew(self, leases: Sequence[Lease], seconds: float) -> Sequence[Lease]: ...

    async def release(self, leases: Sequence[Lease]) -> None: ...

    async def write(self, batch: Batch) -> Sequence[Change]: ...

    async def mark_outdated(self, keys: Sequence[ObjectKey], listed_at: float) -> Sequence[Change]: ...

    async def purge_tombstones(self, older_than: float) -> None: ...

    async def source_states(self) -> Mapping[str, SourceState]: ...

    async def save_source_state(self, name: str, state: SourceState) -> None: ...


class Remembered(Protocol):
    """The memory, as far as refreshing looks at it and changes it."""

    def get(self, key: ObjectKey) -> MemoryObject | None: ...

    def keys(self, source: str) -> Collection[ObjectKey]: ...

    def apply(self, change: Change) -> None: ...


Follower = Callable[[], Awaitable[None]]
"""Brings the memory up to what the store holds now."""

Readers = Mapping[str, Reader]


def names_of(keys: Iterable[ObjectKey]) -> dict[str, ObjectKey]:
    """Lease names, one an object."""
    return {f"refresh/{key.text}": key for key in keys}
