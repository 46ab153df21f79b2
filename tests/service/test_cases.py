"""The cases of tests/cases, through every entrance that could show a record: each shows exactly what the case says.

One engine on a real store and one server for all of them. A case's policies are taken into force as the next revision,
its records are what the upstream holds, and its askers carry tokens of issuers that the server verifies.
"""

import json
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from functools import partial
from typing import Any, NamedTuple

import pytest
from freshgate_agent import Agent, agent
from freshgate_cases import QUERY, READERS_ISSUER, Case, cases
from freshgate_serve import AUDIENCE, ERAS, Service, account, cluster, corp, ec_signer, jwks, served
from freshgate_world import World, configuration, source, world

from freshgate_crds.compiled import ClaimMapping, ObjectMapping, ReadersMapping, SubjectKind
from freshgate_service.domain import Asker, ObjectKey, Principal
from freshgate_service.entitle import entitled
from freshgate_service.memory import Memory
from freshgate_service.serve.auth import ON_BEHALF_OF

CASES = cases()
SOURCES = ("accounts", "files", "tickets")
MOST = 50
"""Results in one answer, more than any case has objects."""
PAST_TTL = 61.0

PEOPLE = {"corp": ec_signer("corp-1"), "partner": ec_signer("partner-1")}
ISSUERS = (
    *(
        corp(name=name, url=f"https://{name}.example", claims=ClaimMapping(user="sub", groups="groups"), jwks=jwks(key))
        for name, key in PEOPLE.items()
    ),
    cluster(),
)


class Seen(NamedTuple):
    """What one entrance shows an asker: by a search, by asking for every object there is, and as sources."""

    searched: frozenset[ObjectKey]
    fetched: frozenset[ObjectKey]
    sources: frozenset[str]

    @classmethod
    def alike(cls, keys: frozenset[ObjectKey]) -> "Seen":
        return cls(keys, keys, frozenset(key.source for key in keys))


Entrance = Callable[[Case, Asker], Awaitable[Seen]]


@pytest.mark.promise("ENT-1", "ENT-2", "ENT-6", "ENT-7")
async def test_replay_2_every_entrance_shows_an_asker_what_the_case_says(
    database: str, move_store_time: Any, subtests: pytest.Subtests
):
    async with (
        world(database, move_store_time, configuration(*map(mapped, SOURCES), issuers=ISSUERS)) as made,
        served(made.engine.pipeline, ISSUERS) as service,
        entrances(made, service) as doors,
    ):
        for case in CASES:
            with subtests.test(case.name):
                await bring_about(made, case)
                for told in case.expectations:
                    for name, entrance in doors.items():
                        assert await entrance(case, told.asker) == Seen.alike(told.sees), (name, told.asker)
                    assert taken_reads(made) <= told.sees, told.asker


# --- a case, brought about -------------------------------------------------------------------------------------------


def mapped(name: str) -> Any:
    """A source whose records hold any attribute that a case has; one that a record lacks is null."""
    attributes = {attribute for case in CASES for access in case.objects.values() for attribute in access.attributes}
    mapping = ObjectMapping(
        title="title",
        body=("body",),
        attributes={attribute: f'attributes."{attribute}"' for attribute in attributes},
        readers=ReadersMapping(issuer=READERS_ISSUER, users="readers.users", groups="readers.groups"),
    )
    return source(name, object=mapping)


async def bring_about(made: World, case: Case) -> None:
    """The case's policies are in force, its objects remembered, and all of them stale."""
    await made.take(entitlements=case.entitlements)
    for name in SOURCES:
        upstream = made.upstreams[name]
        upstream.records.clear()
        for key, access in case.objects.items():
            if key.source == name:
                readers = {kind: [each.name for each in getattr(access.readers, kind)] for kind in ("users", "groups")}
                upstream.put(
                    key.record_id,
                    version=case.name,  # tells the loop that it must be read again
                    title=case.title(key),
                    body=case.body(key),
                    attributes=dict(access.attributes),
                    readers=readers,
                )
        await made.loop(name)
    assert set(made.engine.memory.objects) == set(case.objects)
    await made.advance(PAST_TTL)
    taken_reads(made)


