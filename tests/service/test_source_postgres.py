"""The Postgres source against a real Postgres."""

import asyncio
import contextlib
import json
import socket
import ssl
import traceback
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Generator, Mapping, Sequence
from contextlib import asynccontextmanager
from datetime import UTC, datetime, timedelta
from ipaddress import ip_address
from pathlib import Path
from typing import Any, TypeVar

import asyncpg
import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec

from freshgate_crds import compiled
from freshgate_service.domain import Listed
from freshgate_service.errors import (
    RecordMalformed,
    SourceError,
    SourceRefused,
    SourceTimeout,
    SourceUnavailable,
)
from freshgate_service.sources.addresses import permitted
from freshgate_service.sources.postgres import MAX_RECORD_BYTES, PAGE, PostgresSource

T = TypeVar("T")
NORTHWIND = Path(__file__).parents[3] / "shared" / "data" / "northwind" / "northwind.sql"

LIST = "SELECT id, version FROM tickets"
FETCH = "SELECT * FROM tickets WHERE id = ANY($1)"
TICKETS = """
CREATE TABLE tickets (id int PRIMARY KEY, subject text, version int NOT NULL DEFAULT 1);
INSERT INTO tickets (id, subject) SELECT n, 'subject ' || n FROM generate_series(1, {count}) n;
"""

Open = Callable[..., PostgresSource]


@pytest.fixture
async def sql(database: str) -> AsyncIterator[asyncpg.Connection]:
    """The upstream's own connection."""
    connection = await asyncpg.connect(database)
    yield connection
    await connection.close()


@pytest.fixture
async def opened(database: str) -> AsyncIterator[Open]:
    """Makes sources and closes them afterwards."""
    sources: list[PostgresSource] = []

    def make(listing: str = LIST, fetch: str = FETCH, *, dsn: str = database, **options: Any) -> PostgresSource:
        spec = source_spec(listing, fetch, options.pop("concurrency", 4), options.pop("max_objects", 20_000))
        source = PostgresSource(spec, dsn, **({"timeout": 10.0, "allow_loopback": True} | options))
        sources.append(source)
        return source

    yield make
    for source in sources:
        await source.close()


def source_spec(listing: str, fetch: str, concurrency: int, max_objects: int) -> compiled.Source:
    return compiled.Source(
        name="tickets",
        ttl_seconds=300.0,
        discovery_interval_seconds=60.0,
        sweep_seconds=3600.0,
        postgres=compiled.Postgres(dsn=compiled.Credential(secret="s", key="dsn"), list=listing, fetch=fetch),
        object=compiled.ObjectMapping(title="subject", body=("subject",)),
        condense_max_words=100,
        limits=compiled.Limits(
            timeout_seconds=10.0, concurrency=concurrency, requests_per_minute=600, max_objects=max_objects
        ),
        spec_hash="hash",
    )


async def listed(source: PostgresSource) -> list[Listed]:
    return [item async for page in source.list() for item in page]


async def fetched(source: PostgresSource, record_id: str) -> Any:
    return (await source.fetch([record_id])).get(record_id)


async def eventually(holds: Callable[[], Awaitable[bool]]) -> None:
    async with asyncio.timeout(5):
        while not await holds():
            await asyncio.sleep(0.01)


# --- listing -----------------------------------------------------------------------------------------------------


async def test_a_listing_of_20000_records_comes_whole_and_in_pages(sql: asyncpg.Connection, opened: Open):
    await sql.execute(TICKETS.format(count=20_000))
    pages = [page async for page in opened(LIST + " ORDER BY id").list()]
    assert max(map(len, pages)) == PAGE
    assert [item.record_id for page in pages for item in page] == [str(n) for n in range(1, 20_001)]
    assert {item.version for page in pages for item in page} == {"1"}


@pytest.mark.parametrize(
    "statement",
    ["SELECT id FROM tickets;", "SELECT id FROM tickets -- all of them", "TABLE tickets ;\n", "VALUES_"],
)
async def test_a_listing_may_be_written_as_psql_takes_it(sql: asyncpg.Connection, opened: Open, statement: str):
    await sql.execute(TICKETS.format(count=2))
    statement = statement.replace("VALUES_", "SELECT * FROM (VALUES (1), (2)) AS known (id)")
    assert {item.record_id for item in await listed(opened(statement))} == {"1", "2"}


async def test_without_a_version_column_nothing_has_a_version(sql: asyncpg.Connection, opened: Open):
    await sql.execute(TICKETS.format(count=1))
    assert await listed(opened("SELECT id FROM tickets")) == [Listed("1", None)]


