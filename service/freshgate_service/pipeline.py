"""Entitle → score → refresh, composed. The one way from an asker's question to an answer.

Each round is one synchronous step over one state of the memory: the entitled slice is scored, every survivor is
decided anew at the border, and only then is anything asked of a source. Nothing below `_cut` ever holds an object
that the asker may not see.
"""

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from freshgate_crds.compiled import Revision
from freshgate_service.clock import StoreClock
from freshgate_service.domain import (
    Asker,
    Freshness,
    Item,
    MemoryObject,
    Now,
    ObjectKey,
    Reason,
    Scored,
    SourceInfo,
    State,
    freshness,
)
from freshgate_service.entitle import border
from freshgate_service.errors import ConfigBehind, EntitlementsExpired
from freshgate_service.memory import Memory
from freshgate_service.metrics import Metrics
from freshgate_service.refresh import Failed, Flights, Outcome

ROUNDS = 3
"""How often what came up after a refresh is refreshed in its turn."""

BEHIND_SECONDS = 2.0
"""How long a query waits for a newer configuration that is known to exist."""


class Survivor(NamedTuple):
    """What left the scorer and passed the border."""

    object: MemoryObject
    scored: Scored | None


@dataclass(slots=True)
class Question:
    """One query under way: until when it may wait, and what its refreshes have found."""

    asker: Asker
    until: float
    tried: dict[ObjectKey, Outcome] = field(default_factory=dict)


@dataclass(slots=True)
class Pipeline:
    memory: Memory
    flights: Flights
    clock: StoreClock
    boottime: Now
    metrics: Metrics
    behind: Callable[[], bool]
    """Whether the store has seen a newer revision than the one in force here."""

    @property
    def revision(self) -> Revision:
        return self.memory.config.revision

    @property
    def ranking_limit(self) -> int:
        return self.memory.config.ranking.limit

    async def search(self, asker: Asker, query: str, limit: int | None, sources: Sequence[str] | None) -> list[Item]:
        """Confirmed items by score, then those that could not be confirmed, by id; `limit` in all."""
        wanted = None if sources is None else frozenset(sources)
        most = limit or self.ranking_limit
        return await self._answer(asker, lambda: self._cut(asker, query, most, wanted))

    async def fetch(self, asker: Asker, source: str, record_id: str) -> Item | None:
        """None where the asker's slice has no such object, for whatever reason."""
        key = ObjectKey(source, record_id)
        items = await self._answer(asker, lambda: self._find(asker, key))
        return items[0] if items else None

    async def sources(self, asker: Asker) -> list[SourceInfo]:
        """The sources with an object in the asker's slice, by name."""
        await self._ready()
        names = sorted(self.memory.sources(asker))
        return [self.memory.source_info(name) for name in names]

    async def _answer(self, asker: Asker, cut: Callable[[], list[Survivor]]) -> list[Item]:
        question = Question(asker, self.boottime() + self.memory.config.deadline_seconds)
        await self._ready()
        for _ in range(ROUNDS):
            survivors = cut()
            stale = [s.object.key for s in survivors if self._untried(s, question)]
            if not stale or self.boottime() >= question.until:
                break
            await self._refresh(stale, question)
            await self._ready()
        else:
            survivors = cut()
        return self._items(survivors, question)

    # entitle → score → border

    def _cut(self, asker: Asker, query: str, limit: int, sources: frozenset[str] | None) -> list[Survivor]:
        with self.metrics.time_stage("entitle"):
            entitled = self.memory.slice(asker, sources)
        with self.metrics.time_stage("score"):
            scored = self.memory.top(entitled, query, limit)
        return self._border(asker, [Survivor(self.memory.objects[one.key], one) for one in scored])

    def _find(self, asker: Asker, key: ObjectKey) -> list[Survivor]:
        found = self.memory.find(asker, key)
        return self._border(asker, [] if found is None else [Survivor(found, None)])

    def _border(self, asker: Asker, survivors: list[Survivor]) -> list[Survivor]:
        """Every survivor is decided anew, by the policies alone."""
        with self.metrics.time_stage("check"):
            accesses = (survivor.object.access for survivor in survivors)
            border.check(asker, accesses, self.memory.config.entitlements)
        return survivors

    # refresh

    def _freshness(self, remembered: MemoryObject) -> float:
        ttl = self.memory.specs[remembered.key.source].ttl_seconds
        return freshness(remembered.clock, ttl, self.clock.latest())

    def _untried(self, survivor: Survivor, question: Question) -> bool:
        return survivor.object.key not in question.tried and self._freshness(survivor.object) <= 0.0

    async def _refresh(self, stale: Sequence[ObjectKey], question: Question) -> None:
        """Waits for the flights until the deadline; they go on without us."""
        with self.metrics.time_stage("refresh"):
            shortest = min(self.memory.specs[key.source].ttl_seconds for key in stale)
            flights = self.flights.refresh(stale, older_than=self.clock.latest() - shortest)
            await asyncio.wait(flights.values(), timeout=max(0.0, question.until - self.boottime()))
        for key, flight in flights.items():
            question.tried[key] = flight.result() if flight.done() else Failed(Reason.DEADLINE)

    # answer

    def _items(self, survivors: Sequence[Survivor], question: Question) -> list[Item]:
        items = [self._item(survivor, question) for survivor in survivors]
        confirmed = [item for item in items if item.content is not None]
        failed = [item for item in items if item.content is None]
        return confirmed + sorted(failed, key=lambda item: item.key.text)

    def _item(self, survivor: Survivor, question: Question) -> Item:
        remembered, scored = survivor
        outcome = question.tried.get(remembered.key)
        left = self._freshness(remembered)
        state = _state(left, outcome)
        if state is State.STALE_REFRESH_FAILED:
            reason = outcome.reason if isinstance(outcome, Failed) else Reason.DEADLINE
            return Item(remembered.key, self._line(remembered, state, 0.0, reason))
        fresh = self._line(remembered, state, left)
        if scored is None:
            return Item(remembered.key, fresh, remembered)
        return Item(remembered.key, fresh, remembered, scored.score, scored.matched)

    def _line(self, remembered: MemoryObject, state: State, left: float, reason: Reason | None = None) -> Freshness:
        ttl = self.memory.specs[remembered.key.source].ttl_seconds
        return Freshness(state, left, remembered.clock.confirmed_at, ttl, reason)

    # before anything else

    async def _ready(self) -> None:
        """No answer under a configuration that was overtaken, or by entitlements nobody vouches for any more."""
        until = self.boottime() + BEHIND_SECONDS
        while self.behind():
            if self.boottime() >= until:
                raise ConfigBehind("a newer configuration is in force")
            await asyncio.sleep(0.05)
        entitlements = self.memory.config.entitlements
        if self.clock.latest() >= entitlements.stamp.timestamp() + entitlements.max_age_seconds:
            raise EntitlementsExpired("the entitlements are older than their maxAge")


def _state(left: float, outcome: Outcome | None) -> State:
    if left <= 0.0:
        return State.STALE_REFRESH_FAILED
    return State.FRESH if outcome is None or isinstance(outcome, Failed) else State.REFRESHED
