"""`freshgate serve`: a workspace on this machine, from its manifests, with everything it needs around it."""

import contextlib
import secrets
from collections.abc import AsyncIterator

import click
from rich import progress as rich
from rich.console import Console

from freshgate_crds.manifests import choose_workspace, load_directory
from freshgate_service import logs
from freshgate_service.laptop import postgres
from freshgate_service.laptop.asking import program
from freshgate_service.laptop.files import in_use
from freshgate_service.laptop.publisher import ManifestPublisher, Place, needs_embedded_store
from freshgate_service.refresh.loop import Progress, silent
from freshgate_service.runtime import Options
from freshgate_service.serve import app, listen, ops
from freshgate_service.serving import Listen, Service

HOST = "127.0.0.1"
STORE_DATABASE = "freshgate_store"


async def serve_manifests(place: Place, *, verbose: bool) -> None:
    logs.configure("info" if verbose else "warning")
    with listen.stop_signals() as stop, in_use(place.data):
        async with store_for(place) as dsn:
            publisher = ManifestPublisher(place, dsn)
            with Bars() as bars:
                service = Service.of(publisher, laptop_options(bars))
                for refusal in publisher.refusals:
                    click.echo(f"refused: {refusal}", err=True)
                async with service.running(laptop_listen(place), OPEN, SETTINGS):
                    click.echo(_welcome(place, publisher), err=True)
                    await stop.wait()
                    click.echo("Stopping: what was asked is still answered.", err=True)


@contextlib.asynccontextmanager
async def laptop_service(place: Place, publisher: ManifestPublisher) -> AsyncIterator[Service]:
    """The same, for as long as the context lasts and whatever signals come."""
    service = Service.of(publisher, laptop_options())
    async with service.running(laptop_listen(place), OPEN, SETTINGS):
        yield service


def laptop_listen(place: Place) -> Listen:
    return Listen(HOST, place.port, HOST, place.ops_port)


OPEN = ops.Access(everybody=True)
SETTINGS = app.Settings(allowed_hosts=frozenset({"127.0.0.1", "localhost"}))
"""A page in a browser on this machine could otherwise reach the service under a name of its own."""


def laptop_options(progress: Progress = silent) -> Options:
    return Options(holder=f"laptop-{secrets.token_hex(4)}", allow_loopback=True, progress=progress)


@contextlib.asynccontextmanager
async def store_for(place: Place) -> AsyncIterator[str]:
    """The DSN of the embedded store, started only where the Workspace names none; empty otherwise."""
    manifests = load_directory(place.manifests)
    namespace, workspace = choose_workspace(manifests, place.workspace, place.namespace)
    if not needs_embedded_store(manifests, namespace, workspace):
        yield ""
        return
    with postgres.running(place.data / "postgres") as dsn:
        yield await postgres.database(dsn, STORE_DATABASE)


class Bars:
    """Progress on long passes over a source, on a terminal that is watched; silent elsewhere."""

    def __init__(self) -> None:
        self._bars = rich.Progress(
            rich.TextColumn("{task.description}"),
            rich.BarColumn(),
            rich.MofNCompleteColumn(),
            console=Console(stderr=True),
            transient=True,
        )
        self._tasks: dict[str, rich.TaskID] = {}

    def __enter__(self) -> "Bars":
        self._bars.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._bars.stop()

    def __call__(self, source: str, done: int, total: int) -> None:
        task = self._tasks.get(source)
        if task is None:
            task = self._tasks[source] = self._bars.add_task(f"reading {source}", total=total)
        self._bars.update(task, completed=done, total=total, visible=done < total)


def _welcome(place: Place, publisher: ManifestPublisher) -> str:
    data = f" --data {place.data}"
    return (
        f"Serving {publisher.namespace}/{publisher.workspace}: REST http://{HOST}:{place.port}/api/v1, "
        f"MCP http://{HOST}:{place.port}/api/mcp, metrics http://{HOST}:{place.ops_port}/metrics\n"
        f"A token: {program()} token{data} --user NAME --group GROUP\n"
        "Ctrl-C ends it."
    )
