"""The demo's system of record: a support desk in a Postgres of its own, which the demo changes, watches and stops."""

import asyncio
import re
from contextlib import ExitStack
from importlib import resources
from pathlib import Path
from typing import Any, Self

import asyncpg

from freshgate_service.laptop import postgres

READ = re.compile(r"^freshgate\b.*\b(?:statement|execute \S+): .*\bFROM (?:tickets|accounts)\b", re.MULTILINE)
"""A line of Postgres's own log: the service read a table of the desk."""

LOGGING = (
    "ALTER SYSTEM SET log_statement = 'all'",
    "ALTER SYSTEM SET log_line_prefix = '%a '",
    "SELECT pg_reload_conf()",
)


class Desk:
    """The desk's server, so that it can be stopped without the store. What is counted are lines of its own log."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._running = ExitStack()
        self.dsn = ""

    async def __aenter__(self) -> Self:
        await self.start()
        await self._fill()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.stop()

    async def start(self) -> None:
        self.dsn = await asyncio.to_thread(self._running.enter_context, postgres.running(self._folder))

    async def stop(self) -> None:
        await asyncio.to_thread(self._running.close)

    async def change(self, statement: str, *arguments: Any) -> None:
        """What people at the desk do; their session is not the service's."""
        connection = await asyncpg.connect(self.dsn, server_settings={"application_name": "desk"})
        try:
            await connection.execute(statement, *arguments)
        finally:
            await connection.close()

    def reads(self) -> int:
        """How often the service has read the desk's tables so far."""
        log = (self._folder / "log").read_text("utf-8", errors="replace")
        return len(READ.findall(log.replace("\n\t", " ")))

    async def _fill(self) -> None:
        """Makes the records anew, and has the server log every statement from now on."""
        await self.change("DROP TABLE IF EXISTS tickets, accounts")
        await self.change(resources.files(__package__).joinpath("desk.sql").read_text("utf-8"))
        for statement in LOGGING:
            await self.change(statement)
