"""A workspace as it stands before a service starts: a store that holds records, and what is published."""

import gzip
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

from freshgate_serve import corp, user
from freshgate_world import STORE, allow, configuration, entitlements, group, source

from freshgate_bench.corpus import REGIONS, SPEC_HASH, Entry
from freshgate_crds.compiled import Config
from freshgate_service.domain import Batch, Condensed, Put, Record
from freshgate_service.published import CONFIG_FILE
from freshgate_service.store import Store, WorkspaceKey

DAY = 86_400.0
PUTS = 500
"""Records in one write."""


def config() -> Config:
    """One source whose objects stay fresh while they are measured, and one group that may see one region."""
    return configuration(
        source(ttl_seconds=DAY),
        issuers=(corp(),),
        entitlements=entitlements(allow("support", group("support"), region=REGIONS[0])),
    )


def token() -> str:
    return user("ana@corp.example", "support", exp=int(time.time()) + 7200)


async def fill(dsn: str, published: Config, records: Sequence[Entry]) -> None:
    key = WorkspaceKey(published.cluster_uid, published.namespace, published.workspace)
    store = await Store.open(dsn, key, holder="bench")
    try:
        now = await store.now()
        for at in range(0, len(records), PUTS):
            await store.write(Batch(now, SPEC_HASH, puts=[_put(record) for record in records[at : at + PUTS]]))
    finally:
        await store.close()


def _put(entry: Entry) -> Put:
    read = entry.object(1)
    record = Record(
        key=read.key,
        title=read.title,
        body=read.summary,
        url=read.url,
        access=read.access,
        content_hash=read.content_hash,
        access_hash=read.access_hash,
    )
    return Put(record, Condensed(read.summary, "extractive"), None)


def publish(folder: Path, published: Config, dsn: str) -> None:
    """As the operator's Secret is mounted."""
    files: Mapping[str, bytes] = {
        CONFIG_FILE: gzip.compress(published.model_dump_json().encode()),
        STORE.file_name: dsn.encode(),
    }
    folder.mkdir(parents=True, exist_ok=True)
    for name, content in files.items():
        (folder / name).write_bytes(content)
