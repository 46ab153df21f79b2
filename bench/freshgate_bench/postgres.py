"""The embedded Postgres, as it comes: with fsync, on a Unix socket."""

import asyncio
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from freshgate_service.laptop import postgres


@contextmanager
def server() -> Iterator[str]:
    """Gives the DSN of its database `postgres`; nothing of it stays."""
    with tempfile.TemporaryDirectory(prefix="fgb-", ignore_cleanup_errors=True) as folder:
        Path(folder).chmod(0o755)
        with postgres.running(Path(folder) / "pg") as dsn:
            yield dsn


def database(dsn: str, name: str) -> str:
    return asyncio.run(postgres.database(dsn, name))
