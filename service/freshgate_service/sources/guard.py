"""Spares a source, and spares the service a source that fails.

Every read of a source passes here: so many at a time, so many a minute, half of both kept for queries, none for a while
after several have failed, none longer than its timeout. The guard knows neither SQL nor HTTP; it counts reads, cuts
them off, and cuts a batch in two where one record in it would fail the others.
"""

import asyncio
import math
from collections import deque
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Iterator, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager, contextmanager
from itertools import chain
from typing import Any, TypeVar, cast

from freshgate_crds import compiled
from freshgate_service.domain import Listed, Now, Source
from freshgate_service.errors import (
    RateLimited,
    RecordMalformed,
    SourceError,
    SourceRefused,
    SourceTimeout,
    SourceUnavailable,
)

T = TypeVar("T")
Sleep = Callable[[float], Awaitable[None]]
Found = Mapping[str, Mapping[str, Any] | SourceError]
"""Raw records by id; an id that is absent does not exist, one with an error could not be read."""

MAX_IDS = 100
"""No read asks for more records."""

_FAILURES = (SourceTimeout, SourceUnavailable, SourceRefused)

FAILURES_TO_OPEN = 5
FIRST_PAUSE, LONGEST_PAUSE = 1.0, 30.0
"""Seconds that the breaker stays open before a probe; twice as long after each probe that fails."""


def read_timeout(spec: compiled.Source) -> float:
    """Seconds that one read may take. What takes longer than the TTL would be stale on arrival."""
    return min(spec.limits.timeout_seconds, spec.ttl_seconds)


