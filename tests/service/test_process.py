"""Whole processes, as people run them: how they stop, what they survive, what they say.

The systems of record and the stores are real, and so are the signals. What a source was asked is taken from its own
server's log.
"""

import asyncio
import gzip
import json
import os
import shutil
import signal
from collections.abc import AsyncIterator, Iterator, Set
from contextlib import suppress
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import aiohttp
import asyncpg
import pytest
from click.testing import CliRunner
from freshgate_desk import POLICIES, SCHEMA, SOURCES, STORE, TICKETS, WORKSPACE, Desk
from freshgate_laptop import HOST, START, Laptop, Process, ids, reveals, states, until
from freshgate_store import batch, put
from freshgate_upstream import LOGGED, Read, ServerLog

from freshgate_crds.cli import main
from freshgate_service.laptop.issuers import Issuers
from freshgate_service.laptop.publisher import ManifestPublisher, Place
from freshgate_service.published import CONFIG_FILE, Published
from freshgate_service.store import Store, WorkspaceKey

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
def laptop(desk: Desk) -> Iterator[Laptop]:
    """Manifests over the desk, on an embedded store. Not below pytest's folder, which is closed to all but one user
    whenever a run begins: where root starts a Postgres, it runs as another."""
    with TemporaryDirectory(prefix="freshgate-laptop-") as folder:
        made = Laptop(Path(folder))
        made.secret("desk", desk.dsn)
        made.write("sources.yaml", SOURCES)
        made.write("policies.yaml", POLICIES)
        made.write("workspace.yaml", WORKSPACE)
        yield made
        if postmaster(made).exists():
            os.kill(int(postmaster(made).read_text().splitlines()[0]), signal.SIGQUIT)


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
        patiently, busily = Load(process, token, "1"), Load(process, token, "2")
        async with (
            patiently.clients() as patient,
            busily.clients() as impatient,
            asyncio.TaskGroup() as tasks,
            desk.reads_held_up(),
        ):
            await desk.edit(1)
            await desk.under_way()
            for _ in range(20):
                tasks.create_task(patiently.ask(patient))
            for _ in range(8):
                tasks.create_task(busily.ask_on(impatient))
            await until(lambda: true(patiently.sent == 20 and len(busily.answers) > 50))
            assert patiently.answers == []
            process.process.terminate()
            await until(lambda: nobody_listens(process.port))
        assert await process.ended() == 0
    assert patiently.answers == [{"tickets/t1": "refreshed"}] * 20
    assert busily.answers == [{"tickets/t2": "fresh"}] * busily.sent
    assert not postmaster(laptop).exists()


async def test_a_stop_while_it_starts_leaves_no_store_running(laptop: Laptop):
    async with await laptop.start() as process:
        await until(lambda: true(postmaster(laptop).exists()), START)
        assert await process.stop() == 0
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


# --- two processes on one store --------------------------------------------------------------------------------------


@pytest.fixture
async def two(shared: Laptop) -> AsyncIterator[tuple[Process, Process]]:
    """Both on one revision, as two pods are. The first runs the background loop."""
    shared.begin_revisions()
    shutil.copytree(shared.data, shared.folder / "other")
    async with shared.serving() as first:
        await until(lambda: counted(first, "freshgate_loop_holder", 1), START)
        await all_read(first, ana_of(shared))
        shutil.copytree(shared.data / "issuers", shared.folder / "other" / "issuers")
        async with shared.serving(data=shared.folder / "other") as second:
            yield first, second


async def test_two_processes_read_one_stale_object_once(two: tuple[Process, Process], shared: Laptop, desk: Desk):
    token = ana_of(shared)
    desk.log.forget()
    async with desk.reads_held_up():
        await desk.edit(1, subject="reimbursement 1")
        await desk.under_way()
        questions = [await until(partial(waiting, process, token, "1")) for process in two]
    for question in questions:
        [told] = await question
        assert (told["title"], told["freshness"]["state"]) == ("reimbursement 1", "refreshed")
    assert desk.log.reads() == [Read("tickets", frozenset({"t1"}))]


async def test_a_process_takes_over_the_loop_and_the_reads_of_one_that_was_killed(
    two: tuple[Process, Process], shared: Laptop, desk: Desk, database: str, move_store_time: Any
):
    first, second = two
    token = ana_of(shared)
    assert await second.counted("freshgate_loop_holder") == 0
    async with desk.reads_held_up():
        await desk.edit(1, subject="reimbursement 1")
        await desk.under_way()
        question = await until(partial(waiting, second, token, "1"))
        await first.kill()
        await move_store_time(database, 300)
        await desk.under_way(2)  # the killed one's session has not noticed yet, and waits still
    [told] = await question
    assert (told["title"], told["freshness"]["state"]) == ("reimbursement 1", "refreshed")
    await until(lambda: counted(second, "freshgate_loop_holder", 1))
    await desk.edit(2, subject="reimbursement 2")
    await until(lambda: finds(second, token, {"tickets/t1", "tickets/t2"}, "reimbursement"))


