"""One process that serves one workspace: the runtime behind both ports, from start to a clean end."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

from aiohttp import web

from freshgate_crds.compiled import KUBERNETES_ISSUER
from freshgate_service.domain import Name, SourceState
from freshgate_service.errors import ConfigRefused
from freshgate_service.logs import get_logger
from freshgate_service.metrics import Metrics
from freshgate_service.published import MountedSecret, Publisher
from freshgate_service.runtime import Options, Runtime
from freshgate_service.serve import app, listen, ops
from freshgate_service.serve.auth import Verifier

WAIT_SECONDS = 2.0

log = get_logger(__name__)


@dataclass(frozen=True, slots=True)
class Listen:
    host: str
    port: int
    ops_host: str
    ops_port: int
    drain_seconds: float = 0.0


@dataclass(frozen=True, slots=True)
class Service:
    """All that one process is made of."""

    runtime: Runtime
    verifier: Verifier
    metrics: Metrics

    @classmethod
    def of(cls, publisher: Publisher, options: Options) -> "Service":
        """Raises ConfigRefused where what is published first cannot be obeyed."""
        published = publisher.current()
        metrics = Metrics(published.config.workspace)
        verifier = Verifier(published.config.issuers)
        runtime = Runtime(
            published, publisher, options, metrics, in_force=lambda config: verifier.replace(config.issuers)
        )
        return cls(runtime, verifier, metrics)

    async def run(self, where: Listen, access: ops.Access, settings: app.Settings, stop: asyncio.Event) -> None:
        """Until `stop`; then whatever was accepted is answered, and reads under way land."""
        query, operations = self._applications(access, settings)
        async with self.runtime:
            await listen.serve(
                query,
                operations,
                host=where.host,
                port=where.port,
                ops_host=where.ops_host,
                ops_port=where.ops_port,
                drain_seconds=where.drain_seconds,
                stop=stop,
            )

    @asynccontextmanager
    async def running(self, where: Listen, access: ops.Access, settings: app.Settings) -> AsyncIterator[None]:
        """For as long as the context lasts, whatever signals come."""
        query, operations = self._applications(access, settings)
        async with (
            self.runtime,
            listen.listening(operations, where.ops_host, where.ops_port),
            listen.listening(query, where.host, where.port),
        ):
            listen.settle_memory()
            yield

    def _applications(self, access: ops.Access, settings: app.Settings) -> tuple[web.Application, web.Application]:
        query = app.build(self.runtime, self.verifier, self.metrics, settings)
        return query, ops.build(self.metrics, self.verifier, self.status, access)

    def status(self) -> ops.Status:
        """Never waits: for sources it tells what was counted last."""
        engine = self.runtime.loaded_engine
        if engine is None:
            return ops.Status(ready=False, revision=None, config_format=None)
        config = engine.published.config
        return ops.Status(
            ready=self.verifier.ready,
            revision=config.revision,
            config_format=config.format,
            sources=[
                ops.SourceStatus(
                    name,
                    counted.objects,
                    counted.stale,
                    state.last_success,
                    state.last_error,
                    counted.oldest_confirmed,
                    state.last_error_at,
                )
                for name, counted in sorted(engine.census.items())
                if (state := engine.states.get(name, SourceState()))
            ],
        )


async def serve_published(folder: Path, where: Listen, *, sidecar: bool, holder: str, scrape: "Scrape") -> None:
    """What the image runs, on the configuration that the operator published into a mounted Secret."""
    publisher, access = MountedSecret(folder), scrape.access()
    with listen.stop_signals() as stop:
        await _until_published(publisher, where, access, stop)
        if not stop.is_set():
            service = Service.of(publisher, Options(holder=holder, runs_loop=not sidecar))
            await service.run(where, access, app.Settings(), stop)


async def _until_published(publisher: Publisher, where: Listen, access: ops.Access, stop: asyncio.Event) -> None:
    """Live and not ready, for as long as there is nothing to obey: a restart would not mend it."""
    waiting = ops.build(Metrics(""), None, lambda: ops.Status(ready=False, revision=None, config_format=None), access)
    async with listen.listening(waiting, where.ops_host, where.ops_port):
        while not stop.is_set() and (problem := _problem_of(publisher)) is not None:
            log.error("config_refused", problem=problem)
            with suppress(TimeoutError):
                await asyncio.wait_for(stop.wait(), WAIT_SECONDS)


def _problem_of(publisher: Publisher) -> str | None:
    try:
        publisher.current()
    except ConfigRefused as refused:
        return str(refused)
    return None


@dataclass(frozen=True, slots=True)
class Scrape:
    """Who may read metrics and status: holders of the token in a file, and ServiceAccounts as `namespace/name`."""

    token_file: Path | None = None
    accounts: tuple[str, ...] = ()

    def access(self) -> ops.Access:
        token = self.token_file.read_text("utf-8").strip() if self.token_file else None
        return ops.Access(token, frozenset(Name(KUBERNETES_ISSUER, account) for account in self.accounts))
