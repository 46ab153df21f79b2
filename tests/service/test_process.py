"""Whole processes, as people run them: how they stop, what they survive, what they say.

The systems of record and the stores are real, and so are the signals. What a source was asked is taken from its own
server's log.
"""

import asyncio
from collections.abc import AsyncIterator, Iterator, Set
from contextlib import suppress
from pathlib import Path
from typing import Any

import aiohttp
import asyncpg
import pytest
from freshgate_desk import POLICIES, SCHEMA, SOURCES, STORE, TICKETS, WORKSPACE, Desk
from freshgate_laptop import HOST, START, Laptop, Process, ids, states, until
from freshgate_upstream import LOGGED, Read, ServerLog

from freshgate_service.laptop.issuers import Issuers

MOST = 50


@pytest.fixture
def desk_database(postgres_server: Any) -> Iterator[str]:
    postgres_server.run("CREATE DATABASE desk")
    postgres_server.run(LOGGED.format(database="desk"))
    yield postgres_server.dsn("desk")
    postgres_server.run("DROP DATABASE desk WITH (FORCE)")


@pytest.fixture
async def desk(desk_database: str, postgres_server: Any) -> AsyncIterator[Desk]:
    sql = await asyncpg.connect(desk_database)
    await sql.execute(SCHEMA)
    yield Desk(desk_database, sql, ServerLog(postgres_server.log))
    await sql.close()


@pytest.fixture
def laptop(tmp_path: Path, desk: Desk) -> Laptop:
    """Manifests over the desk, on an embedded store."""
    made = Laptop(tmp_path)
    made.secret("desk", desk.dsn)
    made.write("sources.yaml", SOURCES)
    made.write("policies.yaml", POLICIES)
    made.write("workspace.yaml", WORKSPACE)
    return made


@pytest.fixture
def shared(laptop: Laptop, database: str) -> Laptop:
    """The same on a store that the Workspace names."""
    laptop.secret("store", database)
    laptop.write("workspace.yaml", WORKSPACE + STORE)
    return laptop


def ana_of(laptop: Laptop, data: Path | None = None) -> str:
    return Issuers(data or laptop.data).user_token("corp", "ana@desk.example", ["emea"], {}, 3600)


async def all_read(process: Process, token: str) -> None:
    """Until the loop has been over the desk."""
    await until(lambda: finds(process, token, TICKETS), START)


async def finds(process: Process, token: str, expected: Set[str], query: str = "refund") -> bool:
    return ids(await process.search(token, query, limit=MOST)) == expected


# --- stopping --------------------------------------------------------------------------------------------------------


class Load:
    """Clients with one question. `sent` counts those that are on their way whole."""

    def __init__(self, process: Process, token: str, query: str) -> None:
        self.sent = 0
        self.answers: list[dict[str, str]] = []
        self._url = f"{process.url}/api/v1/search"
        self._asked = {"json": {"query": query}, "headers": {"Authorization": f"Bearer {token}"}}

    def clients(self) -> aiohttp.ClientSession:
        trace = aiohttp.TraceConfig()
        trace.on_request_chunk_sent.append(self._count)
        return aiohttp.ClientSession(trace_configs=[trace])

    async def ask(self, clients: aiohttp.ClientSession) -> None:
        """Raises where an answer is cut off."""
        async with clients.post(self._url, **self._asked) as response:
            answer = await response.json()
            assert response.status == 200
            self.answers.append(states(answer["results"]))

    async def ask_on(self, clients: aiohttp.ClientSession) -> None:
        """Until nobody listens any more."""
        with suppress(aiohttp.ClientConnectorError):
            while True:
                await self.ask(clients)

    async def _count(self, *_: Any) -> None:
        self.sent += 1


async def test_a_stop_under_load_cuts_no_request_off_and_stops_the_store_that_it_started(laptop: Laptop, desk: Desk):
    async with laptop.serving() as process:
        token = ana_of(laptop)
        await all_read(process, token)
        waiting, busy = Load(process, token, "1"), Load(process, token, "2")
        async with waiting.clients() as patient, busy.clients() as impatient, asyncio.TaskGroup() as tasks:
            async with desk.reads_held_up():
                await desk.edit(1)
                await desk.under_way()
                for _ in range(20):
                    tasks.create_task(waiting.ask(patient))
                for _ in range(8):
                    tasks.create_task(busy.ask_on(impatient))
                await until(lambda: true(waiting.sent == 20 and len(busy.answers) > 50))
                assert waiting.answers == []
                process.process.terminate()
                await until(lambda: nobody_listens(process.port))
        assert await process.ended() == 0
    assert waiting.answers == [{"tickets/t1": "refreshed"}] * 20
    assert busy.answers == [{"tickets/t2": "fresh"}] * busy.sent
    assert not postmaster(laptop).exists()


async def test_a_stop_while_it_starts_leaves_no_store_running(laptop: Laptop):
    async with await laptop.start() as process:
        await until(lambda: true(postmaster(laptop).exists()), START)
        assert await process.stop() in (0, 130, -15)
    assert not postmaster(laptop).exists()


