"""A support desk in a Postgres, as the system of record of whole processes.

Its `fetch` takes a lock that a test may hold, so that a read is under way for as long as the test wants.
"""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any

import asyncpg
from freshgate_laptop import until
from freshgate_upstream import ServerLog

SCHEMA = """
CREATE TABLE tickets (id text PRIMARY KEY, subject text NOT NULL, region text, version int NOT NULL DEFAULT 1);
INSERT INTO tickets SELECT 't' || n, 'refund ' || n, 'emea' FROM generate_series(1, 20) n;
INSERT INTO tickets VALUES ('a1', 'refund of a kettle', 'amer');
"""
TICKETS = frozenset(f"tickets/t{n}" for n in range(1, 21))
"""Those of emea."""

SOURCES = """
apiVersion: freshgate.dev/v1alpha1
kind: MemorySource
metadata: {name: tickets}
spec:
  ttl: 1h
  discovery: {interval: 1s, sweep: 30d}
  postgres:
    dsn: {secretKeyRef: {name: desk, key: dsn}}
    list: SELECT id, version FROM tickets
    fetch: SELECT /* read tickets */ t.* FROM pg_advisory_xact_lock_shared(7), tickets t WHERE id = ANY($1)
  object: {title: subject, body: [id], attributes: {region: region}}
"""
WORKSPACE = """
apiVersion: freshgate.dev/v1alpha1
kind: Workspace
metadata: {name: support}
spec:
  sources: [tickets]
  authentication:
    kubernetes: {audience: freshgate}
    oidc: [{name: corp, issuer: https://login.example, audience: freshgate, claims: {user: email, groups: groups}}]
"""
STORE = """\
  store: {dsn: {secretKeyRef: {name: store, key: dsn}}}
"""
POLICIES = """
apiVersion: freshgate.dev/v1alpha1
kind: EntitlementPolicy
metadata: {name: emea}
spec:
  workspaces: [support]
  effect: Allow
  subjects: [{kind: Group, name: emea}]
  rules: [{sources: [tickets], where: [{attribute: region, operator: In, values: [emea]}]}]
"""

_WAITING = """
SELECT count(*) FROM pg_locks JOIN pg_database d ON d.oid = database
WHERE locktype = 'advisory' AND NOT granted AND datname = current_database()
"""


@dataclass
class Desk:
    """`sql` is a session of the desk's own people."""

    dsn: str
    sql: asyncpg.Connection
    log: ServerLog

    @asynccontextmanager
    async def reads_held_up(self) -> AsyncIterator[None]:
        """No read of a ticket ends before this does."""
        await self.sql.execute("SELECT pg_advisory_lock(7)")
        try:
            yield
        finally:
            await self.sql.execute("SELECT pg_advisory_unlock(7)")

    async def under_way(self, reads: int = 1) -> None:
        """Until so many reads are held up."""

        async def waiting() -> bool:
            return int(await self.sql.fetchval(_WAITING)) >= reads

        await until(waiting)

    async def edit(self, *numbers: int, **columns: Any) -> None:
        """Changes tickets, so that the next listing tells of it."""
        names = [f"t{number}" for number in numbers]
        for column, value in columns.items():
            await self.sql.execute(f"UPDATE tickets SET {column} = $2 WHERE id = ANY($1)", names, value)
        await self.sql.execute("UPDATE tickets SET version = version + 1 WHERE id = ANY($1)", names)
