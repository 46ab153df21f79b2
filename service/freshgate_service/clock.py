"""The one time that counts is the store's. A process knows it only within bounds, and here is where they are kept.

A reading of the store's time says where the offset to this machine's own clock lies, no closer than the round trip was
short. Every use then takes the bound that makes a record look older than it is, never younger. Nothing here may read a
wall clock: it can be set, and it differs between machines.
"""

import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass

from freshgate_service.domain import Now
from freshgate_service.errors import StoreUnavailable

DRIFT = 100e-6
"""Seconds that two clocks may part in a second. Oscillators are rated at up to 50 millionths each."""


_BOOTTIME: int = getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC)


def boottime() -> float:
    """Seconds since the machine started, suspended or not. Elsewhere than on Linux the monotonic clock counts so."""
    return time.clock_gettime(_BOOTTIME)


@dataclass(frozen=True, slots=True)
class _Bounds:
    """The offset (store's time minus boottime) lay in [low, high] when the boottime was `at`."""

    low: float
    high: float
    at: float

    def widened(self, at: float) -> "_Bounds":
        drift = DRIFT * (at - self.at)
        return _Bounds(self.low - drift, self.high + drift, at)

    def narrowed(self, reading: "_Bounds") -> "_Bounds":
        """What both agree on; the new reading alone where they contradict each other, since then a clock was set."""
        known = self.widened(reading.at)
        low, high = max(known.low, reading.low), min(known.high, reading.high)
        return _Bounds(low, high, reading.at) if low <= high else reading


class StoreClock:
    def __init__(self, boottime: Now, read_store_time: Callable[[], Awaitable[float]]) -> None:
        self._boottime = boottime
        self._read_store_time = read_store_time
        self._bounds: _Bounds | None = None

    async def sync(self) -> None:
        """Reads the store's time once; what the reader raises passes, and the bounds known before stay."""
        before = self._boottime()
        store_time = await self._read_store_time()
        after = self._boottime()
        # The store answered at an unknown moment between the two, and the clocks may have drifted since.
        reading = _Bounds(store_time - after, store_time - before, before).widened(after)
        self._bounds = reading if self._bounds is None else self._bounds.narrowed(reading)

    def latest(self) -> float:
        """The store's time is not later than this. For ages and for what expires."""
        now, known = self._boottime(), self._known()
        return now + known.high + DRIFT * (now - known.at)

    def earliest(self) -> float:
        """The store's time is not earlier than this. For the stamp at the start of a read."""
        now, known = self._boottime(), self._known()
        return now + known.low - DRIFT * (now - known.at)

    def _known(self) -> _Bounds:
        if self._bounds is None:
            raise StoreUnavailable("the store's time has not been read yet")
        return self._bounds
