"""The vocabulary all stages share: who asks, what is remembered, what a refresh found, what stages ask of each other.

Plain values and protocols only. It must not import a stage, and nothing in it may do I/O.
"""

from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any, NamedTuple, Protocol

from freshgate_crds.compiled import SubjectKind

Attribute = Any
"""A JSON value of a record, as its mapping found it. Only scalars and lists of scalars can satisfy a condition."""


class ObjectKey(NamedTuple):
    """Names an object for good: the source, and the record's id in it, as text."""

    source: str
    record_id: str

    @property
    def text(self) -> str:
        return f"{self.source}/{self.record_id}"


# --- who asks ----------------------------------------------------------------------------------------------------


class Name(NamedTuple):
    """A user or group name is only a name together with who asserts it. Compared exactly: no folding, no trimming."""

    issuer: str
    name: str


@dataclass(frozen=True, slots=True)
class Principal:
    """One verified identity. `claims` are the verified token's, for `valuesFromClaim`."""

    kind: SubjectKind
    name: Name
    groups: frozenset[Name] = frozenset()
    claims: Mapping[str, Any] = field(default_factory=dict, hash=False)


@dataclass(frozen=True, slots=True)
class Asker:
    """Who a question is answered for. An agent acting for a person sees the intersection of both."""

    principal: Principal
    on_behalf_of: Principal | None = None

    @property
    def everyone(self) -> tuple[Principal, ...]:
        """All principals that must each be entitled."""
        return (self.principal,) if self.on_behalf_of is None else (self.principal, self.on_behalf_of)


# --- what is remembered ------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Readers:
    """Who the record itself names. Empty names nobody."""

    users: frozenset[Name] = frozenset()
    groups: frozenset[Name] = frozenset()


@dataclass(frozen=True, slots=True)
class Access:
    """All that entitlement may look at: the source, the attributes and the readers of one record."""

    source: str
    attributes: Mapping[str, Attribute]
    readers: Readers = Readers()


@dataclass(frozen=True, slots=True)
class Record:
    """One record as read and mapped, before it is condensed. `content_hash` covers title, body and url;
    `access_hash` covers attributes and readers. `problems` say what was amiss and left out, naming fields and paths,
    never values."""

    key: ObjectKey
    title: str
    body: str
    url: str | None
    access: Access
    content_hash: str
    access_hash: str
    problems: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Condensed:
    """A summary, and which condenser made it: `extractive`, `anthropic`, or `extractive_fallback` where the model's was
    refused or failed."""

    summary: str
    condenser: str


@dataclass(frozen=True, slots=True)
class Clock:
    """`confirmed_at`: start of the source read that last confirmed the object, seconds of the store's clock.
    `outdated`: the source's listing has said since that the record changed."""

    confirmed_at: float
    outdated: bool = False


@dataclass(frozen=True, slots=True)
class MemoryObject:
    """One remembered record. `change` orders the versions of one object, content and clock alike: higher is newer."""

    key: ObjectKey
    title: str
    summary: str
    url: str | None
    access: Access
    content_hash: str
    access_hash: str
    spec_hash: str
    condenser: str
    version: str | None
    clock: Clock
    change: int


# --- freshness ---------------------------------------------------------------------------------------------------


class State(StrEnum):
    FRESH = "fresh"
    REFRESHED = "refreshed"
    STALE_REFRESH_FAILED = "stale_refresh_failed"


class Reason(StrEnum):
    SOURCE_TIMEOUT = "source_timeout"
    SOURCE_UNAVAILABLE = "source_unavailable"
    SOURCE_REFUSED = "source_refused"
    RATE_LIMITED = "rate_limited"
    RECORD_MALFORMED = "record_malformed"
    STORE_UNAVAILABLE = "store_unavailable"
    DEADLINE = "deadline"


