"""Northwind as a company would run it: three sources, policies by country and by sales person, over REST and MCP.

Who may see what is worked out a second time, in SQL over Northwind itself, and both must say the same. What the service
reads is taken from Postgres's own log.
"""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import product
from pathlib import Path
from typing import Any

import aiohttp
import asyncpg
import pytest
from freshgate_agent import Agent, agent
from freshgate_laptop import free_port, write_secret
from freshgate_northwind import DUMP, MANIFESTS, load
from freshgate_serve import ERAS
from freshgate_upstream import LOGGED, Read, ServerLog

from freshgate_service.clock import boottime
from freshgate_service.laptop.issuers import Issuers
from freshgate_service.laptop.publisher import ManifestPublisher, Place
from freshgate_service.laptop.serving import OPEN, SETTINGS
from freshgate_service.runtime import Options, Runtime
from freshgate_service.serve.auth import ON_BEHALF_OF
from freshgate_service.serving import Listen, Service

HOST = "127.0.0.1"
PAST_TTL = 3600.0
MOST = 50
KEYS = {"customers": "customer_id", "orders": "order_id", "products": "product_id"}
HOLDS = {
    "customers": "concat_ws(' ', company_name, contact_name, contact_title, city, country) ~* ('\\m' || $1 || '\\M')",
    "orders": """
        ship_city ~* ('\\m' || $1 || '\\M')
        OR customer_id IN (SELECT customer_id FROM customers WHERE company_name ~* ('\\m' || $1 || '\\M'))
        OR order_id IN (SELECT order_id FROM order_details JOIN products USING (product_id)
                        WHERE product_name ~* ('\\m' || $1 || '\\M'))""",
    "products": """
        product_name ~* ('\\m' || $1 || '\\M')
        OR category_id IN (SELECT category_id FROM categories WHERE category_name ~* ('\\m' || $1 || '\\M'))
        OR supplier_id IN (SELECT supplier_id FROM suppliers WHERE company_name ~* ('\\m' || $1 || '\\M'))""",
}
"""The text of each record, as its source maps it."""


@dataclass(frozen=True)
class Asker:
    """Who asks; and what of each source is theirs, as a condition in SQL. What is not named is not theirs."""

    user: str | None = None
    groups: tuple[str, ...] = ()
    claims: Mapping[str, Any] = field(default_factory=dict, hash=False)
    agent: str | None = None
    sees: Mapping[str, str] = field(default_factory=dict, hash=False)

    def headers(self, issuers: Issuers) -> dict[str, str]:
        tokens = [issuers.service_account_token(self.agent, {}, 600)] if self.agent else []
        tokens += [issuers.user_token("corp", self.user, self.groups, self.claims, 600)] if self.user else []
        bearer = {"Authorization": f"Bearer {tokens[0]}"}
        return {**bearer, ON_BEHALF_OF: tokens[1]} if tokens[1:] else bearer


BY_NANCY = "employee_id = (SELECT employee_id FROM employees WHERE first_name = 'Nancy' AND last_name = 'Davolio')"
OF_COUNTRIES = "customer_id IN (SELECT customer_id FROM customers WHERE country IN ({}))"
GERMAN_SPEAKING = OF_COUNTRIES.format("'Germany', 'Austria', 'Switzerland'")
THE_HELPERS = OF_COUNTRIES.format("'Germany', 'France', 'USA'")
KEY_ACCOUNTS = "customer_id IN ('ERNSH', 'QUICK', 'SAVEA')"

ASKERS = {
    "a sales person and her orders": Asker(
        "nancy.davolio@northwind.example", ("sales", "staff"), sees={"orders": BY_NANCY, "products": "true"}
    ),
    "a manager and the orders of the team": Asker(
        "steven.buchanan@northwind.example",
        ("managers",),
        {"team": [5, 6, 7, 9]},
        sees={"orders": "employee_id IN (SELECT employee_id FROM employees WHERE 5 IN (employee_id, reports_to))"},
    ),
    "a desk for two countries": Asker(
        "desk@northwind.example",
        ("desk",),
        {"countries": ["Germany", "Brazil"]},
        sees=dict.fromkeys(("customers", "orders"), OF_COUNTRIES.format("'Germany', 'Brazil'")),
    ),
    "a trainee, whom key accounts are denied": Asker(
        "trainee@northwind.example",
        ("dach", "trainees"),
        sees=dict.fromkeys(("customers", "orders"), f"{GERMAN_SPEAKING} AND NOT {KEY_ACCOUNTS}"),
    ),
    "a contractor, whom what is discontinued is denied": Asker(
        "contractor@northwind.example", ("staff", "contractors"), sees={"products": "discontinued = 0"}
    ),
    "one who is granted every known region but one": Asker(
        "regional@northwind.example", ("regional",), sees={"customers": "region <> 'WA'"}
    ),
    "one who is denied a region, and so all that have none": Asker(
        "west@northwind.example",
        ("desk", "not-oregon"),
        {"countries": ["USA", "Germany"]},
        sees={
            "customers": "country IN ('USA', 'Germany') AND NOT coalesce(region = 'OR', true)",
            "orders": OF_COUNTRIES.format("'USA', 'Germany'"),
        },
    ),
    "an agent acting for the sales person": Asker(
        "nancy.davolio@northwind.example",
        ("sales", "staff"),
        agent="bots/helper",
        sees={"orders": f"{BY_NANCY} AND {THE_HELPERS}", "products": "true"},
    ),
    "the agent alone": Asker(agent="bots/helper"),
    "one without a group": Asker("zoe@northwind.example"),
    "one whose claim names no country": Asker("desk@northwind.example", ("desk",), {"countries": ["germany", ""]}),
}
NANCY = ASKERS["a sales person and her orders"]
ZOE = ASKERS["one without a group"]


