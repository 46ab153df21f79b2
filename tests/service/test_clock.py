"""The bounds of the store's time hold whatever the network and the clocks do within their ratings."""

import time
from dataclasses import dataclass, field
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from freshgate_service.clock import DRIFT, StoreClock, boottime
from freshgate_service.domain import Clock, freshness
from freshgate_service.errors import StoreUnavailable

pytestmark = pytest.mark.promise("FRE-2")


@dataclass
class World:
    """True time, and two clocks that read it: the machine's, which drifts, and the store's."""

    offset: float = 1_700_000_000.0
    drift: float = 0.0
    true_time: float = 1000.0
    delays: list[tuple[float, float]] = field(default_factory=list)

    def boottime(self) -> float:
        return self.true_time

    @property
    def store_time(self) -> float:
        return self.offset + self.true_time * (1 + self.drift)

    async def read_store_time(self) -> float:
        there, back = self.delays.pop(0) if self.delays else (0.0, 0.0)
        self.true_time += there
        reading = self.store_time
        self.true_time += back
        return reading

    def clock(self) -> StoreClock:
        return StoreClock(self.boottime, self.read_store_time)


seconds = st.floats(0, 30, allow_subnormal=False)
TOLERANCE = 1e-5  # what floats around 1.7e9 cannot tell apart, many times over


@given(
    drift=st.floats(-DRIFT, DRIFT) | st.just(0.0),
    steps=st.lists(st.tuples(st.floats(0, 3600), seconds, seconds), min_size=1, max_size=8),
    pause=st.floats(0, 86_400),
)
async def test_the_stores_time_lies_within_the_bounds_at_any_delay_and_any_drift_it_is_rated_for(drift, steps, pause):
    world = World(drift=drift)
    clock = world.clock()
    for rest, there, back in steps:
        world.true_time += rest
        world.delays.append((there, back))
        await clock.sync()
        assert clock.earliest() - TOLERANCE <= world.store_time <= clock.latest() + TOLERANCE
    world.true_time += pause
    assert clock.earliest() - TOLERANCE <= world.store_time <= clock.latest() + TOLERANCE


@given(there=seconds, back=seconds, age=st.floats(0, 100))
async def test_a_record_never_looks_younger_than_it_is(there, back, age):
    world = World(delays=[(there, back)])
    clock = world.clock()
    await clock.sync()
    confirmed_at, started = clock.earliest(), world.store_time
    world.true_time += age
    truly = freshness(Clock(started), ttl_seconds=60, now=world.store_time)
    assert freshness(Clock(confirmed_at), ttl_seconds=60, now=clock.latest()) <= truly + TOLERANCE


@given(st.lists(st.tuples(seconds, seconds), min_size=2, max_size=6))
async def test_a_slow_reading_never_loosens_what_a_quick_one_told(delays):
    world = World(delays=list(delays))
    clock = world.clock()
    widths = []
    for _ in delays:
        await clock.sync()
        widths.append((clock.latest() - clock.earliest(), world.true_time))
    for (before, at), (after, now) in pairwise(widths):
        assert after <= before + 2 * DRIFT * (now - at) + TOLERANCE


@pytest.mark.parametrize("jump", [-3600.0, -1.0, 1.0, 3600.0])
async def test_the_bounds_follow_a_store_whose_clock_was_set(jump):
    world = World(delays=[(0.001, 0.001)] * 2)
    clock = world.clock()
    await clock.sync()
    world.offset += jump
    await clock.sync()
    assert clock.earliest() - TOLERANCE <= world.store_time <= clock.latest() + TOLERANCE


async def test_without_readings_the_bounds_widen_by_a_hundred_millionths_of_the_time_passed():
    world = World()
    clock = world.clock()
    await clock.sync()
    world.true_time += 10_000
    assert clock.latest() - clock.earliest() == pytest.approx(2 * 1.0, abs=TOLERANCE)


async def test_a_failed_reading_leaves_the_bounds_that_were_known():
    world = World()
    clock = world.clock()
    await clock.sync()

    async def unavailable() -> float:
        raise StoreUnavailable("gone")

    clock._read_store_time = unavailable
    with pytest.raises(StoreUnavailable):
        await clock.sync()
    assert clock.latest() == pytest.approx(world.store_time)


def test_before_the_first_reading_there_is_no_time_to_round():
    clock = World().clock()
    with pytest.raises(StoreUnavailable):
        clock.latest()
    with pytest.raises(StoreUnavailable):
        clock.earliest()


def test_boottime_counts_on_through_suspension():
    before = time.clock_gettime(time.CLOCK_BOOTTIME)
    assert before <= boottime() <= time.clock_gettime(time.CLOCK_BOOTTIME)