async def test_versions_are_the_same_text_in_any_time_zone_and_across_a_change_of_clocks_replay_19(
    sql: asyncpg.Connection, opened: Open, database: str
):
    await sql.execute("CREATE TABLE changes (id int, naive timestamp, aware timestamptz)")
    # 02:30 happens twice in Berlin on this day.
    await sql.execute("INSERT INTO changes VALUES (1, '2026-10-25 02:30', '2026-10-25 00:30Z')")
    await sql.execute("INSERT INTO changes VALUES (2, '2026-10-25 02:30', '2026-10-25 01:30Z')")
    name = database.rsplit("/", 1)[1]
    seen = []
    for zone in ("UTC", "Europe/Berlin", "Pacific/Tongatapu"):  # the last is UTC+13
        await sql.execute(f"ALTER DATABASE {name} SET timezone = '{zone}'")
        for column in ("naive", "aware"):
            statement = f"SELECT id, {column} AS version FROM changes ORDER BY id"
            seen.append([item.version for item in await listed(opened(statement))])
    assert seen[0::2] == [["2026-10-25 02:30:00"] * 2] * 3
    assert seen[1::2] == [["2026-10-25 00:30:00+00", "2026-10-25 01:30:00+00"]] * 3


@pytest.mark.promise("FRE-6")
async def test_a_listing_that_breaks_half_way_raises_and_never_ends_like_a_short_one(
    sql: asyncpg.Connection, opened: Open
):
    await sql.execute(TICKETS.format(count=3 * PAGE))
    pages = opened().list()
    assert len(await anext(pages)) == PAGE
    await sql.execute("SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE application_name = 'freshgate'")
    with pytest.raises(SourceUnavailable):
        await anext(pages)


@pytest.mark.promise("FRE-6")
async def test_a_listing_of_more_than_max_objects_raises(sql: asyncpg.Connection, opened: Open):
    await sql.execute(TICKETS.format(count=11))
    with pytest.raises(SourceRefused, match=r"limits\.maxObjects \(10\)"):
        await listed(opened(max_objects=10))
    assert len(await listed(opened(max_objects=11))) == 11


@pytest.mark.promise("FRE-6")
@pytest.mark.parametrize(
    ("statement", "text"),
    [
        ("SELECT NULL::int AS id", "column `id` is NULL"),
        ("SELECT 1 AS id UNION ALL SELECT 1", "column `id` has the same value in two rows"),
        (f"SELECT n % {PAGE + 1} AS id FROM generate_series(1, {PAGE + 1} + 1) n", "the same value in two rows"),
    ],
)
async def test_a_listing_with_null_or_repeated_ids_raises(opened: Open, statement: str, text: str):
    with pytest.raises(RecordMalformed, match=text):
        await listed(opened(statement))


async def test_a_listing_slower_than_its_timeout_is_a_timeout(opened: Open):
    with pytest.raises(SourceTimeout):
        await listed(opened("SELECT 1 AS id FROM pg_sleep(30)", timeout=0.1))


async def test_a_listing_left_early_gives_its_connection_back(sql: asyncpg.Connection, opened: Open):
    await sql.execute(TICKETS.format(count=2 * PAGE))
    source = opened(concurrency=1)
    pages = source.list()
    await anext(pages)
    await pages.aclose()
    assert set(await source.fetch(["1"])) == {"1"}


# --- fetching ----------------------------------------------------------------------------------------------------


async def test_many_ids_are_one_statement_and_come_back_in_the_order_asked_for(sql: asyncpg.Connection, opened: Open):
    await sql.execute(TICKETS.format(count=10))
    source = opened(fetch="SELECT id, cardinality($1::int[]) AS asked FROM tickets WHERE id = ANY($1) ORDER BY id")
    ids = [str(n) for n in range(10, 0, -1)]
    found = await source.fetch(ids)
    assert list(found) == ids
    assert all(record["asked"] == 10 for record in found.values())


@pytest.mark.promise("FRE-6")
async def test_a_record_that_is_gone_is_absent_and_the_others_are_there(sql: asyncpg.Connection, opened: Open):
    await sql.execute(TICKETS.format(count=3))
    await sql.execute("DELETE FROM tickets WHERE id = 2")
    assert set(await opened().fetch(["1", "2", "3"])) == {"1", "3"}


@pytest.mark.parametrize(
    ("column", "stored", "no_ids"),
    [
        ("text", "a b/c,d", ["", "a\0b", "\ud800", "A b/c,d"]),
        ("varchar(20)", "Straße", ["strasse"]),
        ("char(8)", "ab", ["ab ", "ab      "]),
        ("uuid", "0f8fad5b-d9cb-469f-a165-70867728950e", ["0F8FAD5B-D9CB-469F-A165-70867728950E", "nonsense"]),
        ("smallint", "-7", ["70000", "-07"]),
        ("int", "42", ["042", "+42", " 42", "42 ", "4_2", "٤٢", "99999999999", "42.0", "x", ""]),
        ("bigint", "9223372036854775807", ["9223372036854775808", "9" * 5000]),
    ],
)
async def test_ids_are_text_and_what_is_no_value_of_their_type_names_no_record(
    sql: asyncpg.Connection, opened: Open, column: str, stored: str, no_ids: Sequence[str]
):
    await sql.execute(f"CREATE TABLE tickets (id {column}, version int)")
    await sql.execute(f"INSERT INTO tickets SELECT $1::text::{column}, 1", stored)
    source = opened()
    [item] = await listed(source)
    assert set(await source.fetch([*no_ids, item.record_id])) == {stored}


