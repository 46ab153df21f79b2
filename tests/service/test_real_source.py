"""The engine over a real Postgres that misbehaves as real ones do: right answers or clear errors, and nothing lost."""

import asyncio
import json
import resource
import time
from collections.abc import AsyncIterator
from contextlib import AbstractAsyncContextManager, aclosing, asynccontextmanager
from typing import Any, NoReturn

import asyncpg
import pytest
from freshgate_agent import agent
from freshgate_serve import ERAS, corp, served, user
from freshgate_world import ANA, SOURCE, STORE, MoveTime, World, configuration, key, source, states

from freshgate_crds.compiled import ClaimMapping, Limits, ObjectMapping, Postgres
from freshgate_service.domain import Reason, State
from freshgate_service.published import Published
from freshgate_service.runtime import Engine, Options

TICKETS = """
CREATE TABLE tickets (
    id int PRIMARY KEY, title text NOT NULL, body text NOT NULL DEFAULT '', region text DEFAULT 'emea',
    owner text DEFAULT 'nobody', version int NOT NULL DEFAULT 1
);
CREATE TABLE faults (breaks_at int, slow_by double precision NOT NULL DEFAULT 0);
INSERT INTO faults DEFAULT VALUES;
"""
LIST = """
WITH faults AS MATERIALIZED (SELECT breaks_at, pg_sleep(slow_by) FROM faults)
SELECT id, CASE WHEN id = breaks_at THEN 1 / (id - id) ELSE version END AS version FROM faults, tickets ORDER BY id
"""
FETCH = "SELECT * FROM tickets WHERE id = ANY($1)"


class RealWorld(World):
    """A world whose one upstream is a database; `sql` is a session of its own people."""

    def __init__(self, config: Any, dsn: str, move_time: MoveTime, upstream: str) -> None:
        super().__init__(config, dsn, move_time)
        self._upstream = upstream

    @property
    def published(self) -> Published:
        return Published(self.config, {STORE.file_name: self._dsn, SOURCE.file_name: self._upstream})

    def opened(self, holder: str = "one") -> AbstractAsyncContextManager[Engine]:
        return self._opened(holder)

    @asynccontextmanager
    async def _opened(self, holder: str) -> AsyncIterator[Engine]:
        options = Options(holder=holder, runs_loop=False, allow_loopback=True, boottime=self.boottime)
        async with aclosing_engine(await Engine.open(self.published, options, self.metrics)) as engine:
            yield engine
