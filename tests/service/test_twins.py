"""Non-interference: two worlds that differ only in what an asker may not see are one and the same to that asker.

First in the memory alone, where examples are cheap and everything changes between two questions; then with all that a
question causes; then through every entrance, down to headers, log lines and what is counted.
"""

from collections.abc import Mapping
from functools import partial
from itertools import count
from typing import Any
from unittest import mock

import pytest
from freshgate_entrances import (
    ERAS,
    SEARCH,
    TELLING,
    Noticed,
    Request,
    about,
    at_large,
    besides,
    post,
    tool,
    visiting,
)
from freshgate_serve import account, cluster, corp, user
from freshgate_strategies import accesses, askers, policies
from freshgate_twins import (
    A_WORD,
    FAULTS,
    OWN_SOURCE,
    QUERIES,
    REACH,
    Raw,
    Thing,
    Twin,
    Twins,
    entitling,
    examples,
    pairs,
    pass_ttl,
    questions,
    reading,
    recover,
    standing_still,
    stop_time,
    story,
    theirs,
)
from freshgate_world import allow, configuration, group, remembered, source
from hypothesis import given
from hypothesis import strategies as st

from freshgate_crds.compiled import KUBERNETES_ISSUER, Entitlements, Policy, Revision, Rule, SubjectKind
from freshgate_service.domain import Access, Asker, Deleted, Name, ObjectKey, Principal, Scored
from freshgate_service.entitle import entitled
from freshgate_service.memory import Memory
from freshgate_service.serve.auth import ON_BEHALF_OF


@pytest.fixture
async def still(database: str) -> str:
    await stop_time(database)
    return database


# --- in memory -------------------------------------------------------------------------------------------------------

IDS = st.sampled_from([f"{number}" for number in range(6)])
STEPS = st.one_of(
    st.tuples(st.just("put"), IDS, A_WORD, A_WORD, accesses()),
    st.tuples(st.just("put in the other"), IDS, A_WORD, A_WORD, accesses()),
    st.tuples(st.just("delete"), IDS, st.sampled_from(["tickets", "accounts"])),
    st.tuples(st.just("policies of the other"), st.lists(policies("own"), max_size=2)),
    st.tuples(st.just("somebody asks in the other"), askers(), st.sampled_from(QUERIES)),
    st.tuples(st.just("ask"), st.sampled_from(QUERIES), st.sampled_from([None, frozenset({"tickets"})])),
)


class Memories:
    """Two memories. One is told of what the asker may see, the other of much more: after each change both entitle the
    asker to the same."""

    def __init__(self, asker: Asker, common: list[Policy]) -> None:
        self.asker = asker
        self.common = common
        sources = (source("tickets"), source("accounts", spec_hash="tickets one"))
        self.one, self.other = (Memory(configuration(*sources, entitlements=entitling(common))) for _ in range(2))
        self._changes = count(1)

    def play(self, step: str, *details: Any) -> None:
        match step:
            case "put":
                self._put(*details, only_in_the_other=False)
            case "put in the other":
                self._put(*details, only_in_the_other=True)
            case "delete":
                for memory in (self.one, self.other):
                    memory.apply(Deleted(ObjectKey(details[1], details[0]), next(self._changes)))
            case "policies of the other":
                self._entitle(*details)
            case "somebody asks in the other":
                asker, query = details
                self.other.top(self.other.slice(asker, None), query, 10)
            case "ask":
                assert self._told(self.one, *details) == self._told(self.other, *details)

    def _put(self, record_id: str, title: str, summary: str, access: Access, *, only_in_the_other: bool) -> None:
        change = remembered(record_id, title, summary, access, next(self._changes))
        seen = [entitled(self.asker, access, memory.config.entitlements) for memory in (self.one, self.other)]
        if seen == [True, True] and not only_in_the_other:
            self.one.apply(change)
            self.other.apply(change)
        elif not seen[1]:
            self.other.apply(change)
            self.one.apply(Deleted(change.key, change.change))

    def _entitle(self, own: list[Policy]) -> None:
        new = entitling([*self.common, *own])
        if self._visible(new) == self._visible(self.other.config.entitlements):
            self.other.replace_config(self.other.config.model_copy(update={"entitlements": new}))

    def _visible(self, by: Entitlements) -> set[ObjectKey]:
        return {key for key, each in self.other.objects.items() if entitled(self.asker, each.access, by)}

    def _told(self, memory: Memory, query: str, sources: frozenset[str] | None) -> tuple[Any, ...]:
        best: list[Scored] = memory.top(memory.slice(self.asker, sources), query, 4)
        found = {key for key in self.other.objects if memory.find(self.asker, key)}
        return best, found, memory.sources(self.asker)


