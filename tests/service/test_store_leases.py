"""One holder a name at a time, by the store's clock; who was overtaken writes nothing."""

import asyncio

import pytest
from freshgate_store import batch, confirmation, connected, key, keys, put, stored, until_one_waits_for_a_lock

from freshgate_service.domain import Clock


async def test_a_name_is_held_by_one_process_at_a_time(open_store):
    one, other = await open_store(), await open_store()
    held = await one.claim(["a", "b"], 60)
    assert set(held) == {"a", "b"}
    assert set(await other.claim(["b", "c"], 60)) == {"c"}
    assert await one.claim(["a"], 60) == {}, "a process does not share its own leases with itself"
    await one.release([held["b"]])
    assert set(await other.claim(["a", "b"], 60)) == {"b"}


async def test_processes_that_claim_at_once_share_the_names_between_them(open_store):
    stores = [await open_store() for _ in range(4)]
    names = [str(number) for number in range(40)]
    claims = await asyncio.gather(*(store.claim(names if n % 2 else names[::-1], 60) for n, store in enumerate(stores)))
    assert sorted(name for claim in claims for name in claim) == sorted(names)


async def test_a_lease_ends_by_the_stores_clock(open_store, move_store_time, database):
    one, other = await open_store(), await open_store()
    first = (await one.claim(["loop"], 15))["loop"]
    await move_store_time(database, 14)
    assert await other.claim(["loop"], 15) == {}
    await move_store_time(database, 1.5)
    second = (await other.claim(["loop"], 15))["loop"]
    assert second.token > first.token


async def test_a_renewed_lease_lasts_on_and_a_lost_one_cannot_be_renewed(open_store, move_store_time, database):
    one, other = await open_store(), await open_store()
    kept, lost = (await one.claim(["kept", "lost"], 15)).values()
    await move_store_time(database, 10)
    assert await one.renew([kept], 15) == [kept]
    await move_store_time(database, 10)
    assert set(await other.claim(["kept", "lost"], 15)) == {"lost"}
    assert await one.renew([kept, lost], 15) == [kept]


async def test_releasing_a_lost_lease_takes_nothing_from_its_new_holder(open_store, move_store_time, database):
    one, other = await open_store(), await open_store()
    lost = (await one.claim(["loop"], 15))["loop"]
    await move_store_time(database, 20)
    assert set(await other.claim(["loop"], 15)) == {"loop"}
    await one.release([lost])
    assert await one.claim(["loop"], 15) == {}


async def test_a_write_gives_its_leases_back(open_store):
    one, other = await open_store(), await open_store()
    leases = await one.claim(["refresh/1", "refresh/2"], 60)
    guarded = {key(1): leases["refresh/1"], key(2): leases["refresh/2"]}
    await one.write(batch(100.0, puts=[put(1)], deletions=[key(2)], leases=guarded))
    assert set(await other.claim(["refresh/1", "refresh/2"], 60)) == {"refresh/1", "refresh/2"}


async def test_a_write_whose_lease_was_lost_is_refused_for_that_object_alone(open_store, move_store_time, database):
    paused, other = await open_store(), await open_store()
    await paused.write(batch(100.0, puts=[put(1), put(2), put(3)]))
    lost = (await paused.claim(["refresh/1", "refresh/3"], 15)).values()
    await move_store_time(database, 20)
    await other.claim(["refresh/1", "refresh/3"], 15)
    kept = (await paused.claim(["refresh/2"], 15))["refresh/2"]
    guarded = dict(zip([key(1), key(3), key(2)], [*lost, kept], strict=True))
    late = batch(200.0, puts=[put(1, "late")], confirmations=[confirmation(2)], deletions=[key(3)], leases=guarded)
    assert keys(await paused.write(late)) == [key(2)]
    assert {one: found.clock for one, found in (await stored(paused)).items()} == {
        key(1): Clock(100.0),
        key(2): Clock(200.0),
        key(3): Clock(100.0),
    }
    assert await paused.claim(["refresh/1"], 15) == {}, "the new holder keeps its lease"


async def test_a_lease_that_ran_out_still_guards_until_somebody_else_claims_it(open_store, move_store_time, database):
    store = await open_store()
    lease = (await store.claim(["refresh/1"], 15))["refresh/1"]
    await move_store_time(database, 20)
    assert keys(await store.write(batch(100.0, puts=[put(1)], leases={key(1): lease}))) == [key(1)]


async def test_a_write_that_races_with_a_new_claim_of_its_lease_is_refused(open_store, database):
    store = await open_store()
    lease = (await store.claim(["refresh/1"], 60))["refresh/1"]
    async with connected(database) as claimer:
        async with claimer.transaction():
            await claimer.execute("UPDATE freshgate.leases SET token = nextval('freshgate.tokens')")
            late = asyncio.create_task(store.write(batch(100.0, puts=[put(1)], leases={key(1): lease})))
            await until_one_waits_for_a_lock(claimer)
        assert await late == []
    assert await stored(store) == {}


@pytest.mark.parametrize("names", [[], ["same", "same"]])
async def test_names_claimed_twice_or_not_at_all_are_no_error(open_store, names):
    store = await open_store()
    assert set(await store.claim(names, 60)) == set(names)
    await store.release([])
    assert await store.renew([], 60) == []


async def test_leases_that_nobody_gave_back_are_cleared_away(open_store, move_store_time, database):
    store = await open_store()
    await store.claim(["lost"], 15)
    await move_store_time(database, 20)
    await store.claim(["kept"], 15)
    await store.purge_tombstones(3600)
    async with connected(database) as connection:
        assert await connection.fetchval("SELECT array_agg(name) FROM freshgate.leases") == ["kept"]
