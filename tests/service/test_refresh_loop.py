"""The background loop: what it lists, what it reads, what it deletes, and when it is due."""

import asyncio
from collections.abc import AsyncIterator
from dataclasses import replace
from unittest import mock

import pytest
from freshgate_world import ANA, World, configuration, key, source, states, world

from freshgate_crds.compiled import Postgres
from freshgate_service.domain import Clock
from freshgate_service.errors import SourceUnavailable
from freshgate_service.refresh import Breath


@pytest.fixture
async def made(database, move_store_time) -> AsyncIterator[World]:
    async with world(database, move_store_time) as made:
        yield made


def fill(made: World, *record_ids: str, version: str | None = None) -> None:
    for each in record_ids:
        made.upstreams["tickets"].put(each, version, title=f"refund {each}")


def read(made: World) -> list[tuple[str, ...]]:
    """What was read since this was last asked."""
    reads, made.upstreams["tickets"].reads = made.upstreams["tickets"].reads, []
    return reads


@pytest.mark.promise("FRE-7")
async def test_a_listing_reads_what_is_new_and_what_has_another_version(made):
    fill(made, "1", "2", version="a")
    await made.loop()
    assert read(made) == [("1", "2")]
    fill(made, "2", version="b")
    fill(made, "3", version="a")
    await made.advance(61)
    await made.loop()
    assert [sorted(each) for each in read(made)] == [["2", "3"]]


@pytest.mark.promise("FRE-7")
async def test_nothing_is_listed_before_the_interval_has_passed(made):
    fill(made, "1")
    await made.loop()
    await made.advance(58)
    await made.loop()
    assert made.upstreams["tickets"].listings == 1
    await made.advance(3)
    await made.loop()
    assert made.upstreams["tickets"].listings == 2


@pytest.mark.promise("FRE-7")
async def test_a_sweep_reads_every_object_whatever_was_asked_since(made):
    fill(made, "1", "2")
    await made.loop()
    await made.advance(3599)
    await made.ask(ANA, "refund 1", limit=1)
    await made.loop()
    read(made)
    await made.advance(2)
    await made.loop()
    assert [sorted(each) for each in read(made)] == [["1", "2"]]


@pytest.mark.promise("FRE-7", "ENT-4")
async def test_when_the_loop_is_due_does_not_depend_on_what_was_asked(database, move_store_time):
    reads = []
    for workspace, asks in (("asked", True), ("quiet", False)):
        async with world(database, move_store_time, configuration(workspace=workspace)) as made:
            fill(made, "1", "2")
            for _ in range(9):
                await made.loop()
                loops = read(made)
                if asks:
                    await made.ask(ANA, "refund")
                    read(made)
                reads.append((workspace, loops))
                await made.advance(601)
    asked = [loops for workspace, loops in reads if workspace == "asked"]
    quiet = [loops for workspace, loops in reads if workspace == "quiet"]
    assert asked == quiet
    assert sum(map(bool, quiet)) == 2


@pytest.mark.promise("FRE-2")
async def test_a_changed_version_makes_an_object_stale_at_once(made):
    fill(made, "1", version="a")
    await made.loop()
    fill(made, "1", version="b")
    await made.advance(30)
    await made.engine.store.mark_outdated([key("1")], made.engine.clock.earliest())
    await made.engine.catch_up()
    read(made)
    assert states(await made.ask(ANA, "refund")) == {"tickets/1": "refreshed"}
    assert read(made) == [("1",)]


async def test_a_version_that_could_not_be_read_again_stays_outdated(made):
    fill(made, "1", version="a")
    await made.loop()
    fill(made, "1", version="b")
    await made.advance(61)
    desk = made.upstreams["tickets"]
    with mock.patch.object(desk, "fetch", side_effect=SourceUnavailable("gone")):
        await made.loop()
        [item] = await made.ask(ANA, "refund")
        assert item.content is None
    assert states(await made.ask(ANA, "refund")) == {"tickets/1": "refreshed"}


@pytest.mark.promise("FRE-6")
async def test_a_complete_listing_that_lacks_a_record_deletes_it(made):
    fill(made, "1", "2")
    await made.loop()
    del made.upstreams["tickets"].records["2"]
    await made.advance(61)
    await made.loop()
    assert set(made.engine.memory.objects) == {key("1")}


