"""A Postgres database as a source: the user's own `list` and `fetch`, run read-only.

Postgres itself writes each row as JSON text, so every type it has, also those of extensions, comes out in one defined
form: times as ISO 8601 in UTC, what JSON has no number for (NaN, infinity) as text. Everything a read sets is local to
its transaction, and the transaction is rolled back, so a pooler in transaction mode works and nothing is left behind.

No text of an error here holds the DSN or anything of a record: Postgres is quoted only on what it says of a statement
before a row has been read.
"""

import asyncio
import json
import math
import re
import ssl
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager, contextmanager
from decimal import Decimal
from typing import Any

import asyncpg
from asyncpg.prepared_stmt import PreparedStatement as Statement

from freshgate_crds import compiled
from freshgate_service.domain import Listed
from freshgate_service.errors import (
    FreshgateError,
    RecordMalformed,
    SourceError,
    SourceRefused,
    SourceTimeout,
    SourceUnavailable,
)
from freshgate_service.sources.addresses import resolve

PAGE = 1000
"""Rows of a listing in one round trip."""

MAX_RECORD_BYTES = 4 * 1024 * 1024
MAX_BATCH_BYTES = 16 * 1024 * 1024
"""Of records in one answer of the database. What does not fit is read again, apart."""

LARGE = 128 * 1024
"""Characters from which a record is parsed off the event loop."""

IDLE_SECONDS = 60.0

_BEGIN = """
BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY;
SET LOCAL statement_timeout = {milliseconds};
SET LOCAL TimeZone = 'UTC';
SET LOCAL DateStyle = 'ISO, YMD';
SET LOCAL IntervalStyle = 'postgres';
SET LOCAL bytea_output = 'hex';
SET LOCAL extra_float_digits = 1;
"""

# The statement stands on lines of its own: it may end in a comment.
_LIST = """
SELECT freshgate_row.id::text, {version} FROM (
{statement}
) AS freshgate_row
"""

_FETCH = """
WITH freshgate_read AS MATERIALIZED (
SELECT freshgate_row.id::text AS id, row_to_json(freshgate_row.*)::text AS record FROM (
{statement}
) AS freshgate_row
), freshgate_sized AS (
SELECT id, record, octet_length(record) <= {max_record} AS fits,
       sum(octet_length(record)) FILTER (WHERE octet_length(record) <= {max_record})
       OVER (ROWS UNBOUNDED PRECEDING) AS total
FROM freshgate_read
)
SELECT id, fits, CASE WHEN fits AND total <= {max_batch} THEN record END AS record FROM freshgate_sized
"""


