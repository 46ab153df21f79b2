"""What processes write into one store: the newest reading stays, whatever order they arrive in."""

import asyncio
import time
from dataclasses import dataclass
from itertools import count
from typing import Any

import asyncpg
import pytest
from freshgate_store import (
    batch,
    confirmation,
    connected,
    key,
    keys,
    put,
    stored,
    until_one_waits_for_a_lock,
)
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from freshgate_service.domain import Access, Clock, ClockMoved, Deleted, MemoryObject, Name, ObjectKey, Readers
from freshgate_service.store import Store

ROWS = {
    "objects": "SELECT record_id AS key, xmin::text, ctid::text, objects::text AS row FROM freshgate.objects",
    "clocks": "SELECT record_id AS key, xmin::text, ctid::text, clocks::text AS row FROM freshgate.clocks",
    "sources": "SELECT name AS key, xmin::text, ctid::text, sources::text AS row FROM freshgate.sources",
    "workspaces": "SELECT workspace AS key, xmin::text, ctid::text, workspaces::text AS row FROM freshgate.workspaces",
}


async def all_rows(dsn: str) -> dict[tuple[str, str], tuple[str, ...]]:
    """Every row that lasts, with the transaction that wrote it."""
    async with connected(dsn) as connection:
        return {(table, row["key"]): tuple(row) for table, sql in ROWS.items() for row in await connection.fetch(sql)}


async def test_what_was_put_is_loaded_as_it_was_by_every_process(open_store):
    one, other = await open_store(), await open_store()
    attributes = {
        "account": 2**70,
        "share": 0.1,
        "tags": ["emea", None, True],
        "note": "no\u0000thing \ud800",
        "région": "東京",
    }
    [told] = await one.write(batch(100.0, puts=[put("4711", "refund", version="v1", **attributes)]))
    [loaded], _ = await other.load()
    assert loaded == told
    assert loaded == MemoryObject(
        key=ObjectKey("tickets", "4711"),
        title="refund",
        summary="Summary of refund",
        url="https://desk.example/4711",
        access=Access("tickets", attributes, Readers(frozenset({Name("corp", "ana@corp.example")}))),
        content_hash="content of refund",
        access_hash=loaded.access_hash,
        spec_hash="spec-1",
        condenser="extractive",
        version="v1",
        clock=Clock(100.0),
        change=told.change,
    )


async def test_workspaces_in_one_postgres_do_not_see_each_other(open_store):
    support, sales = await open_store(workspace="support"), await open_store(workspace="sales")
    _, cursor = await sales.load()
    await support.write(batch(100.0, puts=[put(1)]))
    assert await stored(sales) == {}
    assert (await sales.changes(cursor))[0] == []
    assert await support.claim(["loop"], 60) != {}
    assert await sales.claim(["loop"], 60) != {}


@pytest.mark.promise("FRE-4")
async def test_a_confirmation_changes_the_clock_and_no_other_row(open_store, database):
    store = await open_store()
    await store.write(batch(100.0, puts=[put(1, version="v1"), put(2, version="v1")]))
    before = await all_rows(database)
    [moved] = await store.write(batch(200.0, confirmations=[confirmation(1, version="v2")]))
    after = await all_rows(database)
    assert [row for row in after if after[row] != before[row]] == [("clocks", "1")]
    assert after.keys() == before.keys()
    assert moved == ClockMoved(key(1), Clock(200.0), "v2", moved.change)
    assert (await stored(store))[key(1)].clock == Clock(200.0)


@pytest.mark.promise("FRE-5")
async def test_a_changed_owner_is_in_force_without_a_new_summary(open_store):
    store = await open_store()
    [before] = await store.write(batch(100.0, puts=[put(1, owner="ana")]))
    [after] = await store.write(batch(200.0, puts=[put(1, owner="ben")]))
    assert after.access.attributes == {"owner": "ben"}
    assert (after.summary, after.content_hash) == (before.summary, before.content_hash)
    assert after.access_hash != before.access_hash


async def test_an_older_read_overwrites_nothing_newer(open_store):
    store = await open_store()
    [newest] = await store.write(batch(200.0, puts=[put(1, "newer")]))
    assert await store.write(batch(100.0, puts=[put(1, "older")])) == []
    assert await store.write(batch(100.0, deletions=[key(1)])) == []
    assert await store.write(batch(100.0, confirmations=[confirmation(1, "newer")])) == []
    assert await stored(store) == {key(1): newest}


async def test_the_same_write_tried_again_changes_nothing(open_store):
    store = await open_store()
    written = batch(100.0, puts=[put(1)], deletions=[key(2)])
    assert keys(await store.write(written)) == [key(1), key(2)]
    assert await store.write(written) == []


async def test_replay_46_a_write_that_was_paused_gives_way_to_the_newer_one_that_landed_meanwhile(open_store, database):
    store = await open_store()
    await store.write(batch(100.0, puts=[put(1, "first")]))
    async with connected(database) as newer:
        async with newer.transaction():
            await newer.execute("UPDATE freshgate.clocks SET confirmed_at = 300, changed_in = pg_current_xact_id()")
            older = asyncio.create_task(store.write(batch(200.0, puts=[put(1, "older"), put(2, "new")])))
            await until_one_waits_for_a_lock(newer)  # it has looked, it has not written
        assert keys(await older) == [key(2)]
    assert (await stored(store))[key(1)].clock == Clock(300.0)
    assert (await stored(store))[key(1)].title == "first"


