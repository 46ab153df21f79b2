"""The background loop: lists each source, reads what is new or changed, and re-reads everything once a sweep.

Its due times come from its own last passes alone, never from what anybody asked: otherwise the clock of an object
would tell who else had asked for it. One process at a time runs it, under the lease `loop`.
"""

import asyncio
import contextlib
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import islice
from typing import Protocol, TypeVar

from freshgate_service.clock import StoreClock
from freshgate_service.domain import (
    Batch,
    Confirmation,
    Lease,
    Listed,
    ObjectKey,
    Reason,
    SourceState,
)
from freshgate_service.errors import SourceError, StoreUnavailable
from freshgate_service.logs import get_logger
from freshgate_service.metrics import Metrics
from freshgate_service.refresh.breath import Breath
from freshgate_service.refresh.flights import Flights
from freshgate_service.refresh.outcome import Changed, Confirmed, Failed, Outcome
from freshgate_service.refresh.ports import Follower, Journal, Reader, Readers, Remembered

T = TypeVar("T")

LEASE = "loop"
LEASE_SECONDS = 15.0
TIDY_SECONDS = 3600.0
TOMBSTONE_SECONDS = 86_400.0
"""How long a deletion is kept for followers that were cut off. Longer, and they load anew."""

RETRY_SECONDS = 30.0
"""After a failed listing the next try comes this soon, then twice as late each time, never later than the interval."""

log = get_logger(__name__)


class Progress(Protocol):
    """Told how far a pass over a source has come, for whoever watches a long first one."""

    def __call__(self, source: str, done: int, total: int) -> None: ...


def silent(source: str, done: int, total: int) -> None:
    """The progress nobody watches."""


@dataclass(slots=True)
class Listing:
    """A complete, error-free listing, compared with what is remembered."""

    started: float
    versions: dict[ObjectKey, str | None] = field(default_factory=dict)


@dataclass(slots=True)
class Failures:
    """What went wrong in one pass. A record that is malformed fails alone; any other failure is the source's.
    `told` is the first of it, for the platform team."""

    told: str | None = None
    source_answered: bool = True

    def add(self, outcomes: Iterable[Outcome]) -> None:
        for outcome in outcomes:
            if isinstance(outcome, Failed):
                self.told = self.told or f"{outcome.reason}: {outcome.detail}"
                self.source_answered &= outcome.reason is Reason.RECORD_MALFORMED
            elif isinstance(outcome, Confirmed | Changed) and outcome.problem:
                self.told = self.told or f"record incomplete: {outcome.problem}"

    def noted_in(self, state: SourceState, at: float) -> SourceState:
        if self.source_answered:
            state = replace(state, last_success=at)
        return replace(state, last_error=self.told, last_error_at=None if self.told is None else at)