@pytest.mark.promise("ENT-1", "ENT-6", "ENT-7")
async def test_each_asker_sees_exactly_what_sql_over_northwind_says(shop: "Shop", subtests: pytest.Subtests):
    everything = await shop.ids(dict.fromkeys(KEYS, "true"))
    for name, asker in ASKERS.items():
        with subtests.test(name):
            theirs = await shop.ids(asker.sees)
            assert await shop.fetched(asker, everything) == theirs
            assert await shop.sources(asker) == {each.split("/")[0] for each in theirs}


@pytest.mark.promise("ENT-1", "ENT-2")
async def test_a_search_finds_exactly_what_is_the_askers_and_holds_the_word(shop: "Shop", subtests: pytest.Subtests):
    async with shop.agents() as agents:
        for word, (name, asker) in product(("chai", "ernst", "beverages", "handel"), ASKERS.items()):
            with subtests.test(f"{word}: {name}"):
                expected = await shop.ids(asker.sees, word)
                assert len(expected) <= MOST
                for results in await shop.searches(agents, asker, word):
                    assert {each["id"] for each in results} == expected


@pytest.mark.promise("ENT-2")
async def test_replay_1_who_may_see_nothing_causes_no_read_whatever_is_asked(shop: "Shop"):
    await shop.pass_ttl()
    for each in sorted(await shop.ids(dict.fromkeys(KEYS, "true")))[::50]:
        assert await shop.fetch(ZOE, each) is None
    async with shop.agents() as agents:
        assert await shop.searches(agents, ZOE, "chai ernst order") == [[], [], []]
    assert await shop.sources(ZOE) == set()
    assert shop.log.reads() == []


@pytest.mark.promise("ENT-2", "FRE-2")
async def test_one_search_reads_what_it_shows_and_nothing_else_in_one_read_a_source(shop: "Shop"):
    await shop.pass_ttl()
    results = await shop.search(NANCY, "chai")
    assert {each["freshness"]["state"] for each in results} == {"refreshed"}
    shown = {name: {each["id"].split("/")[1] for each in results if each["source_name"] == name} for name in KEYS}
    assert sorted(shop.log.reads()) == sorted(Read(name, frozenset(ids)) for name, ids in shown.items() if ids)


@pytest.mark.promise("ENT-5", "FRE-5")
async def test_an_order_that_goes_to_another_sales_person_goes_from_the_first_ones_answers(shop: "Shop"):
    andrew = replace(NANCY, user="andrew.fuller@northwind.example")
    mine = f"orders/{await shop.sql.fetchval(f'SELECT min(order_id) FROM orders WHERE {BY_NANCY}')}"
    assert (await shop.fetch(NANCY, mine), await shop.fetch(andrew, mine)) == (mine, None)
    await shop.sql.execute("UPDATE orders SET employee_id = 2 WHERE order_id = $1", int(mine.split("/")[1]))
    await shop.pass_ttl()
    assert (await shop.fetch(NANCY, mine), await shop.fetch(andrew, mine)) == (None, mine)
    assert shop.log.reads() == [Read("orders", frozenset({mine.split("/")[1]}))]


# --- Northwind, served -----------------------------------------------------------------------------------------------


@pytest.fixture(scope="session")
def northwind(postgres_server: Any) -> str:
    """The name of a database to make others from."""
    if not DUMP.exists():
        pytest.skip("Northwind's dump is not beside this checkout")
    postgres_server.run("CREATE DATABASE northwind")
    with asyncio.Runner(loop_factory=asyncio.new_event_loop) as runner:
        runner.run(load(postgres_server.dsn("northwind")))
    return "northwind"


