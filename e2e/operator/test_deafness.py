"""A connection that dies in silence: nobody closes it, nothing comes through any more."""

import asyncio
import contextlib
import json
from collections.abc import AsyncIterator
from pathlib import Path
from urllib.parse import urlsplit

import aiohttp
import pytest
from freshgate_control_plane import Desk, Start, eventually
from freshgate_written import desk as written_desk
from freshgate_written import policy, source

from freshgate_operator import cluster, watching


class BlackHole:
    """A way to the API server on which connections can be made to die in silence."""

    def __init__(self, host: str, port: int) -> None:
        self._target = host, port
        self._tasks: set[asyncio.Task[None]] = set()
        self._writers: list[asyncio.StreamWriter] = []
        self.swallowed = 0

    async def serve(self) -> asyncio.Server:
        return await asyncio.start_server(self._accept, "127.0.0.1", 0)

    def swallow(self) -> None:
        """All that is open now; what is opened later passes."""
        for task in self._tasks:
            self.swallowed += not task.done()
            task.cancel()

    def close(self) -> None:
        for writer in self._writers:
            writer.transport.abort()

    async def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        far_reader, far_writer = await asyncio.open_connection(*self._target)
        self._writers += [writer, far_writer]
        ways = [(reader, far_writer), (far_reader, writer)]
        self._tasks |= {asyncio.create_task(_pass_on(*way)) for way in ways}


async def _pass_on(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """Cancelled, it leaves both ends open: neither of them learns of it."""
    with contextlib.suppress(ConnectionError):
        while data := await reader.read(65_536):
            writer.write(data)
            await writer.drain()
        writer.close()


@pytest.fixture
async def black_hole(desk: Desk) -> AsyncIterator[tuple[BlackHole, str]]:
    """And its URL."""
    config = json.loads(desk.plane.kubeconfig.read_text("utf-8"))
    server = urlsplit(config["clusters"][0]["cluster"]["server"])
    hole = BlackHole(str(server.hostname), int(server.port or 443))
    listening = await hole.serve()
    yield hole, f"https://127.0.0.1:{listening.sockets[0].getsockname()[1]}"
    listening.close()
    hole.close()


@pytest.fixture
def hurried(monkeypatch: pytest.MonkeyPatch) -> None:
    """Twenty times as fast as in earnest, so that a minute of silence takes seconds."""
    monkeypatch.setattr(watching, "STREAM_SECONDS", 2)
    monkeypatch.setattr(watching, "SILENT_SECONDS", 3)
    monkeypatch.setattr(watching, "CONNECT_SECONDS", 1)
    monkeypatch.setattr(cluster, "TIMEOUT", aiohttp.ClientTimeout(total=1.0))


async def test_after_every_connection_died_in_silence_an_edit_still_lands(
    desk: Desk, start: Start, hurried: None, black_hole: tuple[BlackHole, str], tmp_path: Path
) -> None:
    """Replay 33."""
    hole, url = black_hole
    config = json.loads(desk.plane.kubeconfig.read_text("utf-8"))
    config["clusters"][0]["cluster"]["server"] = url
    kubeconfig = tmp_path / "kubeconfig"
    kubeconfig.write_text(json.dumps(config), "utf-8")
    await desk.put(*written_desk(), policy())
    await start(kubeconfig)
    await eventually(desk.config, 15)
    hole.swallow()
    assert hole.swallowed >= 5
    await desk.put(source("tickets", ttl="9m"))

    async def landed() -> bool:
        return {each.name: each.ttl_seconds for each in (await desk.config()).sources}["tickets"] == 540.0

    await eventually(landed, 10)
