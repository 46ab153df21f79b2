"""The composition root: from what is published to a pipeline that answers, kept so while everything around it changes.

An `Engine` is one store with the memory that follows it and all that works on both. The `Runtime` starts one as soon
as its store can be reached, gives it each new configuration, and puts another in its place where the store changes.
"""

import asyncio
import contextlib
from collections.abc import Callable, Coroutine, Mapping, Sequence
from dataclasses import dataclass
from typing import Self

from freshgate_crds.compiled import Config, Revision, Source, credentials_of
from freshgate_service.clock import StoreClock, boottime
from freshgate_service.condense.extractive import Extractive
from freshgate_service.domain import Asker, Change, Condenser, Deleted, Item, Now, SourceInfo, SourceState, freshness
from freshgate_service.errors import ConfigRefused, CursorLost, NotReady, StoreUnavailable
from freshgate_service.logs import get_logger
from freshgate_service.memory import Memory
from freshgate_service.metrics import Metrics
from freshgate_service.pipeline import Pipeline
from freshgate_service.published import Published, Publisher
from freshgate_service.refresh import Breath, Flights, Loop
from freshgate_service.refresh.loop import Progress, silent
from freshgate_service.sources.build import build_reader
from freshgate_service.sources.reader import Reader
from freshgate_service.store import Cursor, Store, WorkspaceKey

FOLLOW_SECONDS = 2.0
"""How often the store is asked for changes where no notification comes."""

CLOCK_SECONDS = 30.0
CENSUS_SECONDS = 10.0
RETRY_SECONDS = 1.0

log = get_logger(__name__)


@dataclass(frozen=True, slots=True)
class Options:
    """How this process takes part. `holder` names it in leases; `runs_loop` is false in a sidecar."""

    holder: str
    runs_loop: bool = True
    allow_loopback: bool = False
    boottime: Now = boottime
    progress: Progress = silent


@dataclass(frozen=True, slots=True)
class Census:
    """One source's objects, counted a few seconds ago. `oldest_confirmed` is None where there is none."""

    objects: int
    stale: int
    oldest_confirmed: float | None