@pytest.mark.promise("ENT-1", "ENT-4")
@examples(300)
@given(
    asker=askers(),
    reach=REACH,
    common=st.lists(policies("common"), max_size=3),
    script=st.lists(STEPS, min_size=5, max_size=40),
)
def test_whatever_else_is_in_memory_and_whoever_else_asks_scores_are_the_same_floats(
    asker: Asker, reach: Rule, common: list[Policy], script: list[tuple[Any, ...]]
):
    memories = Memories(asker, [theirs(asker, reach), *common])
    for step, *details in script:
        memories.play(step, *details)
    for query in QUERIES:
        memories.play("ask", query, None)


# --- with all that a question causes ---------------------------------------------------------------------------------


@pytest.mark.promise("ENT-2", "ENT-4", "ENT-5")
@examples(15)
@given(twins=pairs(askers()), data=st.data())
async def test_an_asker_is_told_the_same_bytes_and_causes_the_same_reads_in_both_worlds(
    still: str, twins: Twins, data: st.DataObject
):
    order = data.draw(st.permutations(list(questions(twins))))
    fault = data.draw(st.sampled_from(FAULTS))
    in_flight = data.draw(st.lists(st.sampled_from(twins.mine), unique=True)) if twins.mine else []
    one, other = [await story(still, twins, twin, order, fault, in_flight) for twin in (twins.one, twins.other)]
    assert one == other


# --- through every entrance ------------------------------------------------------------------------------------------

ISSUERS = (corp(), cluster())
ANA = Principal(SubjectKind.USER, Name("corp", "ana"), frozenset({Name("corp", "sales")}))
NEWEST = Revision(workspace_uid="uid", counter=99)
HELPER = Principal(SubjectKind.SERVICE_ACCOUNT, Name(KUBERNETES_ISSUER, "bots/helper"))


def headers_of(asker: Asker) -> Mapping[str, str]:
    tokens = {ANA: user("ana", "sales"), HELPER: account("bots:helper")}
    headers = {"Authorization": f"Bearer {tokens[asker.principal]}"}
    return headers if asker.on_behalf_of is None else {**headers, ON_BEHALF_OF: tokens[asker.on_behalf_of]}


@pytest.mark.promise("ENT-2", "ENT-4", "CON-2", "CON-3")
@examples(2)
@given(twins=pairs(st.sampled_from([Asker(ANA), Asker(HELPER), Asker(HELPER, ANA)]), most=6))
async def test_no_entrance_shows_or_does_or_leaves_behind_anything_else_in_the_other_world(still: str, twins: Twins):
    who = headers_of(twins.asker)
    one, other = [await visits(still, twins, twin, who) for twin in (twins.one, twins.other)]
    for state, noticed in one.items():
        for name, found in noticed.items():
            assert found == other[state][name], (state, name)


