"""What went wrong in systems like this one, played again: what is true. Only what no other test plays is here."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import timedelta
from typing import Any
from unittest import mock

import pytest
from freshgate_agent import agent
from freshgate_serve import ERAS, corp, served, user
from freshgate_store import connected
from freshgate_twins import Thing, Twin, entitling, standing_still, stop_time
from freshgate_world import (
    ANA,
    SOURCE,
    World,
    allow,
    configuration,
    entitlements,
    group,
    key,
    person,
    source,
    states,
    world,
)

from freshgate_crds.compiled import ObjectMapping, Postgres
from freshgate_service.domain import State
from freshgate_service.errors import (
    EntitlementsExpired,
    RateLimited,
    SourceError,
    SourceRefused,
    SourceTimeout,
    SourceUnavailable,
)
from freshgate_service.sources.postgres import PostgresSource


@pytest.fixture
async def made(database: str, move_store_time: Any) -> AsyncIterator[World]:
    async with world(database, move_store_time) as made:
        yield made


EMEA = {"title": "refund", "body": "", "url": None, "region": "emea", "owner": "", "users": [], "groups": []}
ONE = Twin(
    entitling([allow("emea", group("emea"), region="emea")]),
    (Thing(key("1"), (EMEA, EMEA, EMEA)),),
    hidden=frozenset(),
    busy=False,
)


async def one_ticket(made: World) -> None:
    made.upstreams["tickets"].put("1", title="refund")
    await made.loop()
    made.upstreams["tickets"].reads.clear()


# --- 16: reading what had expired revived it -------------------------------------------------------------------------


@pytest.mark.promise("FRE-2")
@pytest.mark.parametrize(("age", "state"), [(59.999, "fresh"), (60.0, "refreshed"), (60.001, "refreshed")])
async def test_replay_16_a_record_is_fresh_to_the_last_moment_of_its_ttl_and_no_longer(database, age, state):
    await stop_time(database)
    async with standing_still(database, ONE) as made:
        await made.advance(age)
        await made.engine.clock.sync()
        [item] = await made.ask(ANA, "refund")
        assert item.freshness.state == state
        assert item.freshness.score == pytest.approx(1 - age / 60 if state == "fresh" else 1.0, abs=1e-6)


@pytest.mark.promise("FRE-2")
async def test_replay_16_a_score_is_the_same_at_any_age(made: World):
    made.upstreams["tickets"].put("2", title="refund and more")
    await one_ticket(made)
    fresh = [(item.key, item.score, item.matched) for item in await made.ask(ANA, "refund")]
    for age in (30, 29, 61):
        await made.advance(age)
        assert [(item.key, item.score, item.matched) for item in await made.ask(ANA, "refund")] == fresh


@pytest.mark.promise("FRE-2", "FRE-3")
async def test_replay_16_asking_for_what_has_expired_revives_nothing_however_often(made: World):
    await one_ticket(made)
    confirmed_at = made.engine.memory.objects[key("1")].clock.confirmed_at
    await made.advance(61)
    for fault in (SourceUnavailable("gone"), SourceTimeout("slow"), SourceRefused("no"), RateLimited("enough")):
        made.upstreams["tickets"].fault = fault
        for _ in range(3):
            [item] = [*await made.ask(ANA, "refund"), *await made.ask(ANA, "nothing")]
            assert item.freshness.state is State.STALE_REFRESH_FAILED
            assert item.freshness.confirmed_at == confirmed_at
        await made.advance(120)
    async with made.opened("two") as another:
        [item] = await another.pipeline.search(ANA, "refund", None, None)
        assert item.freshness.confirmed_at == confirmed_at


@pytest.mark.promise("FRE-2")
async def test_replay_16_the_age_of_a_record_counts_from_the_start_of_its_read(made: World):
    await one_ticket(made)
    await made.advance(61)
    started = made.engine.clock.earliest()
    made.upstreams["tickets"].gate.clear()
    asked = asyncio.create_task(made.ask(ANA, "refund"))
    while not made.upstreams["tickets"].reads:
        await asyncio.sleep(0.005)
    await made.advance(20)
    made.upstreams["tickets"].gate.set()
    [item] = await asked
    assert item.freshness.confirmed_at == pytest.approx(started, abs=5)
    assert item.freshness.score == pytest.approx(40 / 60, abs=0.1)


@pytest.mark.promise("FRE-4")
async def test_replay_16_of_an_unchanged_record_no_row_but_its_clock_is_written(made: World, database: str):
    await one_ticket(made)
    rows = "SELECT 'objects', source, record_id, xmin::text FROM freshgate.objects ORDER BY 2, 3"
    clocks = rows.replace("objects", "clocks")
    async with connected(database) as looking:
        objects, before = await looking.fetch(rows), await looking.fetch(clocks)
        await made.advance(61)
        assert states(await made.ask(ANA, "refund")) == {"tickets/1": "refreshed"}
        assert await looking.fetch(rows) == objects
        assert await looking.fetch(clocks) != before


@pytest.mark.promise("CON-2")
async def test_entitlements_are_as_old_as_their_listing_however_late_they_come(made: World):
    await one_ticket(made)
    listed = entitlements(max_age_seconds=600.0, age=timedelta(seconds=590))
    await made.take(entitlements=listed)
    assert states(await made.ask(ANA, "refund")) == {"tickets/1": "fresh"}
    await made.advance(11)
    with pytest.raises(EntitlementsExpired):
        await made.ask(ANA, "refund")
    await made.take(entitlements=listed)  # the same again is no newer
    with pytest.raises(EntitlementsExpired):
        await made.ask(ANA, "refund")


# --- 17, 18: errors taken for deletions, and deletions that never came -----------------------------------------------


@pytest.mark.promise("FRE-6")
@pytest.mark.parametrize("fault", [SourceUnavailable("gone"), SourceTimeout("slow"), SourceRefused("no")])
async def test_replay_17_a_read_that_failed_deletes_nothing(made: World, fault: SourceError):
    await one_ticket(made)
    made.upstreams["tickets"].fault = fault
    for advanced in (61, 3600):
        await made.advance(advanced)
        await made.ask(ANA, "refund")
        await made.loop()
    assert set(made.engine.memory.objects) == {key("1")}
    made.upstreams["tickets"].fault = None
    await made.advance(3600)
    assert states(await made.ask(ANA, "refund")) == {"tickets/1": "refreshed"}


async def by_a_search(made: World) -> None:
    await made.advance(61)
    assert set(states(await made.ask(ANA, "refund"))) == {"tickets/2"}


async def by_a_fetch(made: World) -> None:
    await made.advance(61)
    assert await made.engine.pipeline.fetch(ANA, "tickets", "1") is None


async def by_a_listing(made: World) -> None:
    await made.advance(61)
    await made.loop()


async def by_a_sweep(made: World) -> None:
    await made.advance(30)
    await made.engine.loop._sweep(made.engine.readers["tickets"], await made.engine.loop._state("tickets"))


@pytest.mark.promise("FRE-6")
@pytest.mark.parametrize("found_out", [by_a_search, by_a_fetch, by_a_listing, by_a_sweep])
async def test_replay_18_a_deleted_record_is_gone_for_every_process_once_one_has_found_out(made: World, found_out):
    made.upstreams["tickets"].put("2", title="refund")
    await one_ticket(made)
    async with made.opened("two") as another:
        assert await another.pipeline.fetch(ANA, "tickets", "1") is not None
        del made.upstreams["tickets"].records["1"]
        await found_out(made)
        await another.catch_up()
        async with made.opened("three") as restarted:
            for engine in (made.engine, another, restarted):
                assert set(states(await engine.pipeline.search(ANA, "refund", None, None))) == {"tickets/2"}
                assert await engine.pipeline.fetch(ANA, "tickets", "1") is None


# --- 19: times of a real database ------------------------------------------------------------------------------------

MOMENTS = """
CREATE TABLE moments (id int PRIMARY KEY, region text DEFAULT 'emea', naive timestamp, aware timestamptz);
INSERT INTO moments (id, naive, aware) VALUES
  (1, '2026-10-25 02:30', '2026-10-25 00:30Z'), (2, '2026-10-25 02:30', '2026-10-25 01:30Z'), (3, 'infinity', NULL)