async def test_a_confirmation_of_what_the_store_no_longer_holds_is_refused(open_store):
    """The process that confirms may not have heard yet of what another one read in between."""
    store = await open_store()
    await store.write(batch(100.0, puts=[put(1, "first", owner="ana")]))
    await store.write(batch(200.0, puts=[put(1, "second", owner="ben")]))
    for stale in (confirmation(1, "first", owner="ana"), confirmation(1, "second", owner="ana")):
        assert await store.write(batch(300.0, confirmations=[stale])) == []
    assert (await stored(store))[key(1)].clock == Clock(200.0)
    assert keys(await store.write(batch(300.0, confirmations=[confirmation(1, "second", owner="ben")]))) == [key(1)]


async def test_a_confirmation_that_was_overtaken_while_it_waited_is_refused(open_store, database):
    store = await open_store()
    await store.write(batch(100.0, puts=[put(1, "first")]))
    async with connected(database) as other:
        async with other.transaction():
            await other.execute("UPDATE freshgate.clocks SET confirmed_at = 200, content_hash = 'content of second'")
            waiting = asyncio.create_task(store.write(batch(300.0, confirmations=[confirmation(1, "first")])))
            await until_one_waits_for_a_lock(other)
        assert await waiting == []


@pytest.mark.promise("FRE-5")
async def test_a_confirmation_under_another_reading_spec_is_refused(open_store):
    store = await open_store()
    await store.write(batch(100.0, puts=[put(1)], spec_hash="spec-1"))
    assert await store.write(batch(200.0, confirmations=[confirmation(1)], spec_hash="spec-2")) == []
    [changed] = await store.write(batch(200.0, puts=[put(1)], spec_hash="spec-2"))
    assert changed.spec_hash == "spec-2"


async def test_nothing_can_be_confirmed_that_is_not_there(open_store):
    store = await open_store()
    await store.write(batch(100.0, deletions=[key(1)]))
    assert await store.write(batch(200.0, confirmations=[confirmation(1), confirmation(2)])) == []
    assert await stored(store) == {}


async def test_a_deleted_object_is_gone_with_all_it_held(open_store, database):
    store = await open_store()
    await store.write(batch(100.0, puts=[put(1), put(2)]))
    [deleted] = await store.write(batch(200.0, deletions=[key(1)]))
    assert deleted == Deleted(key(1), deleted.change)
    assert list(await stored(store)) == [key(2)]
    async with connected(database) as connection:
        assert await connection.fetchval("SELECT count(*) FROM freshgate.objects") == 1


async def test_an_older_read_brings_no_deleted_object_back_but_a_newer_one_does(open_store):
    store = await open_store()
    for unknown_before in (key(1), key(2)):
        await store.write(batch(200.0, deletions=[unknown_before]))
        assert await store.write(batch(100.0, puts=[put(unknown_before.record_id)])) == []
        assert keys(await store.write(batch(300.0, puts=[put(unknown_before.record_id)]))) == [unknown_before]


async def test_changes_of_one_object_are_numbered_upwards(open_store):
    one, other = await open_store(), await open_store()
    numbers = [
        (await one.write(batch(1.0, puts=[put(1)])))[0].change,
        (await other.write(batch(2.0, confirmations=[confirmation(1)])))[0].change,
        (await one.mark_outdated([key(1)], 3.0))[0].change,
        (await other.write(batch(4.0, deletions=[key(1)])))[0].change,
        (await one.write(batch(5.0, puts=[put(1)])))[0].change,
    ]
    assert numbers == sorted(set(numbers))


# --- outdated ----------------------------------------------------------------------------------------------------


async def test_an_outdated_object_stays_so_until_a_read_that_began_after_the_listing(open_store):
    store = await open_store()
    await store.write(batch(100.0, puts=[put(1, version="v1")]))
    [marked] = await store.mark_outdated([key(1), key("unknown")], 200.0)
    assert marked == ClockMoved(key(1), Clock(100.0, outdated=True), "v1", marked.change)
    [early] = await store.write(batch(150.0, confirmations=[confirmation(1)]))
    assert early.clock == Clock(150.0, outdated=True)
    [late] = await store.write(batch(201.0, confirmations=[confirmation(1, version="v2")]))
    assert (late.clock, late.version) == (Clock(201.0), "v2")


async def test_a_listing_says_nothing_of_an_object_that_was_read_after_it(open_store):
    store = await open_store()
    await store.write(batch(200.0, puts=[put(1)]))
    assert await store.mark_outdated([key(1)], 100.0) == []
    assert (await stored(store))[key(1)].clock == Clock(200.0)


async def test_a_deleted_object_is_not_outdated(open_store):
    store = await open_store()
    await store.write(batch(100.0, deletions=[key(1)]))
    assert await store.mark_outdated([key(1)], 200.0) == []


