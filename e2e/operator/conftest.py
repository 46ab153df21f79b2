"""A real API server without a node, and the operator against it, in this process or as often as a test wants.

There are no controllers and no kubelet: Deployments get no pods, nothing is collected. A test makes the pods that it
needs, and plays what runs in them.
"""

import asyncio
import contextlib
import subprocess
import sys
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from dataclasses import replace
from itertools import count
from pathlib import Path
from typing import Any

import pytest
from aiohttp import web

sys.path.insert(0, str(Path(__file__).parent / "support"))

from freshgate_control_plane import CACHE, CHECKOUT, PODS_PORT, SETTINGS, ControlPlane, Desk, Start, eventually

from freshgate_operator import cluster as clusters
from freshgate_operator.cluster import Cluster
from freshgate_operator.kinds import NAMESPACE, SERVICE_ACCOUNT, WORKSPACE_KIND
from freshgate_operator.main import Operator, operating
from freshgate_operator.metrics import Metrics

TOOL = CHECKOUT / "e2e" / "cluster" / "cluster.py"


@pytest.fixture(scope="session")
def images() -> None:
    """No cluster with a node and images is needed here, as it is by the stories."""


@pytest.fixture(scope="session")
def control_plane(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ControlPlane]:
    if not all((CACHE / "bin" / name).exists() for name in ("etcd", "kube-apiserver", "kubectl")):
        pytest.skip("no API server is built: run python3 e2e/cluster/cluster.py build --control-plane-only")
    state = tmp_path_factory.mktemp("control-plane")
    verb = [sys.executable, str(TOOL)]
    where = ["--control-plane-only", "--state", str(state)]
    subprocess.run([*verb, "up", *where], check=True, capture_output=True)
    try:
        plane = ControlPlane(state / "kubeconfig")
        crds = [f"--filename={path}" for path in sorted((CHECKOUT / "crds").glob("*.yaml"))]
        plane.kubectl("apply", "--server-side", *crds)
        plane.kubectl("wait", "--for=condition=Established", "crd", "--all", "--timeout=30s")
        yield plane
    finally:
        subprocess.run([*verb, "down", *where], check=True, capture_output=True)


_numbers = count(1)


@pytest.fixture
async def admin(control_plane: ControlPlane) -> AsyncIterator[Cluster]:
    async with Cluster(await clusters.configuration(control_plane.kubeconfig), Metrics()) as made:
        yield made


@pytest.fixture
async def desk(control_plane: ControlPlane, admin: Cluster) -> AsyncIterator[Desk]:
    namespace = f"acme-{next(_numbers)}"
    await admin.create(NAMESPACE, {"metadata": {"name": namespace, "namespace": None}})
    made = Desk(control_plane, admin, namespace)
    await made.secret("support-db", dsn="postgresql://reader:hunter2@db.example:5433/desk")
    await made.secret("store", dsn="postgresql://store:hunter3@store.example/freshgate")
    yield made
    for name in ("support", "billing"):
        if await made.get(WORKSPACE_KIND, name):
            await made.delete(WORKSPACE_KIND, name)


@pytest.fixture
async def start(control_plane: ControlPlane, desk: Desk) -> AsyncIterator[Start]:
    """Starts an operator for the namespace of the test, watches and all. It ends with the test."""
    async with contextlib.AsyncExitStack() as stack:

        async def started(kubeconfig: Path = control_plane.kubeconfig, **changes: Any) -> Operator:
            settings = replace(SETTINGS, namespaces=(desk.namespace,))
            configured = await clusters.configuration(kubeconfig)
            operator = await stack.enter_async_context(operating(configured, replace(settings, **changes), Metrics()))
            running = asyncio.create_task(operator.run())
            stack.push_async_callback(_ended, running)
            return operator

        yield started


async def _ended(running: asyncio.Task[None]) -> None:
    running.cancel()
    with contextlib.suppress(asyncio.CancelledError):
        await running


@pytest.fixture
async def parts(control_plane: ControlPlane, desk: Desk) -> AsyncIterator[Callable[[], Awaitable[Operator]]]:
    """Operators whose parts a test works by hand: nothing runs by itself."""
    async with contextlib.AsyncExitStack() as stack:

        async def made() -> Operator:
            settings = replace(SETTINGS, namespaces=(desk.namespace,))
            configured = await clusters.configuration(control_plane.kubeconfig)
            operator = await stack.enter_async_context(operating(configured, settings, Metrics()))
            await operator.surroundings.refresh()
            stack.push_async_callback(operator.rollouts.close)
            return operator

        yield made


@pytest.fixture
async def service_pods(desk: Desk) -> AsyncIterator[Callable[..., Awaitable[None]]]:
    """Makes pods that are there and answer: with the revision that the Secret holds when they are asked."""
    runners: list[web.AppRunner] = []

    async def status(request: web.Request) -> web.Response:
        publication = await desk.publication()
        if request.headers.get("Authorization") != f"Bearer {publication.scrape_token}":
            return web.Response(status=401)
        assert publication.config is not None
        now = publication.config.entitlements.stamp.isoformat()
        row = {"objects": 1, "stale": 0, "last_success": now, "oldest_confirmed": now}
        sources = [{"name": source.name, **row} for source in publication.config.sources]
        revision = publication.config.revision.model_dump()
        return web.json_response({"ready": True, "revision": revision, "format": 1, "sources": sources})

    async def made(*addresses: str) -> None:
        await eventually(lambda: desk.get(SERVICE_ACCOUNT), 10)
        for number, address in enumerate(addresses, 1):
            application = web.Application()
            application.router.add_get("/status", status)
            runner = web.AppRunner(application)
            runners.append(runner)
            await runner.setup()
            await web.TCPSite(runner, address, PODS_PORT).start()
            await desk.pod(f"support-{number}", address)

    yield made
    for runner in runners:
        await runner.cleanup()
