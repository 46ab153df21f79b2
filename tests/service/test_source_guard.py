"""The guard around a source, on a clock that the tests move."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any

import asyncpg
import pytest
from hypothesis import given
from hypothesis import strategies as st

from freshgate_crds import compiled
from freshgate_service.domain import Listed, Record
from freshgate_service.errors import (
    ConfigRefused,
    RateLimited,
    RecordMalformed,
    SourceError,
    SourceRefused,
    SourceTimeout,
    SourceUnavailable,
)
from freshgate_service.sources.build import build_reader, build_source
from freshgate_service.sources.guard import (
    FAILURES_TO_OPEN,
    FIRST_PAUSE,
    LONGEST_PAUSE,
    MAX_IDS,
    Budget,
    Guarded,
    read_timeout,
)
from freshgate_service.sources.mapping import compile_mapping
from freshgate_service.sources.reader import Reader


@dataclass
class Clock:
    """Time passes only by being waited for, or moved."""

    time: float = 1000.0

    def __call__(self) -> float:
        return self.time

    async def sleep(self, seconds: float) -> None:
        self.time += seconds
        await asyncio.sleep(0)


Answer = Callable[[Sequence[str]], Awaitable[Mapping[str, Any]]]


@dataclass
class Upstream:
    """A source that answers as told, and remembers what it was asked."""

    clock: Clock
    answer: Answer | None = None
    pages: Sequence[Sequence[Listed] | Exception] = ()
    asked: list[Sequence[str]] = field(default_factory=list)
    asked_at: list[float] = field(default_factory=list)
    closed_listings: int = 0

    async def list(self) -> AsyncIterator[Sequence[Listed]]:
        try:
            for page in self.pages:
                self.asked_at.append(self.clock())
                if isinstance(page, Exception):
                    raise page
                yield page
        finally:
            self.closed_listings += 1

    async def fetch(self, record_ids: Sequence[str]) -> Mapping[str, Mapping[str, Any] | Exception]:
        self.asked.append(record_ids)
        self.asked_at.append(self.clock())
        if self.answer is not None:
            return await self.answer(record_ids)
        return {record_id: {"id": record_id} for record_id in record_ids}

    async def close(self) -> None: ...


def spec(**changes: Any) -> compiled.Source:
    limits = {"timeout_seconds": 10.0, "concurrency": 4, "requests_per_minute": 600, "max_objects": 20_000}
    return compiled.Source(
        name="tickets",
        ttl_seconds=changes.pop("ttl_seconds", 300.0),
        discovery_interval_seconds=60.0,
        sweep_seconds=3600.0,
        postgres=changes.pop(
            "postgres",
            compiled.Postgres(
                dsn=compiled.Credential(secret="support-db", key="dsn"),
                list="SELECT id FROM tickets",
                fetch="SELECT id, 'ticket ' || id AS subject, 1 / (id - 13) AS odds FROM tickets WHERE id = ANY($1)",
            ),
        ),
        rest=changes.pop("rest", None),
        object=compiled.ObjectMapping(title="subject", body=("subject",)),
        condense_max_words=100,
        limits=compiled.Limits(**limits | changes),
        spec_hash="hash",
    )


class Failing:
    """Fails as often as it is told to, with what it is told to."""

    def __init__(self, error: Exception, times: float = float("inf")) -> None:
        self.error, self.times = error, times

    async def __call__(self, record_ids: Sequence[str]) -> Mapping[str, Any]:
        if self.times > 0:
            self.times -= 1
            raise self.error
        return {record_id: {"id": record_id} for record_id in record_ids}


def guarded(upstream: Upstream, **limits: Any) -> Guarded:
    return Guarded(upstream, spec(**limits), upstream.clock, sleep=upstream.clock.sleep)


async def outcome(source: Guarded, *, background: bool = False) -> Any:
    return (await source.fetch(["1"], background=background))["1"]


async def open_breaker(source: Guarded) -> None:
    for _ in range(FAILURES_TO_OPEN):
        await outcome(source)
    assert source.breaker_open


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def upstream(clock: Clock) -> Upstream:
    return Upstream(clock)


# --- the budget --------------------------------------------------------------------------------------------------


@given(
    per_minute=st.integers(1, 200),
    steps=st.lists(st.tuples(st.booleans(), st.sampled_from([0.0, 0.0, 0.0, 0.3, 7.0, 61.0])), max_size=150),
)
def test_no_minute_sees_more_reads_than_allowed_nor_the_background_more_than_half(
    per_minute: int, steps: list[tuple[bool, float]]
):
    clock = Clock()
    budget = Budget(per_minute, clock, clock.sleep)
    started: list[tuple[float, bool]] = []

    async def read() -> None:
        for background, pause in steps:
            clock.time += pause
            try:
                await budget.take(60.0, background=background)
            except RateLimited:
                continue
            started.append((clock(), background))

    asyncio.run(read())
    for begin, _ in started:
        minute = [background for at, background in started if begin <= at < begin + 60.0]
        assert len(minute) <= per_minute
        assert sum(minute) <= max(1, per_minute // 2)


async def test_a_busy_background_leaves_queries_their_half_at_once(upstream: Upstream, clock: Clock):
    source = guarded(upstream, requests_per_minute=60)
    for _ in range(30):
        await source.fetch(["1"], background=True)
    assert clock() > 1000.0  # it had to wait
    before = clock()
    for _ in range(5):
        await source.fetch(["2"], background=False)
    assert clock() == before


async def test_a_query_waits_for_the_budget_no_longer_than_a_read_may_take(upstream: Upstream, clock: Clock):
    source = guarded(upstream, requests_per_minute=60)
    found = [await outcome(source) for _ in range(12)]
    assert all(record == {"id": "1"} for record in found)  # ten at once, and two after ten seconds
    assert clock() == pytest.approx(1010.0)

    slow = guarded(upstream, requests_per_minute=2, timeout_seconds=5.0)
    assert [type(await outcome(slow)) for _ in range(2)] == [dict, RateLimited]  # 30 s away: told at once


async def test_a_source_that_asks_for_a_pause_gets_it_replay_22(upstream: Upstream, clock: Clock):
    upstream.answer = Failing(RateLimited("429", retry_after=7.0), times=1)
    source = guarded(upstream)
    assert isinstance(await outcome(source), RateLimited)
    assert await outcome(source) == {"id": "1"}
    assert upstream.asked_at == [1000.0, pytest.approx(1007.0)]

    upstream.answer = Failing(RateLimited("429", retry_after=3600.0), times=1)
    await outcome(source)
    asked = len(upstream.asked)
    assert isinstance(await outcome(source), RateLimited)  # too far off to wait for
    assert len(upstream.asked) == asked
    assert not source.breaker_open


async def test_a_failing_source_stays_inside_its_budget_replay_42(upstream: Upstream, clock: Clock):
    upstream.answer = Failing(SourceUnavailable("gone"))
    source = guarded(upstream, requests_per_minute=60)
    while clock() < 1000.0 + 3600.0:
        await outcome(source)
        await outcome(source, background=True)
        clock.time += 0.25
    hour = 3600.0 / LONGEST_PAUSE
    assert len(upstream.asked) <= hour + FAILURES_TO_OPEN + 10


# --- the breaker -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("error", [SourceTimeout, SourceUnavailable, SourceRefused])
async def test_after_several_failures_in_a_row_nothing_is_asked_and_the_reason_stays(
    upstream: Upstream, error: type[SourceError]
):
    upstream.answer = Failing(error("why"))
    source = guarded(upstream)
    await open_breaker(source)
    asked = len(upstream.asked)
    failed = await outcome(source)
    assert isinstance(failed, error)
    assert "not asked" in str(failed)
    assert "why" in str(failed)
    assert len(upstream.asked) == asked


async def test_one_success_between_failures_keeps_it_closed(upstream: Upstream):
    source = guarded(upstream)
    for _ in range(3):
        upstream.answer = Failing(SourceUnavailable("gone"), times=FAILURES_TO_OPEN - 1)
        for _ in range(FAILURES_TO_OPEN):
            await outcome(source)
    assert not source.breaker_open


async def test_after_a_pause_one_read_is_let_through_and_closes_it(upstream: Upstream, clock: Clock):
    upstream.answer = Failing(SourceUnavailable("gone"), times=FAILURES_TO_OPEN)
    source = guarded(upstream)
    await open_breaker(source)
    clock.time += FIRST_PAUSE
    assert await outcome(source) == {"id": "1"}
    assert not source.breaker_open


async def test_each_probe_that_fails_doubles_the_pause_up_to_a_limit(upstream: Upstream, clock: Clock):
    upstream.answer = Failing(SourceUnavailable("gone"))
    source = guarded(upstream)
    await open_breaker(source)
    while clock() < 1200.0:
        clock.time += 0.5
        await outcome(source)
    probes = upstream.asked_at[FAILURES_TO_OPEN - 1 :]
    pauses = [after - before for before, after in pairwise(probes)]
    assert pauses == [1.0, 2.0, 4.0, 8.0, 16.0, 30.0, 30.0, 30.0, 30.0, 30.0][: len(pauses)]
    assert len(pauses) >= 8


async def test_while_one_probe_is_under_way_no_other_read_is_and_a_cancelled_probe_makes_room(
    upstream: Upstream, clock: Clock
):
    upstream.answer = Failing(SourceUnavailable("gone"))
    source = guarded(upstream)
    await open_breaker(source)
    clock.time += FIRST_PAUSE
    reached, hold = asyncio.Event(), asyncio.Event()

    async def hang(record_ids: Sequence[str]) -> Mapping[str, Any]:
        reached.set()
        await hold.wait()
        return {}

    upstream.answer = hang
    probe = asyncio.create_task(source.fetch(["1"], background=False))
    await reached.wait()
    assert isinstance(await outcome(source), SourceUnavailable)
    probe.cancel()
    await asyncio.wait({probe})
    upstream.answer = None
    assert await outcome(source) == {"id": "1"}


async def test_malformed_records_never_open_it(upstream: Upstream):
    upstream.answer = Failing(RecordMalformed("no title"))
    source = guarded(upstream)
    for _ in range(2 * FAILURES_TO_OPEN):
        assert isinstance(await outcome(source), RecordMalformed)
    assert not source.breaker_open


@pytest.mark.parametrize(
    ("error", "opens"),
    [(SourceRefused("maxObjects"), False), (SourceTimeout("slow"), False), (SourceUnavailable("gone"), True)],
)
async def test_listings_that_fail_hold_up_queries_only_where_nobody_is_there(
    upstream: Upstream, error: SourceError, opens: bool
):
    upstream.pages = [error]
    source = guarded(upstream)
    for _ in range(2 * FAILURES_TO_OPEN):
        with pytest.raises(type(error)):
            await anext(source.list())
    assert source.breaker_open == opens


# --- timeouts ----------------------------------------------------------------------------------------------------


def test_a_read_may_take_its_timeout_or_the_ttl_whichever_is_less():
    assert read_timeout(spec(timeout_seconds=10.0, ttl_seconds=300.0)) == 10.0
    assert read_timeout(spec(timeout_seconds=10.0, ttl_seconds=2.0)) == 2.0


async def never(_: Sequence[str]) -> Mapping[str, Any]:
    await asyncio.Event().wait()
    return {}


async def test_a_read_that_does_not_end_is_a_timeout(upstream: Upstream):
    upstream.answer = never
    assert isinstance(await outcome(guarded(upstream, ttl_seconds=0.01)), SourceTimeout)


async def test_a_listing_that_hangs_between_pages_is_a_timeout_and_is_closed(clock: Clock):
    class Hanging(Upstream):
        async def list(self) -> AsyncIterator[Sequence[Listed]]:
            try:
                yield [Listed("1", None)]
                await asyncio.Event().wait()
            finally:
                self.closed_listings += 1

    upstream = Hanging(clock)
    pages = guarded(upstream, ttl_seconds=0.01).list()
    assert await anext(pages) == [Listed("1", None)]
    with pytest.raises(SourceTimeout):
        await anext(pages)
    assert upstream.closed_listings == 1


# --- listing -----------------------------------------------------------------------------------------------------


@pytest.mark.promise("FRE-6")
async def test_an_empty_page_is_not_the_end_of_a_listing(upstream: Upstream):
    upstream.pages = [[Listed("1", None)], [], [Listed("2", None)]]
    assert [page async for page in guarded(upstream).list()] == upstream.pages


@pytest.mark.promise("FRE-6")
async def test_a_listing_that_breaks_on_a_later_page_raises(upstream: Upstream):
    upstream.pages = [[Listed("1", None)], SourceUnavailable("gone")]
    pages = guarded(upstream).list()
    await anext(pages)
    with pytest.raises(SourceUnavailable):
        await anext(pages)


async def test_a_listing_left_early_is_closed_and_gives_its_slot_back(upstream: Upstream):
    upstream.pages = [[Listed("1", None)]] * 3
    source = guarded(upstream, concurrency=1)
    pages = source.list()
    await anext(pages)
    await pages.aclose()
    assert upstream.closed_listings == 1
    assert await outcome(source) == {"id": "1"}


# --- concurrency -------------------------------------------------------------------------------------------------


@dataclass
class Held:
    """Answers nothing before it is let go; counts how many wait."""

    now: int = 0
    most: int = 0
    go: asyncio.Event = field(default_factory=asyncio.Event)

    async def __call__(self, record_ids: Sequence[str]) -> Mapping[str, Any]:
        self.now += 1
        self.most = max(self.most, self.now)
        try:
            await self.go.wait()
        finally:
            self.now -= 1
        return {}


async def settled() -> None:
    for _ in range(50):
        await asyncio.sleep(0)


async def test_no_more_reads_than_allowed_are_under_way_and_the_background_has_half(upstream: Upstream):
    upstream.answer = held = Held()
    source = guarded(upstream, concurrency=4)
    background = [asyncio.create_task(source.fetch(["1"], background=True)) for _ in range(6)]
    await settled()
    assert held.now == 2
    queries = [asyncio.create_task(source.fetch(["1"], background=False)) for _ in range(6)]
    await settled()
    assert held.now == 4
    held.go.set()
    await asyncio.gather(*background, *queries)
    assert held.most == 4


async def test_cancelled_reads_give_their_slots_back_wherever_they_were_replay_15(upstream: Upstream):
    upstream.answer = held = Held()
    source = guarded(upstream, concurrency=2)
    for turns in range(12):
        tasks = [asyncio.create_task(source.fetch(["1"], background=each % 2 == 0)) for each in range(5)]
        for _ in range(turns):
            await asyncio.sleep(0)
        for task in tasks:
            task.cancel()
        await asyncio.wait(tasks)
    assert held.now == 0
    held.go.set()
    await asyncio.gather(*(source.fetch(["1"], background=each % 2 == 0) for each in range(5)))


async def test_who_finds_no_slot_in_time_is_told_so(upstream: Upstream):
    upstream.pages = [[Listed("1", None)]]
    source = guarded(upstream, concurrency=1, ttl_seconds=0.01)
    pages = source.list()
    await anext(pages)  # the one slot is its own until it ends
    assert isinstance(await outcome(source), RateLimited)
    await pages.aclose()
    assert await outcome(source) == {"id": "1"}


# --- batches -----------------------------------------------------------------------------------------------------


class Poisoned:
    """Fails whole where certain records are asked for."""

    def __init__(self, *bad: str) -> None:
        self.bad = frozenset(bad)

    async def __call__(self, record_ids: Sequence[str]) -> Mapping[str, Any]:
        if self.bad & set(record_ids):
            raise RecordMalformed("a record")
        return {record_id: {"id": record_id} for record_id in record_ids}


async def test_one_record_that_fails_its_batch_is_found_and_fails_alone(upstream: Upstream):
    upstream.answer = Poisoned("37")
    ids = [str(n) for n in range(MAX_IDS)]
    found = await guarded(upstream).fetch(ids, background=False)
    assert set(found) == set(ids)
    assert [record_id for record_id, record in found.items() if isinstance(record, SourceError)] == ["37"]
    assert len(upstream.asked) <= 2 * 7 + 1


async def test_no_read_asks_for_more_than_so_many_records(upstream: Upstream):
    ids = [str(n) for n in range(2 * MAX_IDS + 1)]
    assert list(await guarded(upstream).fetch(ids, background=True)) == ids
    assert [len(asked) for asked in upstream.asked] == [MAX_IDS, MAX_IDS, 1]


async def test_what_could_still_be_read_is_kept_when_a_later_batch_fails(upstream: Upstream):
    async def fail_second(record_ids: Sequence[str]) -> Mapping[str, Any]:
        if len(upstream.asked) == 2:
            raise SourceUnavailable("gone")
        return {record_id: {} for record_id in record_ids}

    upstream.answer = fail_second
    ids = [str(n) for n in range(2 * MAX_IDS + 1)]
    found = await guarded(upstream).fetch(ids, background=False)
    assert set(found) == set(ids)
    assert all(found[each] == {} for each in ids[:MAX_IDS])
    assert all(isinstance(found[each], SourceUnavailable) for each in ids[MAX_IDS:])


async def test_splitting_ends_in_time_and_what_is_unread_says_so(upstream: Upstream, clock: Clock):
    upstream.answer = Poisoned(*map(str, range(MAX_IDS)))
    source = guarded(upstream, requests_per_minute=60)
    ids = [str(n) for n in range(MAX_IDS)]
    found = await source.fetch(ids, background=False)
    assert set(found) == set(ids)
    assert clock() - 1000.0 <= source.patience
    assert {type(record) for record in found.values()} == {RecordMalformed, SourceTimeout}


# --- the reader --------------------------------------------------------------------------------------------------


async def test_a_record_that_cannot_be_mapped_fails_alone_and_one_that_is_gone_stays_absent(upstream: Upstream):
    async def answer(record_ids: Sequence[str]) -> Mapping[str, Any]:
        return {
            "1": {"subject": "a title"},
            "2": {"other": "x"},
            "3": SourceRefused("no"),
            "4": {"subject": "x" * 200_000},
        }

    upstream.answer = answer
    reader = Reader(spec(), guarded(upstream), compile_mapping(spec().object, "tickets"))
    found = await reader.fetch(["1", "2", "3", "4", "5"], background=False)
    assert set(found) == {"1", "2", "3", "4"}
    assert isinstance(found["1"], Record)
    assert found["1"].title == "a title"
    assert isinstance(found["2"], RecordMalformed)
    assert isinstance(found["3"], SourceRefused)
    assert isinstance(found["4"], Record)
    assert len(found["4"].body) == 200_000


async def test_in_a_real_database_one_record_that_fails_the_statement_fails_alone(database: str, clock: Clock):
    connection = await asyncpg.connect(database)
    await connection.execute("CREATE TABLE tickets AS SELECT id FROM generate_series(1, 40) id")
    reader = build_reader(spec(), {"support-db_dsn": database + "\n"}, clock, allow_loopback=True)
    ids = [item.record_id async for page in reader.list() for item in page]
    found = await reader.fetch([*ids, "41", "x"], background=True)
    assert set(found) == set(ids)
    assert [record_id for record_id, record in found.items() if isinstance(record, SourceError)] == ["13"]
    await reader.close()
    await connection.close()


# --- building ----------------------------------------------------------------------------------------------------


def test_a_source_of_another_kind_is_refused_for_now():
    rest = compiled.Rest(
        url="https://desk.example",
        list=compiled.RestList(path="/", items="results", id="id"),
        fetch=compiled.RestFetch(path="/{id}"),
    )
    with pytest.raises(ConfigRefused, match="source tickets: this build reads postgres sources only"):
        build_source(spec(postgres=None, rest=rest), {}, allow_loopback=False)


@pytest.mark.parametrize("credentials", [{}, {"support-db_dsn": " \n"}])
def test_a_missing_secret_is_refused_by_its_name_and_key(credentials: Mapping[str, str]):
    with pytest.raises(ConfigRefused, match="source tickets: the Secret support-db has no key dsn"):
        build_source(spec(), credentials, allow_loopback=False)


async def test_loopback_is_allowed_only_where_the_builder_is_told_so(database: str):
    source = build_source(spec(), {"support-db_dsn": database}, allow_loopback=False)
    with pytest.raises(SourceRefused, match="loopback"):
        await source.fetch(["1"])
    await source.close()
