"""The engine over a real Postgres that misbehaves as real ones do: right answers or clear errors, and nothing lost."""

import asyncio
import json
import time
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from pathlib import Path
from typing import Any, NoReturn

import asyncpg
import pytest
from freshgate_agent import agent
from freshgate_serve import ERAS, corp, served, user
from freshgate_store import connected
from freshgate_world import ANA, SOURCE, STORE, World, configuration, key, source, states

from freshgate_crds.compiled import ClaimMapping, Config, Limits, ObjectMapping, Postgres
from freshgate_service.domain import Reason, SourceState
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
FILL = "INSERT INTO tickets (id, title, body) SELECT n, 'refund ' || n, $2 FROM generate_series(1, $1) n"


class RealWorld(World):
    """A world whose upstream is a database; `sql` is a session of that database's own people."""

    sql: asyncpg.Connection

    def __init__(self, config: Config, dsn: str, move_time: Any, upstream: str) -> None:
        super().__init__(config, dsn, move_time)
        self._upstream = upstream

    @property
    def published(self) -> Published:
        return Published(self.config, {STORE.file_name: self._dsn, SOURCE.file_name: self._upstream})

    def opened(self, holder: str = "one") -> AbstractAsyncContextManager[Engine]:
        return self._opened(Options(holder=holder, runs_loop=False, allow_loopback=True, boottime=self.boottime))

    @asynccontextmanager
    async def _opened(self, options: Options) -> AsyncIterator[Engine]:
        engine = await Engine.open(self.published, options, self.metrics)
        try:
            yield engine
        finally:
            await engine.close()

    async def fill(self, count: int, body: str = "") -> None:
        await self.sql.execute(FILL, count, body)

    async def fault(self, **columns: Any) -> None:
        for column, value in columns.items():
            await self.sql.execute(f"UPDATE faults SET {column} = $1", value)

    async def visited(self) -> SourceState:
        """What is known of the source after the loop's next visit."""
        await self.advance(61)
        await self.loop()
        return (await self.engine.store.source_states())["tickets"]


@asynccontextmanager
async def real_world(dsn: str, move_time: Any, upstream: str | None = None, **changes: Any) -> AsyncIterator[RealWorld]:
    """Store and upstream in one database, where no other is named."""
    postgres = Postgres(dsn=SOURCE, list=LIST, fetch=FETCH)
    config = configuration(source(**{"postgres": postgres, "ttl_seconds": 60.0, **changes}))
    made = RealWorld(config, dsn, move_time, upstream or dsn)
    async with connected(upstream or dsn) as made.sql:
        await made.sql.execute(TICKETS)
        async with made.opened() as made.engine:
            await move_time(dsn, 0.0)
            yield made


@pytest.fixture
async def made(database: str, move_store_time: Any) -> AsyncIterator[RealWorld]:
    async with real_world(database, move_store_time) as made:
        yield made


def remembered(made: World) -> int:
    return len(made.engine.memory.objects)


# --- listings and fetches that go wrong ------------------------------------------------------------------------------


@pytest.mark.promise("FRE-6")
async def test_a_listing_that_breaks_after_its_first_page_deletes_nothing(made: RealWorld):
    await made.fill(1500)
    await made.loop()
    await made.sql.execute("DELETE FROM tickets WHERE id <= 10 OR id > 1490")
    await made.fault(breaks_at=1200)  # a page is a thousand rows
    state = await made.visited()
    assert remembered(made) == 1500
    assert (state.last_error or "").startswith("source_refused: `list` failed on the data")
    await made.fault(breaks_at=None)
    state = await made.visited()
    assert (remembered(made), state.last_error) == (1480, None)


@pytest.mark.promise("FRE-6")
async def test_a_listing_slower_than_its_timeout_is_labelled_and_deletes_nothing(database: str, move_store_time: Any):
    limits = Limits(timeout_seconds=0.2, concurrency=4, requests_per_minute=600, max_objects=20_000)
    async with real_world(database, move_store_time, limits=limits) as made:
        await made.fill(3)
        await made.loop()
        await made.sql.execute("DELETE FROM tickets WHERE id = 1")
        await made.fault(slow_by=60)
        started = time.monotonic()
        state = await made.visited()
        assert time.monotonic() - started < 5
        assert remembered(made) == 3
        assert (state.last_error or "").startswith("source_timeout: no answer within 0.2 s")
        assert states(await made.ask(ANA, "refund")) == {"tickets/2": "refreshed", "tickets/3": "refreshed"}


