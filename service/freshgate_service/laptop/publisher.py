"""Publishes a folder of manifests to the service in the same process, as the operator does in a cluster.

What is refused keeps its last good form, and is told; nothing else of what was written is held back by it.
"""

import asyncio
import uuid
from collections.abc import AsyncIterator, Collection, Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

from pydantic import ValidationError

from freshgate_crds.compile import (
    LOCAL_ISSUER,
    Compilation,
    IssuerKeys,
    compile_workspace,
    declared_issuers,
)
from freshgate_crds.compiled import KUBERNETES_ISSUER, Config, Credential, Revision
from freshgate_crds.errors import ManifestError
from freshgate_crds.manifests import WORKSPACE, Manifests, choose_workspace, files_of, load_directory
from freshgate_crds.secret_files import find_all
from freshgate_service.clock import boottime
from freshgate_service.domain import Now
from freshgate_service.errors import ConfigRefused
from freshgate_service.laptop.files import write_whole
from freshgate_service.laptop.issuers import Issuers
from freshgate_service.published import Published

CLUSTER_UID = "laptop"

EMBEDDED_STORE = Credential(secret="_embedded", key="dsn")  # noqa: S106 - a name, which no Secret can have
"""Stands for the embedded Postgres where the Workspace names no store."""

RESTAMPS = 4
"""Entitlements are vouched for anew this many times within their validity."""

LOOK_SECONDS = 0.5
"""How often the files are looked at. A change is taken up once two looks in a row saw the same: by then whoever writes
several files, or a folder anew, is done."""

MAX_SECRET_BYTES = 1024 * 1024
"""As in a cluster, where a Secret holds no more."""

State = tuple[tuple[str, int, int, int], ...]
"""Of each file its path, inode, size and time of change. Looking beats being notified: it does not mind where the files
are, on what kind of disk, nor whether a folder was replaced."""


@dataclass(frozen=True, slots=True)
class Place:
    """Where a workspace on a laptop comes from and is served."""

    manifests: Path
    secrets: Path | None
    data: Path
    workspace: str | None = None
    namespace: str | None = None
    port: int = 8080
    ops_port: int = 9090