@pytest.fixture
def source(northwind: str, postgres_server: Any) -> Iterator[str]:
    """The DSN of a Northwind for one test, which may change it. It logs what it is asked."""
    name = f"{northwind}_copy"
    postgres_server.run(f"CREATE DATABASE {name} TEMPLATE {northwind}")
    postgres_server.run(LOGGED.format(database=name))
    yield postgres_server.dsn(name)
    postgres_server.run(f"DROP DATABASE {name} WITH (FORCE)")


@pytest.fixture
async def shop(
    source: str, database: str, postgres_server: Any, move_store_time: Any, tmp_path: Path
) -> AsyncIterator["Shop"]:
    place = Place(MANIFESTS, tmp_path / "secrets", tmp_path, port=free_port(), ops_port=free_port())
    write_secret(tmp_path / "secrets", "northwind", "dsn", source)
    write_secret(tmp_path / "secrets", "store", "dsn", database)
    sql = await asyncpg.connect(source)
    async with aiohttp.ClientSession() as http:
        made = Shop(place, sql, ServerLog(postgres_server.log), http, partial(move_store_time, database))
        options = Options(holder="shop", allow_loopback=True, boottime=made.boottime)
        service = Service.of(ManifestPublisher(place, ""), options)
        async with service.running(Listen(HOST, place.port, HOST, place.ops_port), OPEN, SETTINGS):
            await made.read_once(service.runtime)
            yield made
    await sql.close()


@dataclass
class Shop:
    """Northwind behind a service: `sql` is a session of its own people."""

    place: Place
    sql: asyncpg.Connection
    log: ServerLog
    http: aiohttp.ClientSession
    move_store_time: Callable[[float], Awaitable[None]]
    tokens: dict[Asker, Mapping[str, str]] = field(default_factory=dict)
    moved: float = 0.0

    @property
    def url(self) -> str:
        return f"http://{HOST}:{self.place.port}"

    def boottime(self) -> float:
        return boottime() + self.moved

    async def read_once(self, runtime: Runtime) -> None:
        """Until the loop has been over every source."""
        async with asyncio.timeout(30):
            await runtime.loaded.wait()
            while len(runtime.engine.memory.complete) < len(KEYS):
                await runtime.engine.store.notified(0.05)
        self.log.forget()

    async def pass_ttl(self) -> None:
        await self.move_store_time(PAST_TTL)
        self.moved += PAST_TTL
        self.log.forget()

    # what Northwind itself says

    async def ids(self, conditions: Mapping[str, str], word: str | None = None) -> set[str]:
        """`source/id` of the rows that meet the conditions and, where a word is given, hold it."""
        found: set[str] = set()
        for source, condition in conditions.items():
            key, holds = KEYS[source], "true" if word is None else HOLDS[source]
            statement = f"SELECT {key} FROM {source} WHERE ({condition}) AND ({holds})"
            found |= {f"{source}/{row[0]}" for row in await self.sql.fetch(statement, *([word] if word else []))}
        return found

    # what the service says

    async def search(self, asker: Asker, query: str) -> list[Any]:
        body = {"query": query, "limit": MOST}
        status, answer = await self._ask(asker, "POST", "search", json=body)
        assert status == 200
        return list(answer["results"])

    @asynccontextmanager
    async def agents(self) -> AsyncIterator[Sequence[Agent]]:
        """A client of MCP for each era."""
        async with AsyncExitStack() as stack:
            yield [await stack.enter_async_context(agent(self.url, era, self.headers(ZOE))) for era in ERAS]

    async def searches(self, agents: Sequence[Agent], asker: Asker, query: str) -> list[list[Any]]:
        """Over MCP in both eras, and over REST."""
        headers = self.headers(asker)
        told = [await one.call(headers, "search", query=query, limit=MOST) for one in agents]
        return [await self.search(asker, query), *(each.structured_content["results"] for each in told)]

    async def fetch(self, asker: Asker, named: str) -> str | None:
        status, answer = await self._ask(asker, "GET", f"objects/{named}")
        assert status == 404 or (status, "title" in answer) == (200, True)
        return answer["id"] if status == 200 else None

    async def fetched(self, asker: Asker, named: Iterable[str]) -> set[str]:
        return {found for each in named if (found := await self.fetch(asker, each))}

    async def sources(self, asker: Asker) -> set[str]:
        _, answer = await self._ask(asker, "GET", "sources")
        assert all(each["complete"] for each in answer["sources"])
        return {each["name"] for each in answer["sources"]}

    async def _ask(self, asker: Asker, method: str, path: str, **options: Any) -> tuple[int, Any]:
        async with self.http.request(
            method, f"{self.url}/api/v1/{path}", headers=self.headers(asker), **options
        ) as response:
            return response.status, await response.json()

    def headers(self, asker: Asker) -> Mapping[str, str]:
        if asker not in self.tokens:
            self.tokens[asker] = asker.headers(Issuers(self.place.data))
        return self.tokens[asker]