@pytest.mark.parametrize("column", ["numeric", "date", "citext", "mood", "name"])
async def test_ids_of_other_types_are_refused_by_name(sql: asyncpg.Connection, opened: Open, column: str):
    await sql.execute(f"CREATE EXTENSION citext; CREATE TYPE mood AS ENUM ('sad'); CREATE TABLE tickets (id {column})")
    with pytest.raises(SourceRefused, match=rf"\$1 must be an array of ids .* here it is .*{column}"):
        await opened().fetch(["1"])


async def test_rows_that_were_not_asked_for_are_refused(sql: asyncpg.Connection, opened: Open):
    await sql.execute("CREATE TABLE tickets (id text, number int); INSERT INTO tickets VALUES ('42', 1), ('1', 2)")
    with pytest.raises(SourceRefused, match="not asked for"):
        await opened(fetch="SELECT * FROM tickets WHERE number = ANY($1)").fetch(["1"])
    with pytest.raises(SourceRefused, match="not asked for"):
        await opened(fetch="SELECT NULL AS id FROM tickets WHERE id = ANY($1)").fetch(["1"])


async def test_a_record_in_two_rows_fails_alone(sql: asyncpg.Connection, opened: Open):
    await sql.execute("CREATE TABLE tickets (id int); INSERT INTO tickets VALUES (1), (2), (2), (2)")
    found = await opened().fetch(["1", "2"])
    assert found["1"] == {"id": 1}
    assert isinstance(found["2"], RecordMalformed)
    assert "more than one row" in str(found["2"])


async def test_texts_of_1_mb_come_whole_though_a_batch_is_larger_than_one_answer(sql: asyncpg.Connection, opened: Open):
    await sql.execute("CREATE TABLE tickets (id int, text text)")
    await sql.execute("INSERT INTO tickets SELECT n, repeat(md5(n::text), 32 * 1024) FROM generate_series(1, 18) n")
    found = await opened().fetch([str(n) for n in range(1, 19)])
    assert [len(record["text"]) for record in found.values()] == [1024 * 1024] * 18


async def test_a_record_that_is_too_large_fails_alone(sql: asyncpg.Connection, opened: Open):
    await sql.execute("CREATE TABLE tickets (id int, text text)")
    await sql.execute(f"INSERT INTO tickets VALUES (1, 'small'), (2, repeat('x', {MAX_RECORD_BYTES})), (3, 'small')")
    found = await opened().fetch(["1", "2", "3"])
    assert isinstance(found["2"], RecordMalformed)
    assert [found["1"]["text"], found["3"]["text"]] == ["small", "small"]


async def test_what_is_nested_too_deeply_fails_alone(sql: asyncpg.Connection, opened: Open):
    await sql.execute("CREATE TABLE tickets (id int, tree json)")
    await sql.execute("INSERT INTO tickets VALUES (1, (repeat('[', 3000) || repeat(']', 3000))::json), (2, '[]')")
    found = await opened().fetch(["1", "2"])
    assert isinstance(found["1"], RecordMalformed)
    assert found["2"] == {"id": 2, "tree": []}


async def test_text_that_is_not_utf_8_is_a_malformed_record(
    postgres_server: Any, database: str, sql: asyncpg.Connection, opened: Open
):
    name = database.rsplit("/", 1)[1] + "_ascii"
    await sql.execute(f"CREATE DATABASE {name} TEMPLATE template0 ENCODING SQL_ASCII LOCALE_PROVIDER libc LOCALE 'C'")
    source = opened(fetch=r"SELECT 1 AS id, E'\xff' AS text WHERE 1 = ANY($1)", dsn=postgres_server.dsn(name))
    with pytest.raises(RecordMalformed, match="22021"):
        await source.fetch(["1"])
    await source.close()
    await sql.execute(f"DROP DATABASE {name} WITH (FORCE)")


# --- types -------------------------------------------------------------------------------------------------------