class Engine:
    """One store, and what works on it. Made by `open`, ended by `close`."""

    def __init__(self, published: Published, store: Store, options: Options, metrics: Metrics) -> None:
        self.published = published
        self.store = store
        self.options = options
        self.metrics = metrics
        self.clock = StoreClock(options.boottime, store.now)
        self.memory = Memory(published.config)
        self.readers: dict[str, Reader] = {}
        self.highest = published.config.revision
        self.census: dict[str, Census] = {}
        self.states: Mapping[str, SourceState] = {}
        self._cursor: Cursor | None = None
        self._settled = False
        self._following = asyncio.Lock()
        self._tasks: set[asyncio.Task[None]] = set()
        self.flights = Flights(
            journal=store,
            memory=self.memory,
            readers=self.readers,
            condenser=_condenser(published.config),
            clock=self.clock,
            catch_up=self.catch_up,
            metrics=metrics,
        )
        self.loop = Loop(
            journal=store,
            memory=self.memory,
            readers=lambda: self.readers,
            flights=self.flights,
            clock=self.clock,
            catch_up=self.catch_up,
            metrics=metrics,
            progress=options.progress,
        )
        self.pipeline = Pipeline(
            memory=self.memory,
            flights=self.flights,
            clock=self.clock,
            boottime=options.boottime,
            metrics=metrics,
            behind=self._behind,
        )

    @classmethod
    async def open(cls, published: Published, options: Options, metrics: Metrics) -> "Engine":
        """Connects, loads and starts following. Raises StoreUnavailable."""
        store = await store_of(published, holder=options.holder)
        try:
            engine = cls(published, store, options, metrics)
            await engine._load()
        except BaseException:
            await store.close()
            raise
        engine._start()
        return engine

    async def _load(self) -> None:
        await self.clock.sync()
        await self._reload()
        await self._settle()
        await self.catch_up()
        await self._read_states()
        await self._replace_readers({}, self.published)

    def _start(self) -> None:
        self._spawn(unending(self._follow), "follow")
        self._spawn(unending(self._keep_time), "clock")
        self._spawn(unending(self._count), "census")
        if self.options.runs_loop:
            self._spawn(unending(self.loop.run), "loop")

    def _spawn(self, work: Coroutine[None, None, None], name: str) -> None:
        task = asyncio.create_task(work, name=name)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def close(self) -> None:
        """Ends the background work, lets reads under way land, then lets go of sources and store."""
        tasks = [*self._tasks]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        await self.flights.close()
        for reader in self.readers.values():
            await reader.close()
        await self.store.close()

    # configuration

    async def take(self, published: Published) -> None:
        """Takes a configuration of the same store into force. The memory first: a revocation waits for nothing."""
        self.memory.replace_config(published.config)
        before, self.published = self.published, published
        self.highest, self._settled = published.config.revision, False
        await self._replace_readers(before.credentials, published)

    async def _settle(self) -> None:
        """Tells the store of the configuration in force. A source that left the workspace takes its objects along."""
        config = self.published.config
        self.highest = await self.store.admit_revision(config.revision, config.entitlements.stamp)
        if not self._behind():
            known = {*await self.store.source_states(), *self.memory.remembered_sources()}
            for name in known - {source.name for source in config.sources}:
                await self.store.purge_source(name)
                self.metrics.forget_source(name)
        self._settled = config is self.published.config

    def _behind(self) -> bool:
        """The store has a newer revision, or one of a Workspace that was made anew under this name."""
        ours = self.published.config.revision
        return _older(ours, self.highest) or ours.workspace_uid != self.highest.workspace_uid

    async def _replace_readers(self, old: Mapping[str, str], published: Published) -> None:
        specs = {source.name: source for source in published.config.sources}
        for name in [*self.readers]:
            if name not in specs:
                self._spawn(self.readers.pop(name).close(), "close source")
        for name, spec in specs.items():
            known = self.readers.get(name)
            now = _credentials_of(spec, published.credentials)
            if known is None or known.spec != spec or now != _credentials_of(spec, old):
                self.metrics.declare_source(name)
                self._replace_reader(spec, published.credentials)
                if known is not None and self.readers[name] is not known:
                    self._spawn(known.close(), "close source")  # reads under way may end first

    def _replace_reader(self, spec: Source, credentials: Mapping[str, str]) -> None:
        """A source that cannot be read is refused by itself: the one before it stays, and so do all others."""
        try:
            self.readers[spec.name] = build_reader(
                spec, credentials, self.options.boottime, allow_loopback=self.options.allow_loopback
            )
        except ConfigRefused as refused:
            self.metrics.config_rejected()
            log.error("source_refused", source=spec.name, problem=str(refused))

    # following the store

    async def catch_up(self) -> None:
        """Brings the memory up to what the store holds now."""
        async with self._following:
            if self._cursor is None:
                return
            try:
                changes, reached = await self.store.changes(self._cursor)
            except CursorLost:
                await self._reload()
            else:
                await self._apply(changes)
                self._cursor = reached

    async def _reload(self) -> None:
        """From the beginning: what the memory has and the store has not was deleted meanwhile."""
        objects, reached = await self.store.load()
        gone = self.memory.objects.keys() - {remembered.key for remembered in objects}
        lost = [Deleted(key, self.memory.objects[key].change + 1) for key in gone]
        await self._apply([*lost, *objects])
        self._cursor = reached

    async def _apply(self, changes: Sequence[Change]) -> None:
        breath = Breath()
        for change in changes:
            self.memory.apply(change)
            await breath()

    async def _follow(self) -> None:
        """Until cancelled: on each notification, and every FOLLOW_SECONDS all the same."""
        while True:
            try:
                if not self._settled:
                    await self._settle()
                await self.catch_up()
                self.highest = await self.store.highest_revision() or self.highest
                await self._read_states()
                await self.store.notified(FOLLOW_SECONDS)
            except StoreUnavailable:
                log.warning("store_unavailable")
                await asyncio.sleep(RETRY_SECONDS)

    async def _read_states(self) -> None:
        self.states = await self.store.source_states()
        self.memory.complete = {name for name, state in self.states.items() if state.complete}

    async def _keep_time(self) -> None:
        while True:
            await asyncio.sleep(CLOCK_SECONDS)
            # Without the store the bounds only widen, against freshness.
            with contextlib.suppress(StoreUnavailable):
                await self.clock.sync()

    # what operators of the service see

    async def _count(self) -> None:
        while True:
            for name, spec in self.memory.specs.items():
                counted = self.census[name] = await self._count_one(spec)
                self.metrics.breaker(name, is_open=name in self.readers and self.readers[name].breaker_open)
                if self.loop.holding:
                    self.metrics.schedule(spec)
                    self.metrics.census(
                        name,
                        fresh=counted.objects - counted.stale,
                        stale=counted.stale,
                        oldest_confirmed=counted.oldest_confirmed,
                    )
            self._forget_left()
            await asyncio.sleep(CENSUS_SECONDS)

    def _forget_left(self) -> None:
        """Whichever process tells the store that a source left, all of them stop telling of it."""
        for name in self.census.keys() - self.memory.specs.keys():
            del self.census[name]
            self.metrics.forget_source(name)

    async def _count_one(self, spec: Source) -> Census:
        """Visits all objects of a source, which may leave meanwhile, a few at a time: never on a query's way."""
        now, breath = self.clock.latest(), Breath()
        objects, stale, oldest = 0, 0, None
        for key in self.memory.keys(spec.name):
            if (remembered := self.memory.get(key)) is not None:
                objects += 1
                stale += freshness(remembered.clock, spec.ttl_seconds, now) <= 0.0
                oldest = min(oldest or remembered.clock.confirmed_at, remembered.clock.confirmed_at)
            await breath()
        return Census(objects, stale, oldest)