"""


@asynccontextmanager
async def over_postgres(dsn: str, move_time: Any, table: str, **columns: Any) -> AsyncIterator[World]:
    """A world whose upstream is a table of a real database, which is its store as well."""
    statements = Postgres(dsn=SOURCE, list=f"SELECT id FROM {table}", fetch=f"SELECT * FROM {table} WHERE id = ANY($1)")
    mapping = ObjectMapping(**{"attributes": {"region": "region"}, **columns})
    made = World(configuration(source(postgres=statements, object=mapping)), dsn, move_time)
    connect(made)
    async with made.opened() as made.engine:
        await move_time(dsn, 0.0)
        await made.loop()
        yield made


def connect(made: World) -> None:
    """The next process connects anew."""
    [spec] = made.config.sources
    made.upstreams["tickets"] = PostgresSource(spec, made._dsn, timeout=5.0, allow_loopback=True)


@pytest.mark.promise("FRE-4")
async def test_replay_19_no_time_zone_and_no_change_of_clocks_moves_a_time_or_makes_a_record_look_changed(
    database: str, move_store_time: Any
):
    name = database.rsplit("/", 1)[1]
    told = []
    async with connected(database) as sql:
        await sql.execute(MOMENTS)
        attributes = {"region": "region", "naive": "naive", "aware": "aware"}
        columns = {"title": "naive", "body": ("aware", "region"), "attributes": attributes}
        async with over_postgres(database, move_store_time, "moments", **columns) as made:
            for zone in ("UTC", "Pacific/Tongatapu", "Europe/Berlin"):  # the second is UTC+13
                await sql.execute(f"ALTER DATABASE {name} SET timezone = '{zone}'")
                connect(made)
                await made.advance(61)
                async with made.opened(zone) as engine:
                    with mock.patch.object(engine.flights, "condenser", None):  # nobody condenses what did not change
                        items = await engine.pipeline.search(ANA, "emea", None, None)
                assert {item.freshness.state for item in items} == {State.REFRESHED}
                told.append(sorted((item.key, item.content.title, item.content.access.attributes) for item in items))
    assert told[0] == told[1] == told[2]
    assert [(title, attributes["aware"]) for _, title, attributes in told[0]] == [
        ("2026-10-25T02:30:00", "2026-10-25T00:30:00+00:00"),
        ("2026-10-25T02:30:00", "2026-10-25T01:30:00+00:00"),
        ("infinity", None),
    ]


# --- 21: a version field that never changes --------------------------------------------------------------------------


@pytest.mark.promise("FRE-2")
async def test_replay_21_a_version_that_never_changes_confirms_nothing(made: World):
    desk = made.upstreams["tickets"]
    desk.put("1", version="same", title="refund")
    await made.loop()
    desk.put("1", version="same", title="refund approved")
    await made.advance(61)
    await made.loop()
    assert desk.listings == 2
    [item] = await made.ask(ANA, "refund")
    assert (item.freshness.state, item.content.title) == (State.REFRESHED, "refund approved")


@pytest.mark.promise("FRE-5", "FRE-7")
async def test_replay_5_an_owner_that_changes_under_a_version_that_does_not_is_in_force_within_one_sweep(made: World):
    desk, bea = made.upstreams["tickets"], person("bea", "owners")
    desk.put("1", version="same", title="refund", owner="ana")
    await made.loop()
    desk.put("1", version="same", owner="bea")
    await made.advance(61)
    await made.loop()
    assert await made.ask(bea, "refund") == []
    await made.advance(3600)
    with mock.patch.object(made.engine.flights, "condenser", None):
        await made.loop()
    assert states(await made.ask(bea, "refund")) == {"tickets/1": "fresh"}
    assert await made.ask(person("ana", "owners"), "refund") == []


# --- 24, 25: words of any script, and nonsense -----------------------------------------------------------------------

SCRIPTS = {
    "tokyo": ("東京の天気", "東京"),
    "name": ("花名を変えた", "花名"),
    "cyrillic": ("Возврат денег", "возврат"),
    "arabic": ("إرجاع المبلغ", "المبلغ"),
    "composed": ("café crème", "cafe\u0301"),
    "decomposed": ("nai\u0308ve", "naïve"),
    "emoji": ("shipped 🚀", "🚀"),
    "wide": ("ＡＢＣ refund", "abc"),
}


@pytest.fixture
async def library(made: World) -> World:
    for name, (title, _) in SCRIPTS.items():
        made.upstreams["tickets"].put(name, title=title)
    await made.loop()
    made.upstreams["tickets"].reads.clear()
    return made


@pytest.mark.parametrize(("name", "query"), [(name, query) for name, (_, query) in SCRIPTS.items()])
async def test_replay_24_words_of_any_script_find_their_record_through_store_rest_and_mcp(
    library: World, name: str, query: str
):
    async with library.opened("restarted") as engine, served(engine.pipeline, [corp()]) as service:
        token = user("ana", "emea")
        _, found = await service.search(token, query)
        assert [each["id"] for each in found["results"]] == [f"tickets/{name}"]
        async with agent(service.url, ERAS[-1], {"Authorization": f"Bearer {token}"}) as mcp:
            answer = await mcp.call({"Authorization": f"Bearer {token}"}, "search", query=query)
        assert [each["id"] for each in answer.structured_content["results"]] == [f"tickets/{name}"]


@pytest.mark.promise("ENT-2")
@pytest.mark.parametrize("query", ["qwxzv", "!!! ???", "the of and", "\u200b", "%", "' OR 1=1 --", "*", "tickets/1"])
async def test_replay_25_nonsense_finds_nothing_and_causes_no_read(library: World, query: str):
    await library.advance(61)
    assert await library.ask(ANA, query) == []
    assert library.upstreams["tickets"].reads == []
