"""A system of record in Postgres, the store beside it, and an engine on both: what refreshing is measured on."""

import asyncio
import itertools
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass

import asyncpg
from freshgate_world import SOURCE, STORE, allow, configuration, entitlements, group, person, source

from freshgate_bench import postgres
from freshgate_bench.corpus import REGIONS, Entry
from freshgate_crds.compiled import Config, Limits, ObjectMapping, Postgres
from freshgate_service.metrics import Metrics
from freshgate_service.published import Published
from freshgate_service.runtime import Engine, Options

ASKER = person("ana", "support")
NAME = "tickets"
_names = itertools.count(1)

_TABLE = """
CREATE TABLE tickets (id integer PRIMARY KEY, title text, body text, region text, account text);
CREATE TABLE confirmed (id integer PRIMARY KEY, at double precision);
"""


@dataclass(frozen=True)
class Desk:
    """`upstream` and `store` are DSNs, `database` the name of the upstream's, which also has a table `confirmed`, a row
    for each ticket."""

    database: str
    upstream: str
    store: str
    config: Config

    @property
    def published(self) -> Published:
        return Published(self.config, {STORE.file_name: self.store, SOURCE.file_name: self.upstream})

    @asynccontextmanager
    async def engine(self, metrics: Metrics | None = None) -> AsyncIterator[Engine]:
        """Its background loop runs only where it is told to, by `engine.loop.visit`."""
        options = Options(holder="bench", runs_loop=False, allow_loopback=True)
        engine = await Engine.open(self.published, options, metrics or Metrics("bench"))
        try:
            yield engine
        finally:
            await engine.close()


def filled(server: str, records: Sequence[Entry], ttl: float) -> Desk:
    """With these records upstream, and all of them read into the store."""
    name = f"desk{next(_names)}"
    upstream, store = postgres.database(server, name), postgres.database(server, f"{name}_store")
    desk = Desk(name, upstream, store, _config(ttl))
    asyncio.run(_fill(desk, records))
    return desk


async def _fill(desk: Desk, records: Sequence[Entry]) -> None:
    connection = await asyncpg.connect(desk.upstream)
    try:
        await connection.execute(_TABLE)
        rows = [(one.number, one.title, one.body, one.region, one.account) for one in records]
        await connection.copy_records_to_table(NAME, records=rows)
        await connection.copy_records_to_table("confirmed", records=[(one.number, 0.0) for one in records])
        await connection.execute("VACUUM ANALYZE")
    finally:
        await connection.close()
    async with desk.engine() as engine:
        await engine.loop.visit(NAME)
        if len(engine.memory.objects) != len(records):
            raise RuntimeError(f"only {len(engine.memory.objects)} of {len(records)} records were read")


def _config(ttl: float) -> Config:
    fetch = "SELECT id, title, body, region, account FROM tickets WHERE id = ANY($1)"
    spec = source(
        NAME,
        ttl_seconds=ttl,
        postgres=Postgres(dsn=SOURCE, list="SELECT id FROM tickets", fetch=fetch),
        object=ObjectMapping(title="title", body=("body",), attributes={"region": "region", "account": "account"}),
        limits=Limits(timeout_seconds=10.0, concurrency=4, requests_per_minute=1_000_000, max_objects=1_000_000),
    )
    allowed = allow("support", group("support"), region=REGIONS[0], sources=(NAME,))
    return configuration(spec, entitlements=entitlements(allowed))


def marked(records: Sequence[Entry], size: int) -> Iterator[tuple[str, Sequence[Entry]]]:
    """Groups of `size` records that the asker sees, each with a word that only its records have."""
    visible = [record for record in records if record.region == REGIONS[0]]
    for place in range(0, len(visible), size):
        word = f"group{place // size}"
        yield word, [each._replace(title=f"{word} {each.title}") for each in visible[place : place + size]]
