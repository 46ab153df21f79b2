"""Puts the demo on: starts what it needs, plays the story, and says how to go on."""

import asyncio
import inspect
import shutil
from collections.abc import Awaitable, Callable
from contextlib import AsyncExitStack
from importlib import resources
from pathlib import Path

import aiohttp
import click

from freshgate_service import logs
from freshgate_service.laptop.asking import program
from freshgate_service.laptop.demo.desk import Desk
from freshgate_service.laptop.demo.story import STEPS, Stage, Step
from freshgate_service.laptop.files import in_use
from freshgate_service.laptop.issuers import Issuers
from freshgate_service.laptop.publisher import ManifestPublisher, Place
from freshgate_service.laptop.serving import HOST, laptop_service, store_for
from freshgate_service.runtime import Runtime
from freshgate_service.serve import listen

ISSUER = "corp"
TOKEN_SECONDS = 3600.0
PEOPLE = {
    "ana": ("ana@desk.example", "emea-support"),
    "bob": ("bob@desk.example", "amer-support"),
    "zoe": ("zoe@desk.example", ""),
}
"""Name and group. Zoe's group is granted nothing, for she has none."""

AGENT = "bots/helper"


async def tell(data: Path, port: int, ops_port: int, *, stay: bool) -> bool:
    """Plays the story; whether everything was as promised. With `stay` all keeps running until interrupted. A signal
    ends it in order, servers and all, and then raises KeyboardInterrupt."""
    with listen.stop_signals() as stop:
        story = asyncio.ensure_future(_tell(data, port, ops_port, stay=stay))
        stopped = asyncio.ensure_future(stop.wait())
        await asyncio.wait({story, stopped}, return_when=asyncio.FIRST_COMPLETED)
        stopped.cancel()
        if story.done():
            return story.result()
        story.cancel()
        await asyncio.wait({story})
        raise KeyboardInterrupt


async def _tell(data: Path, port: int, ops_port: int, *, stay: bool) -> bool:
    logs.configure("critical")
    place = Place(data / "manifests", data / "secrets", data, port=port, ops_port=ops_port)
    click.echo("Starting two Postgres servers, the desk's and the store's, and the service between them …")
    async with AsyncExitStack() as stack:
        stack.enter_context(in_use(data))
        for folder in ("desk", "postgres"):  # each run tells the story from its beginning
            shutil.rmtree(place.data / folder, ignore_errors=True)
        desk = await stack.enter_async_context(Desk(data / "desk"))
        _write_manifests(place, desk.dsn)
        dsn = await stack.enter_async_context(store_for(place))
        service = await stack.enter_async_context(laptop_service(place, ManifestPublisher(place, dsn)))
        await asyncio.wait_for(_first_pass(service.runtime), timeout=30)
        held = await _play(place, desk, service.runtime)
        click.echo(_farewell(place, stay=stay))
        if stay:
            await asyncio.Event().wait()
    return held


def _write_manifests(place: Place, desk_dsn: str) -> None:
    """The manifests that come with the package, and the one secret that they name."""
    with resources.as_file(resources.files(__package__).joinpath("manifests")) as folder:
        shutil.copytree(folder, place.manifests, dirs_exist_ok=True)
    secret = place.data / "secrets" / "desk" / "dsn"
    secret.parent.mkdir(parents=True, exist_ok=True)
    secret.touch(mode=0o600)
    secret.write_text(desk_dsn)


async def _first_pass(runtime: Runtime) -> None:
    """Until the loop has read every source once."""
    await runtime.loaded.wait()
    while len(runtime.engine.memory.complete) < len(runtime.engine.memory.specs):
        await runtime.engine.store.notified(0.1)


async def _play(place: Place, desk: Desk, runtime: Runtime) -> bool:
    async with aiohttp.ClientSession() as session:
        stage = Stage(
            url=f"http://{HOST}:{place.port}",
            ops_url=f"http://{HOST}:{place.ops_port}",
            tokens=_tokens(Issuers(place.data)),
            desk=desk,
            runtime=runtime,
            session=session,
        )
        kept = [await _show(number, act, stage) for number, act in enumerate(STEPS, 1)]
    click.echo(f"\n{sum(kept)} of {len(kept)} as promised.")
    return all(kept)


def _tokens(issuers: Issuers) -> dict[str, str]:
    people = {
        name: issuers.user_token(ISSUER, user, [group] if group else [], {}, TOKEN_SECONDS)
        for name, (user, group) in PEOPLE.items()
    }
    return {**people, "helper": issuers.service_account_token(AGENT, {}, TOKEN_SECONDS)}


async def _show(number: int, act: Callable[[Stage], Awaitable[Step]], stage: Stage) -> bool:
    click.echo(f"\n{number}. {inspect.getdoc(act)}")
    step = await act(stage)
    click.echo(f"   {'✓' if step.held else '✗ NOT AS PROMISED:'} {step.saw}")
    return step.held


def _farewell(place: Place, *, stay: bool) -> str:
    ana, group = PEOPLE["ana"]
    freshgate = program()
    ask = (
        f"  export FRESHGATE_TOKEN=$({freshgate} token --data {place.data} --user {ana} --group {group})\n"
        f'  {freshgate} search --url http://{HOST}:{place.port} "refund invoice"\n'
        f"  MCP clients: http://{HOST}:{place.port}/api/mcp, with the header Authorization: Bearer $FRESHGATE_TOKEN"
    )
    if stay:
        return f"\nAll of it runs on, until Ctrl-C. In another terminal:\n{ask}"
    return (
        f"\nThe manifests are in {place.manifests}. To go on, keep it running with\n  {freshgate} demo --stay\n"
        f"and in another terminal:\n{ask}\n"
        f"For records of your own, write manifests like these: {freshgate} serve -f MANIFESTS --secrets SECRETS"
    )
