"""Records, batches and a look behind the store, for tests of what is stored."""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from typing import Any

import asyncpg

from freshgate_service.domain import (
    Access,
    Batch,
    Change,
    Condensed,
    Confirmation,
    Lease,
    MemoryObject,
    Name,
    ObjectKey,
    Put,
    Readers,
    Record,
)
from freshgate_service.store import Store

SPEC = "spec-1"


def key(record_id: str | int, source: str = "tickets") -> ObjectKey:
    return ObjectKey(source, str(record_id))


def record(record_id: str | int, content: str = "refund", **attributes: Any) -> Record:
    """`content` is its title and the hash of it, `attributes` are all there is to its access."""
    return Record(
        key=key(record_id),
        title=content,
        body=f"About {content}",
        url=f"https://desk.example/{record_id}",
        access=Access("tickets", attributes, Readers(frozenset({Name("corp", "ana@corp.example")}))),
        content_hash=f"content of {content}",
        access_hash=f"access of {sorted(attributes.items())}",
    )


def put(record_id: str | int, content: str = "refund", version: str | None = None, **attributes: Any) -> Put:
    return Put(record(record_id, content, **attributes), Condensed(f"Summary of {content}", "extractive"), version)


def confirmation(
    record_id: str | int, content: str = "refund", version: str | None = None, **attributes: Any
) -> Confirmation:
    read = record(record_id, content, **attributes)
    return Confirmation(read.key, version, read.content_hash, read.access_hash)


def batch(
    read_started: float,
    *,
    puts: Sequence[Put] = (),
    confirmations: Sequence[Confirmation] = (),
    deletions: Sequence[ObjectKey] = (),
    leases: dict[ObjectKey, Lease] | None = None,
    spec_hash: str = SPEC,
) -> Batch:
    return Batch(read_started, spec_hash, confirmations, puts, deletions, leases or {})


async def stored(store: Store) -> dict[ObjectKey, MemoryObject]:
    objects, _ = await store.load()
    return {one.key: one for one in objects}


def keys(changes: Sequence[Change]) -> list[ObjectKey]:
    return sorted(change.key for change in changes)


@contextlib.asynccontextmanager
async def connected(dsn: str) -> AsyncIterator[asyncpg.Connection]:
    connection = await asyncpg.connect(dsn)
    try:
        yield connection
    finally:
        connection.terminate()
        await asyncio.sleep(0)  # the transport closes on the loop's next turn


async def until(holds: Callable[[], Awaitable[bool]]) -> None:
    """Asks again and again, five seconds at most."""
    async with asyncio.timeout(5):
        while not await holds():
            await asyncio.sleep(0.005)


async def until_one_waits_for_a_lock(connection: asyncpg.Connection) -> None:
    waiting = "SELECT count(*) FROM pg_stat_activity WHERE wait_event_type = 'Lock' AND datname = current_database()"

    async def holds() -> bool:
        return bool(await connection.fetchval(waiting))

    await until(holds)