async def unending(work: Callable[[], Coroutine[None, None, None]]) -> None:
    """Work that goes on for as long as the process does. A fault in it that nobody foresaw must not end it in silence:
    everything would look well, and no revocation would be heard of any more."""
    while True:
        try:
            await work()
        except Exception as error:
            log.error("background_work_failed", work=work.__qualname__, exc_info=error)
        await asyncio.sleep(RETRY_SECONDS)


class Runtime:
    """What is served: asks the engine of the moment, and is not ready while there is none."""

    def __init__(
        self,
        published: Published,
        publisher: Publisher,
        options: Options,
        metrics: Metrics,
        *,
        in_force: Callable[[Config], None],
    ) -> None:
        """`published` is in force first, then what the publisher tells. `in_force` hears of each, for what depends on
        one outside of here; it may raise ConfigRefused."""
        self.published = published
        self._publisher = publisher
        self._options = options
        self._metrics = metrics
        self._in_force = in_force
        self._engine: Engine | None = None
        self._task: asyncio.Task[None] | None = None
        self.loaded = asyncio.Event()

    @property
    def loaded_engine(self) -> Engine | None:
        return self._engine

    @property
    def engine(self) -> Engine:
        """Raises NotReady."""
        if self._engine is None:
            raise NotReady("the store is not loaded yet")
        return self._engine

    async def __aenter__(self) -> Self:
        self._task = asyncio.create_task(unending(self._run), name="runtime")
        return self

    async def __aexit__(self, *_: object) -> None:
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)
        if self._engine is not None:
            await self._engine.close()

    # the pipeline, as those who serve it see it

    @property
    def revision(self) -> Revision:
        return self.published.config.revision

    @property
    def ranking_limit(self) -> int:
        return self.published.config.ranking.limit

    async def search(self, asker: Asker, query: str, limit: int | None, sources: Sequence[str] | None) -> list[Item]:
        return await self.engine.pipeline.search(asker, query, limit, sources)

    async def fetch(self, asker: Asker, source: str, record_id: str) -> Item | None:
        return await self.engine.pipeline.fetch(asker, source, record_id)

    async def sources(self, asker: Asker) -> list[SourceInfo]:
        return await self.engine.pipeline.sources(asker)

    # following what is published

    async def _run(self) -> None:
        await self._boot()
        async for news in self._publisher.changes():
            if isinstance(news, ConfigRefused):
                self._refuse(news)
            else:
                await self._take(news)

    async def _boot(self) -> None:
        """Until the store can be reached, by the newest configuration there is."""
        while self._engine is None:
            try:
                self._engine = await Engine.open(self.published, self._options, self._metrics)
            except (StoreUnavailable, ConfigRefused) as error:
                log.warning("waiting_for_store", problem=str(error))
                await asyncio.sleep(RETRY_SECONDS)
                self._look_again()
        self._declare(self.published)
        self.loaded.set()

    def _look_again(self) -> None:
        try:
            self.published = self._publisher.current()
            self._in_force(self.published.config)
        except ConfigRefused as refused:
            self._refuse(refused)

    async def _take(self, published: Published) -> None:
        """The last good form stays in force where the next one cannot be obeyed, or its store not be reached."""
        try:
            # Before anything of it is in force, be it only whose tokens are taken.
            _check_not_older(published, than=self.engine.published)
            self._in_force(published.config)
            await self.engine.take(published)  # also before it is moved: a revocation waits for no other store
            if _store_dsn(self.published) != _store_dsn(published):
                await self._move(published)
        except (ConfigRefused, StoreUnavailable) as error:
            self._refuse(error)
        else:
            self.published = published
            self._declare(published)

    def _refuse(self, problem: ConfigRefused | StoreUnavailable) -> None:
        self._metrics.config_rejected()
        log.error("config_refused", problem=str(problem))

    async def _move(self, published: Published) -> None:
        """To another store: the new engine answers before the old one ends."""
        old, self._engine = self._engine, await Engine.open(published, self._options, self._metrics)
        if old is not None:
            await old.close()

    def _declare(self, published: Published) -> None:
        config = published.config
        self._metrics.config_in_force(config.revision, config.format)
        entitlements = config.entitlements
        self._metrics.entitlements_stamped(entitlements.stamp.timestamp(), entitlements.max_age_seconds)
        log.info("config_in_force", revision=config.revision.counter, sources=len(config.sources))