@pytest.mark.promise("FRE-6")
async def test_a_fetch_that_gives_fewer_rows_than_asked_deletes_those_that_it_lacks(made: RealWorld):
    await made.fill(5)
    await made.loop()
    await made.advance(61)
    await made.sql.execute("DELETE FROM tickets WHERE id IN (2, 4)")
    assert set(states(await made.ask(ANA, "refund"))) == {"tickets/1", "tickets/3", "tickets/5"}
    assert {each.record_id for each in made.engine.memory.objects} == {"1", "3", "5"}


@pytest.mark.promise("FRE-3", "FRE-4", "FRE-6")
async def test_a_source_that_is_gone_for_an_hour_is_labelled_and_then_all_of_it_is_confirmed_again(
    database: str, move_store_time: Any, own_postgres_server: Any
):
    async with real_world(database, move_store_time, own_postgres_server.dsn()) as made:
        await made.fill(3)
        await made.loop()
        before = dict(made.engine.memory.objects)
        await asyncio.to_thread(own_postgres_server.stop)
        for _ in range(60):
            state = await made.visited()
            items = await made.ask(ANA, "refund")
            assert {item.freshness.reason for item in items} == {Reason.SOURCE_UNAVAILABLE}
            assert all(item.content is None for item in items)
            assert (state.last_error or "").startswith("source_unavailable: ")
        assert made.engine.memory.objects == before
        assert made.engine.readers["tickets"].breaker_open

        await asyncio.to_thread(own_postgres_server.start)
        state = await made.visited()
        assert (state.last_error, made.engine.readers["tickets"].breaker_open) == (None, False)
        assert set(states(await made.ask(ANA, "refund")).values()) <= {"fresh", "refreshed"}
        assert {each: one.content_hash for each, one in made.engine.memory.objects.items()} == {
            each: one.content_hash for each, one in before.items()
        }
        assert condensations(made) == 3


def condensations(made: World) -> float:
    lines = made.metrics.render().decode().splitlines()
    return sum(float(line.rpartition(" ")[2]) for line in lines if line.startswith("freshgate_condensations_total{"))


# --- size ------------------------------------------------------------------------------------------------------------

MEGABYTE = 1_000_000
ANSWERED_SECONDS = 30.0
"""Longer than any machine takes to answer while a source is read, shorter than that reading: a hang, not a slow day."""


async def test_twenty_thousand_records_are_remembered_while_questions_are_answered(made: RealWorld):
    await made.fill(20_000, "The customer asks for a refund of the kettle that arrived broken, and is in a hurry. " * 4)
    before = resident()
    backfill = asyncio.create_task(made.loop())
    slowest, asked = 0.0, 0
    while not backfill.done():
        asked_at = time.monotonic()
        items = await made.ask(ANA, "refund kettle")
        slowest, asked = max(slowest, time.monotonic() - asked_at), asked + 1
        assert len(items) == min(10, remembered(made)) or not items
        await asyncio.sleep(0.05)
    await backfill
    assert remembered(made) == 20_000
    stored, _ = await made.engine.store.load()
    assert len(stored) == 20_000
    assert (asked > 20, slowest < ANSWERED_SECONDS) == (True, True)
    assert resident() - before < 200 * MEGABYTE
    [last] = await made.ask(ANA, "20000")
    assert last.key == key("20000")