class PostgresSource:
    """`timeout` is the seconds that a connection and each statement may take."""

    def __init__(self, spec: compiled.Source, dsn: str, *, timeout: float, allow_loopback: bool) -> None:
        if spec.postgres is None:
            raise ValueError(f"{spec.name} is no Postgres source")
        self._statements = spec.postgres
        self._limits = spec.limits
        self._dsn = dsn
        self._timeout = timeout
        self._allow_loopback = allow_loopback
        self._pool: asyncpg.Pool | None = None

    async def list(self) -> AsyncGenerator[Sequence[Listed], None]:
        ids: set[str] = set()
        with _translated("list", SourceRefused):
            async with self._reading() as connection:
                cursor = await (await self._listing(connection)).cursor()
                while rows := await cursor.fetch(PAGE):
                    page = [Listed(*row) for row in rows]
                    self._check(page, ids)
                    yield page

    async def fetch(self, record_ids: Sequence[str]) -> Mapping[str, Mapping[str, Any] | SourceError]:
        found: dict[str, str | SourceError] = {}
        wanted = list(dict.fromkeys(record_ids))
        with _translated("fetch", RecordMalformed):
            async with self._reading() as connection:
                keys = await self._keys(connection, wanted)
                while keys:
                    keys = await self._read(connection, keys, found)
        return {record_id: await _parsed(found[record_id]) for record_id in wanted if record_id in found}

    async def close(self) -> None:
        if self._pool is None:
            return
        try:
            async with asyncio.timeout(self._timeout):
                await self._pool.close()
        except TimeoutError:
            self._pool.terminate()

    # --- connecting ----------------------------------------------------------------------------------------------

    @asynccontextmanager
    async def _reading(self) -> AsyncIterator[asyncpg.Connection]:
        """A connection in a read-only transaction."""
        async with (await self._connections()).acquire() as connection:
            try:
                await connection.execute(_BEGIN.format(milliseconds=math.ceil(self._timeout * 1000)))
                yield connection
                await connection.execute("ROLLBACK")
            except BaseException:
                # Cancelled or failed, its state is anybody's guess: it is never used again. Waiting here for an
                # orderly end could take as long as the database that does not answer.
                connection.terminate()
                raise

    async def _connections(self) -> asyncpg.Pool:
        if self._pool is None:
            self._pool = asyncpg.create_pool(
                self._dsn,
                min_size=0,
                max_size=self._limits.concurrency,
                max_inactive_connection_lifetime=IDLE_SECONDS,
                connect=self._connect,
                reset=_nothing_to_reset,
            )
        return await self._pool

    async def _connect(self, dsn: str, *, loop: asyncio.AbstractEventLoop, **options: Any) -> asyncpg.Connection:
        try:
            return await asyncpg.connect(
                dsn,
                loop=_CheckedLoop(loop, self._allow_loopback),
                timeout=self._timeout,
                statement_cache_size=0,
                server_settings={"application_name": "freshgate"},
                **options,
            )
        except ssl.SSLCertVerificationError:
            raise SourceRefused("the database's certificate is not valid for its host") from None
        except FileNotFoundError:
            raise SourceRefused("a certificate or key file that the DSN names is not there") from None
        except ValueError:
            raise SourceRefused("the DSN is not valid; it is postgresql://user:password@host:port/database") from None

    # --- the user's statements -----------------------------------------------------------------------------------

    async def _listing(self, connection: asyncpg.Connection) -> Statement:
        statement = _bare(self._statements.list)
        described = await _described(connection, statement, "list")
        if described.get_parameters():
            raise SourceRefused("`list` must bind nothing: it has a parameter $1")
        version = "freshgate_row.version::text" if "version" in _columns(described, "list") else "NULL::text"
        return await _described(connection, _LIST.format(statement=statement, version=version), "list")

    async def _keys(self, connection: asyncpg.Connection, record_ids: Sequence[str]) -> dict[str, Any]:
        """Ids by the values that `$1` binds for them. An id that is no value of its type names no record."""
        described = await _described(connection, _bare(self._statements.fetch), "fetch")
        _columns(described, "fetch")
        parse = _parser([parameter.name for parameter in described.get_parameters()])
        parsed = {record_id: parse(record_id) for record_id in record_ids}
        return {record_id: value for record_id, value in parsed.items() if value is not None}

    async def _read(
        self, connection: asyncpg.Connection, keys: Mapping[str, Any], found: dict[str, str | SourceError]
    ) -> dict[str, Any]:
        """Adds what is found, as JSON text; gives the keys whose records did not fit into this answer."""
        statement = _FETCH.format(
            statement=_bare(self._statements.fetch), max_record=MAX_RECORD_BYTES, max_batch=MAX_BATCH_BYTES
        )
        rows = await (await _described(connection, statement, "fetch")).fetch(list(keys.values()))
        left: dict[str, Any] = {}
        for record_id, fits, record in rows:
            if record_id not in keys:
                raise SourceRefused(
                    "`fetch` returned a row whose `id` was not asked for: its column `id` must be what `list` lists"
                    " as `id` and what $1 selects"
                )
            if record_id in found or record_id in left:
                found[record_id] = RecordMalformed("`fetch` returned its `id` in more than one row")
            elif not fits:
                found[record_id] = RecordMalformed(f"the record has more than {MAX_RECORD_BYTES} bytes")
            elif record is None:
                left[record_id] = keys[record_id]
            else:
                found[record_id] = record
        return {record_id: key for record_id, key in left.items() if record_id not in found}

    def _check(self, page: Sequence[Listed], ids: set[str]) -> None:
        """Adds the page's ids to those seen so far."""
        seen = len(ids) + len(page)
        if seen > self._limits.max_objects:
            raise SourceRefused(
                f"`list` gives more than limits.maxObjects ({self._limits.max_objects}) records: raise it or list fewer"
            )
        ids.update(listed.record_id for listed in page)
        if None in ids:
            raise RecordMalformed("`list`: the column `id` is NULL in a row")
        if len(ids) != seen:
            raise RecordMalformed("`list`: the column `id` has the same value in two rows")