class Guarded:
    def __init__(self, source: Source, spec: compiled.Source, now: Now, *, sleep: Sleep = asyncio.sleep) -> None:
        self._source = source
        self._now = now
        self._timeout = read_timeout(spec)
        self._breaker = Breaker(now)
        self._budget = Budget(spec.limits.requests_per_minute, now, sleep)
        self._longest_wait = max(self._timeout, self._budget.longest_wait)
        self._slots = asyncio.Semaphore(spec.limits.concurrency)
        self._background_slots = asyncio.Semaphore(max(1, spec.limits.concurrency // 2))

    @property
    def breaker_open(self) -> bool:
        return self._breaker.open

    @property
    def patience(self) -> float:
        """Seconds after which a fetch has surely ended: no read of it starts after one wait, and a read waits for a
        slot, waits for the budget, and takes its timeout."""
        return 3 * self._longest_wait + self._timeout

    async def list(self) -> AsyncGenerator[Sequence[Listed], None]:
        """Always in the background. The timeout is for a page."""
        async with self._slot(background=True):
            pages = self._source.list()
            try:
                while (page := await self._page(pages)) is not None:
                    yield page
            finally:
                if isinstance(pages, AsyncGenerator):
                    await pages.aclose()

    async def fetch(self, record_ids: Sequence[str], *, background: bool) -> Found:
        """As Source.fetch, but that it never raises a SourceError: an id that could not be read maps to one.

        Where one record fails a whole batch, and the source cannot say which, the halves are read apart.
        """
        found: dict[str, Mapping[str, Any] | SourceError] = {}
        batches = deque(record_ids[at : at + MAX_IDS] for at in range(0, len(record_ids), MAX_IDS))
        give_up = self._now() + self._wait(background)
        while batches:
            batch = batches.popleft()
            try:
                found |= await self._fetch(batch, background=background)
            except RecordMalformed as error:
                if len(batch) == 1:
                    found[batch[0]] = error
                else:
                    batches.extendleft((batch[len(batch) // 2 :], batch[: len(batch) // 2]))
            except SourceError as error:
                return found | dict.fromkeys(chain(batch, *batches), error)
            if self._now() > give_up:
                return found | dict.fromkeys(chain(*batches), SourceTimeout("its batch took too many reads"))
        return found

    async def close(self) -> None:
        await self._source.close()

    def _wait(self, background: bool) -> float:
        """Seconds to wait for a slot, and for the budget. Nobody waits for a background read."""
        return self._longest_wait if background else self._timeout

    async def _page(self, pages: AsyncIterator[Sequence[Listed]]) -> Sequence[Listed] | None:
        # A listing that is refused or slow says nothing of single reads; one that finds nobody there does.
        return await self._read(lambda: anext(pages, None), SourceUnavailable, background=True)

    async def _fetch(self, batch: Sequence[str], *, background: bool) -> Found:
        async with self._slot(background=background):
            found = await self._read(lambda: self._source.fetch(batch), *_FAILURES, background=background)
            return cast("Found", found)  # all errors of a source are SourceErrors, a name that the domain cannot use

    @asynccontextmanager
    async def _slot(self, *, background: bool) -> AsyncIterator[None]:
        self._breaker.check()
        async with AsyncExitStack() as held:
            try:
                async with asyncio.timeout(self._wait(background)):
                    if background:
                        await held.enter_async_context(self._background_slots)
                    await held.enter_async_context(self._slots)
            except TimeoutError:
                raise RateLimited("all reads that limits.concurrency allows are under way") from None
            yield

    async def _read(self, ask: Callable[[], Awaitable[T]], *failures: type[SourceError], background: bool) -> T:
        with self._breaker.watching(failures):
            await self._budget.take(self._wait(background), background=background)
            try:
                async with asyncio.timeout(self._timeout):
                    return await ask()
            except TimeoutError:
                raise SourceTimeout(f"no answer within {self._timeout:g} s") from None
            except RateLimited as error:
                self._budget.close_for(error.retry_after)
                raise


class Budget:
    """How many reads may start. The minute is spread: no ten seconds see more than a sixth of it, so that a burst
    leaves something for what comes next. The background has half of it, and never more."""

    def __init__(self, per_minute: int, now: Now, sleep: Sleep) -> None:
        self._now = now
        self._sleep = sleep
        self._all = Window(per_minute)
        self._background = Window(max(1, per_minute // 2))
        self._closed_until = -math.inf

    @property
    def longest_wait(self) -> float:
        """Seconds that a single reader waits at most, unless the source itself asks for more."""
        return self._background.seconds

    async def take(self, patience: float, *, background: bool) -> None:
        """Returns when a read may start; raises RateLimited where that would take more than `patience` seconds."""
        windows = (self._all, self._background) if background else (self._all,)
        give_up = self._now() + patience
        while (start := max(self._closed_until, *(window.next_start for window in windows))) > self._now():
            if start > give_up:
                raise RateLimited(f"limits.requestsPerMinute is used up for {start - self._now():.0f} s")
            await self._sleep(start - self._now())
        for window in windows:
            window.starts.append(self._now())

    def close_for(self, seconds: float | None) -> None:
        """The source has asked to be left alone for so long (429 with Retry-After)."""
        if seconds is not None:
            self._closed_until = max(self._closed_until, self._now() + seconds)


class Window:
    """The starts of the last reads, as many as `seconds` may see."""

    def __init__(self, per_minute: int) -> None:
        sixth = per_minute // 6
        self.seconds = 10.0 if sixth else 60.0 / per_minute
        self.starts: deque[float] = deque(maxlen=max(1, sixth))

    @property
    def next_start(self) -> float:
        return self.starts[0] + self.seconds if len(self.starts) == self.starts.maxlen else -math.inf


class Breaker:
    """Open after several failures in a row: then nothing is asked, but for one probe after each pause."""

    def __init__(self, now: Now) -> None:
        self._now = now
        self._in_a_row = 0
        self._last: SourceError | None = None
        self._pause = FIRST_PAUSE
        self._probe_at = -math.inf
        self._probing = False

    @property
    def open(self) -> bool:
        return self._in_a_row >= FAILURES_TO_OPEN

    def check(self) -> None:
        """Raises what the last read raised, while the source is left alone."""
        if self._last is not None and self.open and (self._probing or self._now() < self._probe_at):
            raise type(self._last)(f"not asked, since {self._in_a_row} reads in a row failed; the last: {self._last}")

    @contextmanager
    def watching(self, failures: tuple[type[SourceError], ...]) -> Iterator[None]:
        """One read. `failures` count; a malformed record is an answer; anything else says nothing of the source."""
        self.check()
        probe = self._probing = self.open
        try:
            yield
            self._close()
        except RecordMalformed:
            self._close()
            raise
        except failures as error:
            self._failed(error, probe=probe)
            raise
        finally:
            if probe:
                self._probing = False

    def _close(self) -> None:
        self._in_a_row, self._pause = 0, FIRST_PAUSE

    def _failed(self, error: SourceError, *, probe: bool) -> None:
        already_open = self.open
        self._in_a_row += 1
        self._last = error
        if probe:
            self._pause = min(2 * self._pause, LONGEST_PAUSE)
        if probe or (self.open and not already_open):
            self._probe_at = self._now() + self._pause
