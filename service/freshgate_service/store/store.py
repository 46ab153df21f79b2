"""The store: one Postgres that all processes of a workspace share, and the only place where they meet.

Every write is a compare-and-set, every method one short transaction: nothing is locked and none is open while a source
is read. It decides nothing about who may see what or when a record is stale, and it never logs what it holds.
"""

import asyncio
import contextlib
from collections.abc import Sequence
from dataclasses import astuple
from datetime import datetime
from typing import Any, NamedTuple

import asyncpg

from freshgate_crds.compiled import Revision
from freshgate_service.domain import Batch, Change, Lease, MemoryObject, ObjectKey, SourceState
from freshgate_service.errors import CursorLost, StoreUnavailable
from freshgate_service.store import connections, rows, statements
from freshgate_service.store.migrations import migrate
from freshgate_service.store.rows import Cursor

BULK_SECONDS = 60.0
"""For statements that touch a whole source or workspace."""


class WorkspaceKey(NamedTuple):
    """One Postgres may serve many workspaces of many clusters."""

    cluster_uid: str
    namespace: str
    workspace: str


class Store:
    """Times are seconds of the store's clock. Every method raises StoreUnavailable, and what then became of a write is
    unknown; since it is a compare-and-set, it can be tried again."""

    def __init__(self, pool: asyncpg.Pool, listener: connections.Listener, workspace: int, holder: str) -> None:
        self._pool = pool
        self._listener = listener
        self._workspace = workspace
        self._holder = holder

    @classmethod
    async def open(cls, dsn: str, key: WorkspaceKey, *, holder: str) -> "Store":
        """`holder` names this process in leases, for people to read."""
        pool = connections.pool(dsn)
        try:
            with connections.translated():
                await pool
                async with pool.acquire(timeout=connections.CONNECT_SECONDS) as connection:
                    await migrate(connection)
                    await connection.execute(statements.ADD_WORKSPACE, *key)
                    workspace = await connection.fetchval(statements.FIND_WORKSPACE, *key)
        except BaseException:
            pool.terminate()
            raise
        return cls(pool, connections.Listener(dsn, f"freshgate_{workspace}"), workspace, holder)

    async def close(self) -> None:
        await self._listener.close()
        with contextlib.suppress(StoreUnavailable), connections.translated():
            async with asyncio.timeout(connections.CONNECT_SECONDS):
                await self._pool.close()

    async def now(self) -> float:
        [[now]] = await self._fetch(statements.NOW)
        return float(now)

    # following

    async def load(self) -> tuple[list[MemoryObject], Cursor]:
        cursor = await self._cursor()
        # Read after the cursor: what changes in between is here and comes again as a change.
        live = await self._fetch(statements.LOAD, self._workspace, seconds=BULK_SECONDS)
        return [rows.decode_object(row) for row in live], cursor

    async def changes(self, cursor: Cursor) -> tuple[list[Change], Cursor]:
        """What changed since, each object once, in no order, maybe told before. Raises CursorLost."""
        news = await self._fetch(statements.CHANGES, self._workspace, cursor.snapshot, seconds=BULK_SECONDS)
        server, snapshot, lost = news[0][:3] if news else ("", "", True)
        if lost or server != cursor.server:
            raise CursorLost("the store cannot tell any more what was deleted since")
        changed = [row[3:] for row in news if row["source"] is not None]
        return [rows.decode(row) for row in changed], Cursor(server, snapshot)

    async def notified(self, seconds: float) -> None:
        """Returns when something may have changed, after `seconds` at the latest. Never raises."""
        await self._listener.wait(seconds)

    # writing

    async def write(self, batch: Batch) -> list[Change]:
        """Names an object once at most. What is not returned did not apply: a later read stands in the store, its lease
        was lost, or the store holds something else than what was confirmed. Gives its objects' leases back."""
        lines = rows.encode_lines(batch)
        applied = await self._fetch(statements.WRITE, self._workspace, batch.read_started, batch.spec_hash, lines)
        return [rows.decode(row) for row in applied]

    async def mark_outdated(self, keys: Sequence[ObjectKey], listed_at: float) -> list[Change]:
        """Until a read that began after `listed_at` is written."""
        marked = await self._fetch(statements.MARK_OUTDATED, self._workspace, listed_at, rows.encode_keys(keys))
        return [rows.decode(row) for row in marked]

    async def purge_source(self, source: str) -> None:
        """Deletes its objects and what is known of its passes. A read that began before cannot bring one back."""
        await self._fetch(statements.PURGE_SOURCE, self._workspace, source, seconds=BULK_SECONDS)

    async def purge_tombstones(self, older_than: float) -> None:
        """Forgets deletions of more than so many seconds ago, and leases that nobody gave back. A follower that has
        read nothing since then has to load anew."""
        await self._fetch(statements.PURGE_TOMBSTONES, self._workspace, older_than, seconds=BULK_SECONDS)

    # leases

    async def claim(self, names: Sequence[str], seconds: float) -> dict[str, Lease]:
        """Those that nobody holds, this process included."""
        claimed = await self._fetch(statements.CLAIM, self._workspace, self._holder, rows.encode(names), seconds)
        return {name: Lease(name, token) for name, token in claimed}

    async def renew(self, leases: Sequence[Lease], seconds: float) -> list[Lease]:
        """Those that are still ours; they end so many seconds from now."""
        renewed = await self._fetch(statements.RENEW, self._workspace, rows.encode_leases(leases), seconds)
        return [Lease(name, token) for name, token in renewed]

    async def release(self, leases: Sequence[Lease]) -> None:
        if leases:
            await self._fetch(statements.RELEASE, self._workspace, rows.encode_leases(leases))

    # sources and revisions

    async def source_states(self) -> dict[str, SourceState]:
        states = await self._fetch(statements.SOURCE_STATES, self._workspace)
        return {name: SourceState(*state) for name, *state in states}

    async def save_source_state(self, name: str, state: SourceState) -> None:
        await self._fetch(statements.SAVE_SOURCE_STATE, self._workspace, name, *astuple(state))

    async def admit_revision(self, revision: Revision, stamp: datetime) -> Revision:
        """Records a revision and the stamp of its entitlements; returns the newest of all that were recorded."""
        await self._fetch(statements.ADMIT_REVISION, self._workspace, revision.workspace_uid, revision.counter, stamp)
        return await self.highest_revision() or revision

    async def highest_revision(self) -> Revision | None:
        highest = await self._fetch(statements.HIGHEST_REVISION, self._workspace)
        found = [Revision(workspace_uid=uid, counter=counter) for uid, counter in highest if uid is not None]
        return found[0] if found else None

    async def _cursor(self) -> Cursor:
        [row] = await self._fetch(statements.CURSOR)
        return Cursor(*row)

    async def _fetch(self, statement: str, *arguments: Any, seconds: float | None = None) -> list[asyncpg.Record]:
        with connections.translated():
            async with self._pool.acquire(timeout=connections.CONNECT_SECONDS) as connection:
                found: list[asyncpg.Record] = await connection.fetch(statement, *arguments, timeout=seconds)
                return found
