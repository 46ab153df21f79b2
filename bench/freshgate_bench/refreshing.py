"""A query whose ten best are stale, from the question to the confirmed answer, and the least that could be.

Time passes as it does: with a TTL of one second, each group of records is stale again a second after it was asked for.
"""

import asyncio
import time
from collections.abc import Iterator, Mapping, Sequence

import asyncpg

from freshgate_bench import postgres
from freshgate_bench.corpus import entries
from freshgate_bench.desk import ASKER, NAME, Desk, filled, marked
from freshgate_bench.measure import figure, progress, ratio_of
from freshgate_bench.rows import Row, exact
from freshgate_service.domain import State
from freshgate_service.metrics import Metrics
from freshgate_service.runtime import Engine

SIZE = 10
GROUPS = 8
TTL = 1.0
BAR = 2.0


def run(*, quick: bool) -> Iterator[Row]:
    with postgres.server() as server:
        groups = dict(list(marked(list(entries(SIZE * GROUPS * 4)), SIZE)))
        records = [record for group in groups.values() for record in group]
        asked = {word: [str(record.number) for record in group] for word, group in groups.items()}
        yield from asyncio.run(_measured(filled(server, records, TTL), asked, 3 if quick else 40))


async def _measured(desk: Desk, asked: Mapping[str, Sequence[str]], rounds: int) -> Sequence[Row]:
    metrics = Metrics("bench")
    before = await _stored(desk)
    reads_before = await _reads(desk)
    async with desk.engine(metrics) as engine:
        refreshed, least = await _timed(engine, desk, asked, rounds)
    after = await _stored(desk)
    reads = await _reads(desk) - reads_before - len(least)
    each = reads / len(refreshed)
    refreshed, least = refreshed[1:], least[1:]  # the first of each opened connections
    ratio, interval = ratio_of(refreshed, least)
    speed = Row(
        "refresh",
        f"refresh of {SIZE} stale objects from Postgres",
        len(asked) * SIZE,
        "ms",
        figure([x * 1e3 for x in refreshed]),
        {"that read, and one committed write": figure([x * 1e3 for x in least])},
        ratio,
        interval,
        f"one read, and p50 within {BAR:g}× of that read and one committed write",
        each == 1.0 and ratio <= BAR,
        {"reads of the source for each refresh": each},
    )
    return speed, _unchanged(metrics, before, after, len(refreshed) * SIZE)


async def _timed(
    engine: Engine, desk: Desk, asked: Mapping[str, Sequence[str]], rounds: int
) -> tuple[list[float], list[float]]:
    refreshed: list[float] = []
    least: list[float] = []
    writer = await asyncpg.connect(desk.upstream)
    try:
        for _ in progress(range(rounds), f"{rounds} rounds of {len(asked)} refreshes"):
            await asyncio.sleep(TTL)
            for word, ids in asked.items():
                refreshed.append(await _refreshed(engine, word))
                least.append(await _least(engine, writer, ids))
    finally:
        await writer.close()
    return refreshed, least


async def _refreshed(engine: Engine, word: str) -> float:
    started = time.perf_counter()
    items = await engine.pipeline.search(ASKER, word, SIZE, None)
    took = time.perf_counter() - started
    states = [item.freshness.state for item in items]
    if states != [State.REFRESHED] * SIZE:
        raise RuntimeError(f"not all of {word} was stale and refreshed: {states}")
    return took


async def _least(engine: Engine, writer: asyncpg.Connection, ids: Sequence[str]) -> float:
    """The same guarded and mapped read, and one committed statement that notes its time in as many rows."""
    numbers = list(map(int, ids))
    started = time.perf_counter()
    found = await engine.readers[NAME].fetch(ids, background=False)
    await writer.execute("UPDATE confirmed SET at = $1 WHERE id = ANY($2)", started, numbers)
    took = time.perf_counter() - started
    if len(found) != len(ids):
        raise RuntimeError("a read did not find all records")
    return took


# --- what an unchanged record costs ----------------------------------------------------------------------------------

_UNTOUCHED = ("objects", "sources", "workspaces")


async def _stored(desk: Desk) -> Mapping[str, Mapping[str, str]]:
    """The transaction that wrote each row, for every table but the clocks and the leases."""
    connection = await asyncpg.connect(desk.store)
    try:
        return {
            table: dict(await connection.fetch(f"SELECT ctid::text, xmin::text FROM freshgate.{table}"))
            for table in _UNTOUCHED
        }
    finally:
        await connection.close()


_CONNECTED = "SELECT count(*) FROM pg_stat_activity WHERE datname = $1"


async def _reads(desk: Desk) -> int:
    """Transactions that the source's database has rolled back: every read is one, and nothing else is. Sessions tell
    when they end, so nobody may be connected."""
    connection = await asyncpg.connect(desk.store)
    try:
        while await connection.fetchval(_CONNECTED, desk.database):  # noqa: ASYNC110 - no event tells
            await asyncio.sleep(0.05)
        count = "SELECT xact_rollback FROM pg_stat_database WHERE datname = $1"
        return int(await connection.fetchval(count, desk.database))
    finally:
        await connection.close()


def _unchanged(
    metrics: Metrics, before: Mapping[str, Mapping[str, str]], after: Mapping[str, Mapping[str, str]], checks: int
) -> Row:
    written = {table: len(after[table].items() ^ rows.items()) for table, rows in before.items()}
    condensed = _total(metrics, "freshgate_condensations_total")
    tokens = _total(metrics, "freshgate_condense_tokens_total")
    avoided = _total(metrics, "freshgate_condensations_avoided_total")
    if avoided < checks:
        raise RuntimeError(f"{checks} objects were checked again, and {avoided:.0f} found unchanged")
    moved = sum(written.values())
    return Row(
        "refresh",
        "unchanged records checked again",
        checks,
        "condensed",
        exact(condensed),
        bar="0 condensations, 0 model calls, no row changed but clocks",
        holds=condensed == tokens == moved == 0,
        notes={"tokens of a model": tokens, "rows changed but clocks and leases": moved},
    )


def _total(metrics: Metrics, name: str) -> float:
    lines = metrics.render().decode().splitlines()
    return sum(float(line.rpartition(" ")[2]) for line in lines if line.startswith(f"{name}{{"))
