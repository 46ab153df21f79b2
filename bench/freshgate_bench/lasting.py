"""What only shows after a while: whether memory grows, and whether the background loop gets in a query's way."""

import asyncio
import gc
import os
import time
from collections.abc import Awaitable, Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import numpy as np

from freshgate_bench import postgres
from freshgate_bench.corpus import Entry, Question, entries, questions
from freshgate_bench.desk import ASKER, NAME, filled
from freshgate_bench.measure import figure, progress
from freshgate_bench.rows import Figure, Row, exact
from freshgate_service.domain import ObjectKey
from freshgate_service.refresh import Failed
from freshgate_service.runtime import Engine
from freshgate_service.serve.listen import settle_memory

DAY = 86_400.0
MILLI = 1e3

# --- the loop --------------------------------------------------------------------------------------------------------

STEP_BAR = 0.005
PACE = 0.005
"""Seconds between two questions."""


def run_loop(*, quick: bool) -> Iterator[Row]:
    count = 2_000 if quick else 20_000
    with postgres.server() as server:
        records = list(entries(count))
        desk = filled(server, records, DAY)

        async def measured() -> Sequence[Row]:
            async with desk.engine() as engine:
                return await _beside_the_loop(engine, records, 5.0 if quick else 30.0)

        yield from asyncio.run(measured())


async def _beside_the_loop(engine: Engine, records: Sequence[Entry], idle_seconds: float) -> Sequence[Row]:
    asked = questions(records, 2_000)
    settle_memory()
    await _asking(engine, asked, asyncio.sleep(idle_seconds / 5))
    quiet_steps, busy_steps = _Steps(), _Steps()
    with quiet_steps.counted():
        quiet = await _asking(engine, asked, asyncio.sleep(idle_seconds))
    with busy_steps.counted():
        busy = await _asking(engine, asked, _read_all(engine))
    idle, beside = (figure([each * MILLI for each in times]) for times in (quiet, busy))
    longest = busy_steps.longest * MILLI
    steps = figure([each * MILLI for each in busy_steps.seconds])
    moved = (beside.p99 or 0) - (idle.p99 or 0)
    bar = STEP_BAR * MILLI
    return (
        Row(
            "loop",
            "a query while the loop reads all again",
            len(records),
            "ms",
            beside,
            {"while it rests": idle},
            beside.median / idle.median,
            bar=f"p99 moved by less than one step of {bar:g} ms",
            holds=moved < bar,
            notes={"p99 moved by, ms": moved, "questions": float(len(busy))},
        ),
        Row(
            "loop",
            "the longest step on the event loop meanwhile, of processor time",
            len(records),
            "ms",
            Figure(longest, steps.low, steps.high, steps.p99, steps.samples),
            {"while it rests": exact(quiet_steps.longest * MILLI)},
            longest / bar,
            bar=f"gives way every {bar:g} ms",
            holds=longest <= bar,
        ),
    )


async def _read_all(engine: Engine) -> None:
    """A sweep, as the loop does it."""
    keys = sorted(engine.memory.keys(NAME))
    page = engine.readers[NAME].page
    for at in range(0, len(keys), page):
        await _refresh(engine, keys[at : at + page])


async def _refresh(engine: Engine, keys: Sequence[ObjectKey]) -> None:
    flights = engine.flights.refresh(keys, older_than=engine.clock.latest(), background=True)
    await asyncio.wait(flights.values())
    failed = [flight.result() for flight in flights.values() if isinstance(flight.result(), Failed)]
    if failed:
        raise RuntimeError(f"objects were not refreshed: {failed[0]}")


async def _asking(engine: Engine, asked: Sequence[Question], during: Awaitable[None]) -> list[float]:
    """Questions at a steady pace while something else goes on; each one's time runs from when it was due."""
    other, times = asyncio.ensure_future(during), list[float]()
    due = time.perf_counter()
    while not other.done():
        due += PACE
        await asyncio.sleep(due - time.perf_counter())
        await engine.pipeline.search(ASKER, asked[len(times) % len(asked)].text, None, None)
        times.append(time.perf_counter() - due)
        due = max(due, time.perf_counter() - PACE)
    await other
    return times


class _Steps:
    """How long the event loop's single steps take, of this thread's processor time: waiting for a processor that others
    use is not held against them."""

    def __init__(self) -> None:
        self.seconds: list[float] = []

    @property
    def longest(self) -> float:
        return max(self.seconds)

    @contextmanager
    def counted(self) -> Iterator[None]:
        plain: Callable[[asyncio.Handle], None] = asyncio.Handle._run  # noqa: SLF001 - asyncio has no other way to see steps

        def run(handle: asyncio.Handle) -> None:
            started = time.thread_time()
            plain(handle)
            self.seconds.append(time.thread_time() - started)

        asyncio.Handle._run = run  # type: ignore[method-assign,assignment]  # noqa: SLF001
        try:
            yield
        finally:
            asyncio.Handle._run = plain  # type: ignore[method-assign,assignment]  # noqa: SLF001


# --- memory ----------------------------------------------------------------------------------------------------------

OBJECTS = 2_000
WARM_UP = 3_000
"""Queries, or refreshes: every object has been refreshed once by then."""

GROWTH_BAR = 0.01


def run_memory(*, quick: bool) -> Iterator[Row]:
    count = 1_000 if quick else 10_000
    with postgres.server() as server:
        records = list(entries(OBJECTS))
        desk = filled(server, records, DAY)

        async def measured() -> Sequence[Row]:
            async with desk.engine() as engine:
                asked = questions(records, 5_000)
                keys = sorted(engine.memory.keys(NAME))

                async def query(place: int) -> None:
                    await engine.pipeline.search(ASKER, asked[place % len(asked)].text, None, None)

                async def refresh(place: int) -> None:
                    await _refresh(engine, [keys[place % len(keys)]])

                return [await _grown("queries", query, count), await _grown("refreshes", refresh, count)]

        yield from asyncio.run(measured())


async def _grown(what: str, work: Callable[[int], Awaitable[None]], count: int) -> Row:
    """The slope of the memory in use, over what follows a warm-up."""
    sizes: list[int] = []
    every = max(1, count // 100)
    for place in progress(range(WARM_UP + count), f"{count:,} {what}"):
        await work(place)
        if place % every == 0 and place >= WARM_UP:
            gc.collect()
            sizes.append(_resident())
    slope = float(np.polyfit(np.arange(len(sizes)) * every, sizes, 1)[0]) * count
    share = slope / sizes[0]
    return Row(
        "memory",
        f"growth of memory over {count:,} {what}",
        OBJECTS,
        "MiB",
        exact(slope / 2**20),
        ratio=share,
        bar=f"less than {GROWTH_BAR:.0%} of what is in use",
        holds=share < GROWTH_BAR,
        notes={"in use at the beginning, MiB": sizes[0] / 2**20},
    )


def _resident() -> int:
    pages = int(Path("/proc/self/statm").read_text("utf-8").split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE")
