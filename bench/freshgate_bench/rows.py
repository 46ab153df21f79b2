"""What a measurement says, and where it is kept: build/bench.json, a list of rows.

Each row stands for itself, with the machine and the load it was taken under, so that one benchmark can be measured anew
without the others.
"""

import json
import os
import platform
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

RESULTS = Path("build/bench.json")


@dataclass(frozen=True)
class Figure:
    """One measured quantity: its median, and where the middle half (`low` to `high`) of what was measured lies. `p99`
    is None where it says nothing, as of rates."""

    median: float
    low: float
    high: float
    p99: float | None = None
    samples: int = 1


def exact(value: float) -> Figure:
    """What was counted or computed, and does not vary."""
    return Figure(value, value, value)


@dataclass(frozen=True)
class Row:
    """`size` is a number of objects; `ratio` is ours to the best peer's (or to the bar's own base); `holds` is None
    where there is no bar. `notes` are further figures of the same run, by what they are called."""

    bench: str
    name: str
    size: int | None
    unit: str
    ours: Figure
    peers: dict[str, Figure] = field(default_factory=dict)
    ratio: float | None = None
    ratio_interval: tuple[float, float] | None = None
    bar: str | None = None
    holds: bool | None = None
    notes: dict[str, float] = field(default_factory=dict)


@dataclass(frozen=True)
class Circumstances:
    """Where and when rows were taken. `load`: the machine's load average just before."""

    taken: str
    quick: bool
    load: float
    cores: int
    processor: str
    python: str

    @classmethod
    def now(cls, *, quick: bool) -> "Circumstances":
        taken = datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
        cores = len(os.sched_getaffinity(0))
        return cls(taken, quick, round(os.getloadavg()[0], 2), cores, _processor(), platform.python_version())


def _processor() -> str:
    lines = Path("/proc/cpuinfo").read_text("utf-8").splitlines()
    return next((line.split(":", 1)[1].strip() for line in lines if line.startswith("model name")), platform.machine())


def keep(bench: str, rows: Iterable[Row], circumstances: Circumstances) -> None:
    """In the place of what the same benchmark said before."""
    others = [row for row in kept() if row["bench"] != bench]
    new = [{**asdict(row), **asdict(circumstances)} for row in rows]
    RESULTS.parent.mkdir(parents=True, exist_ok=True)
    RESULTS.write_text(json.dumps([*others, *new], indent=1) + "\n", "utf-8")


def kept() -> Sequence[dict[str, Any]]:
    rows: list[dict[str, Any]] = json.loads(RESULTS.read_text("utf-8")) if RESULTS.exists() else []
    return rows