# --- a source that leaves ----------------------------------------------------------------------------------------


@pytest.mark.promise("FRE-5")
async def test_a_source_that_leaves_takes_its_objects_along(open_store, database):
    store = await open_store()
    _, cursor = await store.load()
    await store.write(batch(100.0, puts=[put(1), put(2)]))
    await store.purge_source("accounts")
    assert len(await stored(store)) == 2
    await store.purge_source("tickets")
    assert await stored(store) == {}
    changes, _ = await store.changes(cursor)
    assert [type(change) for change in changes] == [Deleted, Deleted]
    async with connected(database) as connection:
        assert await connection.fetchval("SELECT count(*) FROM freshgate.objects") == 0


async def test_a_read_that_began_before_the_source_left_brings_nothing_back(open_store):
    store = await open_store()
    started = await store.now()
    await store.write(batch(started - 10, puts=[put(1)]))
    await store.purge_source("tickets")
    assert await store.write(batch(started, puts=[put(1)])) == []
    assert keys(await store.write(batch(await store.now() + 1, puts=[put(1)]))) == [key(1)]


# --- many --------------------------------------------------------------------------------------------------------


async def test_a_write_of_ten_objects_and_a_claim_of_ten_are_one_statement_each(open_store, monkeypatch):
    store = await open_store()
    await store.notified(5)  # it listens now, which was a statement too
    statements = []
    fetch = asyncpg.Connection.fetch

    def counted(self: asyncpg.Connection, statement: str, *arguments: Any, **options: Any) -> Any:
        statements.append(statement)
        return fetch(self, statement, *arguments, **options)

    monkeypatch.setattr(asyncpg.Connection, "fetch", counted)
    leases = await store.claim([f"refresh/{n}" for n in range(10)], 60)
    assert len(leases) == 10
    assert len(statements) == 1
    guarded = {key(n): leases[f"refresh/{n}"] for n in range(10)}
    assert len(await store.write(batch(100.0, puts=[put(n) for n in range(10)], leases=guarded))) == 10
    assert len(statements) == 2


async def test_twenty_thousand_objects_are_written_and_loaded_quickly(open_store):
    store = await open_store()
    for start in range(0, 20_000, 500):
        written = await store.write(
            batch(100.0, puts=[put(n, "refund " * 20, region=n % 7) for n in range(start, start + 500)])
        )
        assert len(written) == 500
    began = time.process_time()
    objects, cursor = await store.load()
    assert time.process_time() - began < 1.0
    assert len({one.key for one in objects}) == 20_000
    assert (await store.changes(cursor))[0] == []
    await store.purge_source("tickets")
    assert len((await store.changes(cursor))[0]) == 20_000


async def test_writers_of_the_same_objects_in_any_order_never_wait_for_each_other_in_a_circle(open_store):
    stores = [await open_store() for _ in range(4)]
    ids = list(range(40))

    async def write(store: Store, number: int) -> None:
        order = ids if number % 2 else ids[::-1]
        await store.write(
            batch(float(number), puts=[put(n) for n in order[:20]], deletions=[key(n) for n in order[20:30]])
        )
        await store.write(batch(number + 0.5, confirmations=[confirmation(n) for n in order]))
        await store.mark_outdated([key(n) for n in order], number + 0.75)

    await asyncio.gather(*(write(store, number) for number in range(1, 25) for store in stores))


@dataclass(frozen=True)
class Read:
    """One reading of the record: its content at the time, None where it was gone."""

    started: float
    content: str | None
    confirms_first: bool
    by: int


reads = st.lists(
    st.builds(
        Read,
        started=st.integers(1, 50).map(float),
        content=st.sampled_from([None, "one", "two"]),
        confirms_first=st.booleans(),
        by=st.integers(0, 1),
    ),
    min_size=1,
    max_size=8,
    unique_by=lambda read: read.started,
)


record_ids = count()


async def tell(store: Store, record_id: int, read: Read) -> None:
    """As a process does that may believe the object unchanged; a refused confirmation is judged again."""
    if read.content is None:
        await store.write(batch(read.started, deletions=[key(record_id)]))
        return
    confirmed = read.confirms_first and await store.write(
        batch(read.started, confirmations=[confirmation(record_id, read.content)])
    )
    if not confirmed:
        await store.write(batch(read.started, puts=[put(record_id, read.content)]))


@pytest.fixture
async def pair(open_store):
    return await open_store(), await open_store()


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(reads=reads, at_once=st.booleans())
async def test_any_interleaving_of_readings_ends_with_the_newest(pair, reads, at_once):
    record_id = next(record_ids)  # each example has an object of its own
    telling = [tell(pair[read.by], record_id, read) for read in reads]
    if at_once:
        await asyncio.gather(*telling)
    else:
        for one in telling:
            await one
    newest = max(reads, key=lambda read: read.started)
    found = (await stored(pair[0])).get(key(record_id))
    assert (found and found.title) == newest.content
    assert found is None or found.clock == Clock(newest.started)
