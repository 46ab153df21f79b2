"""What the store's rows look like, there and back."""

import json
from collections.abc import Iterable, Iterator, Sequence
from functools import lru_cache
from typing import Any, NamedTuple

from freshgate_service.domain import (
    Access,
    Batch,
    Change,
    Clock,
    ClockMoved,
    Condensed,
    Confirmation,
    Deleted,
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


def encode_lines(batch: Batch) -> list[list[Any]]:
    """The batch by columns: kind, source, record id, version, content hash, access hash, then the columns CONTENT."""
    lines = [
        *(_confirmation(confirmation) for confirmation in batch.confirmations),
        *(_put(put) for put in batch.puts),
        *(("delete", *key, *[None] * 9) for key in batch.deletions),
    ]
    return columns(lines, 12)


def columns(rows: Iterable[Sequence[Any]], width: int) -> list[list[Any]]:
    """Rows as the arrays that `unnest` takes."""
    return [list(column) for column in zip(*rows, strict=True)] or [[] for _ in range(width)]


def _confirmation(confirmation: Confirmation) -> Row:
    key, version, content_hash, access_hash = confirmation
    return ("confirm", *key, version, content_hash, access_hash, *[None] * 6)


def _put(put: Put) -> Row:
    record, condensed = put.record, put.condensed
    hashes = (put.version, record.content_hash, record.access_hash)
    return ("put", *record.key, *hashes, record.title, *_content(put, condensed))


def _content(put: Put, condensed: Condensed) -> Iterator[str | None]:
    access = put.record.access
    yield condensed.summary
    yield put.record.url
    yield json.dumps(dict(access.attributes))
    yield _encode_readers(access.readers)
    yield condensed.condenser


def _encode_readers(readers: Readers) -> str:
    return json.dumps([sorted(readers.users), sorted(readers.groups)])


@lru_cache(maxsize=10_000)  # few sets of readers serve many records, and then share their memory
def _decode_readers(text: str) -> Readers:
    users, groups = json.loads(text)
    return Readers(frozenset(Name(*user) for user in users), frozenset(Name(*group) for group in groups))