async def waiting(process: Process, token: str, query: str) -> asyncio.Task[list[Any]] | None:
    """A question that has to wait for a read; None where it was answered at once, before the process had heard."""
    question = asyncio.create_task(process.search(token, query))
    answered, _ = await asyncio.wait({question}, timeout=0.3)
    return None if answered else question


# --- as its image runs it --------------------------------------------------------------------------------------------


async def test_a_published_service_answers_from_its_store_follows_the_next_revision_and_ends_in_order(
    shared: Laptop, database: str
):
    publisher = ManifestPublisher(Place(shared.manifests, shared.secrets, shared.data), "")
    mounted, scrape = shared.folder / "mounted", shared.folder / "scrape-token"
    mounted.mkdir()
    scrape.write_text("scrape")
    published = publisher.current()
    await remember(database, published, "t1", "t2")
    arguments = ("--config", str(mounted), "--host", HOST, "--scrape-token-file", str(scrape))
    async with await Process.start(shared.folder, "service", *arguments) as process:
        await until(lambda: answers(process, "/livez", 200), START)
        assert (await process.ops("/readyz"))[0] == 503
        publish(mounted, published)
        await process.ready()
        token = ana_of(shared)
        assert states(await process.search(token)) == {"tickets/t1": "fresh", "tickets/t2": "fresh"}
        assert (await process.ops("/metrics"))[0] == 401
        assert (await process.ops("/metrics", Authorization="Bearer scrape"))[0] == 200
        [refused] = await until(lambda: logged(process, "listing_failed"))
        assert refused["reason"] == "source_refused"  # the desk is on loopback, which only a laptop may read

        shared.write("policies.yaml", POLICIES.replace("emea}]", "others}]"))
        publish(mounted, publisher.current())
        await until(lambda: finds(process, token, set()), FOLLOWED)
        assert await process.stop() == 0


def publish(folder: Path, published: Published) -> None:
    """As a kubelet swaps a mounted Secret: all at once, by a link."""
    revision = folder / f"..{published.config.revision.counter}"
    revision.mkdir(parents=True)
    (revision / CONFIG_FILE).write_bytes(gzip.compress(published.config.model_dump_json().encode()))
    for name, value in published.credentials.items():
        (revision / name).write_text(value)
    link = folder / "..data"
    (folder / "..new").symlink_to(revision.name)
    (folder / "..new").rename(link)
    for path in revision.iterdir():
        if not (folder / path.name).exists():
            (folder / path.name).symlink_to(f"..data/{path.name}")


async def remember(dsn: str, published: Published, *record_ids: str) -> None:
    config = published.config
    store = await Store.open(dsn, WorkspaceKey(config.cluster_uid, config.namespace, config.workspace), holder="test")
    puts = [put(record_id, "refund", region="emea") for record_id in record_ids]
    await store.write(batch(await store.now(), puts=puts, spec_hash=config.sources[0].spec_hash))
    await store.close()


async def logged(process: Process, event: str) -> list[dict[str, Any]]:
    return process.logged(event)


# --- what it must not say --------------------------------------------------------------------------------------------

BROKEN = {
    "nobody-listens": ("postgresql://desk@127.0.0.1:1/desk", "SELECT id FROM tickets"),
    "no-such-database": ("postgresql://desk@127.0.0.1:{port}/nowhere", "SELECT id FROM tickets"),
    "no-dsn": ("postgresql://desk@[127.0.0.1/desk", "SELECT id FROM tickets"),
    "no-such-table": ("postgresql://postgres@127.0.0.1:{port}/desk", "SELECT id FROM nowhere"),
}


