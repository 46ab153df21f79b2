"""The store away, slow, refused or given up on: an error that says so and no secret, and whole again afterwards."""

import asyncio
import traceback
import types
from collections.abc import Awaitable, Callable, Coroutine, Generator
from itertools import count
from typing import Any

import asyncpg
import pytest
from freshgate_store import batch, confirmation, connected, key, keys, put, stored, until, until_one_waits_for_a_lock

from freshgate_service.errors import StoreUnavailable
from freshgate_service.store import Store, WorkspaceKey, connections

SUPPORT = WorkspaceKey("cluster", "acme", "support")
LOCK_EVERYTHING = "LOCK TABLE freshgate.clocks, freshgate.leases, freshgate.objects"


# --- what is said ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "dsn",
    [
        "postgresql://app:s3cret@127.0.0.1:1/store",
        "postgresql://app:s3cret@127.0.0.1:port-s3cret/store",
        "postgresql://app:s3cret@no-such-host.invalid/store",
        "mysql://app:s3cret@127.0.0.1/store",
        "s3cret",
    ],
)
async def test_a_store_that_cannot_be_reached_is_an_error_without_secrets(dsn):
    with pytest.raises(StoreUnavailable) as caught:
        await Store.open(dsn, SUPPORT, holder="test")
    assert "s3cret" not in "".join(traceback.format_exception(caught.value))


async def test_a_role_or_database_that_does_not_exist_is_an_error_without_secrets(postgres_server):
    for dsn in (postgres_server.dsn("nowhere"), postgres_server.dsn(user="nobody:s3cret")):
        with pytest.raises(StoreUnavailable) as caught:
            await Store.open(dsn, SUPPORT, holder="test")
        assert "s3cret" not in "".join(traceback.format_exception(caught.value))


# --- going away and coming back ----------------------------------------------------------------------------------


@pytest.mark.parametrize("signal", ["INT", "QUIT"])
async def test_a_store_restarted_in_the_middle_of_a_query_fails_that_query_and_serves_the_next(
    own_postgres_server, open_store, signal
):
    dsn = own_postgres_server.dsn()
    store = await open_store(dsn=dsn)
    await store.write(batch(100.0, puts=[put(1)]))
    lease = (await store.claim(["refresh/1"], 3600))["refresh/1"]
    async with connected(dsn) as blocker:
        await blocker.execute(f"BEGIN; {LOCK_EVERYTHING}")
        under_way = asyncio.create_task(store.write(batch(200.0, confirmations=[confirmation(1)])))
        async with connected(dsn) as looking:
            await until_one_waits_for_a_lock(looking)
        await asyncio.to_thread(own_postgres_server.stop, signal)
        with pytest.raises(StoreUnavailable):
            await under_way
    with pytest.raises(StoreUnavailable):
        await store.now()
    await asyncio.to_thread(own_postgres_server.start)
    assert keys(await store.write(batch(300.0, confirmations=[confirmation(1)]))) == [key(1)]
    if signal == "QUIT":  # a crash forgets all leases: the old holder is overtaken by whoever claims next
        anew = (await store.claim(["refresh/1"], 3600))["refresh/1"]
        assert anew.token > lease.token
        assert await store.write(batch(400.0, confirmations=[confirmation(1)], leases={key(1): lease})) == []


async def test_connections_cut_by_the_server_are_replaced(open_store, database):
    store = await open_store()
    await asyncio.gather(*(store.now() for _ in range(connections.CONNECTIONS)))
    async with connected(database) as other:
        await other.execute(
            "SELECT pg_terminate_backend(pid) FROM pg_stat_activity"
            " WHERE datname = current_database() AND pid <> pg_backend_pid()"
        )

    async def serves() -> bool:
        try:
            return bool(await store.now())
        except StoreUnavailable:
            return False

    await until(serves)
    await asyncio.gather(*(store.now() for _ in range(connections.CONNECTIONS)))


async def test_a_statement_that_takes_too_long_is_given_up(open_store, database, monkeypatch):
    monkeypatch.setitem(connections._SESSION, "command_timeout", 0.2)
    store = await open_store()
    async with connected(database) as blocker:
        await blocker.execute(f"BEGIN; {LOCK_EVERYTHING}")
        with pytest.raises(StoreUnavailable, match="TimeoutError"):
            await store.claim(["loop"], 60)
    assert set(await store.claim(["loop"], 60)) == {"loop"}


