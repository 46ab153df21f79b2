"""Two worlds that differ only in what one asker may not see, and what that asker is told in each.

Both hold the same for the asker. Each has of its own, unseen: objects, also under ids that exist in the other or at
the place that an object of the asker's moved to; a source; policies; people who ask. Time stands still in both, at the
same instants, so whatever is told can be compared to the last bit.
"""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager
from datetime import UTC, datetime
from functools import cache, partial
from itertools import count
from typing import Any, NamedTuple
from unittest import mock

import asyncpg
import orjson
from freshgate_store import connected, until
from freshgate_strategies import SOURCES, accesses, policies
from freshgate_world import World, allow, configuration, person, source
from hypothesis import HealthCheck, Phase, settings
from hypothesis import strategies as st

from freshgate_crds import compiled
from freshgate_crds.compiled import (
    Condition,
    Config,
    Entitlements,
    ObjectMapping,
    Operator,
    ReadersMapping,
    Rule,
    Subject,
    SubjectKind,
)
from freshgate_service.domain import Access, Asker, Item, ObjectKey, SourceInfo
from freshgate_service.entitle import entitled
from freshgate_service.errors import SourceError, SourceRefused, SourceTimeout, SourceUnavailable
from freshgate_service.pipeline import Pipeline
from freshgate_service.serve import answers
from freshgate_service.sources.mapping import Mapping as RecordMapping
from freshgate_service.sources.mapping import compile_mapping
from freshgate_service.store import Store, WorkspaceKey

Raw = Mapping[str, Any]

START = 1_795_000_000.0
"""When time stands still first; whole seconds, so that no sum of them is rounded."""
BOOTED = START - 1000.0
PAST_TTL = 61.0
OWN_SOURCE = "payroll"
"""A source that only one of the worlds may have. No policy that is drawn names it."""
NOWHERE = (ObjectKey("tickets", "random"), ObjectKey("nowhere", "1"), ObjectKey("nowhere", "random"))
QUERIES = ("refund", "invoice refund", "webhook 東京", "nothing of that")
WORDS = ("refund", "refund refund invoice", "invoice", "webhook", "東京 refund", "of the customer")
FAULTS: tuple[SourceError, ...] = (SourceUnavailable("gone"), SourceTimeout("slow"), SourceRefused("no"))

AUDITOR = person("auditor")
"""Sees everything in either world, and asks for what is hidden from the asker."""
FOR_THE_AUDITOR = allow(
    "audit",
    Subject(kind=SubjectKind.USER, issuer="corp", name="auditor"),
    sources=(*SOURCES, OWN_SOURCE),
)

MAPPING = ObjectMapping(
    title="title",
    body=("body",),
    url="url",
    attributes={"region": "region", "owner": "owner"},
    readers=ReadersMapping(issuer="corp", users="users", groups="groups"),
)


def examples(few: int) -> settings:
    """So many, and ten times as many where they are run for their own sake (`make prove`)."""
    thorough = settings.get_current_profile_name() == "prove"
    return settings(
        max_examples=few * (10 if thorough else 1),
        deadline=None,
        phases=[phase for phase in settings.default.phases if phase is not Phase.explain],
        suppress_health_check=[HealthCheck.too_slow, HealthCheck.function_scoped_fixture, HealthCheck.data_too_large],
    )


# --- the two worlds --------------------------------------------------------------------------------------------------


class Thing(NamedTuple):
    """A record as its source has it at first, when it has become stale, and while it is being read; None is gone."""

    key: ObjectKey
    phases: tuple[Raw | None, ...]


class Twin(NamedTuple):
    """One of the two worlds. `busy`: others ask in it too."""

    entitlements: Entitlements
    things: tuple[Thing, ...]
    hidden: frozenset[ObjectKey]
    busy: bool

    def config(self, number: int) -> Config:
        names = sorted({*SOURCES, *(thing.key.source for thing in self.things)})
        sources = (source(name, object=MAPPING) for name in names)
        return configuration(*sources, entitlements=self.entitlements, cluster_uid=f"cluster {number}")


class Twins(NamedTuple):
    asker: Asker
    one: Twin
    other: Twin

    @property
    def mine(self) -> list[ObjectKey]:
        """What the asker may see at first, in either."""
        return [thing.key for thing in self.one.things if thing.key not in self.one.hidden]

    @property
    def names(self) -> list[ObjectKey]:
        """All that there is in either, and some that there is in none."""
        return sorted({thing.key for twin in (self.one, self.other) for thing in twin.things} | {*NOWHERE})