def _condenser(config: Config) -> Condenser:
    if config.condenser.anthropic_model is not None:
        raise ConfigRefused("spec.condenser: this version condenses with Extractive only; leave the condenser out")
    return Extractive()


async def store_of(published: Published, *, holder: str) -> Store:
    """The store that a workspace's configuration names. Raises ConfigRefused, StoreUnavailable."""
    config = published.config
    key = WorkspaceKey(config.cluster_uid, config.namespace, config.workspace)
    return await Store.open(_store_dsn(published), key, holder=holder)


def _store_dsn(published: Published) -> str:
    named = published.config.store_dsn
    if named is None:
        raise ConfigRefused("spec.store: the Workspace names no store; name one with store.dsn")
    value = published.credentials.get(named.file_name)
    if value is None:
        raise ConfigRefused(f"spec.store.dsn: Secret {named.secret} has no key {named.key}; add it")
    return value


def _check_not_older(published: Published, than: Published) -> None:
    if _older(published.config.revision, than.config.revision):
        raise ConfigRefused("revision: older than the one in force, which stays")


def _older(one: Revision, other: Revision) -> bool:
    """Only revisions of one Workspace can be compared."""
    return one.workspace_uid == other.workspace_uid and one.counter < other.counter


def _credentials_of(spec: Source, credentials: Mapping[str, str]) -> dict[str, str | None]:
    return {named.file_name: credentials.get(named.file_name) for named in credentials_of(spec)}