# All but xml: the embedded Postgres is built without it.
TYPES: Mapping[str, tuple[str, Any]] = {
    "smallint": ("(-32768)::smallint", -32768),
    "bigint": ("9223372036854775807", 9223372036854775807),
    "numeric_exact": ("12345678901234567890.123456789::numeric", "12345678901234567890.123456789"),
    "numeric_as_float": ("18.40::numeric", 18.4),
    "numeric_as_integer": ("1e20::numeric", 100000000000000000000),
    "numeric_nan": ("'NaN'::numeric", "NaN"),
    "numeric_infinity": ("'-Infinity'::numeric", "-Infinity"),
    "numeric_long": ("(repeat('9', 5000))::numeric", "9" * 5000),
    "real": ("0.1::real", 0.1),
    "double": ("0.1::float8 + 0.2::float8", 0.30000000000000004),
    "double_nan": ("'NaN'::float8", "NaN"),
    "double_infinity": ("'Infinity'::float8", "Infinity"),
    "money": ("'12.5'::float8::numeric::money", "$12.50"),
    "boolean": ("true", True),
    "nothing": ("NULL::text", None),
    "text": ("E'東京 \\u200b\\n\"quoted\" \\\\'", '東京 \u200b\n"quoted" \\'),
    "padded": ("'ab'::char(4)", "ab  "),
    "single": ("'x'::\"char\"", "x"),
    "name": ("'n'::name", "n"),
    "bytea": ("'\\x00ff'::bytea", "\\x00ff"),
    "date": ("'2026-11-30'::date", "2026-11-30"),
    "date_infinity": ("'infinity'::date", "infinity"),
    "date_bc": ("'0044-03-15 BC'::date", "0044-03-15 BC"),
    "time": ("'23:59:60'::time", "24:00:00"),
    "timetz": ("'10:00+13'::timetz", "10:00:00+13"),
    "timestamp": ("'2026-11-30 10:00:00.5'::timestamp", "2026-11-30T10:00:00.5"),
    "timestamptz": ("'2026-11-30 10:00:00+13'::timestamptz", "2026-11-29T21:00:00+00:00"),
    "timestamp_year_1": ("'0001-01-01'::timestamp", "0001-01-01T00:00:00"),
    "timestamptz_infinity": ("'-infinity'::timestamptz", "-infinity"),
    "timestamp_far": ("'294276-12-31'::timestamp", "294276-12-31T00:00:00"),
    "interval": ("'1 year -3 days 04:05:06'::interval", "1 year -3 days +04:05:06"),
    "uuid": ("'0F8FAD5B-D9CB-469F-A165-70867728950E'::uuid", "0f8fad5b-d9cb-469f-a165-70867728950e"),
    "json": ('\'{"b": 1e400, "a": [1.50, null], "z": "\\u0000"}\'::json', {"b": "1e400", "a": [1.5, None], "z": "\0"}),
    "jsonb": ('\'{"b": 1.50, "a": {"c": []}}\'::jsonb', {"a": {"c": []}, "b": 1.5}),
    "array": ("ARRAY[1, NULL, 3]", [1, None, 3]),
    "array_empty": ("'{}'::text[]", []),
    "array_of_arrays": ("ARRAY[[1, 2], [3, 4]]", [[1, 2], [3, 4]]),
    "array_of_times": ("ARRAY['infinity'::timestamptz]", ["infinity"]),
    "inet": ("'10.0.0.1/8'::inet", "10.0.0.1/8"),
    "cidr": ("'10.0.0.0/8'::cidr", "10.0.0.0/8"),
    "macaddr": ("'08:00:2b:01:02:03'::macaddr", "08:00:2b:01:02:03"),
    "macaddr8": ("'08:00:2b:01:02:03:04:05'::macaddr8", "08:00:2b:01:02:03:04:05"),
    "bits": ("B'101'", "101"),
    "varbits": ("B'1'::varbit", "1"),
    "range": ("'[1,5)'::int4range", "[1,5)"),
    "multirange": ("'{[1,3),[5,7)}'::int4multirange", "{[1,3),[5,7)}"),
    "point": ("point(1, 2)", "(1,2)"),
    "line": ("'{1,2,3}'::line", "{1,2,3}"),
    "lseg": ("'[(0,0),(1,1)]'::lseg", "[(0,0),(1,1)]"),
    "box": ("'(1,1),(0,0)'::box", "(1,1),(0,0)"),
    "path": ("'((0,0),(1,1))'::path", "((0,0),(1,1))"),
    "polygon": ("'((0,0),(1,1))'::polygon", "((0,0),(1,1))"),
    "circle": ("'<(0,0),1>'::circle", "<(0,0),1>"),
    "tsvector": ("to_tsvector('simple', 'b a')", "'a':2 'b':1"),
    "tsquery": ("'a & b'::tsquery", "'a' & 'b'"),
    "oid": ("42::oid", "42"),
    "regclass": ("'pg_class'::regclass", "pg_class"),
    "pg_lsn": ("'0/16B3748'::pg_lsn", "0/16B3748"),
    "xid8": ("'42'::xid8", "42"),
    "jsonpath": ("'$.a'::jsonpath", '$."a"'),
    "void": ("pg_notify('nobody', '')", ""),
    "row": ("ROW(1, 'a', NULL)", {"f1": 1, "f2": "a", "f3": None}),
    "enum": ("'sad'::mood", "sad"),
    "domain": ("7::positive", 7),
    "composite": ("ROW('x', ARRAY[1])::pair", {"label": "x", "parts": [1]}),
    "hstore": ("'a=>1, b=>NULL'::hstore", {"a": "1", "b": None}),
    "citext": ("'Ana'::citext", "Ana"),
    "vector": ("'[1,2.5]'::vector", "[1,2.5]"),
    "ltree": ("'a.b'::ltree", "a.b"),
    "select": ("7", 7),  # a column named like a keyword
    "freshgate_row": ("1", 1),
    "record": ("2", 2),
}
OWN_TYPES = """
CREATE EXTENSION hstore; CREATE EXTENSION citext; CREATE EXTENSION ltree; CREATE EXTENSION vector;
CREATE TYPE mood AS ENUM ('sad'); CREATE DOMAIN positive AS int CHECK (VALUE > 0);
CREATE TYPE pair AS (label text, parts int[]);
"""


