"""A workspace in one process on a real store, with an upstream whose records, faults and time a test sets.

The engine is the real one; only the systems of record are scripted, through the interface that real ones implement.
`advance` moves the store's time and this machine's clock together, so that hours pass without waiting.
"""

import asyncio
from collections import Counter, defaultdict
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from datetime import UTC, datetime, timedelta
from typing import Any
from unittest import mock

from freshgate_crds import compiled
from freshgate_crds.compiled import (
    ClaimMapping,
    Condenser,
    Condition,
    Config,
    Credential,
    Effect,
    Entitlements,
    Issuer,
    Limits,
    ObjectMapping,
    Operator,
    Policy,
    Postgres,
    Ranking,
    ReadersMapping,
    Revision,
    Rule,
    Subject,
    SubjectKind,
)
from freshgate_service.clock import boottime
from freshgate_service.domain import Access, Asker, Clock, Item, Listed, MemoryObject, Name, Now, ObjectKey, Principal
from freshgate_service.errors import SourceError
from freshgate_service.metrics import Metrics
from freshgate_service.published import Published
from freshgate_service.runtime import Engine, Options
from freshgate_service.sources.guard import Guarded
from freshgate_service.sources.mapping import compile_mapping
from freshgate_service.sources.reader import Reader

STORE = Credential(secret="store", key="dsn")
SOURCE = Credential(secret="desk", key="dsn")
MoveTime = Callable[[str, float], Awaitable[None]]


class Upstream:
    """One system of record. `records` is what it holds now; `fault` is raised by whatever asks it; `seen` is when each
    record was read last without an error, and what was found."""

    def __init__(self, now: Now) -> None:
        self._now = now
        self.seen: dict[str, tuple[float, dict[str, Any] | None]] = {}
        self.records: dict[str, dict[str, Any]] = {}
        self.versions: dict[str, str | None] = {}
        self.fault: SourceError | None = None
        self.breaks_after: int | None = None
        self.reads: list[tuple[str, ...]] = []
        self.listings = 0
        self.gate = asyncio.Event()
        self.gate.set()

    def put(self, record_id: str, version: str | None = None, **fields: Any) -> None:
        whole = {"title": f"record {record_id}", "body": "", "region": "emea", "owner": "nobody"}
        self.records[record_id] = {**whole, **self.records.get(record_id, {}), **fields}
        self.versions[record_id] = version

    async def list(self) -> AsyncIterator[Sequence[Listed]]:
        self.listings += 1
        for place, record_id in enumerate([*self.records]):
            if self.fault is not None or self.breaks_after == place:
                raise self.fault or SourceError("the listing broke")
            yield [Listed(record_id, self.versions[record_id])]
        if self.fault is not None:
            raise self.fault

    async def fetch(self, record_ids: Sequence[str]) -> Mapping[str, Mapping[str, Any]]:
        self.reads.append(tuple(record_ids))
        await self.gate.wait()
        if self.fault is not None:
            raise self.fault
        found = {each: dict(self.records[each]) for each in record_ids if each in self.records}
        self.seen.update({each: (self._now(), found.get(each)) for each in record_ids})
        return found

    async def close(self) -> None:
        return None


class World:
    """What a test holds: `upstreams` by source name, the engine, and the time."""

    def __init__(self, config: Config, dsn: str, move_time: MoveTime) -> None:
        self.config = config
        self.upstreams: dict[str, Upstream] = defaultdict(lambda: Upstream(self.boottime))
        self.metrics = Metrics(config.workspace)
        self.engine: Engine
        self._dsn = dsn
        self._move_time = move_time
        self._moved = 0.0

    def boottime(self) -> float:
        return boottime() + self._moved

    @property
    def published(self) -> Published:
        return Published(self.config, {STORE.file_name: self._dsn, SOURCE.file_name: "postgresql://desk"})

    def opened(self, holder: str = "one") -> AbstractAsyncContextManager[Engine]:
        """Another process on the same store; the first is `engine`."""
        return _opened(self, holder)

    async def advance(self, seconds: float) -> None:
        """Time passes, for the store and for this machine alike."""
        await self._move_time(self._dsn, seconds)
        self._moved += seconds

    async def loop(self, source: str = "tickets") -> None:
        """One visit of the background loop, which does what is due and nothing else."""
        await self.engine.loop.visit(source)

    async def ask(self, asker: Asker, query: str = "record", limit: int | None = None) -> list[Item]:
        return await self.engine.pipeline.search(asker, query, limit, None)

    async def take(self, **changes: Any) -> None:
        """The next revision, with these settings changed."""
        counter = self.config.revision.counter + 1
        revision = self.config.revision.model_copy(update={"counter": counter})
        self.config = self.config.model_copy(update={**changes, "revision": revision})
        await self.engine.take(self.published)

    def reads(self) -> Counter[str]:
        """How often each record was read, over all sources."""
        return Counter(each for upstream in self.upstreams.values() for read in upstream.reads for each in read)


