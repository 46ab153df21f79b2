"""A start on a full store: what the process has cost when it first says that it is ready."""

import asyncio
import tempfile
from collections.abc import Iterator
from pathlib import Path

from freshgate_bench import postgres, processes, stored
from freshgate_bench.corpus import entries
from freshgate_bench.measure import figure, progress
from freshgate_bench.rows import Row

OBJECTS = 10_000
BAR = 2.0


def run(*, quick: bool) -> Iterator[Row]:
    with tempfile.TemporaryDirectory(prefix="fgb-") as made, postgres.server() as dsn:
        folder, config, empty = Path(made), stored.config(), stored.config()
        full = postgres.database(dsn, "full")
        asyncio.run(stored.fill(full, config, list(entries(OBJECTS))))
        stored.publish(folder / "full", config, full)
        bare = postgres.database(dsn, "bare")
        asyncio.run(stored.fill(bare, empty, []))
        stored.publish(folder / "empty", empty, bare)
        rounds = 2 if quick else 10
        costs = [_cost(folder, "full") for _ in progress(range(rounds), f"starts with {OBJECTS:,} objects")]
        nothing = [_cost(folder, "empty") for _ in progress(range(rounds), "starts with none")]
        cost = figure(costs, with_p99=False)
        yield Row(
            "start",
            "a start, until it is ready",
            OBJECTS,
            "s of CPU",
            cost,
            {"with nothing stored": figure(nothing, with_p99=False)},
            cost.median / BAR,
            bar=f"under {BAR:g} s of CPU",
            holds=cost.median < BAR,
        )


def _cost(folder: Path, published: str) -> float:
    with processes.freshgate(folder / published, folder / "service.log") as server:
        return server.cpu_seconds