async def test_every_type_in_one_row_becomes_json_and_the_same_each_time_replay_20(
    sql: asyncpg.Connection, opened: Open, database: str
):
    await sql.execute(OWN_TYPES)
    columns = ", ".join(f'{expression} AS "{name}"' for name, (expression, _) in TYPES.items())
    source = opened(fetch=f"SELECT 1 AS id, {columns} WHERE 1 = ANY($1)")
    record = await fetched(source, "1")
    assert record == {"id": 1} | {name: expected for name, (_, expected) in TYPES.items()}
    assert {name: type(value) for name, value in record.items()} == {"id": int} | {
        name: type(expected) for name, (_, expected) in TYPES.items()
    }
    text = json.dumps(record, allow_nan=False)
    for setting in (
        "timezone = 'Pacific/Tongatapu'",
        "datestyle = 'German'",
        "intervalstyle = 'iso_8601'",
        "bytea_output = 'escape'",
        "extra_float_digits = -5",
    ):
        await sql.execute(f"ALTER DATABASE {database.rsplit('/', 1)[1]} SET {setting}")
    again = await fetched(opened(fetch=f"SELECT 1 AS id, {columns} WHERE 1 = ANY($1)"), "1")
    assert json.dumps(again, allow_nan=False) == text


# --- read only, and nothing left behind --------------------------------------------------------------------------


@pytest.mark.parametrize(
    "statement",
    [
        "SELECT write() AS id",
        "SELECT nextval('numbers') AS id",
        "SELECT set_config('transaction_read_only', 'off', true)::text || write() AS id",
        "DELETE FROM tickets RETURNING id",
        "WITH gone AS (DELETE FROM tickets RETURNING id) SELECT id FROM gone",
        "SELECT 1 AS id; DELETE FROM tickets",
        "COMMIT",
    ],
)
async def test_no_statement_of_a_source_can_write(sql: asyncpg.Connection, opened: Open, statement: str):
    await sql.execute(TICKETS.format(count=1))
    await sql.execute("CREATE SEQUENCE numbers")
    await sql.execute("CREATE FUNCTION write() RETURNS int LANGUAGE sql AS 'DELETE FROM tickets; SELECT 1'")
    with pytest.raises(SourceRefused):
        await listed(opened(statement))
    assert await sql.fetchval("SELECT count(*) FROM tickets") == 1


async def test_what_a_statement_sets_is_gone_with_its_transaction(sql: asyncpg.Connection, opened: Open):
    statement = "SELECT current_setting('work_mem') AS id, set_config('work_mem', '7MB', false) AS version"
    source = opened(statement, concurrency=1)
    [before] = await listed(source)
    [after] = await listed(source)
    assert before.record_id == after.record_id != "7MB"


async def test_it_is_seen_in_the_database_by_name(sql: asyncpg.Connection, opened: Open):
    [item] = await listed(opened("SELECT current_setting('application_name') AS id"))
    assert item.record_id == "freshgate"


# --- cancelling (replay 15) --------------------------------------------------------------------------------------


class Cancelling:
    """Awaits a coroutine and cancels the task at its nth suspension."""

    def __init__(self, coroutine: Coroutine[Any, Any, T], at: int) -> None:
        self._coroutine, self._at = coroutine, at
        self.suspended = 0

    def __await__(self) -> Generator[Any, Any, T]:
        resume: Callable[[], Any] = lambda: self._coroutine.send(None)  # noqa: E731
        while True:
            try:
                waiting = resume()
            except StopIteration as end:
                return end.value  # type: ignore[no-any-return]  # StopIteration is not generic
            self.suspended += 1
            if self.suspended == self._at:
                task = asyncio.current_task()
                assert task is not None
                task.cancel()
            try:
                yield waiting
            except BaseException as error:  # noqa: BLE001 - handed on to the coroutine
                resume = lambda error=error: self._coroutine.throw(error)  # noqa: E731
            else:
                resume = lambda: self._coroutine.send(None)  # noqa: E731


async def cancelled_at(coroutine: Coroutine[Any, Any, T], at: int) -> bool:
    """Whether it came so far."""

    async def run() -> None:
        await Cancelling(coroutine, at)

    task = asyncio.create_task(run())
    await asyncio.wait({task})
    return task.cancelled()


@pytest.mark.parametrize("warm", [False, True])
async def test_a_read_cancelled_at_any_await_leaves_nothing_to_the_next_one_replay_15(
    sql: asyncpg.Connection, opened: Open, warm: bool
):
    await sql.execute(TICKETS.format(count=2))
    awaits = 0
    while True:
        source = opened(concurrency=1)
        if warm:
            await source.fetch(["2"])
        if not await cancelled_at(source.fetch(["1"]), awaits + 1):
            break
        awaits += 1
        assert await source.fetch(["2"]) == {"2": {"id": 2, "subject": "subject 2", "version": 1}}
        await source.close()
    assert awaits >= 5

    async def nothing_is_left() -> bool:
        left = "SELECT count(*) FROM pg_stat_activity WHERE application_name = 'freshgate' AND state <> 'idle'"
        return await sql.fetchval(left) == 0

    await eventually(nothing_is_left)


