"""Flights: one read for one object at a time, in this process and across processes.

A flight belongs to no asker. Whoever waits for one may stop waiting; the flight goes on, and what it finds is
remembered for all. It is told which objects to read and never who asked: whether they may be read for somebody was
decided before.
"""

import asyncio
from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from freshgate_service.clock import StoreClock
from freshgate_service.domain import (
    Batch,
    Change,
    Condensed,
    Condenser,
    Confirmation,
    Lease,
    ObjectKey,
    Put,
    Reason,
    Record,
)
from freshgate_service.errors import SourceError, StoreUnavailable
from freshgate_service.logs import get_logger
from freshgate_service.metrics import Metrics
from freshgate_service.refresh.breath import Breath
from freshgate_service.refresh.outcome import Changed, Confirmed, Failed, Gone, Outcome
from freshgate_service.refresh.ports import Follower, Journal, Reader, Readers, Remembered, names_of

log = get_logger(__name__)

CONDENSE_SECONDS = 60.0
"""What a lease allows for condensing on top of reading, in seconds."""

FOREIGN_FLIGHT_POLL_SECONDS = 0.05
"""How often a process looks whether another one's flight has landed."""


@dataclass(frozen=True, slots=True)
class Finding:
    """What one read found out about one object, before it is written."""

    outcome: Outcome
    put: Put | None = None
    confirmation: Confirmation | None = None


@dataclass(slots=True)
class Flights:
    journal: Journal
    memory: Remembered
    readers: Readers
    condenser: Condenser
    clock: StoreClock
    catch_up: Follower
    metrics: Metrics
    _flying: dict[ObjectKey, asyncio.Future[Outcome]] = field(default_factory=dict)
    _tasks: set[asyncio.Task[None]] = field(default_factory=set)

    def refresh(
        self,
        keys: Iterable[ObjectKey],
        *,
        older_than: float,
        versions: Mapping[ObjectKey, str | None] | None = None,
        background: bool = False,
    ) -> dict[ObjectKey, asyncio.Future[Outcome]]:
        """Starts what is not in flight yet, one read a source, and gives each object's flight.

        An object confirmed after `older_than` (store seconds) by somebody else in the meantime is not read again.
        `versions` are those that a listing has just named. Wait for the futures with asyncio.wait: they are shared.
        """
        wanted = list(keys)
        fresh: dict[str, list[ObjectKey]] = defaultdict(list)
        for key in wanted:
            if key not in self._flying:
                self._flying[key] = asyncio.get_running_loop().create_future()
                fresh[key.source].append(key)
        flights = {key: self._flying[key] for key in wanted}
        for source, group in fresh.items():
            self._start(_Flight(self, self.readers.get(source), group, older_than, versions or {}, background))
        return flights

    async def close(self) -> None:
        """Lets flights that are under way land."""
        if self._tasks:
            await asyncio.wait(set(self._tasks))

    def land(self, key: ObjectKey, outcome: Outcome) -> None:
        future = self._flying.pop(key)
        if isinstance(outcome, Failed):
            self.metrics.refresh_failed(key.source, outcome.reason)
        self.metrics.refreshed(key.source, _RESULT[type(outcome)])
        if not future.done():
            future.set_result(outcome)

    def _start(self, flight: "_Flight") -> None:
        task = asyncio.create_task(flight.fly(), name="refresh")
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)


_RESULT = {Confirmed: "unchanged", Changed: "changed", Gone: "deleted", Failed: "failed"}


