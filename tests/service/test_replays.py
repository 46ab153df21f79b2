"""What went wrong in systems like this one, played again: who sees what. Only what no other test plays is here."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any
from unittest import mock

import pytest
from freshgate_entrances import ERAS, MCP, OBJECTS, SEARCH, Request, post, tool, visiting
from freshgate_serve import ScriptedPipeline, corp, served, user
from freshgate_store import until
from freshgate_strategies import accesses, askers, entitlements
from freshgate_world import (
    ANA,
    BOB,
    World,
    allow,
    configuration,
    group,
    key,
    person,
    remembered,
    source,
    states,
    world,
)
from freshgate_world import entitlements as entitling
from hypothesis import given, settings
from hypothesis import strategies as st

from freshgate_crds.compiled import Condition, Operator, Policy, Rule
from freshgate_service.domain import Access, Asker, Item, Reason, Scored
from freshgate_service.entitle import entitled
from freshgate_service.errors import InvariantViolation
from freshgate_service.memory import Memory
from freshgate_service.serve.limits import Limiter


@pytest.fixture
async def made(database: str, move_store_time: Any) -> AsyncIterator[World]:
    async with world(database, move_store_time) as made:
        yield made


async def two_regions(made: World) -> None:
    made.upstreams["tickets"].put("mine", title="refund of mine", region="emea")
    made.upstreams["tickets"].put("theirs", title="refund of theirs", region="amer")
    await made.loop()
    made.upstreams["tickets"].reads.clear()


# --- 1: an empty allow-list became "no filter" -----------------------------------------------------------------------


def allowing(**changes: Any) -> Policy:
    return allow("all", group("emea"), region="emea").model_copy(update=changes)


def ruling(**changes: Any) -> Policy:
    return allowing(rules=(Rule(**{"sources": ("tickets",), **changes}),))


def asking(operator: Operator, **values: Any) -> Policy:
    return ruling(where=(Condition(attribute="region", operator=operator, **values),))


NOTHING_SAID = {
    "no policy": [],
    "a policy for nobody": [allowing(subjects=())],
    "a policy without rules": [allowing(rules=())],
    "a rule of no source": [ruling(sources=(), everything=True)],
    "a rule that says nothing": [ruling()],
    "one of no values": [asking(Operator.IN)],
    "none of no values": [asking(Operator.NOT_IN)],
    "the beginning of everything": [asking(Operator.PREFIX_OF, values=("",))],
    **{
        f"{operator} of {claim}": [asking(operator, values_from_claim=claim)]
        for operator in (Operator.IN, Operator.NOT_IN, Operator.EQUALS, Operator.PREFIX_OF)
        for claim in ("absent", "null", "list", "text", "nulls")
    },
}
EMPTY_HANDED = person("ana", "emea", null=None, list=[], text="", nulls=[None])


@pytest.mark.promise("ENT-6")
@pytest.mark.parametrize("policies", NOTHING_SAID.values(), ids=NOTHING_SAID)
def test_replay_1_a_rule_that_says_nothing_allows_nothing(policies: list[Policy]):
    said = entitling().model_copy(update={"policies": tuple(policies)})
    memory = Memory(configuration(entitlements=said))
    for number, region in enumerate(["emea", "", None, [], [None], ["emea"]]):
        access = Access("tickets", {"region": region})
        memory.apply(remembered(f"{number}", "refund", "refund", access, number + 1))
        assert not entitled(EMPTY_HANDED, access, said)
        assert memory.find(EMPTY_HANDED, key(f"{number}")) is None
    assert memory.top(memory.slice(EMPTY_HANDED, None), "refund", 10) == []
    assert memory.sources(EMPTY_HANDED) == set()


# --- 2: a second way passed by the check -----------------------------------------------------------------------------


@pytest.mark.promise("ENT-3")
async def test_replay_2_what_leaks_into_the_scores_after_a_refresh_is_stopped_at_the_border_too(made: World):
    await two_regions(made)
    await made.advance(61)
    top = made.engine.memory.top

    def leaking(*asked: Any) -> list[Scored]:
        """Once something was read."""
        if not made.upstreams["tickets"].reads:
            return top(*asked)
        return [Scored(each, 1.0, ()) for each in made.engine.memory.objects]

    with mock.patch.object(made.engine.memory, "top", leaking), pytest.raises(InvariantViolation):
        await made.ask(ANA, "refund")
    assert made.upstreams["tickets"].reads == [("mine",)]


# --- 4: a filter was accepted and ignored ----------------------------------------------------------------------------

FILTERS = {"user_id": "ana", "filter": {"region": "emea"}, "Sources": ["tickets"], "source": "tickets", "top_k": 1}
IGNORABLE = {
    **{f"search with {name}": post(SEARCH, {"query": "refund", name: value}) for name, value in FILTERS.items()},
    "search with a parameter": post(f"{SEARCH}?sources=tickets", {"query": "refund"}),
    "search with an empty parameter": post(f"{SEARCH}?sources", {"query": "refund"}),
    "fetch with a parameter": Request("GET", f"{OBJECTS}/tickets/4711?user_id=ana"),
    "sources with a parameter": Request("GET", "/api/v1/sources?source=tickets"),
    "whoami with a parameter": Request("GET", "/api/v1/whoami?user=bob"),
    **{
        f"{name} tool with {field} {era}": tool(era, name, **arguments, **{field: value})
        for era in ERAS
        for name, arguments in {"search": {"query": "refund"}, "fetch": {"id": "tickets/4711"}, "sources": {}}.items()
        for field, value in FILTERS.items()
    },
}


@pytest.mark.promise("ENT-6")
@pytest.mark.parametrize("request_", IGNORABLE.values(), ids=IGNORABLE)
async def test_replay_4_a_field_that_there_is_not_is_an_error_at_every_entrance_and_nothing_is_asked(request_: Request):
    pipeline = ScriptedPipeline()
    async with served(pipeline) as service:
        status, _, body = await service.ask(
            request_.method, request_.path, user(), headers=request_.headers, data=request_.body
        )
    assert status == (200 if request_.path == MCP else 400)
    assert b"there is no such field" in body
    assert b"invalid_request" in body
    assert pipeline.asked == []


# --- 9: a record that is being read ----------------------------------------------------------------------------------


async def reading(made: World, *record_ids: str) -> None:
    """Somebody has caused a read, which is on its way."""
    made.upstreams["tickets"].gate.clear()
    keys = [key(each) for each in record_ids]
    made.engine.flights.refresh(keys, older_than=made.engine.clock.latest(), background=True)

    async def under_way() -> bool:
        return bool(made.upstreams["tickets"].reads)

    await until(under_way)


Look = Callable[[World], Awaitable[list[Item]]]


async def search(made: World) -> list[Item]:
    return await made.ask(ANA, "refund")


async def fetch(made: World) -> list[Item]:
    return [item for each in ("mine", "theirs") if (item := await made.engine.pipeline.fetch(ANA, "tickets", each))]


@pytest.mark.promise("ENT-5")
@pytest.mark.parametrize("look", [search, fetch])
async def test_replay_9_a_record_that_moves_out_of_reach_while_it_is_read_is_not_answered(made: World, look: Look):
    await two_regions(made)
    await made.advance(61)
    await reading(made, "mine", "theirs")
    made.upstreams["tickets"].put("mine", region="amer")
    asked = asyncio.create_task(look(made))
    await asyncio.sleep(0)
    made.upstreams["tickets"].gate.set()
    assert await asked == []
    assert len(made.upstreams["tickets"].reads) == 1


@pytest.mark.promise("ENT-5", "FRE-3")
@pytest.mark.parametrize("look", [search, fetch])
async def test_replay_9_whoever_does_not_wait_for_a_read_is_told_nothing_of_its_record(made: World, look: Look):
    await two_regions(made)
    await made.take(deadline_seconds=0.05)
    await made.advance(61)
    await reading(made, "mine", "theirs")
    made.upstreams["tickets"].put("mine", region="amer")
    [late] = await look(made)
    assert (late.freshness.reason, late.content, late.matched) == (Reason.DEADLINE, None, ())
    made.upstreams["tickets"].gate.set()
    await made.engine.flights.close()
    assert await look(made) == []


@pytest.mark.promise("ENT-2", "ENT-4")
async def test_replay_9_what_is_hidden_is_not_waited_for_while_it_is_read(made: World):
    await two_regions(made)
    await reading(made, "theirs")
    async with asyncio.timeout(5):
        assert await made.engine.pipeline.fetch(ANA, "tickets", "theirs") is None
        assert states(await search(made)) == {"tickets/mine": "fresh"}
    made.upstreams["tickets"].gate.set()


@pytest.mark.promise("ENT-5")
async def test_replay_9_a_record_that_moves_into_reach_is_answered_once_it_was_read_and_not_before(made: World):
    await two_regions(made)
    made.upstreams["tickets"].put("theirs", region="emea")
    await reading(made, "theirs")
    assert states(await fetch(made)) == {"tickets/mine": "fresh"}
    made.upstreams["tickets"].gate.set()
    await made.engine.flights.close()
    assert states(await fetch(made)) == {"tickets/mine": "fresh", "tickets/theirs": "fresh"}


READING = {
    "search": post(SEARCH, {"query": "refund"}),
    "fetch": Request("GET", f"{OBJECTS}/tickets/mine"),
    **{f"search tool {era}": tool(era, "search", query="refund") for era in ERAS},
    **{f"fetch tool {era}": tool(era, "fetch", id="tickets/mine") for era in ERAS},
}


@pytest.mark.promise("ENT-5")
@pytest.mark.parametrize("request_", READING.values(), ids=READING)
async def test_replay_9_at_no_entrance_is_a_record_answered_that_moves_while_it_is_read(made: World, request_: Request):
    await two_regions(made)
    async with visiting(made, [corp()], {"Authorization": f"Bearer {user('ana', 'emea')}"}) as visitor:
        assert b"refund of mine" in (await visitor.ask(request_)).body
        await made.advance(61)
        await reading(made, "mine")
        made.upstreams["tickets"].put("mine", region="amer")
        assert b"refund" not in (await visitor.ask_while_reading(request_)).body


# --- 12: keys that collide -------------------------------------------------------------------------------------------


@pytest.mark.promise("ENT-6", "ENT-7")
@settings(max_examples=100, deadline=None)
@given(
    askers=st.lists(askers(), min_size=2, max_size=6),
    found=st.lists(accesses(), min_size=1, max_size=12),
    said=entitlements(),
)
def test_replay_12_nobody_is_given_what_is_kept_for_somebody_who_may_see_something_else(askers, found, said):
    """Names, groups, claims and values hold the delimiters, lists and empties that a joined key would confuse."""
    sources = (source("tickets"), source("accounts", spec_hash="tickets one"))
    memory = Memory(configuration(*sources, entitlements=said))
    for number, access in enumerate(found, 1):
        memory.apply(remembered(f"{number}", "refund", "refund", access, number))
    for asker in [*askers, *askers]:
        seen = {one.key for one in memory.top(memory.slice(asker, None), "refund", 50)}
        assert seen == {each for each, one in memory.objects.items() if entitled(asker, one.access, said)}


@given(askers=st.lists(askers(), min_size=2, max_size=6))
def test_replay_12_nobody_is_shed_for_somebody_of_another_name(askers: list[Asker]):
    limiter = Limiter(100, 100)
    for one in askers:
        for other in askers:
            same = (one.principal.kind, one.principal.name) == (other.principal.kind, other.principal.name)
            assert (limiter.of(one.principal) is limiter.of(other.principal)) is same


# --- 15: a cancelled request's answer reached the next ---------------------------------------------------------------


@pytest.mark.promise("ENT-2")
async def test_replay_15_questions_cancelled_at_any_moment_leave_nothing_to_whoever_asks_next(made: World):
    await two_regions(made)
    for turns in range(40):
        await made.advance(61)
        cancelled = asyncio.create_task(made.ask(ANA, "refund"))
        for _ in range(turns):
            await asyncio.sleep(0)
        cancelled.cancel()
        asked = await asyncio.gather(
            made.ask(BOB, "refund"), made.ask(ANA, "refund"), cancelled, return_exceptions=True
        )
        assert [set(states(items)) for items in asked[:2]] == [{"tickets/theirs"}, {"tickets/mine"}]
        assert all(item.content is not None for items in asked[:2] for item in items)
    assert {each for read in made.upstreams["tickets"].reads for each in read} == {"mine", "theirs"}
