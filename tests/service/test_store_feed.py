"""Followers hear of every change, whatever order transactions commit in, and know when they may have missed one."""

import asyncio

import asyncpg
import pytest
from freshgate_store import batch, confirmation, connected, key, keys, put, stored, until

from freshgate_service.domain import Clock, ClockMoved, Deleted, MemoryObject, ObjectKey
from freshgate_service.errors import CursorLost
from freshgate_service.store import statements

CHANGE_BY_HAND = """
UPDATE freshgate.clocks SET change = nextval('freshgate.changes'), changed_in = pg_current_xact_id()
WHERE record_id = $1"""


async def test_a_follower_hears_of_what_other_processes_write(open_store):
    writer, follower = await open_store(), await open_store()
    await writer.write(batch(100.0, puts=[put(1), put(2), put(3)]))
    _, cursor = await follower.load()
    written = [
        *await writer.write(
            batch(200.0, puts=[put(1, "new"), put(4)], confirmations=[confirmation(2)], deletions=[key(3)])
        )
    ]
    heard, cursor = await follower.changes(cursor)
    assert sorted(heard, key=lambda change: change.key) == sorted(written, key=lambda change: change.key)
    assert {type(change) for change in heard} == {MemoryObject, ClockMoved, Deleted}
    assert (await follower.changes(cursor))[0] == []


async def test_content_that_changed_before_a_confirmation_comes_along_with_it(open_store):
    store = await open_store()
    await store.write(batch(100.0, puts=[put(1, "old")]))
    _, cursor = await store.load()
    await store.write(batch(200.0, puts=[put(1, "new")]))
    await store.write(batch(300.0, confirmations=[confirmation(1, "new")]))
    [heard], _ = await store.changes(cursor)
    assert isinstance(heard, MemoryObject)
    assert (heard.title, heard.clock) == ("new", Clock(300.0))


async def test_a_change_of_the_clock_alone_carries_no_content(open_store):
    store = await open_store()
    await store.write(batch(100.0, puts=[put(1)]))
    _, cursor = await store.load()
    [marked] = await store.mark_outdated([key(1)], 200.0)
    assert (await store.changes(cursor))[0] == [marked]
    assert isinstance(marked, ClockMoved)


async def numbered_after(connection: asyncpg.Connection, number: int) -> tuple[list[ObjectKey], int]:
    """The mutant: a feed that trusts the numbers to appear in their order."""
    found = await connection.fetch("SELECT source, record_id, change FROM freshgate.clocks WHERE change > $1", number)
    return [ObjectKey(row["source"], row["record_id"]) for row in found], max(
        [number, *(row["change"] for row in found)]
    )


async def test_changes_that_commit_out_of_order_are_all_heard_of(open_store, database):
    store = await open_store()
    objects = await store.write(batch(100.0, puts=[put("early"), put("late")]))
    _, cursor = await store.load()
    number = max(one.change for one in objects)
    async with connected(database) as slow, connected(database) as looking:
        transaction = slow.transaction()
        await transaction.start()
        await slow.execute(CHANGE_BY_HAND, "early")  # the lower number, committed last
        await store.write(batch(200.0, confirmations=[confirmation("late")]))
        first, cursor = await store.changes(cursor)
        naive_first, number = await numbered_after(looking, number)
        await transaction.commit()
        second, cursor = await store.changes(cursor)
        naive_second, _ = await numbered_after(looking, number)
    assert (keys(first), keys(second)) == ([key("late")], [key("early")])
    assert (naive_first, naive_second) == ([key("late")], []), "the mutant should have lost one"
    assert (await store.changes(cursor))[0] == []


async def test_a_long_transaction_elsewhere_does_not_make_the_feed_repeat_itself(open_store, database):
    store = await open_store()
    await store.write(batch(100.0, puts=[put(1)]))
    async with connected(database) as elsewhere, elsewhere.transaction():
        await elsewhere.execute("CREATE TABLE unrelated ()")
        _, cursor = await store.load()
        await store.write(batch(200.0, confirmations=[confirmation(1)]))
        first, cursor = await store.changes(cursor)
        second, cursor = await store.changes(cursor)
    assert (keys(first), second) == ([key(1)], [])


async def test_rows_restored_from_a_server_with_higher_numbers_are_not_told_over_and_over(open_store, database):
    store = await open_store()
    await store.write(batch(100.0, puts=[put(1)]))
    async with connected(database) as connection:
        for table in ("clocks", "objects"):
            await connection.execute(f"UPDATE freshgate.{table} SET changed_in = '999999999999'")
        await connection.execute(
            "UPDATE freshgate.workspaces SET purged_in = '999999999999', purged_through = '999999999999'"
        )
    objects, cursor = await store.load()
    assert keys(objects) == [key(1)]
    heard, cursor = await store.changes(cursor)
    assert heard == []
    await store.write(batch(200.0, confirmations=[confirmation(1)]))
    assert keys((await store.changes(cursor))[0]) == [key(1)]


# --- deletions are not kept for ever -----------------------------------------------------------------------------


