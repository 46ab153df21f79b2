"""How the store is reached: short statements on pooled connections, and one connection that only listens.

Nothing here keeps state in a session, so a pooler may give every statement another one. What goes wrong on the way
becomes StoreUnavailable, whose text never holds anything of the driver's: that may quote the DSN.
"""

import asyncio
import contextlib
from collections.abc import Iterator
from typing import Any

import asyncpg

from freshgate_service.errors import StoreUnavailable

CONNECT_SECONDS = 5.0
STATEMENT_SECONDS = 5.0
CONNECTIONS = 8
"""The most that one process has open at once; it opens them as it needs them."""

RELISTEN_SECONDS = 1.0

_SESSION: dict[str, Any] = {
    "timeout": CONNECT_SECONDS,
    "command_timeout": STATEMENT_SECONDS,
    "statement_cache_size": 0,  # a prepared statement lives in a session, which a pooler may give to somebody else
    "server_settings": {"application_name": "freshgate"},
}


@contextlib.contextmanager
def translated() -> Iterator[None]:
    """Only for blocks that do nothing but speak to Postgres."""
    try:
        yield
    # ValueError: a DSN that cannot be parsed.
    except (OSError, ValueError, asyncpg.PostgresError, asyncpg.InterfaceError, asyncpg.InternalClientError) as error:
        state = getattr(error, "sqlstate", None)
        problem = f"{type(error).__name__} {state}" if state else type(error).__name__
        raise StoreUnavailable(f"the store did not answer: {problem}") from None


def pool(dsn: str) -> asyncpg.Pool:
    """Connects when it is first used."""
    return asyncpg.create_pool(dsn, min_size=0, max_size=CONNECTIONS, reset=_nothing_to_reset, **_SESSION)


async def _nothing_to_reset(_: asyncpg.Connection) -> None:
    """asyncpg would spend a round trip on each return to undo what a session may have set."""


class Listener:
    """Best effort: where notifications are lost, whoever waits for one wakes up at its time limit all the same."""

    def __init__(self, dsn: str, channel: str) -> None:
        self._dsn = dsn
        self._channel = channel
        self._notified = asyncio.Event()
        self._task = asyncio.create_task(self._run(), name="listen")

    async def wait(self, seconds: float) -> None:
        """Until the next notification since the last wait, `seconds` at most."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await self._notified.wait()
        self._notified.clear()

    async def close(self) -> None:
        self._task.cancel()
        await asyncio.wait({self._task})

    async def _run(self) -> None:
        while True:
            with contextlib.suppress(StoreUnavailable), translated():
                await self._listen()
            await asyncio.sleep(RELISTEN_SECONDS)

    async def _listen(self) -> None:
        """Until the connection is lost."""
        lost = asyncio.Event()
        connection = await asyncpg.connect(self._dsn, **_SESSION)
        try:
            connection.add_termination_listener(lambda _: lost.set())
            await connection.add_listener(self._channel, lambda *_: self._notified.set())
            self._notified.set()  # some may have passed before this
            await lost.wait()
        finally:
            connection.terminate()