async def test_a_listing_cancelled_at_any_await_leaves_nothing_to_the_next_read_replay_15(
    sql: asyncpg.Connection, opened: Open
):
    await sql.execute(TICKETS.format(count=PAGE + 1))
    awaits = 0
    source = opened(concurrency=1)
    while await cancelled_at(listed(source), awaits + 1):
        awaits += 1
        assert set(await source.fetch(["2"])) == {"2"}
    assert awaits >= 6


# --- errors ------------------------------------------------------------------------------------------------------


Serve = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]


@asynccontextmanager
async def serving(serve: Serve) -> AsyncIterator[int]:
    """A server on a port of this host, whose connections have all ended when it has."""
    tasks: list[asyncio.Task[None]] = []

    async def attend(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(OSError, asyncio.IncompleteReadError):
            await serve(reader, writer)
        writer.close()
        with contextlib.suppress(OSError):
            await writer.wait_closed()

    def connected(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        tasks.append(asyncio.create_task(attend(reader, writer)))

    server = await asyncio.start_server(connected, "127.0.0.1", 0)
    async with server:
        yield server.sockets[0].getsockname()[1]
    async with asyncio.timeout(5):
        await asyncio.gather(*tasks)


@pytest.mark.parametrize(
    ("statement", "text"),
    [
        ("SELEC id FROM tickets WHERE 1 = ANY($1)", r'syntax error at or near "SELEC" \(42601\)'),
        ("SELECT id FROM nowhere WHERE 1 = ANY($1)", r'relation "nowhere" does not exist \(42P01\)'),
        ("SELECT nothing, id FROM tickets WHERE 1 = ANY($1)", r'column "nothing" does not exist \(42703\)'),
        ("SELECT subject FROM tickets WHERE id = ANY($1)", "must give a column `id`; it gives subject"),
        ("SELECT *, 1 AS subject FROM tickets WHERE id = ANY($1)", "two columns `subject`"),
        ("SELECT id FROM tickets WHERE id = $1", "must be an array of ids"),
        ("SELECT id FROM tickets", r"must bind \$1 and nothing else; it has 0 parameters"),
        ("SELECT id FROM tickets WHERE id = ANY($1) AND subject = $2", "it has 2 parameters"),
    ],
)
async def test_a_statement_that_is_wrong_is_refused_with_what_is_wrong(
    sql: asyncpg.Connection, opened: Open, statement: str, text: str
):
    await sql.execute(TICKETS.format(count=1))
    with pytest.raises(SourceRefused, match=text):
        await opened(fetch=statement).fetch(["1"])


async def test_a_listing_that_binds_something_is_refused(opened: Open):
    with pytest.raises(SourceRefused, match="must bind nothing"):
        await listed(opened("SELECT 1 AS id WHERE 1 = ANY($1)"))


async def test_a_table_that_the_role_may_not_read_is_refused(
    postgres_server: Any, database: str, sql: asyncpg.Connection, opened: Open
):
    await sql.execute(TICKETS.format(count=1))
    role = database.rsplit("/", 1)[1] + "_reader"
    await sql.execute(f"CREATE ROLE {role} LOGIN")
    source = opened(dsn=database.replace("postgres@", f"{role}@"))
    with pytest.raises(SourceRefused, match="may not read"):
        await source.fetch(["1"])
    await source.close()
    await sql.execute(f"DROP ROLE {role}")


def text_of(error: BaseException) -> str:
    return "".join([str(error), repr(error), *traceback.format_exception(error)])


@pytest.mark.parametrize(
    ("dsn", "error"),
    [
        ("not a DSN with S3CRET", SourceRefused),
        ("mysql://S3CRET:S3CRET@127.0.0.1/S3CRET", SourceRefused),
        ("postgresql://S3CRET:S3CRET@127.0.0.1:port/S3CRET", SourceRefused),
        ("postgresql://S3CRET:S3CRET@127.0.0.1:1/S3CRET", SourceUnavailable),
        ("postgresql://S3CRET:S3CRET@S3CRET.invalid/S3CRET", SourceUnavailable),
        ("postgresql://S3CRET:S3CRET@127.0.0.1/S3CRET?sslmode=S3CRET", SourceRefused),
        ("postgresql://S3CRET:S3CRET@127.0.0.1/S3CRET?sslmode=verify-full&sslrootcert=/S3CRET", SourceRefused),
        ("postgresql:///S3CRET?host=/S3CRET", SourceUnavailable),
        ("postgresql://postgres@127.0.0.1:{port}/S3CRET", SourceRefused),
        ("postgresql://S3CRET@127.0.0.1:{port}/postgres", SourceRefused),
    ],
)
async def test_no_error_tells_anything_of_the_dsn(
    postgres_server: Any, opened: Open, dsn: str, error: type[SourceError]
):
    source = opened(dsn=dsn.format(port=postgres_server.port), timeout=5.0)
    for read in (listed(source), source.fetch(["1"])):
        with pytest.raises(error) as caught:
            await read
        assert "s3cret" not in text_of(caught.value).lower()


@pytest.mark.parametrize(
    "expression",
    [
        "subject::int",
        "subject::json::text",
        "leak(subject)",
        "1 / (length(subject) - length(subject))",
        "repeat(subject, 1000000000)",
        "(SELECT subject FROM tickets t, generate_series(1, 2))",
    ],
)
async def test_no_error_tells_anything_of_a_record(sql: asyncpg.Connection, opened: Open, expression: str):
    await sql.execute("CREATE TABLE tickets (id int, subject text); INSERT INTO tickets VALUES (1, 'S3CRET')")
    await sql.execute(
        "CREATE FUNCTION leak(text) RETURNS text LANGUAGE plpgsql AS"
        " $$ BEGIN RAISE EXCEPTION '%', $1 USING DETAIL = $1, HINT = $1; END $$"
    )
    source = opened(fetch=f"SELECT id, {expression} AS value FROM tickets WHERE id = ANY($1)")
    with pytest.raises(RecordMalformed) as caught:
        await source.fetch(["1"])
    assert "S3CRET" not in text_of(caught.value)


async def test_a_database_that_stops_is_unavailable_and_one_that_is_back_is_read_again(
    own_postgres_server: Any, opened: Open
):
    source = opened(fetch="SELECT 1 AS id WHERE 1 = ANY($1)", dsn=own_postgres_server.dsn(), timeout=5.0)
    assert set(await source.fetch(["1"])) == {"1"}
    await asyncio.to_thread(own_postgres_server.stop)
    with pytest.raises(SourceUnavailable):
        await source.fetch(["1"])
    await asyncio.to_thread(own_postgres_server.start)
    assert set(await source.fetch(["1"])) == {"1"}


async def test_a_host_that_takes_the_connection_and_says_nothing_is_a_timeout(opened: Open):
    async def say_nothing(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read()

    async with serving(say_nothing) as port:
        with pytest.raises(SourceTimeout):
            await opened(dsn=f"postgresql://a@127.0.0.1:{port}/a", timeout=0.1).fetch(["1"])


async def test_a_database_that_falls_silent_in_mid_read_holds_nobody_up(
    postgres_server: Any, database: str, sql: asyncpg.Connection, opened: Open
):
    await sql.execute(TICKETS.format(count=1))
    awake = asyncio.Event()
    awake.set()

    async def pump(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while data := await reader.read(65536):
            await awake.wait()
            writer.write(data)
        writer.close()

    async def forward(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        from_server, to_server = await asyncio.open_connection("127.0.0.1", postgres_server.port)
        await asyncio.gather(pump(reader, to_server), pump(from_server, writer))
        await to_server.wait_closed()

    async with serving(forward) as port:
        source = opened(dsn=database.replace(str(postgres_server.port), str(port)), concurrency=1)
        await source.fetch(["1"])
        awake.clear()
        async with asyncio.timeout(5):
            with pytest.raises(TimeoutError):
                await asyncio.wait_for(source.fetch(["1"]), 0.1)
        awake.set()
        assert set(await source.fetch(["1"])) == {"1"}
        await source.close()


# --- addresses ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("address", "kind"),
    [
        ("127.0.0.1", "loopback"),
        ("127.8.8.8", "loopback"),
        ("::1", "loopback"),
        ("0.0.0.0", "loopback"),  # noqa: S104 - what connects to it reaches this host
        ("::", "loopback"),
        ("::ffff:127.0.0.1", "loopback"),
        ("64:ff9b::7f00:1", "loopback"),
        ("169.254.169.254", "never"),
        ("::ffff:169.254.169.254", "never"),
        ("64:ff9b::a9fe:a9fe", "never"),
        ("2002:a9fe:a9fe::", "never"),
        ("fe80::1", "never"),
        ("fe80::1%2", "never"),
        ("fd00:ec2::254", "never"),
        ("100.100.100.200", "never"),
        ("224.0.0.1", "never"),
        ("ff02::1", "never"),
        ("10.0.0.1", "always"),
        ("192.168.1.1", "always"),
        ("8.8.8.8", "always"),
        ("fd00::1", "always"),
        ("2001:4860:4860::8888", "always"),
    ],
)
def test_an_address_is_permitted_by_what_it_leads_to(address: str, kind: str):
    assert permitted(ip_address(address), allow_loopback=True) == (kind != "never")
    assert permitted(ip_address(address), allow_loopback=False) == (kind == "always")


@pytest.mark.parametrize(
    "dsn",
    [
        "postgresql://a@127.0.0.1:{port}/postgres",
        "postgresql://a@localhost:{port}/postgres",
        "postgresql://a@2130706433:{port}/postgres",
        "postgresql://a@[::ffff:127.0.0.1]:{port}/postgres",
        "postgresql://a@0.0.0.0:{port}/postgres",
        "postgresql:///postgres?host=/tmp",
        "postgresql:///postgres",
    ],
)
async def test_this_host_is_refused_outside_of_laptop_mode(postgres_server: Any, opened: Open, dsn: str):
    source = opened(dsn=dsn.format(port=postgres_server.port), allow_loopback=False)
    with pytest.raises(SourceRefused, match=r"address|socket"):
        await source.fetch(["1"])


async def test_link_local_addresses_are_refused_even_in_laptop_mode(opened: Open):
    with pytest.raises(SourceRefused, match="link-local"):
        await opened(dsn="postgresql://a@169.254.169.254/a").fetch(["1"])


@pytest.fixture
def names(monkeypatch: pytest.MonkeyPatch) -> Callable[[Sequence[str]], list[str]]:
    """Makes every name resolve to these addresses, one more each time it is asked; gives the names asked for."""

    def resolve_to(addresses: Sequence[str]) -> list[str]:
        asked: list[str] = []

        async def getaddrinfo(host: str, port: int, **_: Any) -> list[Any]:
            asked.append(host)
            address = addresses[min(len(asked), len(addresses)) - 1]
            return [(socket.AF_INET, socket.SOCK_STREAM, 6, "", (address, port))]

        monkeypatch.setattr(asyncio.get_running_loop(), "getaddrinfo", getaddrinfo)
        return asked

    return resolve_to


async def test_a_name_is_resolved_once_and_the_address_that_was_checked_is_connected_to(
    postgres_server: Any, opened: Open, names: Callable[[Sequence[str]], list[str]]
):
    asked = names(["127.0.0.1", "169.254.169.254"])  # a name that rebinds between the check and the use
    dsn = f"postgresql://postgres@db.test:{postgres_server.port}/postgres?sslmode=disable"
    assert await listed(opened("SELECT 1 AS id", dsn=dsn)) == [Listed("1", None)]
    assert asked == ["db.test"]


async def test_certificates_are_verified_for_the_name_though_the_address_is_connected_to(
    tmp_path: Path, opened: Open, names: Callable[[Sequence[str]], list[str]]
):
    names(["127.0.0.1"])
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(*certificate(tmp_path, "db.test"))

    async def refuse_the_login_after_tls(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readexactly(8)  # SSLRequest
        writer.write(b"S")
        await writer.start_tls(context)
        await reader.readexactly(int.from_bytes(await reader.readexactly(4), "big") - 4)
        fields = b"SFATAL\0C28P01\0Mwrong password\0\0"
        writer.write(b"E" + (len(fields) + 4).to_bytes(4, "big") + fields)

    # As much of Postgres as it takes: the embedded one is built without TLS.
    async with serving(refuse_the_login_after_tls) as port:
        options = f"sslmode=verify-full&sslrootcert={tmp_path / 'certificate.pem'}"
        with pytest.raises(SourceRefused, match=r"refused the login \(28P01\)"):
            await opened(dsn=f"postgresql://a:b@db.test:{port}/a?{options}").fetch(["1"])
        with pytest.raises(SourceRefused, match="certificate"):
            await opened(dsn=f"postgresql://a:b@other.test:{port}/a?{options}").fetch(["1"])


def certificate(folder: Path, name: str) -> tuple[Path, Path]:
    key = ec.generate_private_key(ec.SECP256R1())
    subject = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, name)])
    now = datetime.now(UTC)
    signed = (
        x509.CertificateBuilder(subject, subject, key.public_key(), x509.random_serial_number())
        .not_valid_before(now - timedelta(days=1))
        .not_valid_after(now + timedelta(days=1))
        .add_extension(x509.SubjectAlternativeName([x509.DNSName(name)]), critical=False)
        .sign(key, hashes.SHA256())
    )
    pem, private = folder / "certificate.pem", folder / "key.pem"
    pem.write_bytes(signed.public_bytes(serialization.Encoding.PEM))
    private.write_bytes(
        key.private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption())
    )
    return pem, private


# --- Northwind ---------------------------------------------------------------------------------------------------


@pytest.mark.skipif(not NORTHWIND.exists(), reason="Northwind is not beside this checkout")
async def test_northwind_is_listed_and_read_whole(sql: asyncpg.Connection, opened: Open):
    await sql.execute(NORTHWIND.read_text(encoding="utf-8"))
    tables = {
        "customers": "SELECT customer_id AS id, * FROM customers WHERE customer_id = ANY($1)",
        "orders": "SELECT o.order_id AS id, o.*, e.last_name FROM orders o JOIN employees e USING (employee_id)"
        " WHERE order_id = ANY($1)",
        "products": "SELECT product_id AS id, * FROM products WHERE product_id = ANY($1)",
    }
    for table, fetch in tables.items():
        key = table.removesuffix("s") + "_id"
        source = opened(f"SELECT {key} AS id FROM {table}", fetch)
        ids = [item.record_id for item in await listed(source)]
        assert len(ids) == await sql.fetchval(f"SELECT count(*) FROM {table}")
        found = await source.fetch(ids)
        assert list(found) == ids
        assert all(str(found[each][key]) == each for each in ids)