@cache
def _mapping(of: str) -> RecordMapping:
    return compile_mapping(MAPPING, of)


def access_of(of: str, raw: Raw) -> Access:
    return _mapping(of).record("1", raw).access


def entitling(found: Sequence[compiled.Policy]) -> Entitlements:
    stamp = datetime.fromtimestamp(START, UTC)
    return Entitlements(policies=(*found, FOR_THE_AUDITOR), stamp=stamp, max_age_seconds=86_400.0)


REACH = st.sampled_from(
    [
        Rule(sources=SOURCES, where=(Condition(attribute="region", operator=Operator.IN, values=("emea", "apac")),)),
        Rule(sources=SOURCES, where=(Condition(attribute="owner", operator=Operator.EXISTS),)),
        Rule(sources=SOURCES[:1], everything=True),
        Rule(sources=SOURCES[1:], where=(Condition(attribute="region", operator=Operator.NOT_IN, values=("apac",)),)),
    ]
)
"""What the asker may see at least, unless a Deny takes it away."""


def theirs(asker: Asker, rule: Rule) -> compiled.Policy:
    named = [Subject(kind=each.kind, issuer=each.name.issuer, name=each.name.name) for each in asker.everyone]
    return allow("theirs", *named).model_copy(update={"rules": (rule,)})


A_WORD = st.sampled_from(WORDS)
A_SOURCE = st.sampled_from(SOURCES)


@st.composite
def raws(draw: st.DrawFn) -> Raw:
    access = draw(accesses())
    return {
        "title": draw(A_WORD),
        "body": f"{draw(A_WORD)}. {draw(A_WORD)}.",
        "url": draw(st.sampled_from([None, "https://desk.example/1"])),
        "region": access.attributes.get("region"),
        "owner": access.attributes.get("owner"),
        "users": sorted(name.name for name in access.readers.users),
        "groups": sorted(name.name for name in access.readers.groups),
    }


