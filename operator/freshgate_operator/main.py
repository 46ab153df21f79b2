"""The composition root: builds the operator of its parts and runs them side by side, until one ends or it is told to.

None of the parts is meant to end; where one does, the process does, and its kubelet starts another, which finds all
that it needs in the cluster.
"""

import asyncio
import random
import signal
import socket
import time
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import asynccontextmanager
from dataclasses import dataclass
from datetime import UTC, datetime

import aiohttp
from aiohttp import web
from kubernetes.aio.client import Configuration

from freshgate_operator import facts, ops, watching
from freshgate_operator.cluster import Cluster
from freshgate_operator.errors import ClusterError, OperatorError
from freshgate_operator.facts import Surroundings
from freshgate_operator.heartbeat import Heartbeat
from freshgate_operator.kinds import WORKSPACE_KIND, WRITTEN
from freshgate_operator.logs import get_logger
from freshgate_operator.metrics import Metrics
from freshgate_operator.observing import Observer
from freshgate_operator.pods import Reporters
from freshgate_operator.publish import Publisher
from freshgate_operator.queue import ANY, Key, Queue
from freshgate_operator.reconcile import Reconciler
from freshgate_operator.records import Records
from freshgate_operator.settings import Settings
from freshgate_operator.status import Statuses
from freshgate_operator.touch import Rollouts

WORKERS = 4
FULL_PASS_SECONDS = 300.0
FACTS_SECONDS = 60.0
RETRY_SECONDS = 2.0

log = get_logger(__name__)


def _clock() -> datetime:
    return datetime.now(UTC)


@dataclass(frozen=True, slots=True)
class Operator:
    """All that one process is made of."""

    configured: Configuration
    settings: Settings
    cluster: Cluster
    metrics: Metrics
    queue: Queue
    records: Records
    surroundings: Surroundings
    heartbeat: Heartbeat
    observer: Observer
    rollouts: Rollouts
    reconciler: Reconciler

    @classmethod
    def of(
        cls,
        configured: Configuration,
        settings: Settings,
        cluster: Cluster,
        metrics: Metrics,
        session: aiohttp.ClientSession,
    ) -> "Operator":
        holder, now = socket.gethostname(), time.monotonic
        queue, records, surroundings = Queue(now), Records(), Surroundings(cluster)
        statuses = Statuses(cluster, metrics, clock=_clock, now=now, instance=holder)
        observer = Observer(
            cluster,
            settings,
            surroundings=surroundings,
            records=records,
            reporters=Reporters(session, settings.ops_port),
            statuses=statuses,
            queue=queue,
        )
        rollouts = Rollouts(cluster, observer, records, touch=settings.touch_pods)
        reconciler = Reconciler(
            cluster,
            settings,
            surroundings=surroundings,
            records=records,
            publisher=Publisher(cluster, metrics),
            statuses=statuses,
            rollouts=rollouts,
            queue=queue,
            clock=_clock,
        )
        heartbeat = Heartbeat(cluster, settings.lease_namespace, holder=holder, clock=_clock, now=now)
        metrics.watch_queue(queue.dirty, queue.oldest_age)
        metrics.watch_heartbeat(heartbeat.age)
        return cls(
            configured,
            settings,
            cluster,
            metrics,
            queue,
            records,
            surroundings,
            heartbeat,
            observer,
            rollouts,
            reconciler,
        )

    async def run(self) -> None:
        """Until cancelled. Raises ExceptionGroup where a part ended."""
        await self._wait_for_cluster()
        try:
            async with asyncio.TaskGroup() as tasks:
                tasks.create_task(watching.watch(self._handlers(), self.configured, self.settings), name="watches")
                tasks.create_task(self.heartbeat.run(), name="heartbeat")
                tasks.create_task(self.observer.run(), name="observer")
                tasks.create_task(self._follow_facts(), name="facts")
                tasks.create_task(self._pass_over_all(), name="full pass")
                for number in range(WORKERS):
                    tasks.create_task(self._work(), name=f"worker {number}")
        finally:
            await self.rollouts.close()

    async def _wait_for_cluster(self) -> None:
        """What is not read yet would be taken for absent, and what is not installed would never be watched."""
        while True:
            try:
                await facts.insist_on_kinds(self.cluster)
                await self.surroundings.refresh()
            except ClusterError as error:
                log.warning("waiting_for_cluster", exc_info=error)
                await asyncio.sleep(RETRY_SECONDS)
            else:
                return

    def _handlers(self) -> watching.Handlers:
        loop = asyncio.get_running_loop()
        return watching.Handlers(
            changed=lambda key: _soon(loop, self.queue.mark, key),
            beaten=lambda lease: _soon(loop, self.heartbeat.see, lease),
        )

    async def _work(self) -> None:
        while True:
            work = await self.queue.take()
            failed = work.workspaces
            try:
                with self.metrics.reconciling():
                    failed = await self.reconciler.reconcile(work)
            except ClusterError as error:
                log.warning("not_reconciled", namespace=work.namespace, exc_info=error)
            except Exception as error:  # one tenant's namespace must not stop all others
                log.error("reconcile_broke", namespace=work.namespace, exc_info=error)
            finally:
                self.metrics.failed(len(failed))
                self.queue.done(work, failed)

    async def _follow_facts(self) -> None:
        while True:
            await asyncio.sleep(FACTS_SECONDS)
            try:
                if await self.surroundings.refresh():
                    await self.mark_all()
            except ClusterError as error:
                log.warning("facts_unknown", exc_info=error)

    async def _pass_over_all(self) -> None:
        """What no watch told of is found all the same."""
        while True:
            await asyncio.sleep(FULL_PASS_SECONDS * random.uniform(0.8, 1.2))  # noqa: S311  # jitter, no secret
            try:
                await self.mark_all()
            except ClusterError as error:
                log.warning("no_full_pass", exc_info=error)

    async def mark_all(self) -> None:
        """All that is to be looked at again, as the API server has it. Raises ClusterError."""
        for kind in WRITTEN:
            for scope in self.settings.scopes:
                for body in await self.cluster.list(kind, scope, metadata_only=True):
                    metadata = body["metadata"]
                    workspace = metadata["name"] if kind is WORKSPACE_KIND else ANY
                    self.queue.mark_later(Key(metadata["namespace"], workspace), 0.0)