async def visits(dsn: str, twins: Twins, twin: Twin, who: Mapping[str, str]) -> dict[str, dict[str, Noticed]]:
    """In one of the worlds, what comes of every request in every state that the service can be in."""
    named = {f"{name} {key.text}": each for key in spoken_of(twins) for name, each in about(key).items()}
    telling = {f"{name} {key.text}": about(key)[name] for key in spoken_of(twins) for name in TELLING}
    at_once = mock.patch("freshgate_service.pipeline.BEHIND_SECONDS", 0.0)  # since time stands still
    noticed = {}
    async with standing_still(dsn, twin) as made, visiting(made, ISSUERS, who) as visitor:
        noticed["fresh"] = await visitor.all({**at_large(), **named, **besides()})
        await pass_ttl(made, twin, 1)
        noticed["stale"] = await visitor.all({**telling, **at_large()})
        made.upstreams["tickets"].fault = FAULTS[0]
        await pass_ttl(made, twin, 1)
        noticed["failing"] = await visitor.all({**at_large(), **telling})
        made.upstreams["tickets"].fault = None
        await recover(made)
        noticed["reading"] = {}
        for name, request in telling.items():
            async with reading(made, twin, 2, twins.mine[:2]):
                noticed["reading"][name] = await visitor.ask_while_reading(request)
        await made.advance(86_400.0)
        noticed["expired"] = await visitor.all(telling)
        await made.engine.store.admit_revision(NEWEST, made.config.entitlements.stamp)
        made.engine.highest = NEWEST
        with at_once:
            noticed["behind"] = await visitor.all(telling)
    return noticed


def spoken_of(twins: Twins) -> list[ObjectKey]:
    """Of each kind of name one or two: the asker's own, hidden in either world, in none."""
    hidden = [
        sorted(twin.hidden - other.hidden) for twin, other in ((twins.one, twins.other), (twins.other, twins.one))
    ]
    return [*twins.mine[:2], *hidden[0][:1], *hidden[1][:1], ObjectKey("tickets", "random")]


# --- hidden, and nowhere ---------------------------------------------------------------------------------------------


def raw(title: str, region: str, **fields: Any) -> Raw:
    plain = {"body": "a refund", "url": None, "owner": "nobody", "users": [], "groups": []}
    return {"title": title, "region": region, **plain, **fields}


def always(key: ObjectKey, title: str, region: str) -> Thing:
    return Thing(key, (raw(title, region), raw(title, region), raw(title, region)))


MINE, MOVING = ObjectKey("tickets", "mine"), ObjectKey("tickets", "moving")
HIDDEN, GUARDED = ObjectKey("tickets", "hidden"), ObjectKey(OWN_SOURCE, "1")
SALES_SEE_EMEA = entitling([allow("sales", group("sales"), region="emea")])
DESK = Twin(
    SALES_SEE_EMEA,
    (
        always(MINE, "refund of mine", "emea"),
        Thing(MOVING, (raw("refund that moves", "emea"), raw("refund that moves", "amer"), None)),
        always(HIDDEN, "refund of others", "amer"),
        always(GUARDED, "refund of a salary", "emea"),
    ),
    hidden=frozenset({HIDDEN, GUARDED}),
    busy=True,
)


@pytest.mark.promise("ENT-2", "ENT-4")
@pytest.mark.parametrize(
    ("hidden", "nowhere"),
    [
        (HIDDEN, ObjectKey("tickets", "nowhere")),
        (GUARDED, ObjectKey("nowhere", "1")),
        (MOVING, ObjectKey("tickets", "nowhere")),
    ],
    ids=["an object", "a source", "an object that moves"],
)
async def test_replay_10_at_every_entrance_a_hidden_name_and_one_of_nothing_are_the_same(still, hidden, nowhere):
    """Of two equal worlds one is asked about the one name, the other about the other."""
    one, other = [await told_of(still, name, moved=hidden is MOVING) for name in (hidden, nowhere)]
    for state, noticed in one.items():
        for name, found in noticed.items():
            assert found.without_the_question == other[state][name].without_the_question, (state, name)