@pytest.mark.promise("FRE-6")
@pytest.mark.parametrize("breaks_after", [0, 1, 2])
async def test_replay_17_a_listing_that_breaks_deletes_nothing_and_says_so(made, breaks_after):
    fill(made, "1", "2", "3")
    await made.loop()
    desk = made.upstreams["tickets"]
    desk.breaks_after = breaks_after
    await made.advance(61)
    await made.loop()
    assert len(made.engine.memory.objects) == 3
    state = (await made.engine.store.source_states())["tickets"]
    assert "the listing broke" in str(state.last_error)


async def test_a_listing_that_failed_is_tried_again_soon_and_then_less_often(made):
    await made.take(sources=(source(discovery_interval_seconds=3600.0),))
    desk = made.upstreams["tickets"]
    desk.breaks_after = 0
    fill(made, "1")
    tries = []
    for _ in range(20):
        await made.loop()
        tries.append(desk.listings)
        await made.advance(30.1)
    assert [place for place in range(1, 20) if tries[place] > tries[place - 1]] == [1, 3, 7, 15]


@pytest.mark.promise("FRE-4")
async def test_an_unchanged_version_confirms_only_where_the_source_says_that_it_covers_all(made):
    fill(made, "1", version="a")
    await made.loop()
    await made.advance(61)
    await made.loop()
    before = made.engine.memory.objects[key("1")]
    covering = Postgres(dsn=source().postgres.dsn, list="", fetch="", version_covers_access=True)
    await made.take(sources=(source(postgres=covering),))
    read(made)
    await made.advance(61)
    await made.loop()
    after = made.engine.memory.objects[key("1")]
    assert read(made) == []
    assert after.clock.confirmed_at > before.clock.confirmed_at + 60


@mock.patch("freshgate_service.refresh.loop.LEASE_SECONDS", 1.0)
async def test_a_second_process_runs_the_loop_once_the_first_has_let_go(made):
    fill(made, "1")
    async with made.opened("two") as other:
        first = asyncio.create_task(made.engine.loop.run())
        await _until(lambda: made.engine.loop.holding)
        second = asyncio.create_task(other.loop.run())
        await asyncio.sleep(0.05)
        assert not other.loop.holding
        first.cancel()
        await asyncio.wait({first})
        await _until(lambda: other.loop.holding)
        assert not made.engine.loop.holding
        second.cancel()
        await asyncio.wait({second})


async def test_a_first_backfill_tells_its_progress_and_is_not_complete_before_its_end(made):
    fill(made, *(f"{each:03}" for each in range(250)))
    told = []
    made.engine.loop.progress = lambda *step: told.append(step)
    await made.loop()
    assert told == [("tickets", 100, 250), ("tickets", 200, 250), ("tickets", 250, 250)]
    assert (await made.engine.store.source_states())["tickets"].complete


async def test_a_backfill_that_was_cut_off_by_the_source_goes_on_where_it_was(made):
    fill(made, *(f"{each:03}" for each in range(250)))
    desk, fetch = made.upstreams["tickets"], made.upstreams["tickets"].fetch

    async def once(record_ids):
        desk.fetch = failing
        return await fetch(record_ids)

    async def failing(_):
        raise SourceUnavailable("gone")

    desk.fetch = once
    await made.loop()
    assert not (await made.engine.store.source_states())["tickets"].complete
    assert len(made.engine.memory.objects) == 100
    desk.fetch = fetch
    read(made)
    await made.advance(61)
    await made.loop()
    assert (await made.engine.store.source_states())["tickets"].complete
    assert sum(len(each) for each in read(made)) == 150


async def test_work_on_many_objects_gives_way(made):
    turns = 0

    async def other() -> None:
        nonlocal turns
        while True:
            turns += 1
            await asyncio.sleep(0)

    fill(made, *(f"{each:04}" for each in range(500)))
    task = asyncio.create_task(other())
    await made.loop()
    task.cancel()
    assert turns > 100
    breath = Breath()
    await breath()


async def test_an_object_read_under_another_spec_is_read_again_whatever_its_clock_says(made):
    fill(made, "1")
    await made.loop()
    read(made)
    known = made.engine.memory.objects[key("1")]
    future = replace(known, clock=Clock(made.engine.clock.latest() + 30), spec_hash="other")
    made.engine.memory.objects[key("1")] = future
    await made.take(sources=(source(spec_hash="tickets two"),))
    await made.loop()
    assert read(made) == [("1",)]


async def _until(holds) -> None:
    async with asyncio.timeout(5):
        while not holds():
            await asyncio.sleep(0.01)