def taken_reads(made: World) -> set[ObjectKey]:
    """What was read since this was last called."""
    reads = {ObjectKey(name, each) for name, one in made.upstreams.items() for read in one.reads for each in read}
    for upstream in made.upstreams.values():
        upstream.reads.clear()
    return reads


# --- entrances -------------------------------------------------------------------------------------------------------


@asynccontextmanager
async def entrances(made: World, service: Service) -> AsyncIterator[dict[str, Entrance]]:
    async with AsyncExitStack() as stack:
        first = {"Authorization": f"Bearer {account()}"}
        agents = {era: await stack.enter_async_context(agent(service.url, era, first)) for era in ERAS}
        yield {
            "the plain decision": decided,
            "classes and the fast scorer": partial(scored, made.engine.memory),
            "REST": partial(over_rest, service),
            **{f"MCP, {era}": partial(over_mcp, one) for era, one in agents.items()},
        }


async def decided(case: Case, asker: Asker) -> Seen:
    return Seen.alike(
        frozenset(key for key, access in case.objects.items() if entitled(asker, access, case.entitlements))
    )


async def scored(memory: Memory, case: Case, asker: Asker) -> Seen:
    best = memory.top(memory.slice(asker, None), QUERY, MOST)
    return Seen(
        frozenset(one.key for one in best),
        frozenset(key for key in case.objects if memory.find(asker, key)),
        frozenset(memory.sources(asker)),
    )


async def over_rest(service: Service, case: Case, asker: Asker) -> Seen:
    headers = headers_of(asker)
    status, answer = await service.json("POST", "/api/v1/search", headers=headers, json={"query": QUERY, "limit": MOST})
    assert status == 200
    fetched = set()
    for key in case.objects:
        status, item = await service.json("GET", f"/api/v1/objects/{key.text}", headers=headers)
        assert status == 404 or (status, item["id"]) == (200, key.text)
        fetched.update([key] if status == 200 else [])
    _, sources = await service.json("GET", "/api/v1/sources", headers=headers)
    return Seen(keys_of(answer), frozenset(fetched), names_of(sources))


async def over_mcp(agent: Agent, case: Case, asker: Asker) -> Seen:
    headers = headers_of(asker)
    answer = await agent.call(headers, "search", query=QUERY, limit=MOST)
    fetched = [key for key in case.objects if await is_fetched(agent, headers, key)]
    sources = await agent.call(headers, "sources")
    return Seen(keys_of(answer.structured_content), frozenset(fetched), names_of(sources.structured_content))


async def is_fetched(agent: Agent, headers: Mapping[str, str], key: ObjectKey) -> bool:
    answer = await agent.call(headers, "fetch", id=key.text)
    if answer.is_error:
        assert json.loads(answer.content[0].text)["error"]["code"] == "not_found"
        return False
    assert answer.structured_content["id"] == key.text
    return True


def keys_of(answer: Any) -> frozenset[ObjectKey]:
    """All of them confirmed, which an item without a title is not."""
    assert all(item["title"] for item in answer["results"])
    return frozenset(ObjectKey(*item["id"].split("/", 1)) for item in answer["results"])


def names_of(answer: Any) -> frozenset[str]:
    return frozenset(source["name"] for source in answer["sources"])


# --- tokens ----------------------------------------------------------------------------------------------------------


def headers_of(asker: Asker) -> dict[str, str]:
    headers = {"Authorization": f"Bearer {token_of(asker.principal)}"}
    return headers if asker.on_behalf_of is None else {**headers, ON_BEHALF_OF: token_of(asker.on_behalf_of)}


def token_of(principal: Principal) -> str:
    if principal.kind is SubjectKind.SERVICE_ACCOUNT:
        return account(principal.name.name.replace("/", ":"), **principal.claims)
    issuer, name = principal.name
    registered = {"iss": f"https://{issuer}.example", "aud": AUDIENCE, "sub": name, "exp": int(time.time()) + 600}
    groups = {"groups": sorted(group.name for group in principal.groups)}
    return PEOPLE[issuer].sign({**principal.claims, **groups, **registered})