async def test_a_follower_that_slept_through_a_purge_is_told_to_load_anew(open_store, move_store_time, database):
    store = await open_store()
    await store.write(batch(await store.now(), puts=[put(1), put(2)]))
    _, asleep = await store.load()
    await store.write(batch(await store.now(), deletions=[key(1)]))
    _, awake = await store.changes(asleep)
    await move_store_time(database, 3600)
    await store.purge_tombstones(7200)
    assert keys((await store.changes(asleep))[0]) == [key(1)]
    await store.purge_tombstones(1800)
    with pytest.raises(CursorLost):
        await store.changes(asleep)
    assert (await store.changes(awake))[0] == []
    objects, cursor = await store.load()
    assert keys(objects) == [key(2)]
    assert (await store.changes(cursor))[0] == []
    async with connected(database) as connection:
        assert await connection.fetchval("SELECT count(*) FROM freshgate.clocks") == 1


async def test_a_follower_that_loads_during_a_long_transaction_is_not_told_to_load_for_ever(open_store, database):
    store = await open_store()
    async with connected(database) as elsewhere, elsewhere.transaction():
        await elsewhere.execute("CREATE TABLE unrelated ()")
        await store.write(batch(100.0, deletions=[key(1)]))
        await store.purge_tombstones(0)
        _, cursor = await store.load()
        assert (await store.changes(cursor))[0] == []


async def test_a_purge_with_nothing_to_purge_costs_no_follower_anything(open_store):
    store = await open_store()
    _, cursor = await store.load()
    await store.write(batch(await store.now(), puts=[put(1)]))
    await store.purge_tombstones(0)
    assert keys((await store.changes(cursor))[0]) == [key(1)]


async def test_a_workspace_that_was_removed_by_hand_is_a_lost_cursor(open_store, database):
    store = await open_store()
    await store.write(batch(100.0, puts=[put(1)]))
    _, cursor = await store.load()
    async with connected(database) as connection:
        await connection.execute("DELETE FROM freshgate.workspaces")
    with pytest.raises(CursorLost):
        await store.changes(cursor)
    assert await stored(await open_store()) == {}


async def test_a_restarted_server_is_a_lost_cursor(own_postgres_server, open_store):
    """It may be another machine by then, where the last commits are lost and their numbers are given out again."""
    store = await open_store(dsn=own_postgres_server.dsn())
    _, cursor = await store.load()
    await asyncio.to_thread(own_postgres_server.stop)
    await asyncio.to_thread(own_postgres_server.start)
    with pytest.raises(CursorLost):
        await store.changes(cursor)


# --- notifications -----------------------------------------------------------------------------------------------


async def test_a_write_wakes_the_followers_and_tells_them_nothing(open_store, database):
    writer, follower = await open_store(), await open_store()
    heard = asyncio.Queue()
    async with connected(database) as listener:
        workspace = await listener.fetchval("SELECT id FROM freshgate.workspaces")
        await listener.add_listener(f"freshgate_{workspace}", lambda *notice: heard.put_nowait(notice[3]))
        await follower.notified(5)  # once it listens
        for write in (
            writer.write(batch(100.0, puts=[put(1)])),
            writer.mark_outdated([key(1)], 200.0),
            writer.purge_source("tickets"),
        ):
            waiting = asyncio.create_task(follower.notified(60))
            await write
            await asyncio.wait_for(waiting, 5)
            assert await asyncio.wait_for(heard.get(), 5) == ""


async def test_where_no_notification_comes_the_wait_ends_by_itself(open_store):
    store = await open_store()
    await store.notified(5)
    async with asyncio.timeout(5):
        await store.notified(0.01)


async def test_a_follower_whose_listening_connection_was_cut_listens_again(open_store, database, monkeypatch):
    monkeypatch.setattr("freshgate_service.store.connections.RELISTEN_SECONDS", 0.0)
    writer, follower = await open_store(), await open_store()
    await follower.notified(5)
    async with connected(database) as connection:
        listening = (
            "FROM pg_stat_activity WHERE query LIKE 'LISTEN%' AND pid <> pg_backend_pid()"
            " AND datname = current_database()"
        )
        before = set(await connection.fetch(f"SELECT pid {listening}"))
        await connection.execute(f"SELECT pg_terminate_backend(pid) {listening}")

        async def anew() -> bool:
            pids = set(await connection.fetch(f"SELECT pid {listening}"))
            return len(pids) == len(before) and not pids & before

        await until(anew)
    await follower.notified(0.01)  # the wake-up of listening anew
    waiting = asyncio.create_task(follower.notified(60))
    await writer.write(batch(100.0, puts=[put(1)]))
    await asyncio.wait_for(waiting, 5)


async def test_the_feed_looks_up_changes_by_an_index(open_store, database):
    """However many objects rest, hearing that nothing changed costs nothing that grows with them."""
    store = await open_store()
    for start in range(0, 2000, 500):
        await store.write(batch(100.0, puts=[put(n) for n in range(start, start + 500)]))
    _, cursor = await store.load()
    async with connected(database) as connection:
        await connection.execute("ANALYZE freshgate.clocks, freshgate.objects")
        workspace = await connection.fetchval("SELECT id FROM freshgate.workspaces")
        plan = await connection.fetch(f"EXPLAIN (ANALYZE) {statements.CHANGES}", workspace, cursor.snapshot)
    text = "\n".join(row[0] for row in plan)
    assert "Index Scan using clocks_by_transaction" in text
    assert "Seq Scan on clocks" not in text
    assert "Seq Scan on objects" not in text