def _soon(loop: asyncio.AbstractEventLoop, call: Callable[..., None], argument: object) -> None:
    """From kopf's thread. At the end the loop may be gone, and nobody waits for news any more."""
    if not loop.is_closed():
        loop.call_soon_threadsafe(call, argument)


@asynccontextmanager
async def operating(configured: Configuration, settings: Settings, metrics: Metrics) -> AsyncIterator[Operator]:
    """An operator that is connected, and does nothing yet."""
    async with (
        Cluster(configured, metrics) as cluster,
        aiohttp.ClientSession(auto_decompress=False) as session,
    ):
        yield Operator.of(configured, settings, cluster, metrics, session)


async def run(configured: Configuration, settings: Settings, *, host: str, port: int) -> None:
    """Until SIGTERM or SIGINT. Raises OperatorError where a part of it ended by itself."""
    metrics = Metrics()
    async with operating(configured, settings, metrics) as operator:
        application = ops.build(metrics, is_alive=lambda: operator.heartbeat.is_heard)
        async with _listening(application, host, port):
            try:
                await _until_told(operator.run())
            except ExceptionGroup as group:
                for error in group.exceptions:
                    log.error("part_broke", exc_info=error)
                raise OperatorError("a part of the operator broke; its log says which") from None


async def _until_told(work: Coroutine[None, None, None]) -> None:
    loop, running = asyncio.get_running_loop(), asyncio.ensure_future(work)
    for name in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(name, running.cancel)
    try:
        await running
    except asyncio.CancelledError:
        log.info("stopped")


@asynccontextmanager
async def _listening(application: web.Application, host: str, port: int) -> AsyncIterator[None]:
    runner = web.AppRunner(application, access_log=None)
    await runner.setup()
    try:
        await web.TCPSite(runner, host, port).start()
        log.info("listening", host=host, port=port)
        yield
    finally:
        await runner.cleanup()