@asynccontextmanager
async def world(dsn: str, move_time: MoveTime, config: Config | None = None) -> AsyncIterator[World]:
    made = World(config or configuration(), dsn, move_time)
    async with made.opened() as made.engine:
        await move_time(dsn, 0.0)
        yield made


@asynccontextmanager
async def _opened(made: World, holder: str) -> AsyncIterator[Engine]:
    def build(spec: compiled.Source, *_: object, **__: object) -> Reader:
        guarded = Guarded(made.upstreams[spec.name], spec, made.boottime)
        return Reader(spec, guarded, compile_mapping(spec.object, spec.name))

    options = Options(holder=holder, runs_loop=False, boottime=made.boottime)
    with mock.patch("freshgate_service.runtime.build_reader", build):
        engine = await Engine.open(made.published, options, made.metrics)
        try:
            yield engine
        finally:
            await engine.close()


# --- what a workspace is made of -------------------------------------------------------------------------------------


def source(name: str = "tickets", **changes: Any) -> compiled.Source:
    plain: dict[str, Any] = {
        "ttl_seconds": 60.0,
        "discovery_interval_seconds": 60.0,
        "sweep_seconds": 3600.0,
        "postgres": Postgres(dsn=SOURCE, list="SELECT 1", fetch="SELECT $1"),
        "object": ObjectMapping(
            title="title",
            body=("body",),
            attributes={"region": "region"},
            readers=ReadersMapping(issuer="corp", users="[owner]"),
        ),
        "condense_max_words": 200,
        "limits": Limits(timeout_seconds=5.0, concurrency=4, requests_per_minute=60_000, max_objects=20_000),
        "spec_hash": f"{name} one",
    }
    return compiled.Source(name=name, **{**plain, **changes})


def allow(name: str, *subjects: Subject, region: str | None = None, **rule: Any) -> Policy:
    where = (Condition(attribute="region", operator=Operator.IN, values=(region,)),) if region else ()
    sources = rule.pop("sources", ("tickets", "accounts"))
    rules = (Rule(sources=sources, where=where, everything=region is None, **rule),)
    return Policy(name=name, effect=Effect.ALLOW, subjects=subjects, rules=rules)


def group(name: str) -> Subject:
    return Subject(kind=SubjectKind.GROUP, issuer="corp", name=name)


def person(name: str, *groups: str, **claims: Any) -> Asker:
    named = frozenset(Name("corp", each) for each in groups)
    return Asker(Principal(SubjectKind.USER, Name("corp", name), named, claims))


POLICIES = (
    allow("emea", group("emea"), region="emea"),
    allow("amer", group("amer"), region="amer"),
    allow("owners", group("owners"), asker_must_be_reader=True),
)
ANA = person("ana", "emea")
BOB = person("bob", "amer")
ZOE = person("zoe")


def entitlements(*policies: Policy, age: timedelta = timedelta(0), **changes: Any) -> Entitlements:
    plain: dict[str, Any] = {"stamp": datetime.now(UTC) - age, "max_age_seconds": 86_400.0 * 365}
    return Entitlements(policies=policies or POLICIES, **{**plain, **changes})


def configuration(*sources: compiled.Source, **changes: Any) -> Config:
    plain: dict[str, Any] = {
        "format": compiled.FORMAT,
        "revision": Revision(workspace_uid="uid", counter=1),
        "cluster_uid": "cluster",
        "namespace": "acme",
        "workspace": "support",
        "sources": sources or (source(),),
        "entitlements": entitlements(),
        "issuers": (Issuer(name="corp", url="https://corp", audience="freshgate", claims=ClaimMapping()),),
        "store_dsn": STORE,
        "condenser": Condenser(),
        "ranking": Ranking(title_weight=3.0, limit=10, language="english"),
        "deadline_seconds": 5.0,
    }
    return Config(**{**plain, **changes})


def states(items: Sequence[Item]) -> dict[str, str]:
    return {item.key.text: str(item.freshness.state) for item in items}


def key(record_id: str, of: str = "tickets") -> ObjectKey:
    return ObjectKey(of, record_id)


def remembered(
    record_id: str, title: str, summary: str, access: Access, change: int, spec_hash: str = "tickets one"
) -> MemoryObject:
    """For memories that no store stands behind."""
    return MemoryObject(
        key=ObjectKey(access.source, record_id),
        title=title,
        summary=summary,
        url=None,
        access=access,
        content_hash=f"{title}|{summary}",
        access_hash=repr(access),
        spec_hash=spec_hash,
        condenser="extractive",
        version=None,
        clock=Clock(0.0),
        change=change,
    )