async def test_a_pool_with_nothing_left_to_give_is_an_error_and_not_a_wait_for_ever(open_store, database, monkeypatch):
    monkeypatch.setattr(connections, "CONNECTIONS", 1)
    store = await open_store()
    monkeypatch.setattr(connections, "CONNECT_SECONDS", 0.2)
    async with connected(database) as blocker:
        await blocker.execute(f"BEGIN; {LOCK_EVERYTHING}")
        blocked = asyncio.create_task(store.claim(["loop"], 60))
        await until_one_waits_for_a_lock(blocker)
        with pytest.raises(StoreUnavailable, match="TimeoutError"):
            await store.now()
        await blocker.execute("ROLLBACK")
    assert set(await blocked) == {"loop"}
    assert await store.now()


async def test_a_closed_store_is_unavailable(open_store):
    store = await open_store()
    await store.close()
    with pytest.raises(StoreUnavailable):
        await store.now()


async def test_closing_waits_for_statements_under_way_but_not_for_ever(open_store, database, monkeypatch):
    store = await open_store()
    async with connected(database) as blocker:
        await blocker.execute(f"BEGIN; {LOCK_EVERYTHING}")
        under_way = asyncio.create_task(store.claim(["loop"], 60))
        await until_one_waits_for_a_lock(blocker)
        closing = asyncio.create_task(store.close())
        await asyncio.sleep(0)
        await blocker.execute("ROLLBACK")
        assert set(await under_way) == {"loop"}
        await closing
    stuck = await open_store()
    monkeypatch.setattr(connections, "CONNECT_SECONDS", 0.1)
    async with connected(database) as blocker:
        await blocker.execute(f"BEGIN; {LOCK_EVERYTHING}")
        under_way = asyncio.create_task(stuck.claim(["sweep"], 60))
        await until_one_waits_for_a_lock(blocker)
        async with asyncio.timeout(5):
            await stuck.close()
        with pytest.raises(StoreUnavailable):
            await under_way


async def test_closing_a_store_that_is_away_raises_nothing(own_postgres_server):
    store = await Store.open(own_postgres_server.dsn(), SUPPORT, holder="test")
    await asyncio.to_thread(own_postgres_server.stop, "QUIT")
    await store.close()


# --- giving up at any moment -------------------------------------------------------------------------------------


@types.coroutine
def cancelled_at(coroutine: Coroutine[Any, Any, Any], suspension: int, turns: int) -> Generator[Any, Any, None]:
    """Runs it in the current task, which is cancelled so many turns of the loop after it was suspended for the so
    manieth time. Ends with IndexError where it was never suspended so often."""
    loop, task = asyncio.get_running_loop(), asyncio.current_task()
    assert task is not None

    def cancel_in(turns: int) -> None:
        if turns:
            loop.call_soon(cancel_in, turns - 1)
        else:
            task.cancel()

    resume, value = coroutine.send, None
    for number in count():
        try:
            waited_for = resume(value)
        except StopIteration:
            raise IndexError from None
        if number == suspension:
            loop.call_soon(cancel_in, turns)
        try:
            value = yield waited_for
            resume = coroutine.send
        except BaseException as error:  # noqa: BLE001 - what the task is given is passed on, whatever it is
            resume, value = coroutine.throw, error


async def at_every_await(act: Callable[[], Coroutine[Any, Any, Any]], check: Callable[[], Awaitable[None]]) -> int:
    """Cancels the act at each place where it can be suspended, a little sooner and a little later; how often in all."""
    cancelled = 0
    for turns in (0, 1, 3):
        for suspension in count():
            try:
                await asyncio.create_task(_awaited(cancelled_at(act(), suspension, turns)))
            except asyncio.CancelledError:
                cancelled += 1
            except IndexError:
                await check()
                break
            await check()
    return cancelled


async def _awaited(steps: Generator[Any, Any, None]) -> None:
    await steps


async def test_replay_15_a_call_cancelled_at_any_await_leaves_nothing_to_the_next(open_store, database):
    store = await open_store()
    await store.write(batch(1.0, puts=[put(1)]))
    names, times = count(), count(2)

    async def next_answers_are_its_own() -> None:
        mine, yours = f"mine-{next(names)}", f"yours-{next(names)}"
        claims, now, objects = await asyncio.gather(store.claim([mine, yours], 60), store.now(), stored(store))
        assert set(claims) == {mine, yours}
        assert isinstance(now, float)
        assert list(objects) == [key(1)]
        assert keys(await store.write(batch(float(next(times)) * 1000, confirmations=[confirmation(1)]))) == [key(1)]

    acts: list[Callable[[], Coroutine[Any, Any, Any]]] = [
        store.now,
        store.load,
        lambda: store.claim([f"cancelled-{next(names)}"], 60),
        lambda: store.write(batch(float(next(times)), confirmations=[confirmation(1)])),
    ]
    for act in acts:
        assert await at_every_await(act, next_answers_are_its_own) >= 3
    async with asyncio.timeout(5):
        await asyncio.gather(*(store.now() for _ in range(3 * connections.CONNECTIONS)))
    async with connected(database) as looking:
        in_transaction = (
            "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND state LIKE 'idle in%'"
        )
        assert await looking.fetchval(in_transaction) == 0