def freshness(clock: Clock, ttl_seconds: float, now: float) -> float:
    """max(0, 1 − age/ttl); 0 where the source said that the record changed, or where the clock lies in the future."""
    age = now - clock.confirmed_at
    if clock.outdated or age < 0:
        return 0.0
    return max(0.0, 1.0 - age / ttl_seconds)


# --- scores ------------------------------------------------------------------------------------------------------


class Match(NamedTuple):
    """One term's share of a score in one field (`title` or `body`)."""

    term: str
    field: str
    score: float


class Scored(NamedTuple):
    """`score` is the exact sum of the matches' scores."""

    key: ObjectKey
    score: float
    matched: tuple[Match, ...]


# --- changes -----------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class ClockMoved:
    """The object was confirmed, or called outdated; nothing else of it changed."""

    key: ObjectKey
    clock: Clock
    version: str | None
    change: int


@dataclass(frozen=True, slots=True)
class Deleted:
    key: ObjectKey
    change: int


Change = MemoryObject | ClockMoved | Deleted
"""What the store tells its followers. Of one object, the change with the higher number is the newer."""


class Put(NamedTuple):
    """A record as it is to be remembered from now on."""

    record: Record
    condensed: Condensed
    version: str | None


class Confirmation(NamedTuple):
    """The record was read again and has these hashes. It applies only where the store still holds just that: another
    process may have written a different reading since."""

    key: ObjectKey
    version: str | None
    content_hash: str
    access_hash: str


@dataclass(frozen=True, slots=True)
class Batch:
    """What one source read, begun at `read_started`, found out. Each line applies only where the object was not
    confirmed by a later read, and only while the object's lease in `leases` (where there is one) still holds."""

    read_started: float
    spec_hash: str
    confirmations: Sequence[Confirmation] = ()
    puts: Sequence[Put] = ()
    deletions: Sequence[ObjectKey] = ()
    leases: Mapping[ObjectKey, "Lease"] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class SourceState:
    """The background loop's own memory of a source; times are the store's, None where it never happened.
    `complete`: a first backfill has ended. `spec_hash`: the reading spec that the last listing used."""

    spec_hash: str | None = None
    complete: bool = False
    last_list: float | None = None
    last_sweep: float | None = None
    last_success: float | None = None
    last_error: str | None = None
    last_error_at: float | None = None


# --- what stages ask of each other -------------------------------------------------------------------------------


class Listed(NamedTuple):
    record_id: str
    version: str | None


class Source(Protocol):
    """A system of record, read only. Every failure is a SourceError."""

    def list(self) -> AsyncIterator[Sequence[Listed]]:
        """Pages of a listing. Ending without an error means that it was complete; breaking, or passing `maxObjects`,
        raises."""

    async def fetch(self, record_ids: Sequence[str]) -> Mapping[str, Mapping[str, Any] | Exception]:
        """Records by id in as few reads as the source allows. An id that is absent from the result does not exist
        there any more; one that maps to a SourceError failed alone."""

    async def close(self) -> None: ...


class Condenser(Protocol):
    async def condense(self, record: Record, max_words: int) -> Condensed: ...


class Lease(NamedTuple):
    """`token` rises with every claim, so that a write by a holder that was overtaken can be told."""

    name: str
    token: int


Now = Callable[[], float]
"""Seconds."""


# --- answers -----------------------------------------------------------------------------------------------------


class Freshness(NamedTuple):
    """`score` is freshness() when the answer was built; `reason` is set only with STALE_REFRESH_FAILED."""

    state: State
    score: float
    confirmed_at: float
    ttl_seconds: float
    reason: Reason | None = None


class Item(NamedTuple):
    """One line of an answer. Without `content` it is a failed refresh, and then says nothing of the record but its id,
    its source and its freshness."""

    key: ObjectKey
    freshness: Freshness
    content: MemoryObject | None = None
    score: float | None = None
    matched: tuple[Match, ...] = ()


class SourceInfo(NamedTuple):
    """`complete` is false while the source's first backfill runs."""

    name: str
    ttl_seconds: float
    complete: bool
