"""The runtime: it starts when it can, takes what can be obeyed, and keeps the rest as it is."""

import asyncio
from collections.abc import AsyncIterator
from unittest import mock

import pytest
from freshgate_world import ANA, SOURCE, STORE, configuration, entitlements, source, states, world

from freshgate_crds.compiled import Condenser, Config, Credential, Postgres, Rest, RestFetch, RestList, Revision
from freshgate_service import runtime
from freshgate_service.errors import ConfigRefused, NotReady
from freshgate_service.metrics import Metrics
from freshgate_service.published import Published
from freshgate_service.runtime import Options, Runtime


class Scripted:
    """A publisher whose news a test sends."""

    def __init__(self, published: Published) -> None:
        self.published = published
        self.news: asyncio.Queue[Published | ConfigRefused] = asyncio.Queue()

    def current(self) -> Published:
        return self.published

    async def changes(self) -> AsyncIterator[Published | ConfigRefused]:
        while True:
            yield await self.news.get()


def published(config: Config, dsn: str) -> Published:
    return Published(config, {STORE.file_name: dsn, SOURCE.file_name: "postgresql://127.0.0.1:1/desk"})


def made(first: Published) -> tuple[Runtime, Scripted, list[int]]:
    publisher, heard = Scripted(first), []
    in_force = heard.append
    served = Runtime(
        first,
        publisher,
        Options(holder="test", runs_loop=False, allow_loopback=True),
        Metrics("support"),
        in_force=lambda config: in_force(config.revision.counter),
    )
    return served, publisher, heard


def revised(config: Config, counter: int, **changes: object) -> Config:
    return config.model_copy(update={"revision": Revision(workspace_uid="uid", counter=counter), **changes})


async def until(holds) -> None:
    async with asyncio.timeout(10):
        while not holds():
            await asyncio.sleep(0.01)


def counted(served: Runtime, name: str) -> float:
    lines = served._metrics.render().decode().splitlines()
    return sum(float(line.rsplit(" ", 1)[1]) for line in lines if line.startswith(name))


async def test_without_a_store_it_runs_and_is_not_ready_and_starts_when_the_store_does(own_postgres_server):
    await asyncio.to_thread(own_postgres_server.stop)
    served, _, _ = made(published(configuration(), own_postgres_server.dsn()))
    with mock.patch.object(runtime, "RETRY_SECONDS", 0.05):
        async with served:
            await asyncio.sleep(0.1)
            with pytest.raises(NotReady):
                await served.search(ANA, "refund", None, None)
            await asyncio.to_thread(own_postgres_server.start)
            await asyncio.wait_for(served.loaded.wait(), 20)
            assert await served.search(ANA, "refund", None, None) == []


@pytest.mark.promise("CON-1")
async def test_a_refused_configuration_leaves_the_last_good_one_and_is_counted(database):
    served, publisher, _ = made(published(configuration(), database))
    async with served:
        await asyncio.wait_for(served.loaded.wait(), 10)
        publisher.news.put_nowait(ConfigRefused("sources: broken"))
        publisher.news.put_nowait(published(revised(configuration(), 2, condenser=Condenser()), database))
        await until(lambda: served.revision.counter == 2)
        assert counted(served, "freshgate_config_rejected_total") == 1


@pytest.mark.promise("CON-3")
async def test_replay_46_an_older_configuration_never_replaces_a_newer_one(database):
    served, publisher, _ = made(published(revised(configuration(), 5), database))
    async with served:
        await asyncio.wait_for(served.loaded.wait(), 10)
        publisher.news.put_nowait(published(revised(configuration(), 4, entitlements=entitlements()), database))
        await until(lambda: counted(served, "freshgate_config_rejected_total") == 1)
        assert served.revision.counter == 5
        assert served.engine.memory.config.revision.counter == 5


async def test_of_a_source_that_left_nothing_is_told_even_where_it_was_never_read(database):
    both = (source(), source("desk", postgres=Postgres(dsn=SOURCE, list="SELECT 1", fetch="none of $1")))
    served, publisher, _ = made(published(configuration(sources=both), database))
    with mock.patch.object(runtime, "CENSUS_SECONDS", 0.02):
        async with served:
            await until(lambda: 'source="desk"' in served._metrics.render().decode())
            publisher.news.put_nowait(published(revised(configuration(), 2), database))
            await until(lambda: 'source="desk"' not in served._metrics.render().decode())
            assert set(served.engine.census) == {"tickets"}
            left_in_mid_count = await served.engine._count_one(source("desk"))
            assert left_in_mid_count == runtime.Census(0, 0, None)


@pytest.mark.promise("CON-1")
async def test_a_source_that_this_version_cannot_read_holds_up_no_other_and_no_revocation(database):
    rest = Rest(
        url="https://desk.example",
        list=RestList(path="/tickets", items="results", id="id"),
        fetch=RestFetch(path="/tickets/{id}"),
    )
    served, publisher, _ = made(published(configuration(), database))
    async with served:
        await asyncio.wait_for(served.loaded.wait(), 10)
        both = (source(), source("desk", postgres=None, rest=rest))
        publisher.news.put_nowait(published(revised(configuration(), 2, sources=both), database))
        await until(lambda: served.revision.counter == 2)
        assert set(served.engine.readers) == {"tickets"}
        assert counted(served, "freshgate_config_rejected_total") == 1


async def test_another_store_is_moved_to_and_the_old_one_let_go(database, postgres_server):
    served, publisher, _ = made(published(configuration(), database))
    async with served:
        await asyncio.wait_for(served.loaded.wait(), 10)
        before = served.engine
        postgres_server_dsn = database.rsplit("/", 1)[0] + "/postgres"
        other = Credential(secret="other", key="dsn")
        moved = published(revised(configuration(), 2, store_dsn=other), database)
        moved = Published(moved.config, {**moved.credentials, other.file_name: postgres_server_dsn})
        publisher.news.put_nowait(moved)
        await until(lambda: served.revision.counter == 2)
        assert served.engine is not before
        assert not before._tasks
    await asyncio.to_thread(postgres_server.run, "DROP SCHEMA IF EXISTS freshgate CASCADE")


async def test_a_store_that_lost_its_memory_is_followed(database, move_store_time):
    async with world(database, move_store_time) as made_world:
        made_world.upstreams["tickets"].put("1", title="refund")
        await made_world.loop()
        assert states(await made_world.ask(ANA, "refund")) == {"tickets/1": "fresh"}
        with mock.patch.object(
            type(made_world.engine.store), "changes", side_effect=runtime.CursorLost("gone"), autospec=True
        ):
            await made_world.engine.catch_up()
        assert states(await made_world.ask(ANA, "refund")) == {"tickets/1": "fresh"}