@st.composite
def pairs(draw: st.DrawFn, askers: st.SearchStrategy[Asker], *, most: int = 8) -> Twins:
    """`most` records of the sources that both have; the simplest pair differs as well."""
    making = _Making(draw, draw(askers))
    for number in range(draw(st.integers(most // 2, most))):
        making.record(ObjectKey(draw(A_SOURCE), str(number)))
    making.source_of_its_own(0, draw(st.sampled_from([0, 0, 1, 3])))
    making.source_of_its_own(1, draw(st.sampled_from([1, 2, 3])))
    return making.twins()


class _Making:
    """Two worlds in the making: what the asker sees is put into both, what they do not see into either, or both."""

    def __init__(self, draw: st.DrawFn, asker: Asker) -> None:
        self._draw = draw
        self._asker = asker
        common = [theirs(asker, draw(REACH)), *draw(st.lists(policies("common"), max_size=3))]
        self._entitlements = [entitling([*common, *draw(st.lists(policies("own"), max_size=2))]) for _ in range(2)]
        self._things: tuple[list[Thing], ...] = ([], [])
        self._hidden: tuple[set[ObjectKey], ...] = (set(), set())

    def record(self, key: ObjectKey) -> None:
        raw = self._draw(raws())
        seen = [self._sees(place, key, raw) for place in (0, 1)]
        if all(seen):
            phases = [(raw, raw)]
            phases += [self._next(key, *phases[-1])]
            phases += [self._next(key, *phases[-1])]
            for things, in_this_world in zip(self._things, zip(*phases, strict=True), strict=True):
                things.append(Thing(key, in_this_world))
        for place in (0, 1):
            if not seen[place] and self._draw(st.booleans()):
                self._hide(place, key, raw, self._unseen(place, key, raw), self._unseen(place, key, raw))

    def source_of_its_own(self, place: int, records: int) -> None:
        for number in range(records):
            raw = self._draw(raws())
            self._hide(place, ObjectKey(OWN_SOURCE, str(number)), raw, raw, raw)

    def twins(self) -> Twins:
        made = zip(self._entitlements, self._things, self._hidden, strict=True)
        one, other = (
            Twin(said, tuple(things), frozenset(hidden), self._draw(st.booleans())) for said, things, hidden in made
        )
        return Twins(self._asker, one, other)

    def _hide(self, place: int, key: ObjectKey, *phases: Raw | None) -> None:
        self._things[place].append(Thing(key, phases))
        self._hidden[place].add(key)

    def _next(self, key: ObjectKey, one: Raw | None, other: Raw | None) -> tuple[Raw | None, Raw | None]:
        """What becomes of a record that the asker sees in both worlds: the same to them."""
        if one is None or not self._sees(0, key, one):
            return one, other  # it has moved out of reach, in each world to a place of its own
        match self._draw(st.sampled_from(["same", "same", "edited", "moved", "malformed"])):
            case "edited":
                one = {**one, "title": self._draw(A_WORD)}
            case "moved":
                return self._unseen(0, key, None), self._unseen(1, key, None)
            case "malformed":
                one = {name: value for name, value in one.items() if name != "region"}
        return one, one

    def _unseen(self, place: int, key: ObjectKey, otherwise: Raw | None) -> Raw | None:
        drawn = self._draw(raws())
        return otherwise if self._sees(place, key, drawn) else drawn

    def _sees(self, place: int, key: ObjectKey, raw: Raw) -> bool:
        """One that is malformed stays as it was remembered."""
        return "region" not in raw or entitled(self._asker, access_of(key.source, raw), self._entitlements[place])


# --- time that stands still ------------------------------------------------------------------------------------------

_STAND_STILL = """
CREATE TABLE freshgate.still (at double precision NOT NULL);
INSERT INTO freshgate.still VALUES (0);
CREATE OR REPLACE FUNCTION freshgate.now() RETURNS double precision LANGUAGE sql VOLATILE AS
  'SELECT at FROM freshgate.still';
"""
_numbers = count(1)


class StillWorld(World):
    """One whose time moves only when it is advanced, for its store and for its process alike."""

    def boottime(self) -> float:
        return BOOTED + self._moved


async def stop_time(dsn: str) -> None:
    """Once for a database, before the first world in it."""
    store = await Store.open(dsn, WorkspaceKey("cluster", "acme", "nobody"), holder="nobody")
    await store.close()
    async with connected(dsn) as connection:
        await connection.execute(_STAND_STILL)


@asynccontextmanager
async def standing_still(dsn: str, twin: Twin) -> AsyncIterator[StillWorld]:
    """The world of a twin, with all that its sources hold at first."""
    async with connected(dsn) as connection:
        made = StillWorld(twin.config(next(_numbers)), dsn, partial(_move, connection))
        await connection.execute("UPDATE freshgate.still SET at = $1", START)
        async with made.opened() as made.engine:
            await turn(made, twin, 0)
            for name in made.engine.memory.specs:
                await made.loop(name)
            await made.engine.catch_up()
            await made.engine._read_states()
            yield made


async def _move(connection: asyncpg.Connection, _dsn: str, seconds: float) -> None:
    await connection.execute("UPDATE freshgate.still SET at = at + $1", seconds)


async def turn(made: World, twin: Twin, phase: int) -> None:
    """The sources hold what they hold in that phase."""
    for thing in twin.things:
        upstream, raw = made.upstreams[thing.key.source], thing.phases[phase]
        if raw is None:
            upstream.records.pop(thing.key.record_id, None)
        else:
            upstream.records[thing.key.record_id] = dict(raw)
            upstream.versions[thing.key.record_id] = None


# --- what the asker is told ------------------------------------------------------------------------------------------


class Told(NamedTuple):
    """An answer as it is rendered, and the reads that it took."""

    question: str
    answer: bytes
    reads: list[tuple[str, tuple[str, ...]]]


Question = tuple[str, Callable[[World, Asker], Awaitable[bytes]]]


def questions(twins: Twins) -> Iterator[Question]:
    for query in QUERIES:
        yield f"search {query}", partial(_search, query=query)
    for sources in (["tickets"], [OWN_SOURCE], ["nowhere", "accounts"]):
        yield f"search in {sources}", partial(_search, query="refund", sources=sources)
    yield "search for two", partial(_search, query="refund invoice", limit=2)
    for key in twins.names:
        yield f"fetch {key.text}", partial(_fetch, key=key)
    yield "sources", _sources


async def _search(
    made: World, asker: Asker, *, query: str, limit: int | None = None, sources: Sequence[str] | None = None
) -> bytes:
    items: Sequence[Item] = await made.engine.pipeline.search(asker, query, limit, sources)
    return orjson.dumps(answers.search_answer(items))


async def _fetch(made: World, asker: Asker, *, key: ObjectKey) -> bytes:
    item = await made.engine.pipeline.fetch(asker, *key)
    return b"" if item is None else orjson.dumps(answers.item_answer(item))


async def _sources(made: World, asker: Asker) -> bytes:
    found: Sequence[SourceInfo] = await made.engine.pipeline.sources(asker)
    return orjson.dumps(answers.sources_answer(found))


def taken_reads(made: World) -> list[tuple[str, tuple[str, ...]]]:
    """What was read since this was last asked, in the order of each source."""
    taken = [(name, read) for name in sorted(made.upstreams) for read in made.upstreams[name].reads]
    for upstream in made.upstreams.values():
        upstream.reads.clear()
    return taken


async def busy(made: World, twin: Twin) -> None:
    """Others use the service, and have what is hidden from the asker read again. Not while a source fails: they would
    use up what patience there is with it."""
    if twin.busy and all(upstream.fault is None for upstream in made.upstreams.values()):
        for query in QUERIES:
            await made.engine.pipeline.search(AUDITOR, query, None, [OWN_SOURCE])
        for key in sorted(twin.hidden):
            await made.engine.pipeline.fetch(AUDITOR, *key)


async def story(
    dsn: str, twins: Twins, twin: Twin, order: Sequence[Question], fault: SourceError, in_flight: Sequence[ObjectKey]
) -> list[Told]:
    """All that the asker is told in one of the worlds: fresh, stale, while a source fails, while records are read."""
    async with standing_still(dsn, twin) as made:
        told = []
        if twin.busy:
            await made.ask(AUDITOR, "refund")
        told += await _asked(made, twins.asker, twin, order)
        await pass_ttl(made, twin, 1)
        told += await _asked(made, twins.asker, twin, order)
        made.upstreams["tickets"].fault = fault
        await pass_ttl(made, twin, 1)
        told += await _asked(made, twins.asker, twin, order)
        made.upstreams["tickets"].fault = None
        await recover(made)
        for question in order[:3]:
            async with reading(made, twin, 2, in_flight):
                told += await _asked_meanwhile(made, twins.asker, question)
        return told


async def pass_ttl(made: World, twin: Twin, phase: int) -> None:
    await made.advance(PAST_TTL)
    await turn(made, twin, phase)
    await busy(made, twin)


async def recover(made: World) -> None:
    """After a listing that succeeds, a source is asked again that failed before."""
    await made.advance(PAST_TTL)
    for name in made.engine.memory.specs:
        await made.loop(name)


@asynccontextmanager
async def reading(made: World, twin: Twin, phase: int, in_flight: Sequence[ObjectKey]) -> AsyncIterator[None]:
    """Everything is stale, and some of the asker's records, and in a busy world all that is hidden, are being read."""
    await made.advance(PAST_TTL)
    await turn(made, twin, phase)
    for upstream in made.upstreams.values():
        upstream.gate.clear()
    taken_reads(made)
    hidden = sorted(twin.hidden) if twin.busy else []
    for keys in (in_flight, hidden):
        made.engine.flights.refresh(keys, older_than=made.engine.clock.latest(), background=True)
    await until(partial(_under_way, made, {*in_flight, *hidden}))
    taken_reads(made)
    try:
        with mock.patch.object(Pipeline, "_refresh", _until_all_have_landed):
            yield
    finally:
        open_gates(made)
        await made.engine.flights.close()


_refresh = Pipeline._refresh


async def _until_all_have_landed(self: Pipeline, stale: Sequence[ObjectKey], question: Any) -> None:
    """Which of two flights lands first is the store's chance, and says `fresh` or `refreshed` of what one of them read:
    here a question's next round begins when all have."""
    await _refresh(self, stale, question)
    await self.flights.close()


def open_gates(made: World) -> None:
    for upstream in made.upstreams.values():
        upstream.gate.set()


async def _under_way(made: World, keys: set[ObjectKey]) -> bool:
    reads = ((name, read) for name, upstream in made.upstreams.items() for read in upstream.reads)
    return {ObjectKey(name, each) for name, read in reads for each in read} >= keys


async def _asked(made: World, asker: Asker, twin: Twin, order: Sequence[Question]) -> list[Told]:
    told = []
    for name, question in order:
        await busy(made, twin)
        taken_reads(made)
        told.append(Told(name, await question(made, asker), taken_reads(made)))
    return told


async def _asked_meanwhile(made: World, asker: Asker, asked: Question) -> list[Told]:
    name, question = asked
    task = asyncio.create_task(question(made, asker))
    await asyncio.sleep(0)  # it gets as far as it can without the reads
    open_gates(made)
    return [Told(name, await task, taken_reads(made))]
