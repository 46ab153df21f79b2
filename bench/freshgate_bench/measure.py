"""Timing, and what may be said of it: medians with their spread, and intervals from resampling.

Things that are compared are measured in turns, so that whatever else the machine does falls on all of them alike.
"""

import statistics
import sys
import time
from collections.abc import Callable, Iterable, Sequence
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray
from rich.console import Console
from rich.progress import track

from freshgate_bench.rows import Figure

T = TypeVar("T")

RESAMPLES = 2000
CONSOLE = Console(stderr=True, force_terminal=sys.stderr.isatty())


def progress(items: Iterable[T], description: str, total: int | None = None) -> Iterable[T]:
    return track(items, description, total, console=CONSOLE, transient=True)


def seconds(work: Callable[..., object], *arguments: object) -> float:
    started = time.perf_counter()
    work(*arguments)
    return time.perf_counter() - started


def blocks(items: Sequence[T], size: int) -> list[Sequence[T]]:
    return [items[at : at + size] for at in range(0, len(items), size)]


def figure(values: Sequence[float], *, with_p99: bool = True) -> Figure:
    low, median, high = np.percentile(values, (25, 50, 75)).tolist()
    p99 = float(np.percentile(values, 99)) if with_p99 else None
    return Figure(median, low, high, p99, len(values))


def difference_of_medians(base: Sequence[Sequence[float]], other: Sequence[Sequence[float]]) -> NDArray[np.float64]:
    """Resampled (other - base) / base of the medians. Whole blocks are drawn, in pairs that were measured one right
    after the other: times within one are alike, and drawing single ones would promise too much."""
    first, second = np.array(base), np.array(other)
    chosen = np.random.default_rng(1).integers(len(first), size=(RESAMPLES, len(first)))
    before = np.median(first[chosen].reshape(RESAMPLES, -1), axis=1)
    after = np.median(second[chosen].reshape(RESAMPLES, -1), axis=1)
    change: NDArray[np.float64] = (after - before) / before
    return change


def ratio_of(ours: Sequence[float], theirs: Sequence[float]) -> tuple[float, tuple[float, float]]:
    """The median of rounds' ratios, each round measured both, and its 95% interval by resampling rounds."""
    ratios = np.array(ours) / np.array(theirs)
    chosen = np.random.default_rng(1).integers(len(ratios), size=(RESAMPLES, len(ratios)))
    low, high = np.percentile(np.median(ratios[chosen], axis=1), (2.5, 97.5)).tolist()
    return statistics.median(ratios.tolist()), (low, high)
