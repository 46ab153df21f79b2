"""Brings the schema up to what this version of the service needs.

Alembic orders the steps and renders their SQL; the service's own driver runs it, in one transaction under a lock, so
that processes which start together do not race. Alembic is imported only where a plain SELECT says that there is
something to do. A schema newer than this service is left alone: steps expand first, and contract only once no version
is left that needs what they remove.
"""

from io import StringIO
from pathlib import Path

import asyncpg

HERE = Path(__file__).parent
NEWEST = max(path.stem.partition("_")[0] for path in HERE.glob("versions/[0-9]*.py"))

SECONDS = 120.0
"""For the wait on another process's migration, and for one step."""


# Both look at the catalog itself: to_regclass may answer from before the lock was waited for.
HAS_SCHEMA = "SELECT EXISTS (SELECT FROM pg_namespace WHERE nspname = 'freshgate')"
HAS_TABLES = """
SELECT EXISTS (
    SELECT FROM pg_class JOIN pg_namespace ON pg_namespace.oid = relnamespace
    WHERE nspname = 'freshgate' AND relname = 'alembic_version')"""


async def migrate(connection: asyncpg.Connection) -> None:
    """Needs a role that may create the schema `freshgate` in its database, or that owns one of this name."""
    if not _is_behind(await _revision(connection)):
        return
    async with connection.transaction():
        await connection.execute("SELECT pg_advisory_xact_lock(hashtext('freshgate migrations'))", timeout=SECONDS)
        revision = await _revision(connection)
        if _is_behind(revision):
            if not await connection.fetchval(HAS_SCHEMA):
                await connection.execute("CREATE SCHEMA freshgate")
            await connection.execute(_render(revision), timeout=SECONDS)


async def _revision(connection: asyncpg.Connection) -> str | None:
    if not await connection.fetchval(HAS_TABLES):
        return None
    revision: str | None = await connection.fetchval("SELECT version_num FROM freshgate.alembic_version")
    return revision


def _is_behind(revision: str | None) -> bool:
    return revision is None or revision < NEWEST


def _render(revision: str | None) -> str:
    """The SQL of all steps after `revision`."""
    from alembic import command
    from alembic.config import Config

    script = StringIO()
    config = Config(output_buffer=script)
    config.set_main_option("script_location", str(HERE))
    config.set_main_option("path_separator", "os")
    command.upgrade(config, f"{revision or 'base'}:head", sql=True)
    return script.getvalue()
