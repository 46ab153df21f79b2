"""The newest configuration, and how far the background loop has come."""

import asyncio
from datetime import UTC, datetime, timedelta
from itertools import permutations

import pytest
from freshgate_store import batch, key, put

from freshgate_crds.compiled import Revision
from freshgate_service.domain import SourceState

NOON = datetime(2026, 11, 30, 12, tzinfo=UTC)
HOUR = timedelta(hours=1)


def revision(counter: int, uid: str = "first") -> Revision:
    return Revision(workspace_uid=uid, counter=counter)


@pytest.mark.promise("CON-3")
async def test_the_highest_revision_is_kept_whatever_order_they_come_in(open_store):
    for order in permutations([1, 2, 10]):
        stores = [await open_store(workspace=str(order)) for _ in order]
        for store, counter in zip(stores, order, strict=True):
            await store.admit_revision(revision(counter), NOON)
        assert {(await store.highest_revision()) for store in stores} == {revision(10)}


@pytest.mark.promise("CON-3")
async def test_a_process_that_is_behind_is_told_the_revision_in_force(open_store):
    ahead, behind = await open_store(), await open_store()
    assert await ahead.admit_revision(revision(8), NOON) == revision(8)
    assert await behind.admit_revision(revision(7), NOON + HOUR) == revision(8)
    assert await ahead.admit_revision(revision(8), NOON) == revision(8)


@pytest.mark.promise("CON-3")
async def test_revisions_that_are_admitted_at_once_all_hear_of_the_highest_or_are_it(open_store):
    stores = [await open_store() for _ in range(6)]
    answers = await asyncio.gather(*(store.admit_revision(revision(n), NOON) for n, store in enumerate(stores)))
    assert all(answer.counter >= n for n, answer in enumerate(answers))
    assert await stores[0].highest_revision() == revision(5)


@pytest.mark.promise("CON-3")
async def test_a_workspace_made_anew_counts_from_one_and_is_newer_all_the_same(open_store):
    store = await open_store()
    await store.admit_revision(revision(57, "first"), NOON)
    assert await store.admit_revision(revision(1, "second"), NOON + HOUR) == revision(1, "second")


@pytest.mark.promise("CON-3")
async def test_a_process_left_over_from_the_workspace_before_never_wins_again(open_store):
    """Not even one that the store has never heard of."""
    new, old, older = await open_store(), await open_store(), await open_store()
    await old.admit_revision(revision(57, "first"), NOON)
    await new.admit_revision(revision(1, "second"), NOON + HOUR)
    assert await old.admit_revision(revision(57, "first"), NOON) == revision(1, "second")
    assert await older.admit_revision(revision(99, "never heard of"), NOON - HOUR) == revision(1, "second")


@pytest.mark.promise("CON-3")
async def test_a_stamp_alone_makes_no_revision_newer_but_counts_against_another_workspace(open_store):
    store = await open_store()
    await store.admit_revision(revision(5), NOON)
    await store.admit_revision(revision(5), NOON + 2 * HOUR)
    assert await store.admit_revision(revision(4), NOON + 3 * HOUR) == revision(5)
    assert await store.admit_revision(revision(1, "second"), NOON + HOUR) == revision(5)


async def test_before_any_revision_was_admitted_there_is_none(open_store):
    assert await (await open_store()).highest_revision() is None


async def test_a_new_revision_wakes_the_other_processes(open_store):
    one, other = await open_store(), await open_store()
    await other.notified(5)
    waiting = asyncio.create_task(other.notified(60))
    await one.admit_revision(revision(1), NOON)
    await asyncio.wait_for(waiting, 5)


async def test_what_the_loop_knows_of_its_sources_is_kept_for_its_next_holder(open_store):
    one, other = await open_store(), await open_store()
    assert await other.source_states() == {}
    failed = SourceState("spec-1", complete=True, last_list=100.0, last_error="source_timeout", last_error_at=150.0)
    await one.save_source_state("tickets", failed)
    await one.save_source_state("accounts", SourceState())
    assert await other.source_states() == {"tickets": failed, "accounts": SourceState()}
    well = SourceState("spec-1", complete=True, last_list=200.0, last_sweep=200.0, last_success=200.0)
    await other.save_source_state("tickets", well)
    assert (await one.source_states())["tickets"] == well


@pytest.mark.promise("FRE-5")
async def test_a_source_that_leaves_takes_its_state_along(open_store):
    store = await open_store()
    await store.write(batch(100.0, puts=[put(1)]))
    assert key(1).source == "tickets"
    await store.save_source_state("tickets", SourceState(complete=True))
    await store.save_source_state("accounts", SourceState(complete=True))
    await store.purge_source("tickets")
    assert list(await store.source_states()) == ["accounts"]
