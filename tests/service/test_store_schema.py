"""The schema is brought up to date once, by whoever comes first, and left alone otherwise."""

import asyncio
import subprocess
import sys

import pytest
from alembic.config import Config
from alembic.script import ScriptDirectory
from freshgate_store import batch, connected, put, stored

from freshgate_service.errors import StoreUnavailable
from freshgate_service.store import migrations

OPEN_AND_LOOK = """
import asyncio, sys
from freshgate_service.store import Store, WorkspaceKey

async def main():
    store = await Store.open(sys.argv[1], WorkspaceKey("cluster", "acme", "support"), holder="test")
    await store.close()

asyncio.run(main())
print("alembic" in sys.modules, "sqlalchemy" in sys.modules)
"""


async def test_processes_that_start_together_on_an_empty_database_all_start(open_store, database):
    stores = await asyncio.gather(*(open_store(workspace=str(number % 2)) for number in range(6)))
    await stores[0].write(batch(100.0, puts=[put(1)]))
    assert [len(await stored(store)) for store in stores] == [1, 0, 1, 0, 1, 0]
    async with connected(database) as connection:
        assert await connection.fetchval("SELECT array_agg(version_num) FROM freshgate.alembic_version") == [
            migrations.NEWEST
        ]


async def test_a_start_on_a_schema_that_is_up_to_date_imports_no_migration_tool(open_store, database):
    await open_store()
    looked = await asyncio.to_thread(
        subprocess.run,
        [sys.executable, "-c", OPEN_AND_LOOK, database],
        env={"PYTHONPATH": ":".join(sys.path)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert (looked.stdout, looked.stderr) == ("False False\n", "")


async def test_a_newer_schema_is_left_alone_and_served(open_store, database):
    await open_store()
    async with connected(database) as connection:
        await connection.execute("UPDATE freshgate.alembic_version SET version_num = '9999'")
        store = await open_store()
        await store.write(batch(100.0, puts=[put(1)]))
        assert await connection.fetchval("SELECT version_num FROM freshgate.alembic_version") == "9999"


async def test_a_migration_that_fails_leaves_nothing_half_done(open_store, database):
    async with connected(database) as connection:
        await connection.execute("CREATE SCHEMA freshgate; CREATE TABLE freshgate.sources ()")
        with pytest.raises(StoreUnavailable, match="DuplicateTableError"):
            await open_store()
        assert await connection.fetch(
            "SELECT relname FROM pg_class WHERE relnamespace = 'freshgate'::regnamespace"
        ) == [("sources",)]
        await connection.execute("DROP TABLE freshgate.sources")
    await open_store()


def test_migrations_are_one_line_without_branches_that_ends_with_the_newest():
    config = Config()
    config.set_main_option("script_location", str(migrations.HERE))
    config.set_main_option("path_separator", "os")
    script = ScriptDirectory.from_config(config)
    assert script.get_heads() == [migrations.NEWEST]
    assert [step.revision for step in script.walk_revisions()] == sorted(
        (path.stem.partition("_")[0] for path in migrations.HERE.glob("versions/*.py")), reverse=True
    )
