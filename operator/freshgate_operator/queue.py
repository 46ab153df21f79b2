"""What is to be reconciled: workspaces, each once however often it changed, and one namespace in one pair of hands.

A change is due at once, but for a moment in which what was applied with it arrives. A workspace that failed comes again
by itself, later each time; a new change of it does not wait for that.
"""

import asyncio
import random
from collections.abc import Callable, Collection
from dataclasses import dataclass
from typing import NamedTuple

Now = Callable[[], float]

ANY = ""
"""In the place of a workspace's name: whichever of the namespace it concerns."""

QUIET_SECONDS = 0.1
FIRST_RETRY_SECONDS = 0.5
LONGEST_RETRY_SECONDS = 60.0


class Key(NamedTuple):
    namespace: str
    workspace: str = ANY


class Work(NamedTuple):
    """All that is due of one namespace."""

    namespace: str
    workspaces: frozenset[str]


@dataclass(slots=True)
class _Entry:
    """`since` is when the oldest change came that is not reconciled yet; None: nothing changed, it is only due."""

    since: float | None
    due: float


class Queue:
    def __init__(self, now: Now, *, jitter: Callable[[], float] = random.random) -> None:
        self._now = now
        self._jitter = jitter
        self._entries: dict[Key, _Entry] = {}
        self._held: dict[str, dict[Key, float | None]] = {}
        self._failures: dict[Key, int] = {}
        self._woken = asyncio.Event()

    def mark(self, key: Key) -> None:
        """It changed."""
        now = self._now()
        self._put(key, now, now + QUIET_SECONDS)

    def mark_later(self, key: Key, seconds: float) -> None:
        """It did not change, but has to be looked at by then."""
        self._put(key, None, self._now() + seconds)

    async def take(self) -> Work:
        """Waits for what is due. Until `done` nobody else is given the namespace."""
        while True:
            self._woken.clear()
            if (work := self._ready()) is not None:
                return work
            try:
                await asyncio.wait_for(self._woken.wait(), self._pause())
            except TimeoutError:
                continue

    def done(self, work: Work, failed: Collection[str] = ()) -> None:
        """`failed`: which of its workspaces have to be tried again, though they were not asked for perhaps."""
        taken = self._held.pop(work.namespace)
        for workspace in failed:
            key, now = Key(work.namespace, workspace), self._now()
            since = taken.get(key, taken.get(Key(work.namespace)))
            self._put(key, now if since is None else since, now + self._backoff(key))
        for key in taken:
            if key.workspace not in failed:
                self._failures.pop(key, None)
        self._woken.set()

    # for metrics

    def dirty(self) -> int:
        waiting = {key for key, entry in self._entries.items() if entry.since is not None}
        working = {key for taken in self._held.values() for key, since in taken.items() if since is not None}
        return len(waiting | working)

    def oldest_age(self) -> float:
        """Seconds; 0 where everything is reconciled."""
        since = [entry.since for entry in self._entries.values()]
        since += [at for taken in self._held.values() for at in taken.values()]
        return max((self._now() - at for at in since if at is not None), default=0.0)

    # inside

    def _put(self, key: Key, since: float | None, due: float) -> None:
        known = self._entries.get(key)
        if known is None:
            self._entries[key] = _Entry(since, due)
        else:
            known.due = min(known.due, due)
            known.since = min((at for at in (known.since, since) if at is not None), default=None)
        self._woken.set()

    def _ready(self) -> Work | None:
        now = self._now()
        due = [(entry.due, key) for key, entry in self._entries.items() if entry.due <= now and self._free(key)]
        if not due:
            return None
        namespace = min(due)[1].namespace
        keys = [key for _, key in due if key.namespace == namespace]
        self._held[namespace] = {key: self._entries.pop(key).since for key in keys}
        return Work(namespace, frozenset(key.workspace for key in keys))

    def _free(self, key: Key) -> bool:
        return key.namespace not in self._held

    def _pause(self) -> float | None:
        """Until the next is due; None: until somebody wakes."""
        due = min((entry.due for key, entry in self._entries.items() if self._free(key)), default=None)
        return None if due is None else max(0.0, due - self._now())

    def _backoff(self, key: Key) -> float:
        failures = self._failures[key] = self._failures.get(key, 0) + 1
        seconds: float = min(FIRST_RETRY_SECONDS * 2 ** min(failures - 1, 16), LONGEST_RETRY_SECONDS)
        return seconds * (1.0 + self._jitter()) / 2.0