async def test_whatever_goes_wrong_no_secret_query_or_record_is_told(
    shared: Laptop, postgres_server: Any, subtests: pytest.Subtests
):
    for name, (dsn, listing) in BROKEN.items():
        shared.secret(name, dsn.format(port=postgres_server.port))
        source = SOURCES.replace("name: tickets", f"name: {name}").replace("{name: desk,", f"{{name: {name},")
        shared.write(f"{name}.yaml", source.replace("SELECT id, version FROM tickets", listing))
    shared.write("workspace.yaml", WORKSPACE.replace("[tickets]", f"[tickets, {', '.join(BROKEN)}]") + STORE)
    async with shared.serving() as process:
        token = ana_of(shared)
        await all_read(process, token)
        await until(lambda: all_failed(process))
        status, _ = await process.ask(token + "x", "POST", "search", json={"query": "sesame"})
        assert status == 401
        status, _ = await process.ask(token, "POST", "search", json={"query": "sesame", "sesame": 1})
        assert status == 400
        assert await process.search(token, "sesame") == []
        told = {path: (await process.ops(path))[1] for path in ("/metrics", "/status")} | {"log": process.said}
        for name, text in told.items():
            with subtests.test(name):
                assert reveals(text) is None
                assert [word for word in ("sesame", "refund", "kettle") if word in text] == []


async def all_failed(process: Process) -> bool:
    return {line["source"] for line in process.logged("listing_failed")} == set(BROKEN)


# --- the command line ------------------------------------------------------------------------------------------------


async def test_what_a_newcomer_types_works_against_a_running_service(laptop: Laptop, desk: Desk):
    async with laptop.serving() as process:
        data = ("--data", str(laptop.data))
        token = (await laptop.command("token", *data, "--user", "ana@desk.example", "--group", "emea")).output.strip()
        await all_read(process, token)
        asked = ("search", "--url", process.url, "--limit", "50")
        table = await laptop.command(*asked, "3", FRESHGATE_TOKEN=token)
        assert "tickets/t3" in table.output
        assert "fresh 1.00" in table.output or "fresh 0.99" in table.output
        answer = await laptop.command(*asked, "--json", "refund", FRESHGATE_TOKEN=token)
        assert ids(json.loads(answer.output)["results"]) == TICKETS
        zoe = (await laptop.command("token", *data, "--user", "zoe@desk.example")).output.strip()
        assert "nothing" in (await laptop.command(*asked, "refund", FRESHGATE_TOKEN=zoe)).output

        explain = ("explain", "-f", str(laptop.manifests), "--secrets", str(laptop.secrets), *data, "kettle 3")
        told = await laptop.command(*explain, FRESHGATE_TOKEN=token)
        assert ("tickets/t3" in told.output, "allowed by emea" in told.output) == (True, True)
        assert ("tickets/a1" in told.output, "no policy allows it" in told.output) == (True, True)
        assert ids(await process.search(token, limit=MOST)) == TICKETS  # its store runs on


@pytest.mark.parametrize(
    "arguments",
    [
        ("serve",),
        ("serve", "-f", "nowhere"),
        ("serve", "-f", ".", "--port", "many"),
        ("token", "--user", "ana", "--service-account", "bots/helper"),
        ("token", "--user", "ana", "--claim", "region"),
        ("token", "--user", "ana", "--ttl", "soon"),
        ("search", "refund"),
        ("reticulate",),
    ],
    ids=" ".join,
)
def test_a_misuse_ends_with_status_2_and_a_hint(arguments: tuple[str, ...], tmp_path: Path):
    ended = CliRunner().invoke(main, arguments, env={"FRESHGATE_TOKEN": None})
    assert ended.exit_code == 2
    assert "Usage: " in ended.output
    assert "Error: " in ended.output


@pytest.mark.parametrize(
    ("file", "old", "new", "told"),
    [
        ("workspace.yaml", "audience: freshgate}\n", "}\n", ("workspace.yaml", "spec.authentication", "audience")),
        ("workspace.yaml", "sources: [tickets]", "sources: [", ("workspace.yaml",)),
        ("sources.yaml", "ttl: 1h", "ttl: soon", ("sources.yaml", "spec.ttl", "1h30m")),
        ("sources.yaml", "ANY($1)", "ANY('{}')", ("sources.yaml", "spec.postgres.fetch", "$1")),
        ("policies.yaml", "values: [emea]", "values: []", ("policies.yaml", "spec.rules[0].where[0].values", "emea")),
        ("policies.yaml", "attribute: region", "attribute: regoin", ("policies.yaml", "regoin", "region")),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_refused_manifests_are_told_with_file_field_and_mend(
    file: str, old: str, new: str, told: tuple[str, ...], tmp_path: Path
):
    laptop = Laptop(tmp_path)
    written = {"workspace.yaml": WORKSPACE, "sources.yaml": SOURCES, "policies.yaml": POLICIES}
    assert old in written[file]
    for name, text in written.items():
        laptop.write(name, text.replace(old, new) if name == file else text)
    ended = CliRunner().invoke(main, ["validate", "-f", str(laptop.manifests)])
    assert ended.exit_code == 1
    assert all(part in ended.output for part in told), ended.output