class _CheckedLoop:
    """The event loop as asyncpg uses it, but that it connects to checked addresses only.

    asyncpg names the host, not the address, to the TLS layer; so certificates are verified as ever.
    """

    def __init__(self, loop: asyncio.AbstractEventLoop, allow_loopback: bool) -> None:
        self._loop = loop
        self._allow_loopback = allow_loopback

    def __getattr__(self, name: str) -> Any:
        return getattr(self._loop, name)

    def __hash__(self) -> int:
        return hash(self._loop)

    def __eq__(self, other: object) -> bool:
        return other is self or other is self._loop  # asyncio looks up the running task by its loop

    async def create_connection(self, protocol: Callable[[], Any], host: str, port: int, **options: Any) -> Any:
        if options.get("ssl"):
            options["server_hostname"] = host
        addresses = await resolve(host, port, allow_loopback=self._allow_loopback)
        for address in addresses[:-1]:
            try:
                return await self._loop.create_connection(protocol, address, port, **options)
            except OSError:
                continue
        return await self._loop.create_connection(protocol, addresses[-1], port, **options)

    async def create_unix_connection(self, protocol: Callable[[], Any], path: str, **options: Any) -> Any:
        if not self._allow_loopback:
            raise SourceRefused("the DSN names no host, or a socket of this machine")
        try:
            return await self._loop.create_unix_connection(protocol, path, **options)
        except FileNotFoundError:
            raise ConnectionRefusedError from None  # nobody listens there


async def _nothing_to_reset(_connection: asyncpg.Connection) -> None:
    """A rolled back transaction has left nothing behind; asyncpg's own reset would cost a round trip."""


# --- statements --------------------------------------------------------------------------------------------------


def _bare(statement: str) -> str:
    return statement.rstrip("; \t\r\n")


async def _described(connection: asyncpg.Connection, statement: str, role: str) -> Statement:
    """Parsed by Postgres, and not run."""
    try:
        return await connection.prepare(statement, name="")
    except asyncpg.PostgresError as error:
        if (error.sqlstate or "")[:2] in _STATEMENT_CLASSES:
            raise SourceRefused(f"`{role}`: {error.args[0]} ({error.sqlstate})") from None
        raise


def _columns(described: Statement, role: str) -> list[str]:
    names = [attribute.name for attribute in described.get_attributes()]
    if "id" not in names:
        raise SourceRefused(f"`{role}` must give a column `id`; it gives {', '.join(names) or 'none'}")
    twice = next((name for name in names if names.count(name) > 1), None)
    if twice is not None:
        raise SourceRefused(f"`{role}` gives two columns `{twice}`: name them apart")
    return names


_ID_TYPES = "text[], varchar[], bpchar[], uuid[], int2[], int4[] or int8[]"


def _parser(parameters: Sequence[str]) -> Callable[[str], Any]:
    """From an id to a value of `$1`'s elements; None where the id is not the text of one."""
    if len(parameters) != 1:
        raise SourceRefused(f"`fetch` must bind $1 and nothing else; it has {len(parameters)} parameters")
    parse = _PARSERS.get(parameters[0])
    if parse is None:
        raise SourceRefused(
            f"`fetch`: $1 must be an array of ids ({_ID_TYPES}), as in `id = ANY($1)`; here it is {parameters[0]}"
        )
    return parse


def _text(record_id: str) -> str | None:
    try:
        record_id.encode()
    except UnicodeEncodeError:
        return None
    return None if "\0" in record_id else record_id