async def test_texts_of_a_megabyte_are_condensed_and_served_and_hold_up_nobody(made: RealWorld):
    await made.fill(8, "The kettle arrived broken. Refund it, please! " * (MEGABYTE // 46))
    async with longest_pause() as pause:
        await made.loop()
        await made.advance(61)
        items = await made.ask(ANA, "kettle")
    assert {item.freshness.state for item in items} == {"refreshed"}
    assert len(items) == 8
    assert all(len(item.content.summary.split()) <= 200 for item in items if item.content)
    assert pause() < ANSWERED_SECONDS


def resident() -> int:
    """Bytes of this process in memory."""
    return int(Path("/proc/self/statm").read_text().split()[1]) * 4096


@asynccontextmanager
async def longest_pause() -> AsyncIterator[Callable[[], float]]:
    """For how long at most the event loop did nothing else."""
    longest = 0.0

    async def watch() -> NoReturn:
        nonlocal longest
        while True:
            asleep = time.monotonic()
            await asyncio.sleep(0.01)
            longest = max(longest, time.monotonic() - asleep)

    task = asyncio.create_task(watch())
    yield lambda: longest
    task.cancel()


# --- types -----------------------------------------------------------------------------------------------------------

LITERALS = {
    "bit": "1",
    "bool": "true",
    "box": "(1,1),(0,0)",
    "bpchar": "ab  ",
    "bytea": r"\x00ff",
    "char": "x",
    "cidr": "10.0.0.0/8",
    "circle": "<(0,0),1>",
    "date": "infinity",
    "float4": "NaN",
    "float8": "-Infinity",
    "inet": "10.0.0.1/8",
    "int2": "-32768",
    "int4": "7",
    "int8": "9223372036854775807",
    "interval": "1 year -3 days 04:05:06",
    "json": r'{"b": 1e400, "a": [1.50, null], "z": "\u0000"}',
    "jsonb": '{"b": 1.50, "a": {"c": []}}',
    "jsonpath": "$.a",
    "line": "{1,2,3}",
    "lseg": "[(0,0),(1,1)]",
    "macaddr": "08:00:2b:01:02:03",
    "macaddr8": "08:00:2b:01:02:03:04:05",
    "money": "12.5",
    "name": "n",
    "numeric": "NaN",
    "oid": "42",
    "path": "((0,0),(1,1))",
    "pg_lsn": "0/16B3748",
    "point": "(1,2)",
    "polygon": "((0,0),(1,1))",
    "text": 'kettle 東京 \u202e\u200b\x1b[31m "quoted" \\',
    "time": "23:59:60",
    "timestamp": "0001-01-01",
    "timestamptz": "2026-11-30 10:00:00+13",
    "timetz": "10:00+13",
    "tsquery": "a & b",
    "tsvector": "a b",
    "uuid": "0F8FAD5B-D9CB-469F-A165-70867728950E",
    "varbit": "101",
    "varchar": "",
    "xid8": "42",
    "int4range": "[1,5)",
    "int4multirange": "{[1,3),[5,7)}",
    "tstzrange": "[-infinity,2026-11-30 10:00:00+13]",
}
"""Of the types that have one; all others that this Postgres has are there as NULL."""

TYPES = "SELECT typname, typarray <> 0 FROM pg_type WHERE typtype IN ('b', 'r', 'm') AND typcategory <> 'A' ORDER BY 1"


async def test_replay_20_a_row_of_every_type_is_a_valid_answer_at_every_entrance(database: str, move_store_time: Any):
    types = dict(await rows_of(database, TYPES))
    assert set(LITERALS) <= set(types)
    columns = {name: f'{literal(name)}::"{name}"' for name in types}
    columns |= {f"{name}s": f"ARRAY[{columns[name]}]" for name, has_arrays in types.items() if has_arrays}
    select = ", ".join(f'{of} AS "{name}"' for name, of in columns.items())
    fetch = f"SELECT 1 AS id, 'emea' AS region, {select} WHERE 1 = ANY($1)"
    mapping = ObjectMapping(
        title="'kettle'",
        body=(*(f'"{name}"' for name in columns if "json" not in name), "jsonb.b", "json.z"),
        attributes={"region": "region", **{name: f'"{name}"' for name in columns}},
    )
    postgres = Postgres(dsn=SOURCE, list="SELECT 1 AS id", fetch=fetch)
    async with real_world(database, move_store_time, postgres=postgres, object=mapping) as made:
        await made.loop()
        state = (await made.engine.store.source_states())["tickets"]
        # All of it could be read. The one value that no database holds is told of, and nothing depends on it.
        assert (state.last_error or "").startswith(
            'record incomplete: attributes.json: path `"json"`: taken as unknown'
        )
        issuer = corp(claims=ClaimMapping(user="email", groups="groups"))
        async with served(made.engine.pipeline, [issuer]) as service:
            token = user("ana@corp.example", "emea")
            status, _, body = await service.ask("POST", "/api/v1/search", token, json={"query": "kettle"})
            [found] = strictly(body)["results"]
            assert (status, found["id"], found["freshness"]["state"]) == (200, "tickets/1", "fresh")
            assert not set(found["summary"]) & set("\u202e\u200b\x1b\0")
            for era in ERAS:
                async with agent(service.url, era, {"Authorization": f"Bearer {token}"}) as one:
                    answer = await one.call({}, "fetch", id="tickets/1")
                assert strictly(answer.content[0].text)["text"] == found["summary"]


def literal(name: str) -> str:
    return "NULL" if name not in LITERALS else "'" + LITERALS[name].replace("'", "''") + "'"


def strictly(text: str | bytes) -> Any:
    """JSON, without what Python takes besides."""

    def refuse(constant: str) -> NoReturn:
        raise AssertionError(f"{constant} is no JSON")

    return json.loads(text, parse_constant=refuse)


async def rows_of(dsn: str, statement: str) -> list[Any]:
    async with connected(dsn) as connection:
        return list(await connection.fetch(statement))