async def test_what_a_crash_left_behind_is_taken_over_and_stopped_at_the_next_end(laptop: Laptop, desk: Desk):
    async with laptop.serving() as process:
        await all_read(process, ana_of(laptop))
        await process.kill()
    assert postmaster(laptop).exists()
    desk.log.forget()
    async with laptop.serving() as process:
        assert ids(await process.search(ana_of(laptop), limit=MOST)) == TICKETS
        assert await process.stop() == 0
    assert desk.log.reads() == []
    assert not postmaster(laptop).exists()


def postmaster(laptop: Laptop) -> Path:
    """A Postgres removes it when it has ended."""
    return laptop.data / "postgres" / "postmaster.pid"


async def true(fact: bool) -> bool:
    return fact


async def nobody_listens(port: int) -> bool:
    try:
        _, writer = await asyncio.open_connection(HOST, port)
    except ConnectionRefusedError:
        return True
    writer.close()
    return False


# --- following the manifests -----------------------------------------------------------------------------------------

FOLLOWED = 2.0
"""Seconds within which what was saved is in force."""


@pytest.mark.promise("CON-1")
async def test_a_broken_manifest_keeps_its_last_good_form_and_holds_no_revocation_back(shared: Laptop):
    async with shared.serving() as process:
        token = ana_of(shared)
        await all_read(process, token)
        shared.write("sources.yaml", SOURCES + "  limits: [")
        await until(lambda: counted(process, "freshgate_config_rejected_total", 1))
        [refused] = process.logged("config_refused")
        assert "sources.yaml" in refused["problem"]
        assert await finds(process, token, TICKETS)

        shared.write("policies.yaml", POLICIES.replace("emea}]", "others}]"))
        await until(lambda: finds(process, token, set()), FOLLOWED)
        assert await process.counted("freshgate_config_rejected_total") == 1

        shared.write("sources.yaml", SOURCES.replace("ttl: 1h", "ttl: 2h"))
        shared.write("policies.yaml", POLICIES)
        await until(lambda: finds(process, token, TICKETS), FOLLOWED)
        [first, *_] = await process.search(token)
        assert first["freshness"]["ttl_seconds"] == 7200


@pytest.mark.promise("CON-1")
async def test_a_refused_source_keeps_its_last_good_form_while_a_policy_changes_in_the_same_file(shared: Laptop):
    async with shared.serving() as process:
        token = ana_of(shared)
        await all_read(process, token)
        wrong = SOURCES.replace("ttl: 1h", "ttl: soon")
        shared.write("sources.yaml", wrong + "---" + POLICIES.replace("emea}]", "others}]"))
        shared.write("policies.yaml", "")
        await until(lambda: finds(process, token, set()), FOLLOWED)
        problems = [line["problem"] for line in process.logged("config_refused")]
        assert any("tickets" in problem and "ttl" in problem for problem in problems)


# --- what the desk and the store go through --------------------------------------------------------------------------


async def test_an_edit_upstream_is_followed_and_costs_one_read(shared: Laptop, desk: Desk):
    async with shared.serving() as process:
        token = ana_of(shared)
        await all_read(process, token)
        desk.log.forget()
        await desk.edit(3, subject="reimbursement 3")
        await until(lambda: finds(process, token, {"tickets/t3"}, "reimbursement"))
        await desk.edit(3, region="amer")
        await until(lambda: finds(process, token, set(), "reimbursement"))
        assert desk.log.reads() == [Read("tickets", frozenset({"t3"}))] * 2


async def test_it_survives_a_store_that_is_not_there_at_its_start_and_one_that_goes_in_mid_query(
    laptop: Laptop, desk: Desk, own_postgres_server: Any
):
    laptop.secret("store", own_postgres_server.dsn())
    laptop.write("workspace.yaml", WORKSPACE + STORE)
    await asyncio.to_thread(own_postgres_server.stop)
    async with await laptop.start() as process:
        await until(lambda: answers(process, "/livez", 200), START)
        assert (await process.ops("/readyz"))[0] == 503
        await asyncio.to_thread(own_postgres_server.start)
        await process.ready()
        token = ana_of(laptop)
        await all_read(process, token)

        async with desk.reads_held_up():
            await desk.edit(1)
            await desk.under_way()
            question = asyncio.create_task(process.search(token, "1"))
            await asyncio.to_thread(own_postgres_server.stop, "QUIT")
        assert states(await question) == {"tickets/t1": "store_unavailable"}
        assert states(await process.search(token, "2")) == {"tickets/t2": "fresh"}

        await asyncio.to_thread(own_postgres_server.start)
        await until(lambda: is_confirmed(process, token, "1"), START)
        await desk.edit(2, subject="reimbursement 2")
        await until(lambda: finds(process, token, {"tickets/t2"}, "reimbursement"), START)
        assert await process.stop() == 0


async def counted(process: Process, sample: str, least: float) -> bool:
    return await process.counted(sample) >= least


async def answers(process: Process, path: str, status: int) -> bool:
    return (await process.ops(path))[0] == status


async def is_confirmed(process: Process, token: str, query: str) -> bool:
    return set(states(await process.search(token, query)).values()) <= {"fresh", "refreshed"}