def _padded(record_id: str) -> str | None:
    return None if record_id.endswith(" ") else _text(record_id)


def _uuid(record_id: str) -> str | None:
    return record_id if _UUID.fullmatch(record_id) else None


def _integer(bits: int) -> Callable[[str], int | None]:
    limit = 1 << (bits - 1)

    def parse(record_id: str) -> int | None:
        if not _INTEGER.fullmatch(record_id):
            return None
        value = int(record_id)
        return value if -limit <= value < limit else None

    return parse


# Only the text that Postgres itself would write: 042 is not the id 42, and no record has two ids.
_UUID = re.compile("[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}")
_INTEGER = re.compile("0|-?[1-9][0-9]{0,18}")
_PARSERS: Mapping[str, Callable[[str], Any]] = {
    "text[]": _text,
    "varchar[]": _text,
    "bpchar[]": _padded,
    "uuid[]": _uuid,
    "int2[]": _integer(16),
    "int4[]": _integer(32),
    "int8[]": _integer(64),
}


# --- records -----------------------------------------------------------------------------------------------------


async def _parsed(found: str | SourceError) -> Mapping[str, Any] | SourceError:
    if isinstance(found, SourceError):
        return found
    try:
        if len(found) >= LARGE:
            return await asyncio.to_thread(_loads, found)
        await asyncio.sleep(0)  # many records in a row must not hold up the event loop
        return _loads(found)
    except (ValueError, RecursionError):
        return RecordMalformed("the record is no JSON that can be read: it is nested too deeply")


def _loads(text: str) -> Mapping[str, Any]:
    record: Mapping[str, Any] = json.loads(text, parse_float=_exact_float, parse_int=_exact_int)
    return record


def _exact_float(text: str) -> float | str:
    """A float where it says the same as the number's text, else the text: no digit of a `numeric` is lost."""
    number = float(text)
    return number if math.isfinite(number) and Decimal(repr(number)) == Decimal(text) else text


def _exact_int(text: str) -> int | str:
    try:
        return int(text)
    except ValueError:  # more digits than Python converts
        return text


# --- errors ------------------------------------------------------------------------------------------------------

_STATEMENT_CLASSES = frozenset({"0A", "21", "22", "25", "3F", "42"})
_RECORD_CLASSES = frozenset({"21", "22", "2F", "38", "39", "54", "P0"})
"""What the values of single records bring about, and functions over them."""


@contextmanager
def _translated(role: str, for_records: type[SourceError]) -> Iterator[None]:
    """Foreign errors end here, their texts and their tracebacks with them. `for_records` is what becomes of an error
    that the data of some record causes."""
    try:
        yield
    except FreshgateError:
        raise
    except asyncpg.PostgresError as error:
        raise _of_postgres(error, role, for_records) from None
    except TimeoutError:
        raise SourceTimeout(f"`{role}`: the database did not answer in time") from None
    except (OSError, asyncpg.InterfaceError, asyncpg.InternalClientError):
        raise SourceUnavailable(f"`{role}`: the database cannot be reached, or the connection broke") from None


def _of_postgres(error: asyncpg.PostgresError, role: str, for_records: type[SourceError]) -> SourceError:
    state = error.sqlstate or "XX000"
    if state in {"57014", "55P03"}:
        return SourceTimeout(f"`{role}` took too long ({state})")
    if state == "42501":
        return SourceRefused(f"`{role}`: the role may not read all that it names ({state})")
    if state[:2] == "28":
        return SourceRefused(f"the database refused the login ({state})")
    if state == "3D000":
        return SourceRefused(f"the DSN names a database that does not exist ({state})")
    if state[:2] in _RECORD_CLASSES:
        return for_records(f"`{role}` failed on the data of a record ({state} {type(error).__name__})")
    if state[:2] in _STATEMENT_CLASSES:
        return SourceRefused(f"`{role}` was refused ({state} {type(error).__name__})")
    return SourceUnavailable(f"`{role}`: the database is not available ({state} {type(error).__name__})")