@dataclass(slots=True)
class _Flight:
    """One read of some objects of one source."""

    control: Flights
    reader: Reader | None
    waiting: list[ObjectKey]
    older_than: float
    versions: Mapping[ObjectKey, str | None]
    background: bool

    async def fly(self) -> None:
        try:
            await self._fly()
        except StoreUnavailable:
            self._land_all(Failed(Reason.STORE_UNAVAILABLE))
        except SourceError as error:
            self._land_all(Failed(error.reason, str(error)))
        except Exception as error:  # noqa: BLE001 - nobody waits for ever, and nothing old passes for confirmed
            log.error("refresh_failed", error=type(error).__name__)
        finally:
            self._land_all(Failed(Reason.SOURCE_UNAVAILABLE))

    async def _fly(self) -> None:
        if self.reader is None:
            return
        with self.control.metrics.time_refresh(self.reader.spec.name):
            while self.waiting:
                leases = await self._claim(self.reader)
                if leases:
                    await self._read(self.reader, leases)
                else:
                    await asyncio.sleep(FOREIGN_FLIGHT_POLL_SECONDS)

    async def _claim(self, reader: Reader) -> dict[ObjectKey, Lease]:
        """Leases for the objects that are ours to read. What another process holds stays waiting; what it has
        confirmed meanwhile lands."""
        names = names_of(self.waiting)
        held = await self.control.journal.claim(list(names), reader.patience + CONDENSE_SECONDS)
        # Only after the claim: whoever held these before has written what was found by then.
        await self.control.catch_up()
        leases = {names[name]: lease for name, lease in held.items()}
        done = [key for key in self.waiting if not self._due(key)]
        await self.control.journal.release([leases.pop(key) for key in done if key in leases])
        for key in done:
            self._land(key, Confirmed())
        return leases

    def _due(self, key: ObjectKey) -> bool:
        known = self.control.memory.get(key)
        if known is None or self.reader is None or known.spec_hash != self.reader.spec.spec_hash:
            return True
        confirmed_at = known.clock.confirmed_at
        in_the_future = confirmed_at > self.control.clock.latest()
        return known.clock.outdated or in_the_future or confirmed_at <= self.older_than

    async def _read(self, reader: Reader, leases: dict[ObjectKey, Lease]) -> None:
        started = self.control.clock.earliest()
        try:
            found = await reader.fetch([key.record_id for key in leases], background=self.background)
            findings = {key: await self._judge(reader, key, found.get(key.record_id)) for key in leases}
            applied = await self._write(reader, started, findings, leases)
        except BaseException:
            await self._give_back(leases.values())
            raise
        await self._conclude(findings, applied)

    async def _judge(self, reader: Reader, key: ObjectKey, found: Record | SourceError | None) -> Finding:
        """Condenses only what is new in content."""
        if found is None:
            return Finding(Gone())
        if isinstance(found, SourceError):
            return Finding(Failed(found.reason, str(found)))
        known = self.control.memory.get(key)
        version = self.versions.get(key, known.version if known else None)
        problem = next(iter(found.problems), "")
        if known is None or known.content_hash != found.content_hash:
            condensed = await self._condense(found, reader.spec.condense_max_words)
            return Finding(Changed(problem), put=Put(found, condensed, version))
        self.control.metrics.condensation_avoided(key.source)
        if known.access_hash == found.access_hash and known.spec_hash == reader.spec.spec_hash:
            confirmation = Confirmation(key, version, found.content_hash, found.access_hash)
            return Finding(Confirmed(problem), confirmation=confirmation)
        return Finding(Changed(problem), put=Put(found, Condensed(known.summary, known.condenser), version))

    async def _condense(self, record: Record, max_words: int) -> Condensed:
        condensed = await self.control.condenser.condense(record, max_words)
        self.control.metrics.condensed(record.key.source, condensed.condenser)
        return condensed

    async def _write(
        self,
        reader: Reader,
        started: float,
        findings: Mapping[ObjectKey, Finding],
        leases: Mapping[ObjectKey, Lease],
    ) -> Sequence[Change]:
        """Records what was found; a failed object's lease goes back without a write."""
        failed = [key for key, finding in findings.items() if isinstance(finding.outcome, Failed)]
        if failed:
            await self.control.journal.release([leases[key] for key in failed])
        if len(failed) == len(findings):
            return ()
        return await self.control.journal.write(
            Batch(
                read_started=started,
                spec_hash=reader.spec.spec_hash,
                confirmations=[f.confirmation for f in findings.values() if f.confirmation],
                puts=[f.put for f in findings.values() if f.put],
                deletions=[key for key, f in findings.items() if isinstance(f.outcome, Gone)],
                leases={key: lease for key, lease in leases.items() if key not in failed},
            )
        )

    async def _conclude(self, findings: Mapping[ObjectKey, Finding], applied: Sequence[Change]) -> None:
        breath = Breath()
        for change in applied:
            self.control.memory.apply(change)
            await breath()
        written = {change.key for change in applied}
        if any(f.put or f.confirmation for key, f in findings.items() if key not in written):
            # Somebody else's later read stands in the store: that one counts, for us too.
            await self.control.catch_up()
        for key, finding in findings.items():
            self._land(key, finding.outcome)

    async def _give_back(self, leases: Collection[Lease]) -> None:
        try:
            await asyncio.shield(self.control.journal.release(list(leases)))
        except StoreUnavailable:
            return  # they expire by themselves

    def _land(self, key: ObjectKey, outcome: Outcome) -> None:
        self.waiting.remove(key)
        self.control.land(key, outcome)

    def _land_all(self, outcome: Outcome) -> None:
        for key in list(self.waiting):
            self._land(key, outcome)
