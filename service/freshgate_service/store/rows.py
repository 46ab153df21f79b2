"""What the store's rows look like, there and back."""

import json
from collections.abc import Iterable, Sequence
from functools import lru_cache
from itertools import chain
from typing import Any, NamedTuple

from freshgate_service.domain import (
    Access,
    Batch,
    Change,
    Clock,
    ClockMoved,
    Confirmation,
    Deleted,
    Lease,
    MemoryObject,
    Name,
    ObjectKey,
    Put,
    Readers,
)

Row = Sequence[Any]
"""The columns CLOCK and CONTENT of the statements, in their order; more may follow."""


class Cursor(NamedTuple):
    """How far a follower has read. `server` changes when Postgres restarts: it may be another machine by then, which
    has lost the last commits and gives their numbers out again."""

    server: str
    snapshot: str


def decode(row: Row) -> Change:
    """A row without hashes is a deletion, one without content moved only its clock."""
    source, record_id, confirmed_at, outdated, version, content_hash, _, _, change, title, *_ = row
    key = ObjectKey(source, record_id)
    if content_hash is None:
        return Deleted(key, change)
    if title is None:
        return ClockMoved(key, Clock(confirmed_at, outdated), version, change)
    return decode_object(row)


def decode_object(row: Row) -> MemoryObject:
    source, record_id, confirmed_at, outdated, version, content_hash, access_hash, spec_hash, change = row[:9]
    title, summary, url, attributes, readers, condenser = row[9:15]
    return MemoryObject(
        key=ObjectKey(source, record_id),
        title=title,
        summary=summary,
        url=url,
        access=Access(source, json.loads(attributes), _decode_readers(readers)),
        content_hash=content_hash,
        access_hash=access_hash,
        spec_hash=spec_hash,
        condenser=condenser,
        version=version,
        clock=Clock(confirmed_at, outdated),
        change=change,
    )


def encode(rows: Iterable[object]) -> str:
    return json.dumps(list(rows), ensure_ascii=False)


def encode_keys(keys: Iterable[ObjectKey]) -> str:
    return encode(key._asdict() for key in keys)


def encode_leases(leases: Iterable[Lease]) -> str:
    return encode(lease._asdict() for lease in leases)


def encode_lines(batch: Batch) -> str:
    lines = chain(map(_confirmation, batch.confirmations), map(_put, batch.puts), map(_deletion, batch.deletions))
    return encode({**line, **key._asdict(), **_guard(batch.leases.get(key))} for key, line in lines)


Line = tuple[ObjectKey, dict[str, str | None]]


def _confirmation(confirmation: Confirmation) -> Line:
    key, version, content_hash, access_hash = confirmation
    return key, {"kind": "confirm", "version": version, "content_hash": content_hash, "access_hash": access_hash}


def _put(put: Put) -> Line:
    record, condensed = put.record, put.condensed
    return record.key, {
        "kind": "put",
        "version": put.version,
        "content_hash": record.content_hash,
        "access_hash": record.access_hash,
        "title": record.title,
        "summary": condensed.summary,
        "url": record.url,
        "attributes": json.dumps(dict(record.access.attributes)),
        "readers": _encode_readers(record.access.readers),
        "condenser": condensed.condenser,
    }


def _deletion(key: ObjectKey) -> Line:
    return key, {"kind": "delete"}


def _guard(lease: Lease | None) -> dict[str, str | int]:
    return {} if lease is None else {"lease": lease.name, "token": lease.token}


def _encode_readers(readers: Readers) -> str:
    return json.dumps([sorted(readers.users), sorted(readers.groups)])


@lru_cache(maxsize=10_000)  # few sets of readers serve many records, and then share their memory
def _decode_readers(text: str) -> Readers:
    users, groups = json.loads(text)
    return Readers(frozenset(Name(*user) for user in users), frozenset(Name(*group) for group in groups))
