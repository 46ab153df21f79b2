"""Publishing: one Secret holds a workspace's configuration and its credentials, and they change together or not at all.

A revision's counter lives in what was published and rises by compare-and-swap on the Secret's resourceVersion: whoever
lost the race reads all inputs again. A stamp comes with a snapshot and is only ever put on what was compiled from it.
"""

import base64
import gzip
import json
import secrets as randomness
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from hashlib import sha256
from typing import Any, Self

from pydantic import ValidationError

from freshgate_crds.compiled import Config, Revision
from freshgate_operator.cluster import Body, Cluster
from freshgate_operator.errors import ConfigTooLarge, Conflict, NameTaken
from freshgate_operator.kinds import SECRET
from freshgate_operator.metrics import Metrics
from freshgate_operator.names import MANAGED_BY, SECRET_TYPE, SERVES, child
from freshgate_operator.owners import Owner

CONFIG_FILE = "config.json.gz"
SCRAPE_FILE = "scrape-token"
"""No credential's file is called so: theirs hold an underscore."""

MAX_BYTES = 900 * 1024
"""Of all files together. An API server takes 1 MiB."""

RESTAMPS = 4
"""Entitlements are vouched for anew this many times within their validity."""


@dataclass(frozen=True, slots=True)
class Publication:
    """What is published of one workspace. `config` is None where it cannot be read any more."""

    secret: Body = field(repr=False)
    config: Config | None
    counter: int
    files: Mapping[str, bytes] = field(repr=False)

    @classmethod
    def of(cls, secret: Body) -> Self:
        files = {name: base64.b64decode(value) for name, value in (secret.get("data") or {}).items()}
        text = _unpacked(files.get(CONFIG_FILE, b""))
        return cls(secret, _config(text, secret), _counter(text), files)

    @property
    def scrape_token(self) -> str:
        return self.files.get(SCRAPE_FILE, b"").decode(errors="replace")

    @property
    def scrape_token_hash(self) -> str:
        return sha256(self.files.get(SCRAPE_FILE, b"")).hexdigest()[:16]

    def restamp_in(self, now: datetime) -> float | None:
        """Seconds; None where there is nothing to put a stamp on."""
        if self.config is None:
            return None
        entitlements = self.config.entitlements
        age = (now - entitlements.stamp).total_seconds()
        # A stamp out of the future, of a clock that was set since, would vouch for too long.
        return 0.0 if age < 0.0 else entitlements.max_age_seconds / RESTAMPS - age


def _unpacked(packed: bytes) -> Any:
    try:
        return json.loads(gzip.decompress(packed))
    except (OSError, EOFError, ValueError):
        return None


def _config(text: Any, secret: Body) -> Config | None:
    try:
        config = Config.model_validate_json(json.dumps(text))
    except ValidationError:
        return None
    metadata = secret["metadata"]
    here = config.namespace == metadata["namespace"] and child(config.workspace) == metadata["name"]
    return config if here else None


def _counter(text: Any) -> int:
    """Also of a form that this version cannot read: it must not be counted below."""
    try:
        return int(text["revision"]["counter"])
    except (TypeError, KeyError, ValueError):
        return 0


async def published(cluster: Cluster, namespace: str) -> dict[str, Body]:
    """The Secrets of all workspaces of a namespace, by their names."""
    found = await cluster.list(SECRET, namespace, fields=f"type={SECRET_TYPE}")
    return {secret["metadata"]["name"]: secret for secret in found}


def next_revision(owner: Owner, previous: Publication | None, now: datetime) -> Revision:
    """Where a Secret was lost its counter must not begin anew, for what was published is remembered elsewhere. No
    workspace is published in every millisecond of its life, so its age in milliseconds is beyond what was counted."""
    counted = previous.counter if previous else 0
    age = (now - owner.created) // timedelta(milliseconds=1)
    return Revision(workspace_uid=owner.uid, counter=counted + 1 if counted else max(1, age))


class Publisher:
    def __init__(self, cluster: Cluster, metrics: Metrics) -> None:
        self._cluster = cluster
        self._metrics = metrics

    async def publish(
        self, owner: Owner, config: Config, credentials: Mapping[str, bytes], previous: Publication | None
    ) -> Publication:
        """What is in force then. `config` bears the next revision and the stamp of its snapshot; `previous` is what the
        owner published last. Nothing is written where nothing changed and the last stamp is young. Raises
        PublicationRefused, ClusterError."""
        files = _with_scrape_token(credentials, previous)
        unchanged = previous is not None and files == _beside(previous) and _same(config, previous.config)
        if previous is not None and previous.config is not None and unchanged:
            if (previous.restamp_in(config.entitlements.stamp) or 0.0) > 0.0:
                return previous
            config = config.model_copy(update={"revision": previous.config.revision})
        written = await self._write(owner, {**files, CONFIG_FILE: _packed(config)}, previous)
        self._metrics.published(stamp_alone=unchanged)
        return Publication.of(written)

    async def _write(self, owner: Owner, files: Mapping[str, bytes], previous: Publication | None) -> Body:
        size = sum(map(len, files.values()))
        if size > MAX_BYTES:
            raise ConfigTooLarge(
                f"the compiled configuration and its credentials have {size} bytes, of {MAX_BYTES} that are allowed:"
                " divide the workspace, or name groups where its policies list people"
            )
        data = {name: base64.b64encode(value).decode() for name, value in sorted(files.items())}
        if previous is not None:
            return await self._cluster.replace(SECRET, {**previous.secret, "data": data})
        try:
            return await self._cluster.create(SECRET, _secret(owner, data))
        except Conflict:
            found = await self._cluster.get(SECRET, owner.namespace, owner.child)
            if found and not owner.owns(found):
                raise NameTaken(f"Secret {owner.child} belongs to something else: delete or rename it") from None
            raise


def _secret(owner: Owner, data: Mapping[str, str]) -> Body:
    metadata = owner.metadata({**MANAGED_BY, SERVES: owner.name})
    return {"apiVersion": "v1", "kind": "Secret", "metadata": metadata, "type": SECRET_TYPE, "data": data}


def _with_scrape_token(credentials: Mapping[str, bytes], previous: Publication | None) -> dict[str, bytes]:
    known = previous.files.get(SCRAPE_FILE) if previous else None
    return {**credentials, SCRAPE_FILE: known or randomness.token_urlsafe(32).encode()}


def _beside(previous: Publication) -> dict[str, bytes]:
    return {name: value for name, value in previous.files.items() if name != CONFIG_FILE}


def _same(config: Config, previous: Config | None) -> bool:
    """But for what says which publication it is."""
    if previous is None or config.revision.workspace_uid != previous.revision.workspace_uid:
        return False
    entitlements = config.entitlements.model_copy(update={"stamp": previous.entitlements.stamp})
    return config.model_copy(update={"revision": previous.revision, "entitlements": entitlements}) == previous


def _packed(config: Config) -> bytes:
    return gzip.compress(config.model_dump_json().encode(), mtime=0)