def searching(era: str, arguments: dict[str, Any]) -> Request:
    return tool(era, "search", **arguments)


async def told_of(dsn: str, name: ObjectKey, *, moved: bool) -> dict[str, dict[str, Noticed]]:
    """What comes of everything that is said about a name."""
    requests, telling = about(name), {each: about(name)[each] for each in TELLING}
    noticed = {}
    async with standing_still(dsn, DESK) as made, visiting(made, ISSUERS, headers_of(Asker(ANA))) as visitor:
        if moved:  # it has moved, and has just been found to have
            await pass_ttl(made, DESK, 1)
            await made.engine.pipeline.fetch(Asker(ANA), *MOVING)
        noticed["fresh"] = await visitor.all(requests)
        await pass_ttl(made, DESK, 1)
        noticed["stale"] = await visitor.all(requests)
        await made.advance(61.0)
        made.upstreams["tickets"].fault = FAULTS[1]
        noticed["failing"] = await visitor.all(telling)
        made.upstreams["tickets"].fault = None
        await recover(made)
        noticed["reading"] = {}
        for each, request in telling.items():
            async with reading(made, DESK, 1, [MINE]):
                noticed["reading"][each] = await visitor.ask_while_reading(request)
    return noticed


@pytest.mark.promise("ENT-4")
@pytest.mark.parametrize(
    "ask", [partial(post, SEARCH), *(partial(searching, era) for era in ERAS)], ids=["REST", *ERAS]
)
async def test_replay_3_sources_that_are_hidden_or_unknown_and_words_that_match_nothing_are_answered_alike(still, ask):
    async with standing_still(still, DESK) as made, visiting(made, ISSUERS, headers_of(Asker(ANA))) as visitor:
        nothing = await visitor.ask(ask({"query": "zzz"}))
        for sources in ([OWN_SOURCE], ["nowhere"], [OWN_SOURCE, "nowhere", "accounts"]):
            found = await visitor.ask(ask({"query": "refund", "sources": sources}))
            assert found.without_the_question == nothing.without_the_question
        assert (
            b"refund of mine" in (await visitor.ask(ask({"query": "refund", "sources": ["nowhere", "tickets"]}))).body
        )


@pytest.mark.promise("ENT-1", "ENT-4")
async def test_replay_8_a_thousand_hidden_objects_with_the_terms_of_the_query_change_no_bit_of_any_answer(still):
    others = [always(ObjectKey("tickets", f"x{number}"), "refund refund of mine", "amer") for number in range(1000)]
    crowd = DESK._replace(things=(*DESK.things, *others), hidden=DESK.hidden | {thing.key for thing in others})
    told = []
    for desk in (DESK, crowd):
        async with standing_still(still, desk) as made, visiting(made, ISSUERS, headers_of(Asker(ANA))) as visitor:
            told.append(await visitor.all(at_large()))
            await pass_ttl(made, desk._replace(busy=False), 0)
            told[-1] |= await visitor.all({f"{name}, stale": each for name, each in at_large().items()})
    assert told[0] == told[1]


async def test_what_an_asker_may_see_is_answered_at_every_entrance(still):
    """All of the above would hold as well if nothing were ever answered."""
    async with standing_still(still, DESK) as made, visiting(made, ISSUERS, headers_of(Asker(ANA))) as visitor:
        told = await visitor.all({**about(MINE), **at_large()})
        shown = {name for name, found in told.items() if found.status == 200 and b"refund of mine" in found.body}
        assert shown >= {*TELLING, "search refund", "search for one", *(f"search tool {era}" for era in ERAS)}
        for name in ("sources", *(f"sources tool {era}" for era in ERAS)):
            assert b"tickets" in told[name].body
            assert b"payroll" not in told[name].body
        assert all(found.lines[-1]["outcome"] == "answered" for name, found in told.items() if name in shown)
        assert all(found.counted for found in told.values() if found.lines)