@dataclass(slots=True)
class Loop:
    journal: Journal
    memory: Remembered
    readers: Callable[[], Readers]
    flights: Flights
    clock: StoreClock
    catch_up: Follower
    metrics: Metrics
    progress: Progress = silent
    holding: bool = False
    _failures: dict[str, int] = field(default_factory=dict)
    _states: dict[str, SourceState] = field(default_factory=dict)
    _tidied: float | None = None

    async def run(self) -> None:
        """Runs until cancelled. While another process holds the lease it only waits for its turn."""
        while True:
            try:
                lease = (await self.journal.claim([LEASE], LEASE_SECONDS)).get(LEASE)
            except StoreUnavailable:
                lease = None
            if lease is not None:
                await self._hold(lease)
            await asyncio.sleep(LEASE_SECONDS / 5)

    async def _hold(self, lease: Lease) -> None:
        work = asyncio.create_task(self._work(), name="loop")
        self.holding = True
        self.metrics.hold_loop(held=True)
        try:
            while not work.done() and await self._renew(lease):
                await asyncio.wait({work}, timeout=LEASE_SECONDS / 5)
        finally:
            self.holding = False
            self.metrics.hold_loop(held=False)
            await _end(work)
            await self._give_up(lease)

    async def _renew(self, lease: Lease) -> bool:
        try:
            return bool(await self.journal.renew([lease], LEASE_SECONDS))
        except StoreUnavailable:
            return False

    async def _give_up(self, lease: Lease) -> None:
        try:
            await self.journal.release([lease])
        except StoreUnavailable:
            return  # it expires by itself

    async def _work(self) -> None:
        """One task a source, so that a slow source holds up no other."""
        tasks: dict[str, asyncio.Task[None]] = {}
        self._states.clear()  # another process may have held the loop since
        try:
            while True:
                await self._tidy()
                for name in self.readers():
                    if name not in tasks or tasks[name].done():
                        tasks[name] = asyncio.create_task(self._attend(name), name=f"loop {name}")
                await asyncio.sleep(1.0)
        finally:
            await asyncio.gather(*(_end(task) for task in tasks.values()))

    async def _tidy(self) -> None:
        if self._tidied is not None and not self._passed(self._tidied, TIDY_SECONDS):
            return
        self._tidied = self.clock.latest()
        with contextlib.suppress(StoreUnavailable):
            await self.journal.purge_tombstones(TOMBSTONE_SECONDS)

    async def _attend(self, name: str) -> None:
        """One visit. Whatever goes wrong in it, the loop goes on, with this source and with the others."""
        try:
            await self.visit(name)
        except StoreUnavailable:
            log.warning("loop_waits_for_store", source=name)
        except Exception as error:  # noqa: BLE001 - a fault in one pass must not end all passes for good
            log.error("loop_pass_failed", source=name, error=type(error).__name__)

    async def visit(self, name: str) -> None:
        """Does what is due for a source now: a listing, a sweep, both or nothing."""
        reader = self.readers().get(name)
        if reader is None:
            return
        state = await self._state(name)
        if self._list_due(reader, state):
            state = await self._discover(reader, state)
        if self._sweep_due(reader, state):
            await self._sweep(reader, state)

    async def _state(self, name: str) -> SourceState:
        if name not in self._states:
            self._states[name] = (await self.journal.source_states()).get(name, SourceState())
            self.metrics.source_state(name, self._states[name])
        return self._states[name]

    def _list_due(self, reader: Reader, state: SourceState) -> bool:
        if state.last_list is None or state.spec_hash != reader.spec.spec_hash:
            return self._waited(reader, state)
        return self._waited(reader, state) and self._passed(state.last_list, self._interval(reader, state))

    def _waited(self, reader: Reader, state: SourceState) -> bool:
        """A failing source is not asked again at once, whatever else is due."""
        failures = self._failures.get(reader.spec.name, 0)
        if not failures or state.last_error_at is None:
            return True
        return self._passed(state.last_error_at, self._interval(reader, state))

    def _interval(self, reader: Reader, state: SourceState) -> float:
        failures = self._failures.get(reader.spec.name, 0)
        interval = reader.spec.discovery_interval_seconds
        return min(interval, RETRY_SECONDS * 2 ** min(failures - 1, 16)) if failures else interval

    def _sweep_due(self, reader: Reader, state: SourceState) -> bool:
        if not state.complete or state.last_sweep is None or state.spec_hash != reader.spec.spec_hash:
            return False
        return self._passed(state.last_sweep, reader.spec.sweep_seconds)

    def _passed(self, since: float, seconds: float) -> bool:
        return self.clock.latest() - since >= seconds

    async def _discover(self, reader: Reader, state: SourceState) -> SourceState:
        name = reader.spec.name
        started = self.clock.earliest()
        same_spec = state.spec_hash == reader.spec.spec_hash
        if not same_spec:
            state = replace(state, complete=False)
        try:
            listing = await self._list(reader, started)
            await self.catch_up()
            await self._forget(reader, listing)
            failed = await self._read_news(reader, listing)
        except SourceError as error:
            return await self._failed(name, state, error)
        self._failures[name] = 0 if failed.source_answered else self._failures.get(name, 0) + 1
        state = replace(state, spec_hash=reader.spec.spec_hash, last_list=started)
        if failed.source_answered and not (state.complete and same_spec):
            # A first complete listing has just read everything: it counts as the first sweep.
            state = replace(state, complete=True, last_sweep=started)
        return await self._save(name, self._noted(name, failed, state, started))

    async def _failed(self, name: str, state: SourceState, error: SourceError) -> SourceState:
        self._failures[name] = self._failures.get(name, 0) + 1
        self.metrics.refresh_failed(name, error.reason)
        log.warning("listing_failed", source=name, reason=error.reason, detail=str(error))
        state = replace(state, last_error=f"{error.reason}: {error}", last_error_at=self.clock.earliest())
        return await self._save(name, state)

    def _noted(self, name: str, failures: "Failures", state: SourceState, at: float) -> SourceState:
        if failures.told is not None:
            log.warning("records_not_read", source=name, detail=failures.told)
        return failures.noted_in(state, at)

    async def _save(self, name: str, state: SourceState) -> SourceState:
        await self.journal.save_source_state(name, state)
        self._states[name] = state
        self.metrics.source_state(name, state)
        return state

    async def _list(self, reader: Reader, started: float) -> Listing:
        """Reads the listing to its end. Until then it says nothing of what is missing from it."""
        listing = Listing(started)
        breath = Breath()
        async for page in reader.list():
            listing.versions.update(_keyed(reader.spec.name, page))
            await breath()
        return listing

    async def _forget(self, reader: Reader, listing: Listing) -> None:
        """Deletes what a complete listing lacks."""
        gone = [key for key in self.memory.keys(reader.spec.name) if key not in listing.versions]
        for deletions in _chunks(gone, 500):
            await self._write(reader, listing.started, deletions=deletions)

    async def _read_news(self, reader: Reader, listing: Listing) -> "Failures":
        """Reads what is new, what has another version, and what was read under another spec."""
        news, changed, same = [], [], []
        for key, version in listing.versions.items():
            known = self.memory.get(key)
            if known is None or known.spec_hash != reader.spec.spec_hash or known.clock.outdated:
                news.append(key)
            elif version is not None and version != known.version:
                changed.append(key)
            elif version is not None:
                same.append(Confirmation(key, version, known.content_hash, known.access_hash))
        await self._outdate(changed, listing.started)
        if reader.spec.version_covers_access:
            for confirmations in _chunks(same, 500):
                await self._write(reader, listing.started, confirmations=confirmations)
        return await self._read(reader, [*news, *changed], listing.versions)

    async def _outdate(self, keys: Sequence[ObjectKey], listed_at: float) -> None:
        """Stale at once, even if reading them again takes a while."""
        breath = Breath()
        for chunk in _chunks(keys, 500):
            for change in await self.journal.mark_outdated(chunk, listed_at):
                self.memory.apply(change)
                await breath()

    async def _write(
        self,
        reader: Reader,
        started: float,
        *,
        confirmations: Sequence[Confirmation] = (),
        deletions: Sequence[ObjectKey] = (),
    ) -> None:
        breath = Breath()
        batch = Batch(started, reader.spec.spec_hash, confirmations=confirmations, deletions=deletions)
        for change in await self.journal.write(batch):
            self.memory.apply(change)
            await breath()

    async def _read(
        self, reader: Reader, keys: Sequence[ObjectKey], versions: Mapping[ObjectKey, str | None] | None = None
    ) -> "Failures":
        """Reads objects a page at a time, whatever their clocks say."""
        done, failures = 0, Failures()
        for chunk in _chunks(keys, reader.page):
            flights = self.flights.refresh(chunk, older_than=self.clock.latest(), versions=versions, background=True)
            await asyncio.wait(flights.values())
            failures.add(flight.result() for flight in flights.values())
            done += len(chunk)
            self.progress(reader.spec.name, done, len(keys))
        return failures

    async def _sweep(self, reader: Reader, state: SourceState) -> None:
        name = reader.spec.name
        started = self.clock.earliest()
        failures = await self._read(reader, sorted(self.memory.keys(name)))
        await self._save(name, self._noted(name, failures, replace(state, last_sweep=started), started))


def _keyed(source: str, page: Iterable[Listed]) -> dict[ObjectKey, str | None]:
    return {ObjectKey(source, listed.record_id): listed.version for listed in page}


def _chunks(items: Collection[T], size: int) -> Iterable[list[T]]:
    iterator = iter(items)
    while chunk := list(islice(iterator, size)):
        yield chunk


async def _end(task: "asyncio.Task[None]") -> None:
    task.cancel()
    await asyncio.wait({task})