class ManifestPublisher:
    """`embedded_store` is the DSN that takes the place of a store that the Workspace does not name."""

    def __init__(self, place: Place, embedded_store: str, *, now: Now = boottime, misses_secrets: bool = True) -> None:
        """`misses_secrets` is false for those who read no source."""
        self._misses_secrets = misses_secrets
        self._place = place
        self._now = now
        self._embedded_store = embedded_store
        self._issuers = Issuers(place.data)
        self._manifests = load_directory(place.manifests)
        self.namespace, self.workspace = choose_workspace(self._manifests, place.workspace, place.namespace)
        self._revisions = _Revisions(place.data / "revisions" / f"{self.namespace}_{self.workspace}.json")
        self._config: Config | None = None
        self._read: State = ()
        self._read_at = now()
        self.refusals: tuple[str, ...] = ()
        """What was refused of the manifests as they stand, a sentence each."""

    def current(self) -> Published:
        """Compiles the manifests as they stand. Raises ConfigRefused where nothing good is left."""
        stamp = datetime.now(UTC)  # before the folder is read: what is in force is at least as new
        self._read, self._read_at = self._state(), self._now()
        self._manifests = load_directory(self._place.manifests, self._manifests if self._config else None)
        if self._manifests.unknown:
            # A file that was never read could hold anything, a Deny or a source whose memory would be purged.
            raise ConfigRefused("\n".join(f"{each.place}: {each.problem}" for each in self._manifests.problems))
        secrets = self._secrets()
        compilation = self._compiled(stamp, secrets.keys() if self._misses_secrets else None)
        self.refusals = (
            *(f"{problem.place}: {problem.message}" for problem in self._manifests.problems),
            *(refusal.message for refusal in compilation.refusals),
        )
        if compilation.config is None:
            raise ConfigRefused("\n".join(self.refusals))
        return self._published(compilation.config, secrets)

    async def changes(self) -> AsyncIterator[Published | ConfigRefused]:
        """On every change of the manifests or the secrets since they were last read, and in time to vouch for the
        entitlements again."""
        known = self.refusals
        async for _ in self._due():
            try:
                published = self.current()
            except (ConfigRefused, ManifestError) as refused:
                yield ConfigRefused(str(refused))
                continue
            for refusal in self.refusals:
                if refusal not in known:
                    yield ConfigRefused(refusal)
            known = self.refusals
            yield published

    async def _due(self) -> AsyncIterator[None]:
        before = self._read
        while True:
            await asyncio.sleep(LOOK_SECONDS)
            seen, before = before, await asyncio.to_thread(self._state)
            if seen == before != self._read or self._now() - self._read_at >= self._restamp_seconds():
                yield

    def _state(self) -> State:
        return tuple(_state_of(self._place.manifests, self._place.secrets, self.namespace))

    def _restamp_seconds(self) -> float:
        return (self._config.entitlements.max_age_seconds if self._config else 60.0) / RESTAMPS

    def _compiled(self, stamp: datetime, available: Collection[Credential] | None) -> Compilation:
        whole = not self._manifests.problems
        return compile_workspace(
            self._manifests,
            self.workspace,
            self.namespace,
            cluster_uid=CLUSTER_UID,
            revision=self._revisions.next(),
            # Nobody vouches for what could not be read: the stamp stays as old as it is.
            stamp=stamp if whole or self._config is None else self._config.entitlements.stamp,
            previous=self._config,
            available=available,
            issuer_keys=self._issuer_keys(),
        )

    def _published(self, config: Config, secrets: Mapping[Credential, str]) -> Published:
        credentials = {name.file_name: value for name, value in secrets.items()}
        if config.store_dsn in (None, EMBEDDED_STORE):
            config = config.model_copy(update={"store_dsn": EMBEDDED_STORE})
            credentials[EMBEDDED_STORE.file_name] = self._embedded_store
        self._config = config
        self._issuers.remember(config.issuers)
        return Published(config, credentials)

    def _secrets(self) -> dict[Credential, str]:
        """Without those that cannot be read: whatever names one is refused by itself."""
        found = find_all(self._place.secrets, self.namespace) if self._place.secrets else {}
        return {name: value for name, path in found.items() if (value := _secret(path)) is not None}

    def _issuer_keys(self) -> dict[str, IssuerKeys]:
        declared = declared_issuers(self._manifests, self.workspace, self.namespace)
        named = {KUBERNETES_ISSUER, LOCAL_ISSUER, *declared}
        return {name: IssuerKeys(self._issuers.url(name), self._issuers.jwks(name)) for name in sorted(named)}


def _state_of(manifests: Path, secrets: Path | None, namespace: str) -> Iterator[tuple[str, int, int, int]]:
    """Nothing of a folder or a file that is not there: reading it says why."""
    try:
        files = [*files_of(manifests), *(find_all(secrets, namespace).values() if secrets else ())]
    except (ManifestError, OSError):
        return
    for file in files:
        try:
            found = file.stat()
        except OSError:
            continue
        yield str(file), found.st_ino, found.st_size, found.st_mtime_ns


def _secret(path: Path) -> str | None:
    try:
        return path.read_text("utf-8").strip() if path.stat().st_size <= MAX_SECRET_BYTES else None
    except (OSError, UnicodeDecodeError):
        return None


class _Revisions:
    """Counts on over restarts: the store refuses to go back."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def next(self) -> Revision:
        revision = self._last()
        revision = revision.model_copy(update={"counter": revision.counter + 1})
        write_whole(self._path, revision.model_dump_json())
        return revision

    def _last(self) -> Revision:
        """Where there is none that can be read, a Workspace made anew: its stamp tells that it is the later one."""
        try:
            return Revision.model_validate_json(self._path.read_bytes())
        except (FileNotFoundError, ValidationError):
            return Revision(workspace_uid=str(uuid.uuid4()), counter=0)


def needs_embedded_store(manifests: Manifests, namespace: str, workspace: str) -> bool:
    """Whether the Workspace names no store of its own."""
    bodies = [document.body for document in manifests.named(WORKSPACE, namespace, workspace)]
    return not any((body.get("spec") or {}).get("store") for body in bodies)