async def test_replay_15_opening_can_be_given_up_at_any_await_and_leaves_no_connection(database, open_store):
    await open_store()  # the schema is there, as for most starts
    opened: list[Store] = []

    async def open_one() -> None:
        opened.append(await Store.open(database, SUPPORT, holder="test"))

    async def nothing_is_left() -> None:
        for store in opened:
            await store.close()
        opened.clear()

    assert await at_every_await(open_one, nothing_is_left) >= 3
    async with connected(database) as looking:
        others = "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND pid <> pg_backend_pid()"

        async def none_but_the_first_stores() -> bool:
            return int(await looking.fetchval(others)) <= 2

        await until(none_but_the_first_stores)


# --- poolers -----------------------------------------------------------------------------------------------------


async def test_a_session_keeps_nothing_that_a_pooler_could_give_to_somebody_else(open_store, database, monkeypatch):
    monkeypatch.setattr(connections, "CONNECTIONS", 1)
    store = await open_store()
    await store.write(batch(100.0, puts=[put(1)]))
    await store.changes((await store.load())[1])
    await store.release(list((await store.claim(["loop"], 60)).values()))
    async with store._pool.acquire() as session:
        assert await session.fetchval("SELECT count(*) FROM pg_prepared_statements WHERE name <> ''") == 0
        assert await session.fetchval("SELECT count(*) FROM pg_listening_channels()") == 0
        assert await session.fetchval("SELECT count(*) FROM pg_locks WHERE locktype = 'advisory'") == 0
        assert await session.fetchval("SELECT count(*) FROM pg_settings WHERE source = 'session'") == 0


# --- rights ------------------------------------------------------------------------------------------------------


async def test_the_owner_of_its_database_needs_no_other_right(postgres_server, database, open_store):
    name = database.rpartition("/")[2]
    async with connected(database) as admin:
        await admin.execute(f"CREATE ROLE owner_{name} LOGIN; ALTER DATABASE {name} OWNER TO owner_{name}")
        await admin.execute(f"REVOKE ALL ON DATABASE {name} FROM public; REVOKE ALL ON SCHEMA public FROM public")
        store = await open_store(dsn=postgres_server.dsn(name, user=f"owner_{name}"))
        await everything_works(store)
        await admin.execute(f"ALTER DATABASE {name} OWNER TO postgres; REASSIGN OWNED BY owner_{name} TO postgres")


async def test_a_role_that_owns_the_schema_needs_no_right_to_create_one(postgres_server, database, open_store):
    name = database.rpartition("/")[2]
    async with connected(database) as admin:
        await admin.execute(f"CREATE ROLE app_{name} LOGIN; CREATE SCHEMA freshgate AUTHORIZATION app_{name}")
        store = await open_store(dsn=postgres_server.dsn(name, user=f"app_{name}"))
        await everything_works(store)
        await admin.execute(f"REASSIGN OWNED BY app_{name} TO postgres")


async def test_a_role_without_rights_is_refused_as_unavailable(postgres_server, database):
    name = database.rpartition("/")[2]
    async with connected(database) as admin:
        await admin.execute(f"CREATE ROLE stranger_{name} LOGIN")
    with pytest.raises(StoreUnavailable, match="InsufficientPrivilegeError 42501"):
        await Store.open(postgres_server.dsn(name, user=f"stranger_{name}"), SUPPORT, holder="test")


async def everything_works(store: Store) -> None:
    _, cursor = await store.load()
    await store.write(batch(100.0, puts=[put(1)], leases={}))
    assert keys((await store.changes(cursor))[0]) == [key(1)]
    assert len(await store.renew(list((await store.claim(["loop"], 60)).values()), 60)) == 1
    await store.notified(5)
    await store.purge_source("tickets")
    await store.purge_tombstones(0)


def test_the_driver_is_the_one_whose_errors_are_known():
    """A new kind of error in it would pass untranslated."""
    roots = {asyncpg.PostgresError, asyncpg.InterfaceError, asyncpg.InternalClientError}
    errors = [one for one in vars(asyncpg.exceptions).values() if isinstance(one, type) and issubclass(one, Exception)]
    assert [one for one in errors if not issubclass(one, (*roots, Warning))] == []
